/// The daemon's listening socket: a folder of the user's own, a lock that says who serves it, and a
/// socket file that a dead daemon may have left behind.
#pragma once

#include <filesystem>

#include "daemon/config.h"
#include "daemon/protocol/memory_file.h"
#include "jit/owner_lock.h"

namespace tilewright::daemon {

class SocketFile {
 public:
  /// Takes the lock: no other daemon will serve there. Makes the folder with config.directory_mode if
  /// it is not there. Errors: kPermission when the folder is somebody else's or writable by others,
  /// kBusy with the pid of the daemon that serves it, kInvalidArgument (a path that is too long),
  /// kIo. A daemon that serves no more and is about to end is waited for.
  static Result<SocketFile> reserve(const SocketConfig& config);
  /// From here on, clients can connect; they wait until they are accepted.
  Result<void> listen();
  /// No more clients: removes the file. The lock stays until the end.
  void close();

  SocketFile(SocketFile&&) noexcept = default;
  SocketFile& operator=(SocketFile&&) noexcept = default;
  ~SocketFile() { close(); }

  const std::filesystem::path& path() const { return path_; }
  int descriptor() const { return socket_.get(); }

 private:
  SocketFile() = default;
  std::filesystem::path path_;
  unsigned mode_ = 0600;
  jit::OwnerLock lock_;
  protocol::FileDescriptor socket_;
};

/// May whoever is at the other end of `socket` talk to us? Errors: kPermission names the uid.
Result<void> check_peer(int socket, const SocketConfig& config);

}  // namespace tilewright::daemon
