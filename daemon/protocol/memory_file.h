/// Bytes in memory that a file descriptor names, so that they can be passed to another process
/// without being copied: a memfd, sealed, so that neither side can change what the other reads.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "jit/result.h"

namespace tilewright::protocol {

/// Closes it when it goes.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int value) : value_(value) {}
  FileDescriptor(FileDescriptor&& other) noexcept;
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor();

  int get() const { return value_; }
  explicit operator bool() const { return value_ >= 0; }
  int release();

 private:
  int value_ = -1;
};

/// Errors: kIo, kOutOfMemory.
Result<FileDescriptor> make_memory_file(std::string_view name, std::string_view bytes);

/// A memory file that was received, for reading: mapped, or copied where that is cheaper.
class MappedFile {
 public:
  /// Errors: kCorrupt when it is not sealed against shrinking and writing, or has another size than
  /// `bytes`; kIo.
  static Result<MappedFile> map(const FileDescriptor& file, std::size_t bytes);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  /// Aligned to 16 at least.
  std::string_view bytes() const { return {static_cast<const char*>(data_), size_}; }

 private:
  MappedFile() = default;
  void* data_ = nullptr;
  std::size_t size_ = 0;
  std::unique_ptr<char[]> copy_;  ///< what data_ points to, if it is not mapped
};

}  // namespace tilewright::protocol
