// Device memory: allocations, and what is known of addresses.
#include <algorithm>

#include "jit/virtual_gpu/driver/host_memory.h"
#include "jit/virtual_gpu/driver/queue.h"

using namespace tilewright;
using vgpu::enter;
using vgpu::Needs;

namespace {

constexpr std::size_t kPitchAlignment = 512;

CUresult allocate(vgpu::Gpu& gpu, CUctx_st& context, std::size_t bytes, CUdeviceptr* out) {
  auto address = context.memory->allocate(bytes);
  if (!address) {  // streams may hold memory that they are about to free
    vgpu::drain(gpu, context);
    address = context.memory->allocate(bytes);
  }
  if (!address) {
    gpu.explain(address.error().message);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *out = *address;
  return CUDA_SUCCESS;
}

CUresult pointer_attribute(vgpu::Gpu& gpu, void* data, CUpointer_attribute attribute,
                           CUdeviceptr address) {
  const vgpu::Range range = vgpu::find_range(gpu, address);
  if (range.bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const CUdeviceptr offset = address - range.begin;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      *static_cast<CUcontext*>(data) = range.context;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned*>(data) =
          range.host && !range.managed ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      if (!range.device) return CUDA_ERROR_INVALID_VALUE;
      *static_cast<CUdeviceptr*>(data) = range.device + offset;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!range.host) return CUDA_ERROR_INVALID_VALUE;
      *static_cast<CUdeviceptr*>(data) = range.host + offset;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      *static_cast<unsigned long long*>(data) = range.begin;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(data) = 0;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      *static_cast<CUdeviceptr*>(data) = range.begin;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      *static_cast<std::size_t*>(data) = range.bytes;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
      *static_cast<bool*>(data) = range.device != 0;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      *static_cast<bool*>(data) = range.managed;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      *static_cast<bool*>(data) = range.context->synchronous.count(range.begin) != 0;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      *static_cast<bool*>(data) = false;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      *static_cast<unsigned*>(data) = CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      *static_cast<unsigned long long*>(data) = 0;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: {
      auto pooled = range.context->pooled.find(range.begin);
      *static_cast<CUmemoryPool*>(data) =
          pooled == range.context->pooled.end() ? nullptr : pooled->second;
      return CUDA_SUCCESS;
    }
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

std::size_t size_of(CUpointer_attribute attribute) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return 4;
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      return 1;
    default:
      return 8;
  }
}

}  // namespace

VGPU_API cuMemGetInfo(size_t* free, size_t* total) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    if (!free || !total) return CUDA_ERROR_INVALID_VALUE;
    *total = context.memory->capacity();
    *free = context.memory->capacity() - gpu.memory_used();
    return CUDA_SUCCESS;
  });
}

VGPU_API cuMemAlloc(CUdeviceptr* out, size_t bytes) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    if (!out || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    if (CUresult refused = vgpu::refuse_during_capture(context)) return refused;
    if (CUresult wrong = allocate(gpu, context, bytes, out)) return wrong;
    context.allocations.emplace(*out, bytes);
    return CUDA_SUCCESS;
  });
}

VGPU_API cuMemAllocPitch(CUdeviceptr* out, size_t* pitch, size_t width, size_t height,
                         unsigned int element) {
  if (!pitch || width == 0 || height == 0 || (element != 4 && element != 8 && element != 16))
    return CUDA_ERROR_INVALID_VALUE;
  if (width > SIZE_MAX - kPitchAlignment) return CUDA_ERROR_INVALID_VALUE;
  const std::size_t row = (width + kPitchAlignment - 1) / kPitchAlignment * kPitchAlignment;
  if (row > SIZE_MAX / height) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = cuMemAlloc(out, row * height);
  if (result == CUDA_SUCCESS) *pitch = row;
  return result;
}

/// Waits for all that goes on.
VGPU_API cuMemFree(CUdeviceptr address) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    if (address == 0) return CUDA_SUCCESS;
    if (auto range = context.host_ranges.find(address);
        range != context.host_ranges.end() &&
        range->second.kind == CUctx_st::HostRange::Kind::kManaged)
      return vgpu::free_host(gpu, context, address);
    if (CUresult refused = vgpu::refuse_during_capture(context)) return refused;
    if (context.freeing.count(address)) return CUDA_ERROR_INVALID_VALUE;
    vgpu::drain(gpu, context);
    if (context.error != CUDA_SUCCESS) return context.error;
    if (auto of_graph = context.graph_memory.find(address); of_graph != context.graph_memory.end())
      of_graph->second->live = false;
    return vgpu::free_memory(context, address);
  });
}

VGPU_API cuMemGetAddressRange(CUdeviceptr* base, size_t* size, CUdeviceptr address) {
  return enter(Needs::kContext, [&](vgpu::Gpu& gpu, CUctx_st&) {
    const vgpu::Range range = vgpu::find_range(gpu, address);
    if (range.bytes == 0) return CUDA_ERROR_NOT_FOUND;
    if (base) *base = range.begin;
    if (size) *size = range.bytes;
    return CUDA_SUCCESS;
  });
}

VGPU_API cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st&) {
    if (!data) return CUDA_ERROR_INVALID_VALUE;
    return pointer_attribute(gpu, data, attribute, address);
  });
}

/// Of a pointer that nobody registered, zeros.
VGPU_API cuPointerGetAttributes(unsigned int count, CUpointer_attribute* attributes, void** data,
                                CUdeviceptr address) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st&) {
    if (count == 0 || !attributes || !data) return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; ++i) {
      const CUresult result = pointer_attribute(gpu, data[i], attributes[i], address);
      if (result == CUDA_ERROR_NOT_SUPPORTED) return result;
      if (result != CUDA_SUCCESS)
        std::fill_n(static_cast<unsigned char*>(data[i]), size_of(attributes[i]), 0);
      if (result != CUDA_SUCCESS && attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
        *static_cast<int*>(data[i]) = -2;  // CUDA's invalid device
    }
    return CUDA_SUCCESS;
  });
}

/// Of the one attribute that can be set: copies of pageable memory do not run ahead of the host here
/// whatever it says, and copies within the device are in order with all that follows.
VGPU_API cuPointerSetAttribute(const void* value, CUpointer_attribute attribute,
                               CUdeviceptr address) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st&) {
    const vgpu::Range range = vgpu::find_range(gpu, address);
    if (!value || range.bytes == 0 || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
      return CUDA_ERROR_INVALID_VALUE;
    if (*static_cast<const int*>(value) != 0) {
      range.context->synchronous.insert(range.begin);
    } else {
      range.context->synchronous.erase(range.begin);
    }
    return CUDA_SUCCESS;
  });
}
