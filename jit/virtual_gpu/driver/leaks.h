/// What a program never gave back.
#pragma once

#include "jit/virtual_gpu/driver/state.h"

namespace tilewright::vgpu {

/// Reports what `context` holds: each allocation, and how many there are of what else has a handle.
/// `ended`: "the context" or "the process". Nothing without checks, nor after a fault, since nothing can
/// be given back then.
void report_leaks(Gpu& gpu, const CUctx_st& context, const char* ended);

}  // namespace tilewright::vgpu
