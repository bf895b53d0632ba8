// What the virtual GPU has not: calls that programs make to find that out, and that answer clearly.
#include "jit/virtual_gpu/driver/state.h"

using namespace tilewright;
using vgpu::enter;
using vgpu::Needs;

namespace {

CUresult refuse(const char* what) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st&) {
    gpu.explain(std::string("the virtual GPU has no ") + what);
    return CUDA_ERROR_NOT_SUPPORTED;
  });
}

}  // namespace

/// Tables that NVIDIA's own libraries ask for. NVRTC calls this without a look at whether it is there.
VGPU_API cuGetExportTable(const void** table, const CUuuid* id) {
  if (!table || !id) return CUDA_ERROR_INVALID_VALUE;
  *table = nullptr;
  return CUDA_ERROR_NOT_FOUND;
}

VGPU_API cuMemGetHandleForAddressRange(void*, CUdeviceptr, size_t, CUmemRangeHandleType,
                                       unsigned long long) {
  return refuse("handles of address ranges (dma-buf)");
}

VGPU_API cuIpcGetMemHandle(CUipcMemHandle*, CUdeviceptr) {
  return refuse("handles that other processes can open");
}
VGPU_API cuIpcOpenMemHandle(CUdeviceptr*, CUipcMemHandle, unsigned int) {
  return refuse("handles that other processes can open");
}
VGPU_API cuIpcCloseMemHandle(CUdeviceptr) {
  return refuse("handles that other processes can open");
}
VGPU_API cuIpcGetEventHandle(CUipcEventHandle*, CUevent) {
  return refuse("handles that other processes can open");
}
VGPU_API cuIpcOpenEventHandle(CUevent*, CUipcEventHandle) {
  return refuse("handles that other processes can open");
}

VGPU_API cuDeviceGetExecAffinitySupport(int* supported, CUexecAffinityType type, CUdevice device) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu&, CUctx_st&) {
    if (!supported || type < 0 || type >= CU_EXEC_AFFINITY_TYPE_MAX)
      return CUDA_ERROR_INVALID_VALUE;
    if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
    *supported = 0;
    return CUDA_SUCCESS;
  });
}

VGPU_API cuCtxGetExecAffinity(CUexecAffinityParam*, CUexecAffinityType) {
  return enter(Needs::kContext,
               [](vgpu::Gpu&, CUctx_st&) { return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY; });
}

// There is one device.
VGPU_API cuDeviceGetP2PAttribute(int*, CUdevice_P2PAttribute, CUdevice, CUdevice) {
  return enter(Needs::kInitialised,
               [](vgpu::Gpu&, CUctx_st&) { return CUDA_ERROR_INVALID_DEVICE; });
}
VGPU_API cuCtxEnablePeerAccess(CUcontext, unsigned int) {
  return enter(Needs::kContext,
               [](vgpu::Gpu&, CUctx_st&) { return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED; });
}
VGPU_API cuCtxDisablePeerAccess(CUcontext) {
  return enter(Needs::kContext,
               [](vgpu::Gpu&, CUctx_st&) { return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED; });
}
