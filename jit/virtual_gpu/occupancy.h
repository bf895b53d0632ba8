/// How many blocks of a kernel an SM holds at once, by the rules of CUDA's occupancy calculator.
#pragma once

#include "jit/device.h"

namespace tilewright::vgpu {

struct BlockDemand {
  int threads = 1;
  int registers = 0;             ///< per thread
  std::size_t shared_bytes = 0;  ///< static and dynamic
};

struct Occupancy {
  int blocks_per_sm = 0;     ///< 0: such a block does not fit at all
  const char* limiter = "";  ///< "registers", "shared", "threads", "blocks"
};

Occupancy occupancy(const jit::DeviceInfo& device, const BlockDemand& demand);

/// Whether the registers of one block fit: the check of a launch, which rounds the warps of a block
/// up to the four partitions of an SM.
bool registers_fit(const jit::DeviceInfo& device, int threads, int registers);

/// Shared memory that the system takes of every block.
inline constexpr std::size_t kReservedSharedBytes = 1024;

}  // namespace tilewright::vgpu
