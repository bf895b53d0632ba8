/// A set of 32-byte sectors of device memory: bitmaps of a mebibyte each, made when first touched.
#pragma once

#include <bit>
#include <cstdint>
#include <memory>
#include <unordered_map>

namespace tilewright::vgpu {

class SectorSet {
 public:
  /// The sector that holds `address`.
  void add(std::uint64_t address) {
    std::uint64_t chunk = address >> kChunkBits;
    if (chunk != last_chunk_) {
      auto& bitmap = chunks_[chunk];
      if (bitmap == nullptr) bitmap = std::make_unique<Bitmap>();
      last_chunk_ = chunk;
      last_ = bitmap.get();
    }
    std::uint64_t sector = (address & ((std::uint64_t{1} << kChunkBits) - 1)) >> 5;
    last_->words[sector / 64] |= std::uint64_t{1} << (sector % 64);
  }
  void unite(const SectorSet& other) {
    for (const auto& [chunk, bitmap] : other.chunks_) {
      auto& mine = chunks_[chunk];
      if (mine == nullptr) mine = std::make_unique<Bitmap>();
      for (int i = 0; i < kWords; ++i) mine->words[i] |= bitmap->words[i];
    }
  }
  std::uint64_t size() const {
    std::uint64_t count = 0;
    for (const auto& [chunk, bitmap] : chunks_)
      for (std::uint64_t word : bitmap->words)
        count += static_cast<std::uint64_t>(std::popcount(word));
    return count;
  }

 private:
  static constexpr int kChunkBits = 20;
  static constexpr int kWords = (1 << kChunkBits) / 32 / 64;
  struct Bitmap {
    std::uint64_t words[kWords] = {};
  };
  std::unordered_map<std::uint64_t, std::unique_ptr<Bitmap>> chunks_;
  std::uint64_t last_chunk_ = ~std::uint64_t{0};
  Bitmap* last_ = nullptr;
};

}  // namespace tilewright::vgpu
