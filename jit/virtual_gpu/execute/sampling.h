/// Which blocks of a grid run when only some are to.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace tilewright::vgpu {

/// `count` linear block indices, ascending: the corners of the grid first, then others chosen from
/// `seed`. All of them where the grid has no more.
std::vector<std::uint64_t> sample_blocks(const std::array<unsigned, 3>& grid, std::uint64_t count,
                                         std::uint64_t seed);

}  // namespace tilewright::vgpu
