#include "jit/virtual_gpu/check/footprint.h"

#include <algorithm>
#include <bit>

#include "jit/virtual_gpu/check/shadow.h"

namespace tilewright::vgpu {

void Footprint::Bytes::add(std::uint64_t begin, std::uint64_t end) {
  if (end - begin >= kChunk) {
    ranges.push_back({begin, end});
    return;
  }
  while (begin < end) {
    const std::uint64_t chunk = begin / kChunk, stop = std::min(end, (chunk + 1) * kChunk);
    if (chunk != last_chunk) {
      auto& bits = chunks[chunk];
      if (bits == nullptr) bits = std::make_unique<Bits>();
      last = bits.get();
      last_chunk = chunk;
    }
    set_bits(last->data(), begin % kChunk, stop - begin, true);
    begin = stop;
  }
}

std::optional<std::uint64_t> Footprint::Bytes::find(std::uint64_t begin, std::uint64_t end) const {
  for (const auto& [chunk, bits] : chunks) {
    const std::uint64_t first = chunk * kChunk;
    if (first >= end || begin >= first + kChunk) continue;
    for (std::uint64_t i = std::max(begin, first); i < std::min(end, first + kChunk);) {
      const std::uint64_t word = (*bits)[(i - first) / 64] >> (i % 64);
      if (word != 0) {
        const std::uint64_t at = i + static_cast<std::uint64_t>(std::countr_zero(word));
        if (at < end) return at;
      }
      i = i / 64 * 64 + 64;
    }
  }
  return std::nullopt;
}

std::optional<std::uint64_t> Footprint::Bytes::common(const Bytes& other) const {
  for (const Range& mine : ranges) {
    for (const Range& theirs : other.ranges)
      if (mine.begin < theirs.end && theirs.begin < mine.end)
        return std::max(mine.begin, theirs.begin);
    if (auto at = other.find(mine.begin, mine.end)) return at;
  }
  for (const Range& theirs : other.ranges)
    if (auto at = find(theirs.begin, theirs.end)) return at;
  for (const auto& [chunk, bits] : chunks) {
    auto theirs = other.chunks.find(chunk);
    if (theirs == other.chunks.end()) continue;
    for (std::size_t i = 0; i < bits->size(); ++i) {
      const std::uint64_t both = (*bits)[i] & (*theirs->second)[i];
      if (both != 0)
        return chunk * kChunk + i * 64 + static_cast<std::uint64_t>(std::countr_zero(both));
    }
  }
  return std::nullopt;
}

void Footprint::add(Kind kind, std::uint64_t address, std::uint64_t bytes) {
  if (bytes != 0) kinds_[static_cast<std::size_t>(kind)].add(address, address + bytes);
}

std::optional<Footprint::Conflict> Footprint::conflict(const Footprint& other) const {
  auto is_write = [](Kind kind) { return kind == Kind::kWrite || kind == Kind::kStrongWrite; };
  auto is_strong = [](Kind kind) {
    return kind == Kind::kStrongRead || kind == Kind::kStrongWrite;
  };
  for (std::size_t i = 0; i < kKinds; ++i) {
    for (std::size_t j = 0; j < kKinds; ++j) {
      const Kind mine = static_cast<Kind>(i), theirs = static_cast<Kind>(j);
      if (!is_write(mine) && !is_write(theirs)) continue;
      if (is_strong(mine) && is_strong(theirs)) continue;
      if (kinds_[i].empty() || other.kinds_[j].empty()) continue;
      if (auto at = kinds_[i].common(other.kinds_[j])) return Conflict{*at, mine, theirs};
    }
  }
  return std::nullopt;
}

}  // namespace tilewright::vgpu
