// Device memory: allocations, copies and fills.
#include <iterator>

#include "jit/virtual_gpu/driver/state.h"

using namespace tilewright;
using vgpu::CopyOperation;
using vgpu::enter;
using vgpu::FillOperation;
using vgpu::Needs;
using Direction = CopyOperation::Direction;

namespace {

CUdeviceptr address_of(const void* host) { return reinterpret_cast<CUdeviceptr>(host); }

/// Enqueues on a stream; `wait`: the host waits for it, as the calls without Async do.
CUresult copy(CopyOperation operation, CUstream handle, bool wait) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    if (wait)
      if (CUresult refused = vgpu::refuse_during_capture(context)) return refused;
    const CUstream stream = vgpu::find_stream(context, handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    if (operation.bytes == 0) return CUDA_SUCCESS;
    if (CUresult wrong = vgpu::check_copy(context, operation)) return wrong;
    const CUresult result = vgpu::submit(gpu, context, stream, operation);
    if (wait) context.host_us = vgpu::ready_us(context, *stream);
    return result;
  });
}

CUresult fill(FillOperation operation, CUstream handle) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    const CUstream stream = vgpu::find_stream(context, handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    if (operation.count == 0) return CUDA_SUCCESS;
    const std::size_t width = std::size_t(operation.width);
    if (operation.target % width != 0 || operation.count > SIZE_MAX / width ||
        !context.memory->at(operation.target, operation.count * width))
      return CUDA_ERROR_INVALID_VALUE;
    return vgpu::submit(gpu, context, stream, operation);
  });
}

}  // namespace

VGPU_API cuMemGetInfo(size_t* free, size_t* total) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu&, CUctx_st& context) {
    if (!free || !total) return CUDA_ERROR_INVALID_VALUE;
    *total = context.memory->capacity();
    *free = context.memory->capacity() - context.memory->used();
    return CUDA_SUCCESS;
  });
}

VGPU_API cuMemAlloc(CUdeviceptr* out, size_t bytes) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    if (!out || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    if (CUresult refused = vgpu::refuse_during_capture(context)) return refused;
    auto address = context.memory->allocate(bytes);
    if (!address) {
      gpu.explain(address.error().message);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    context.allocations.emplace(*address, bytes);
    *out = *address;
    return CUDA_SUCCESS;
  });
}

VGPU_API cuMemFree(CUdeviceptr address) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu&, CUctx_st& context) {
    if (address == 0) return CUDA_SUCCESS;
    if (CUresult refused = vgpu::refuse_during_capture(context)) return refused;
    if (context.allocations.erase(address) == 0) return CUDA_ERROR_INVALID_VALUE;
    return context.memory->free(address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

VGPU_API cuMemcpyHtoD(CUdeviceptr target, const void* source, size_t bytes) {
  return copy({Direction::kToDevice, target, address_of(source), bytes}, nullptr, true);
}

VGPU_API cuMemcpyDtoH(void* target, CUdeviceptr source, size_t bytes) {
  return copy({Direction::kToHost, address_of(target), source, bytes}, nullptr, true);
}

VGPU_API cuMemcpyDtoD(CUdeviceptr target, CUdeviceptr source, size_t bytes) {
  return copy({Direction::kInside, target, source, bytes}, nullptr, false);
}

VGPU_API cuMemcpyHtoDAsync(CUdeviceptr target, const void* source, size_t bytes, CUstream stream) {
  return copy({Direction::kToDevice, target, address_of(source), bytes}, stream, false);
}

VGPU_API cuMemcpyDtoHAsync(void* target, CUdeviceptr source, size_t bytes, CUstream stream) {
  return copy({Direction::kToHost, address_of(target), source, bytes}, stream, false);
}

VGPU_API cuMemsetD8(CUdeviceptr target, unsigned char value, size_t count) {
  return fill({target, value, 1, count}, nullptr);
}

VGPU_API cuMemsetD8Async(CUdeviceptr target, unsigned char value, size_t count, CUstream stream) {
  return fill({target, value, 1, count}, stream);
}

VGPU_API cuMemsetD32Async(CUdeviceptr target, unsigned int value, size_t count, CUstream stream) {
  return fill({target, value, 4, count}, stream);
}
