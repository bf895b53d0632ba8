/// A launch in the numbers that people look at: what it did, for the whole grid, and what the model
/// makes of it.
#pragma once

#include <string>

#include "jit/virtual_gpu/timing.h"

namespace tilewright::vgpu {

/// Scaled to the grid where only some of its blocks were executed; rates are those of the executed.
struct LaunchSummary {
  double blocks = 0, blocks_executed = 0;
  double instructions = 0, fma = 0, integer = 0, special = 0, f64 = 0, memory = 0, tensor = 0;
  double tensor_operations = 0;  ///< multiplications and additions, of all types
  double sectors_per_load = 0, sectors_per_store = 0;  ///< of 32 bytes, of a global request
  double load_efficiency = 0;  ///< bytes that lanes asked for / bytes of their sectors, at most 1
  double shared_wavefronts = 0;
  double bank_conflicts = 0;  ///< of shared_wavefronts
  double local_requests = 0;  ///< spills, mostly
  double atomics = 0;
  double barriers_per_warp = 0;
  double l2_bytes = 0, dram_bytes = 0;
  double l2_hit_rate = 0;  ///< the share of l2_bytes that DRAM need not move: reuse of tiles
  LaunchTime time;         ///< with occupancy, its limiter and waves
};

LaunchSummary summarize(const jit::DeviceDescription& device, const LaunchShape& shape,
                        const Counters& counters);

/// A few lines for a terminal.
std::string text_of(const LaunchSummary& summary);

}  // namespace tilewright::vgpu
