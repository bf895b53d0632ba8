/// The timing model: from the counters of a launch and the description of the device to microseconds.
/// A first one, to rank candidates by, not to report times with; docs/virtual-gpu.md derives it.
/// Pure: the same launch has the same time.
#pragma once

#include "jit/device.h"
#include "jit/virtual_gpu/machine.h"
#include "jit/virtual_gpu/occupancy.h"

namespace tilewright::vgpu {

struct LaunchShape {
  std::uint64_t blocks = 0;  ///< of the grid
  BlockDemand block;
  /// What the launch can touch at most: the allocations that its parameters point to. 0: not known.
  std::uint64_t reachable_bytes = 0;
  double launch_us = 0;  ///< what this launch costs beside its execution
};

/// Each `_us` but the total: the time were that resource the only one.
struct LaunchTime {
  double total_us = 0;
  double dram_us = 0, l2_us = 0, fma_us = 0, integer_us = 0, issue_us = 0, shared_us = 0,
         special_us = 0, latency_us = 0, launch_us = 0;
  double dram_bytes = 0, l2_bytes = 0;
  double waves = 0;  ///< of blocks, rounded up
  Occupancy occupancy;
  const char* bound_by = "launch";
};

LaunchTime model_launch(const jit::DeviceDescription& device, const LaunchShape& shape,
                        const Counters& counters);

/// A memset, or a copy inside the device (which reads and writes: bytes counted twice by the caller).
double model_device_bytes(const jit::DeviceDescription& device, double bytes);

/// A copy over the bus.
double model_bus_copy(const jit::DeviceDescription& device, double bytes);

/// A graph pays one launch; each of its further nodes, this much.
double graph_node_us(const jit::DeviceDescription& device);

}  // namespace tilewright::vgpu
