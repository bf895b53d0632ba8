// A fat binary is a header and entries, each a header and its code, which may be compressed. The layout
// is not documented by NVIDIA; it is what fatbinary of CUDA 11 to 13 writes.
#include "jit/virtual_gpu/driver/fatbin.h"

#include <lz4.h>
#include <zstd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

namespace tilewright::vgpu {
namespace {

constexpr std::uint32_t kMagic = 0xba55ed50, kWrapperMagic = 0x466243b1;
constexpr std::uint16_t kPtx = 1;
constexpr std::uint64_t kLz4 = 0x2000, kZstd = 0x8000;
constexpr std::uint64_t kMostBytes = std::uint64_t(1) << 31;  ///< of a text

struct Wrapper {
  std::uint32_t magic, version;
  const void* data;
  const void* name;
};

struct Header {
  std::uint32_t magic;
  std::uint16_t version, header_bytes;
  std::uint64_t bytes;  ///< of the entries
};

struct Entry {
  std::uint16_t kind, version;
  std::uint32_t header_bytes;
  std::uint64_t padded_bytes;
  std::uint32_t compressed_bytes, options;
  std::uint16_t minor, major;
  std::uint32_t architecture, name, name_bytes;
  std::uint64_t flags, reserved, plain_bytes;
};
static_assert(sizeof(Header) == 16 && sizeof(Entry) == 64);

template <typename T>
T read(const char* at) {
  T out;
  std::memcpy(&out, at, sizeof out);
  return out;
}

/// Empty where it cannot be read.
std::string text_of(const Entry& entry, const char* code) {
  std::string out;
  if ((entry.flags & (kLz4 | kZstd)) == 0) {
    out.assign(code, entry.padded_bytes);
  } else {
    if (entry.plain_bytes > kMostBytes || entry.compressed_bytes > entry.padded_bytes) return "";
    out.resize(entry.plain_bytes);
    const std::size_t bytes =
        entry.flags & kZstd
            ? ZSTD_decompress(out.data(), out.size(), code, entry.compressed_bytes)
            : std::size_t(
                  std::max(0, LZ4_decompress_safe(code, out.data(), int(entry.compressed_bytes),
                                                  int(out.size()))));
    if (bytes != out.size()) return "";
  }
  out.resize(std::strlen(out.c_str()));  // what follows the text is padding
  return out;
}

}  // namespace

bool is_fatbin(const void* image) {
  const auto magic = read<std::uint32_t>(static_cast<const char*>(image));
  return magic == kMagic || magic == kWrapperMagic;
}

std::vector<std::string> ptx_of_fatbin(const void* image, bool* broken) {
  const char* at = static_cast<const char*>(image);
  if (read<std::uint32_t>(at) == kWrapperMagic)
    at = static_cast<const char*>(read<Wrapper>(at).data);
  const auto header = read<Header>(at);
  *broken = header.magic != kMagic || header.header_bytes < sizeof(Header);
  if (*broken) return {};
  at += header.header_bytes;
  std::vector<std::pair<std::uint32_t, std::string>> texts;
  for (std::uint64_t left = header.bytes; left >= sizeof(Entry);) {
    const auto entry = read<Entry>(at);
    if (entry.header_bytes < sizeof(Entry) || entry.header_bytes > left ||
        entry.padded_bytes > left - entry.header_bytes) {
      *broken = true;
      break;
    }
    if (entry.kind == kPtx) {
      std::string text = text_of(entry, at + entry.header_bytes);
      if (text.empty()) {
        *broken = true;
      } else {
        texts.emplace_back(entry.architecture, std::move(text));
      }
    }
    at += entry.header_bytes + entry.padded_bytes;
    left -= entry.header_bytes + entry.padded_bytes;
  }
  std::stable_sort(texts.begin(), texts.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> out;
  for (auto& [architecture, text] : texts) out.push_back(std::move(text));
  return out;
}

}  // namespace tilewright::vgpu
