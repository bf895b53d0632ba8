/// Which bytes a launch, a copy or a fill touches, and how: for what nothing orders to be compared.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

namespace tilewright::vgpu {

class Footprint {
 public:
  /// Strong ones are atomics, and loads and stores with an order: they do not conflict among
  /// themselves.
  enum class Kind : std::uint8_t { kRead, kWrite, kStrongRead, kStrongWrite };
  static constexpr std::size_t kKinds = 4;

  void add(Kind kind, std::uint64_t address, std::uint64_t bytes);

  struct Conflict {
    std::uint64_t address = 0;
    Kind mine = Kind::kRead, other = Kind::kRead;
  };
  /// A byte that both touch, one of them by a write that is not strong on both sides.
  std::optional<Conflict> conflict(const Footprint& other) const;

 private:
  static constexpr std::uint64_t kChunk = std::uint64_t{1} << 16;
  using Bits = std::array<std::uint64_t, kChunk / 64>;
  struct Range {
    std::uint64_t begin = 0, end = 0;
  };
  struct Bytes {
    std::unordered_map<std::uint64_t, std::unique_ptr<Bits>> chunks;
    std::vector<Range> ranges;  ///< large ones, as they came
    std::uint64_t last_chunk = ~std::uint64_t{0};
    Bits* last = nullptr;

    bool empty() const { return chunks.empty() && ranges.empty(); }
    void add(std::uint64_t begin, std::uint64_t end);
    /// The first set byte of [begin, end) in the chunks.
    std::optional<std::uint64_t> find(std::uint64_t begin, std::uint64_t end) const;
    std::optional<std::uint64_t> common(const Bytes& other) const;
  };
  std::array<Bytes, kKinds> kinds_;
};

}  // namespace tilewright::vgpu
