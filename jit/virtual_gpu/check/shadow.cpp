#include "jit/virtual_gpu/check/shadow.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

namespace tilewright::vgpu {
namespace {

/// The bits of [at, at + bytes) that lie in the word of `at`.
std::uint64_t mask_of(std::uint64_t at, std::uint64_t bytes) {
  std::uint64_t first = at % 64, count = std::min<std::uint64_t>(bytes, 64 - first);
  return (count == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1) << first;
}

}  // namespace

void set_bits(std::uint64_t* words, std::uint64_t at, std::uint64_t bytes, bool value) {
  while (bytes > 0) {
    std::uint64_t mask = mask_of(at, bytes), count = std::min<std::uint64_t>(bytes, 64 - at % 64);
    // What is as it should be stays untouched: so do pages of zeros.
    std::uint64_t old = words[at / 64], wanted = value ? old | mask : old & ~mask;
    if (old != wanted) words[at / 64] = wanted;
    at += count;
    bytes -= count;
  }
}

bool all_bits(const std::uint64_t* words, std::uint64_t at, std::uint64_t bytes) {
  while (bytes > 0) {
    std::uint64_t mask = mask_of(at, bytes), count = std::min<std::uint64_t>(bytes, 64 - at % 64);
    if ((words[at / 64] & mask) != mask) return false;
    at += count;
    bytes -= count;
  }
  return true;
}

void copy_bits(std::uint64_t* to, std::uint64_t to_at, const std::uint64_t* from,
               std::uint64_t from_at, std::uint64_t bytes) {
  if (all_bits(from, from_at, bytes)) return set_bits(to, to_at, bytes, true);
  for (std::uint64_t i = 0; i < bytes; ++i) {
    std::uint64_t at = from_at + i;
    set_bits(to, to_at + i, 1, (from[at / 64] >> at % 64 & 1) != 0);
  }
}

ShadowCells::ShadowCells(std::uint64_t bytes)
    : mapped_((bytes / 4 + 1) * sizeof(std::uint64_t)), pages_((bytes + kPage - 1) / kPage) {
  // Zeros, and memory only where it is touched.
  void* mapped = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  cells_ = static_cast<std::uint64_t*>(mapped);
}
ShadowCells::~ShadowCells() { munmap(cells_, mapped_); }

std::uint64_t* ShadowCells::refine(std::uint64_t page) {
  if (fine_.empty()) fine_.resize(pages_);
  auto& fine = fine_[page];
  fine = std::make_unique<std::uint64_t[]>(kPage);
  for (std::uint64_t i = 0; i < kPage; ++i) {
    std::uint64_t word = page * kPage / 4 + i / 4;
    fine[i] = word < mapped_ / sizeof(std::uint64_t) ? cells_[word] : 0;
  }
  return fine.get();
}

void GlobalShadow::find(std::uint64_t chunk) {
  auto& found = chunks_[chunk];
  if (found == nullptr) found = std::make_unique<ShadowCells>(kChunk);
  last_ = found.get();
  last_chunk_ = chunk;
}

}  // namespace tilewright::vgpu
