#include "daemon/socket_file.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "daemon/protocol/channel.h"

namespace tilewright::daemon {
namespace {

/// How long a daemon that has closed its socket may take to end.
constexpr std::chrono::seconds kEnding{10};

tl::unexpected<Error> failed(const std::filesystem::path& path, std::string_view what) {
  int error = errno;
  return fail(error == EACCES || error == EPERM ? ErrorCode::kPermission : ErrorCode::kIo,
              fmt::format("{}: {}: {}", path.string(), what, std::strerror(error)));
}

/// Whoever may write to the folder may put a socket of his own there.
Result<void> make_folder(const std::filesystem::path& folder, unsigned mode) {
  std::error_code ignored;
  if (folder.has_parent_path()) std::filesystem::create_directories(folder.parent_path(), ignored);
  if (mkdir(folder.c_str(), mode) == 0) {
    if (chmod(folder.c_str(), mode) != 0) return failed(folder, "chmod");
  } else if (errno != EEXIST) {
    return failed(folder, "mkdir");
  }
  struct stat status {};
  if (stat(folder.c_str(), &status) != 0) return failed(folder, "stat");
  if (!S_ISDIR(status.st_mode))
    return fail(ErrorCode::kIo, fmt::format("{}: is no folder", folder.string()));
  if (status.st_uid != geteuid()) {
    return fail(ErrorCode::kPermission, fmt::format("{}: belongs to uid {}, expected {}",
                                                    folder.string(), status.st_uid, geteuid()));
  }
  unsigned others = status.st_mode & 0022 & ~mode;
  if (others != 0) {
    return fail(ErrorCode::kPermission, fmt::format("{}: has mode {:04o}, expected {:04o}",
                                                    folder.string(), status.st_mode & 0777, mode));
  }
  return {};
}

Result<sockaddr_un> address_of(const std::filesystem::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.native().size() >= sizeof address.sun_path) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("socket path has {} bytes, expected at most {}: {}",
                            path.native().size(), sizeof address.sun_path - 1, path.string()));
  }
  std::memcpy(address.sun_path, path.c_str(), path.native().size());
  return address;
}

bool somebody_listens(const sockaddr_un& address) {
  protocol::FileDescriptor probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

Result<jit::OwnerLock> take_lock(const std::filesystem::path& path, const sockaddr_un& address) {
  auto deadline = std::chrono::steady_clock::now() + kEnding;
  for (;;) {
    auto lock =
        jit::OwnerLock::take(path.string() + ".lock", fmt::format("socket {}", path.string()));
    if (lock || lock.error().code != ErrorCode::kBusy || somebody_listens(address)) return lock;
    // Its holder is about to serve, or about to end.
    if (std::chrono::steady_clock::now() > deadline) return lock;
    usleep(10'000);
  }
}

}  // namespace

Result<SocketFile> SocketFile::reserve(const SocketConfig& config) {
  SocketFile file;
  file.path_ = config.path.empty() ? protocol::default_socket() : config.path;
  file.mode_ = config.allowed_uids.empty() ? 0600 : 0666;
  TILEWRIGHT_ASSIGN_OR_RETURN(sockaddr_un address, address_of(file.path_));
  TILEWRIGHT_TRY(make_folder(file.path_.parent_path(), config.directory_mode));
  TILEWRIGHT_ASSIGN_OR_RETURN(file.lock_, take_lock(file.path_, address));
  return file;
}

Result<void> SocketFile::listen() {
  TILEWRIGHT_ASSIGN_OR_RETURN(sockaddr_un address, address_of(path_));
  // The lock is ours, so whatever file is there was left by a daemon that is gone.
  unlink(path_.c_str());
  protocol::FileDescriptor made(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!made) return failed(path_, "socket");
  if (bind(made.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    return failed(path_, "bind");
  socket_ = std::move(made);
  // The folder and the peer's credentials decide who may connect.
  if (chmod(path_.c_str(), mode_) != 0) return failed(path_, "chmod");
  if (::listen(socket_.get(), 128) != 0) return failed(path_, "listen");
  return {};
}

void SocketFile::close() {
  if (!socket_) return;
  unlink(path_.c_str());
  socket_ = {};
}

Result<void> check_peer(int socket, const SocketConfig& config) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
    return fail(ErrorCode::kIo, fmt::format("SO_PEERCRED: {}", std::strerror(errno)));
  const auto& allowed = config.allowed_uids;
  if (peer.uid == geteuid() || peer.uid == 0 ||
      std::find(allowed.begin(), allowed.end(), peer.uid) != allowed.end())
    return {};
  return fail(ErrorCode::kPermission,
              fmt::format("uid {} of process {} may not connect", peer.uid, peer.pid));
}

}  // namespace tilewright::daemon
