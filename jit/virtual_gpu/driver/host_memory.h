/// Host memory that kernels reach.
#pragma once

#include "jit/virtual_gpu/driver/state.h"

namespace tilewright::vgpu {

/// Memory that was allocated here, managed memory included. Waits for all that goes on.
CUresult free_host(Gpu& gpu, CUctx_st& context, CUdeviceptr address);

}  // namespace tilewright::vgpu
