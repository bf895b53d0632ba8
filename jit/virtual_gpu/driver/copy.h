/// The driver's descriptions of copies, as operations.
#pragma once

#include "jit/virtual_gpu/driver/state.h"

namespace tilewright::vgpu {

/// By the addresses alone: unified addressing.
CopyOperation::Direction direction_of(CUdeviceptr target, CUdeviceptr source);

/// Errors: CUDA_ERROR_NOT_SUPPORTED for arrays and for more than one plane.
CUresult read_copy(const CUDA_MEMCPY2D& given, CopyOperation* out);
CUresult read_copy(const CUDA_MEMCPY3D& given, CopyOperation* out);

}  // namespace tilewright::vgpu
