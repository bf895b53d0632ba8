// The primary context, and which context is current.
#include "jit/virtual_gpu/driver/state.h"

using namespace tilewright;
using vgpu::enter;
using vgpu::Needs;

VGPU_API cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice device) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
    if (context.retained == 0) gpu.reset_context();
    ++context.retained;
    *out = &context;
    return CUDA_SUCCESS;
  });
}

VGPU_API cuDevicePrimaryCtxRelease(CUdevice device) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
    if (context.retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (--context.retained == 0) gpu.reset_context();
    return CUDA_SUCCESS;
  });
}

VGPU_API cuDevicePrimaryCtxReset(CUdevice device) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st&) {
    if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
    gpu.reset_context();
    return CUDA_SUCCESS;
  });
}

VGPU_API cuCtxSetCurrent(CUcontext handle) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu&, CUctx_st& context) {
    if (handle && (handle != &context || !context.active())) return CUDA_ERROR_INVALID_CONTEXT;
    vgpu::current_context() = handle;
    return CUDA_SUCCESS;
  });
}

VGPU_API cuCtxGetCurrent(CUcontext* out) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu&, CUctx_st&) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = vgpu::current_context();
    return CUDA_SUCCESS;
  });
}

VGPU_API cuCtxSynchronize() {
  return enter(Needs::kHealthyContext, [](vgpu::Gpu&, CUctx_st& context) {
    if (CUresult refused = vgpu::refuse_during_capture(context)) return refused;
    context.host_us = context.device_us;
    return CUDA_SUCCESS;
  });
}
