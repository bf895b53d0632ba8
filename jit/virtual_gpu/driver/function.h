/// The limits of a function that attributes and launches share.
#pragma once

#include "jit/virtual_gpu/driver/state.h"

namespace tilewright::vgpu {

inline constexpr int kSharedWithoutOptIn = 48 * 1024;

/// The smaller of its launch bound and of what its registers allow.
int max_threads_of(const jit::DeviceInfo& info, const CUfunc_st& function);
int max_dynamic_shared_of(const CUfunc_st& function);
/// Null where the handle is none of ours.
CUfunction find_function(CUctx_st& context, CUfunction handle);

}  // namespace tilewright::vgpu
