#include "jit/lazy_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace tilewright::jit {
namespace {

/// One pattern is mapped again and again: large enough that 100 GB are some thousand mappings, of
/// which a process may have 65530.
constexpr std::size_t kPattern = std::size_t{16} << 20;

/// A file in memory that is 0xff all over; -1: there is none.
int pattern_file() {
  static const int file = [] {
    const int made = ::memfd_create("tilewright-pattern", MFD_CLOEXEC);
    if (made < 0) return -1;
    void* view = MAP_FAILED;
    if (::ftruncate(made, kPattern) == 0)
      view = ::mmap(nullptr, kPattern, PROT_READ | PROT_WRITE, MAP_SHARED, made, 0);
    if (view == MAP_FAILED) {
      ::close(made);
      return -1;
    }
    std::memset(view, 0xff, kPattern);
    ::munmap(view, kPattern);
    return made;
  }();
  return file;
}

bool map_at(std::byte* begin, std::size_t bytes, int flags, int file) {
  return ::mmap(begin, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE | flags, file,
                0) != MAP_FAILED;
}

std::size_t page_size() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

}  // namespace

bool map_filled(std::byte* begin, std::size_t bytes, std::uint8_t value) {
  if (value == 0) return bytes == 0 || map_at(begin, bytes, MAP_FIXED | MAP_ANONYMOUS, -1);
  if (value != 0xff) return false;
  const int file = pattern_file();
  if (file < 0) return false;
  for (std::size_t done = 0; done < bytes; done += kPattern) {
    if (!map_at(begin + done, std::min(kPattern, bytes - done), MAP_FIXED, file)) return false;
  }
  return true;
}

void fill_lazily(std::byte* begin, std::size_t bytes, std::uint8_t value) {
  const std::size_t page = page_size();
  const std::size_t head = (page - reinterpret_cast<std::uintptr_t>(begin) % page) % page;
  if (bytes >= kLazyFill) {
    const std::size_t whole = (bytes - head) / page * page;
    if (map_filled(begin + head, whole, value)) {
      std::memset(begin, value, head);
      std::memset(begin + head + whole, value, bytes - head - whole);
      return;
    }
  }
  std::memset(begin, value, bytes);
}

FilledBytes::FilledBytes(std::size_t size, std::uint8_t value) : size_(size) {
  const std::size_t page = page_size();
  const std::size_t rounded = (std::max<std::size_t>(size, 1) + page - 1) / page * page;
  void* memory = ::mmap(nullptr, rounded, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return;
  data_ = static_cast<std::byte*>(memory);
  mapped_ = rounded;
  fill_lazily(data_, rounded, value);
}

FilledBytes::FilledBytes(FilledBytes&& other) noexcept { *this = std::move(other); }

FilledBytes& FilledBytes::operator=(FilledBytes&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(mapped_, other.mapped_);
  return *this;
}

FilledBytes::~FilledBytes() {
  if (data_ != nullptr) ::munmap(data_, mapped_);
}

}  // namespace tilewright::jit
