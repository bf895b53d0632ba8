/// Memory that is all one byte value and takes room only where it is written: for tensors of which
/// little is touched.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tilewright::jit {

/// Makes whole pages read as `value`, whatever was in them: what is not written later shares a few
/// pages. `begin` and `bytes`: multiples of a page, in an anonymous mapping of ours. False: this
/// value or this host cannot; some of the pages may have been made so.
bool map_filled(std::byte* begin, std::size_t bytes, std::uint8_t value);

/// From here on fill_lazily() maps pages instead of writing them.
inline constexpr std::size_t kLazyFill = std::size_t{8} << 20;

/// As memset, of any range in an anonymous mapping of ours: a large one gives its pages back.
void fill_lazily(std::byte* begin, std::size_t bytes, std::uint8_t value);

/// A buffer that begins as `value` everywhere. Move-only.
class FilledBytes {
 public:
  FilledBytes() = default;
  FilledBytes(std::size_t size, std::uint8_t value);
  FilledBytes(FilledBytes&& other) noexcept;
  FilledBytes& operator=(FilledBytes&& other) noexcept;
  ~FilledBytes();

  /// Null where no memory could be had.
  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0, mapped_ = 0;
};

}  // namespace tilewright::jit
