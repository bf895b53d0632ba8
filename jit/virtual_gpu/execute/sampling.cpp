#include "jit/virtual_gpu/execute/sampling.h"

#include <algorithm>
#include <numeric>
#include <set>

namespace tilewright::vgpu {
namespace {

/// SplitMix64 (Steele, Lea, Flood): the same numbers on every host and library.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t below(std::uint64_t bound) {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    z ^= z >> 31;
    return static_cast<std::uint64_t>(static_cast<unsigned __int128>(z) * bound >> 64);
  }

 private:
  std::uint64_t state_;
};

}  // namespace

std::vector<std::uint64_t> sample_blocks(const std::array<unsigned, 3>& grid, std::uint64_t count,
                                         std::uint64_t seed) {
  std::uint64_t x = grid[0], y = grid[1], z = grid[2], total = x * y * z;
  std::vector<std::uint64_t> all;
  if (count >= total) {
    all.resize(total);
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  // The last corner is the most ragged one, hence it comes second.
  std::set<std::uint64_t> chosen;
  auto corner = [&](bool i, bool j, bool k) {
    if (chosen.size() < count)
      chosen.insert(((k ? z - 1 : 0) * y + (j ? y - 1 : 0)) * x + (i ? x - 1 : 0));
  };
  corner(false, false, false);
  corner(true, true, true);
  for (unsigned bits = 1; bits < 7; ++bits)
    corner((bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0);
  // count < total: sooner or later there is one more.
  Random random(seed);
  while (chosen.size() < count) chosen.insert(random.below(total));
  return {chosen.begin(), chosen.end()};
}

}  // namespace tilewright::vgpu
