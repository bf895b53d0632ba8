/// The timing model of a launch that was executed: its counters and the description of the device
/// make microseconds. To rank candidates by, not to report times with; docs/virtual-gpu.md derives
/// it. Pure: the same launch has the same time.
#pragma once

#include "jit/virtual_gpu/timing/model.h"

namespace tilewright::vgpu {

struct LaunchShape {
  std::uint64_t blocks = 0;  ///< of the grid
  BlockDemand block;
  /// What the launch can touch at most: the allocations that its parameters point to. 0: not known.
  std::uint64_t reachable_bytes = 0;
  double launch_us = 0;  ///< what this launch costs beside its execution
};

/// What the launch does, from what its executed blocks did.
Work work_of(const jit::DeviceDescription& device, const LaunchShape& shape,
             const Counters& counters);

LaunchTime model_launch(const jit::DeviceDescription& device, const LaunchShape& shape,
                        const Counters& counters);

/// A memset, or a copy inside the device (which reads and writes: bytes counted twice by the caller).
double model_device_bytes(const jit::DeviceDescription& device, double bytes);

/// A copy over the bus.
double model_bus_copy(const jit::DeviceDescription& device, double bytes);

/// A graph pays one launch; each of its further nodes, this much.
double graph_node_us(const jit::DeviceDescription& device);

}  // namespace tilewright::vgpu
