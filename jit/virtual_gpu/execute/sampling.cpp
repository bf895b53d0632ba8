#include "jit/virtual_gpu/execute/sampling.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "jit/virtual_gpu/execute/random.h"

namespace tilewright::vgpu {
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
