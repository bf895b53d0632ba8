/// Shadow of memory: for each cell who wrote and who read it last (64 bits, owned by the race
/// checker), and for each byte whether it was ever written. Cells are of 4 bytes; those of a page
/// become cells of one byte when an access of the page does not fit words.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace tilewright::vgpu {

class Footprint;

// A bit per byte, 64 to a word.
void set_bits(std::uint64_t* words, std::uint64_t at, std::uint64_t bytes, bool value);
/// Whether all of [at, at + bytes) are set.
bool all_bits(const std::uint64_t* words, std::uint64_t at, std::uint64_t bytes);
void copy_bits(std::uint64_t* to, std::uint64_t to_at, const std::uint64_t* from,
               std::uint64_t from_at, std::uint64_t bytes);

/// Cells of a range that begins at 0.
class ShadowCells {
 public:
  static constexpr std::uint64_t kPage = 512;
  explicit ShadowCells(std::uint64_t bytes);
  ShadowCells(const ShadowCells&) = delete;
  ShadowCells& operator=(const ShadowCells&) = delete;
  ~ShadowCells();

  /// Calls f(first cell, cells, address of the first, bytes of a cell) for the cells of
  /// [at, at + bytes), page by page.
  template <class F>
  void for_cells(std::uint64_t at, std::uint64_t bytes, F&& f) {
    const bool words = ((at | bytes) & 3) == 0;
    for (std::uint64_t end = at + bytes; at < end;) {
      std::uint64_t page = at / kPage, stop = std::min(end, (page + 1) * kPage);
      std::uint64_t* fine = fine_.empty() ? nullptr : fine_[page].get();
      if (fine == nullptr && !words) fine = refine(page);
      if (fine != nullptr)
        f(fine + at % kPage, stop - at, at, 1u);
      else
        f(cells_ + at / 4, (stop - at) / 4, at, 4u);
      at = stop;
    }
  }

 private:
  std::uint64_t* refine(std::uint64_t page);
  std::uint64_t* cells_ = nullptr;
  std::uint64_t mapped_ = 0, pages_ = 0;
  std::vector<std::unique_ptr<std::uint64_t[]>> fine_;  ///< by page; empty: no page has any
};

/// Cells of device memory, made as they are touched, and kept from launch to launch: what ids of
/// earlier launches say is void, and pages that are there already need not be made.
class GlobalShadow {
 public:
  static constexpr std::uint64_t kChunk = std::uint64_t{1} << 20;
  template <class F>
  void for_cells(std::uint64_t address, std::uint64_t bytes, F&& f) {
    for (std::uint64_t end = address + bytes; address < end;) {
      std::uint64_t chunk = address / kChunk;
      std::uint64_t stop = std::min(end, (chunk + 1) * kChunk);
      if (chunk != last_chunk_) find(chunk);
      last_->for_cells(
          address % kChunk, stop - address,
          [&](auto* cells, auto n, auto at, auto size) { f(cells, n, chunk * kChunk + at, size); });
      address = stop;
    }
  }
  void clear() {
    chunks_.clear();
    last_chunk_ = ~std::uint64_t{0};
    last_ = nullptr;
  }

  std::uint32_t next_record = 1, next_set = 1;  ///< ids that no launch has used
  std::shared_ptr<void> storage;                ///< of the race checker: memory to use again
  Footprint* footprint = nullptr;               ///< gets what the launch touches; null: nobody asks

 private:
  void find(std::uint64_t chunk);
  std::unordered_map<std::uint64_t, std::unique_ptr<ShadowCells>> chunks_;
  std::uint64_t last_chunk_ = ~std::uint64_t{0};
  ShadowCells* last_ = nullptr;
};

}  // namespace tilewright::vgpu
