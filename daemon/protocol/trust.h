/// Whom a client believes: a plan is code, so a socket that somebody else put there must not be
/// listened to.
#pragma once

#include <sys/types.h>

#include <filesystem>

#include "jit/result.h"

namespace tilewright::protocol {

/// `uid` is this process's user, root, or `also` (0: nobody else).
bool trusted(uid_t uid, uid_t also);

/// Of the user's own folder under the system's temporary one, where anybody could have made it: it
/// belongs to a trusted user, and nobody else may write to it. Other places are left to whoever chose
/// them, and one that is not there to whoever connects. Errors: kPermission, kIo.
Result<void> check_folder(const std::filesystem::path& folder, uid_t also);

/// Of a connected socket: a trusted user listens there. Errors: kPermission names the uid; kIo.
Result<void> check_server(int socket, const std::filesystem::path& path, uid_t also);

}  // namespace tilewright::protocol
