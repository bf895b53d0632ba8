#include "daemon/protocol/memory_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace tilewright::protocol {
namespace {

/// Up to here a copy costs less than a mapping, its page faults and its end.
constexpr std::size_t kCopiedBytes = 256 << 10;

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;

tl::unexpected<Error> failed(std::string_view call) {
  int error = errno;
  return fail(error == ENOMEM || error == ENOSPC ? ErrorCode::kOutOfMemory : ErrorCode::kIo,
              fmt::format("memory file: {}: {}", call, std::strerror(error)));
}

}  // namespace

FileDescriptor::FileDescriptor(FileDescriptor&& other) noexcept
    : value_(std::exchange(other.value_, -1)) {}
FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  std::swap(value_, other.value_);
  return *this;
}
FileDescriptor::~FileDescriptor() {
  if (value_ >= 0) close(value_);
}
int FileDescriptor::release() { return std::exchange(value_, -1); }

Result<FileDescriptor> make_memory_file(std::string_view name, std::string_view bytes) {
  FileDescriptor file(memfd_create(std::string(name).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) return failed("memfd_create");
  for (std::size_t at = 0; at < bytes.size();) {
    ssize_t written = pwrite(file.get(), bytes.data() + at, bytes.size() - at, off_t(at));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return failed("pwrite");
    at += std::size_t(written);
  }
  if (fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) return failed("F_ADD_SEALS");
  return file;
}

Result<MappedFile> MappedFile::map(const FileDescriptor& file, std::size_t bytes) {
  constexpr int kNeeded = F_SEAL_SHRINK | F_SEAL_WRITE;
  int seals = fcntl(file.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kNeeded) != kNeeded)
    return fail(ErrorCode::kCorrupt, "memory file is not sealed against change");
  MappedFile mapped;
  std::size_t seen;
  if (bytes <= kCopiedBytes) {
    // One more than expected, to see that there is no more. Uninitialised on purpose.
    mapped.copy_.reset(new char[bytes + 1]);
    ssize_t count = pread(file.get(), mapped.copy_.get(), bytes + 1, 0);
    if (count < 0) return failed("pread");
    seen = std::size_t(count);
    if (seen > bytes) {
      struct stat status {};
      if (fstat(file.get(), &status) == 0) seen = std::size_t(status.st_size);
    }
  } else {
    struct stat status {};
    if (fstat(file.get(), &status) != 0) return failed("fstat");
    seen = std::size_t(status.st_size);
  }
  if (seen != bytes) {
    return fail(ErrorCode::kCorrupt,
                fmt::format("memory file has {} bytes, expected {}", seen, bytes));
  }
  if (mapped.copy_) {
    mapped.data_ = mapped.copy_.get();
  } else {
    void* data = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_POPULATE, file.get(), 0);
    if (data == MAP_FAILED) return failed("mmap");
    mapped.data_ = data;
  }
  mapped.size_ = bytes;
  return mapped;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      copy_(std::move(other.copy_)) {}
MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(copy_, other.copy_);
  return *this;
}
MappedFile::~MappedFile() {
  if (data_ && !copy_) munmap(data_, size_);
}

}  // namespace tilewright::protocol
