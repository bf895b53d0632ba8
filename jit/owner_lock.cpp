#include "jit/owner_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace tilewright::jit {
namespace {

std::string read_holder(int file) {
  char text[64] = {};
  ssize_t length = pread(file, text, sizeof text - 1, 0);
  std::string holder(text, length > 0 ? std::size_t(length) : 0);
  while (!holder.empty() && holder.back() == '\n') holder.pop_back();
  return holder;
}

}  // namespace

Result<OwnerLock> OwnerLock::take(const std::filesystem::path& file, std::string_view what,
                                  std::chrono::milliseconds wait) {
  auto deadline = std::chrono::steady_clock::now() + wait;
  OwnerLock lock;
  lock.file_ = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (lock.file_ < 0) {
    int error = errno;
    return fail(error == EACCES ? ErrorCode::kPermission : ErrorCode::kIo,
                fmt::format("{}: cannot be opened: {}", file.string(), std::strerror(error)));
  }
  while (flock(lock.file_, LOCK_EX | LOCK_NB) != 0) {
    int error = errno;
    if (error == EINTR) continue;
    if (error != EWOULDBLOCK) {
      return fail(ErrorCode::kIo,
                  fmt::format("{}: cannot be locked: {}", file.string(), std::strerror(error)));
    }
    if (std::chrono::steady_clock::now() < deadline) {
      usleep(10'000);
      continue;
    }
    // The holder writes its pid right after it has the lock.
    std::string holder;
    for (int attempt = 0; attempt < 50 && holder.empty(); ++attempt) {
      holder = read_holder(lock.file_);
      if (holder.empty()) usleep(1000);
    }
    return fail(ErrorCode::kBusy, fmt::format("{} is in use by process {}", what,
                                              holder.empty() ? "unknown" : holder));
  }
  lock.held_ = true;
  std::string self = fmt::format("{}\n", getpid());
  if (ftruncate(lock.file_, 0) != 0 ||
      pwrite(lock.file_, self.data(), self.size(), 0) != ssize_t(self.size())) {
    return fail(ErrorCode::kIo,
                fmt::format("{}: cannot be written: {}", file.string(), std::strerror(errno)));
  }
  return lock;
}

OwnerLock::OwnerLock(OwnerLock&& other) noexcept
    : file_(std::exchange(other.file_, -1)), held_(other.held_) {}

OwnerLock& OwnerLock::operator=(OwnerLock&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(held_, other.held_);
  return *this;
}

OwnerLock::~OwnerLock() {
  if (file_ < 0) return;
  // Emptied while still held, so that the next holder's pid is never taken for ours.
  if (held_) (void)!ftruncate(file_, 0);
  close(file_);
}

}  // namespace tilewright::jit
