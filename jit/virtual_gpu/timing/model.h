/// The timing model: work and a device make a time, and name what binds it. Pure.
#pragma once

#include "jit/virtual_gpu/timing/work.h"

namespace tilewright::vgpu {

/// Each `_us` but the total: the time were that resource the only one.
struct LaunchTime {
  double total_us = 0;
  double dram_us = 0, l2_us = 0, tensor_us = 0, fma_us = 0, integer_us = 0, issue_us = 0,
         shared_us = 0, special_us = 0, latency_us = 0, launch_us = 0;
  double block_us = 0, fixed_us = 0;  ///< prologues and epilogues of waves; set-up
  double dram_bytes = 0, l2_bytes = 0;
  double waves = 0;  ///< of blocks, rounded up
  Occupancy occupancy;
  const char* bound_by = "launch";
};

LaunchTime model(const jit::DeviceDescription& device, const Work& work);

}  // namespace tilewright::vgpu
