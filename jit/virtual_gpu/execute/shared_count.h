/// What passes through shared memory beside the requests of loads and stores, in wavefronts: it takes
/// the same banks. Called only while warp.counting.
#pragma once

#include <cstdint>

namespace tilewright::vgpu {

struct Warp;

/// Lanes write `bytes` each at these addresses of shared memory: cp.async, with its bank conflicts.
void count_shared_writes(Warp& warp, const std::uint64_t* addresses, std::uint32_t mask, int bytes);

/// A copy engine or a tensor core moves whole lines: bulk and tensor copies, operands of wgmma.
void count_shared_lines(Warp& warp, std::uint64_t bytes);

}  // namespace tilewright::vgpu
