#include "daemon/protocol/trust.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "jit/locations.h"

namespace tilewright::protocol {
namespace {

std::string wanted(uid_t also) {
  std::string text = fmt::format("{}", geteuid());
  if (also != 0 && also != geteuid()) text += fmt::format(", {}", also);
  if (geteuid() != 0) text += " or 0";
  return text;
}

bool inside(const std::filesystem::path& path, const std::filesystem::path& folder) {
  auto at = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  return at.first == folder.end();
}

}  // namespace

bool trusted(uid_t uid, uid_t also) { return uid == geteuid() || uid == 0 || uid == also; }

Result<void> check_folder(const std::filesystem::path& folder, uid_t also) {
  std::error_code none;
  if (folder != jit::runtime_folder() ||
      !inside(folder, std::filesystem::temp_directory_path(none)) || none)
    return {};
  struct stat status {};
  if (lstat(folder.c_str(), &status) != 0) {
    if (errno == ENOENT) return {};
    return fail(ErrorCode::kIo, fmt::format("{}: {}", folder.string(), std::strerror(errno)));
  }
  if (!S_ISDIR(status.st_mode))
    return fail(ErrorCode::kPermission, fmt::format("{}: is no folder", folder.string()));
  if (!trusted(status.st_uid, also)) {
    return fail(ErrorCode::kPermission, fmt::format("{}: belongs to uid {}, expected {}",
                                                    folder.string(), status.st_uid, wanted(also)));
  }
  if ((status.st_mode & 0022) != 0) {
    return fail(ErrorCode::kPermission,
                fmt::format("{}: has mode {:04o}, expected one that lets nobody else write",
                            folder.string(), status.st_mode & 0777));
  }
  return {};
}

Result<void> check_server(int socket, const std::filesystem::path& path, uid_t also) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
    return fail(ErrorCode::kIo, fmt::format("SO_PEERCRED: {}", std::strerror(errno)));
  if (trusted(peer.uid, also)) return {};
  return fail(ErrorCode::kPermission, fmt::format("daemon at {}: is of uid {}, expected {}",
                                                  path.string(), peer.uid, wanted(also)));
}

}  // namespace tilewright::protocol
