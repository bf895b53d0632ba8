/// What a launch does, in the units that the timing model counts in. Two things make one: the
/// counters of a launch that was executed (timing.h), and the descriptors of kernels that cannot
/// run here (gemm.h, attention.h). A warp instruction or a request is one warp's; a wavefront is
/// 128 bytes of shared memory; an FMA is two tensor operations.
#pragma once

#include <algorithm>
#include <array>

#include "jit/device.h"
#include "jit/virtual_gpu/machine.h"
#include "jit/virtual_gpu/occupancy.h"

namespace tilewright::vgpu {

/// Dense operations of the device in a second, of what is published. 0: it has no such unit.
double tensor_rate(const jit::DeviceDescription& device, TensorType type);

struct Work {
  // The grid.
  double blocks = 0;
  BlockDemand block;
  /// A scheduler hands blocks to SMs as they come free, longest first (attention): the busiest SM
  /// has its share, or the longest block, and not ceil(blocks / SMs) of them.
  bool balanced = false;
  double longest_block = 1;  ///< in average blocks

  // The average block, from its first load to its last.
  double instructions = 0;  ///< warp instructions, all pipes
  double fma = 0, integer = 0, special = 0, f64 = 0;
  std::array<double, kTensorTypes> tensor_ops{};
  double shared_wavefronts = 0;
  double l1_requests = 0, l1_sectors = 0;  ///< global requests through the L1, spills
  double l2_bytes = 0;                     ///< asked of the L2
  double loaded_bytes = 0;                 ///< what it waits for, of l2_bytes
  double bytes_in_flight = 1;              ///< of them at most at a time
  double chain_clocks = 0;  ///< what its warps wait for beside loads, one after the other
  double block_us = 0;      ///< prologue and epilogue, which the same block cannot hide

  // The grid again.
  double dram_bytes = 0;
  double l2_more_bytes = 0;      ///< beside the blocks': a reduction of partial sums
  double dram_efficiency = 0;    ///< 0: the device's
  double tensor_efficiency = 0;  ///< 0: the device's
  double fixed_us = 0;           ///< outside of all blocks: set-up, further launches
  double launch_us = 0;
};

/// Bytes that DRAM reads a second time, of `footprint` different ones, when all waves of blocks
/// together ask for `wanted` of them: what the L2 could not keep from one wave to the next.
inline double read_again(const jit::DeviceDescription& device, double footprint, double wanted) {
  const double l2 = double(device.info.l2_bytes);
  if (footprint <= l2) return 0;
  return std::max(0.0, wanted - footprint) * (1 - l2 / footprint);
}

}  // namespace tilewright::vgpu
