#include "search/measure/lease.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace tilewright::search {
namespace {

std::string file_name(const std::string& device) {
  std::string name = "device-";
  for (char c : device) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    name += plain ? c : '_';
  }
  return name + ".lock";
}

Result<void> make_private_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder.parent_path(), error);
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    return fail(ErrorCode::kIo,
                fmt::format("cannot make {}: {}", folder.string(), std::strerror(errno)));
  struct stat status {};
  if (::lstat(folder.c_str(), &status) != 0)
    return fail(ErrorCode::kIo,
                fmt::format("cannot read {}: {}", folder.string(), std::strerror(errno)));
  // In a world-writable parent somebody else may have been there first.
  if (!S_ISDIR(status.st_mode) || status.st_uid != ::geteuid())
    return fail(ErrorCode::kPermission,
                fmt::format("{} belongs to uid {}, expected a folder of uid {}", folder.string(),
                            status.st_uid, ::geteuid()));
  return {};
}

std::string holder(int file) {
  char text[32] = {};
  const ssize_t length = ::pread(file, text, sizeof text - 1, 0);
  return length > 0 ? std::string(text, std::strcspn(text, "\n")) : "unknown";
}

}  // namespace

Result<Lease> Lease::take(const std::filesystem::path& folder, const std::string& device) {
  TILEWRIGHT_TRY(make_private_folder(folder));
  const std::filesystem::path path = folder / file_name(device);
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0)
    return fail(ErrorCode::kIo,
                fmt::format("cannot open {}: {}", path.string(), std::strerror(errno)));
  Lease lease(file);
  if (::flock(file, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK)
      return fail(ErrorCode::kBusy, fmt::format("device {} is leased by process {} ({})", device,
                                                holder(file), path.string()));
    return fail(ErrorCode::kIo,
                fmt::format("cannot lock {}: {}", path.string(), std::strerror(errno)));
  }
  const std::string pid = fmt::format("{}\n", ::getpid());
  if (::ftruncate(file, 0) != 0 ||
      ::pwrite(file, pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size()))
    return fail(ErrorCode::kIo,
                fmt::format("cannot write {}: {}", path.string(), std::strerror(errno)));
  return lease;
}

Lease::Lease(Lease&& other) noexcept : file_(std::exchange(other.file_, -1)) {}

Lease& Lease::operator=(Lease&& other) noexcept {
  std::swap(file_, other.file_);
  return *this;
}

Lease::~Lease() {
  if (file_ >= 0) ::close(file_);
}

}  // namespace tilewright::search
