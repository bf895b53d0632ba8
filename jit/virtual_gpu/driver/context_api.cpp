// Contexts: the primary one and others; which of them is current.
#include <algorithm>

#include "jit/virtual_gpu/driver/queue.h"

using namespace tilewright;
using vgpu::enter;
using vgpu::Needs;

namespace {

constexpr unsigned kFlags = CU_CTX_FLAGS_MASK;

CUresult create(CUcontext* out, unsigned flags, CUdevice device) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st&) {
    if (!out || (flags & ~kFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
    if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
    if (vgpu::context_stack().full()) return CUDA_ERROR_OUT_OF_MEMORY;
    auto context = std::make_unique<CUctx_st>();
    context->id = ++gpu.ids;
    context->flags = flags;
    context->memory = gpu.memory;
    *out = context.get();
    gpu.contexts.emplace(*out, std::move(context));
    vgpu::context_stack().push_back(*out);
    return CUDA_SUCCESS;
  });
}

/// What a context starts with; SIZE_MAX: not known.
std::size_t initial_limit(CUlimit limit) {
  switch (limit) {
    case CU_LIMIT_STACK_SIZE:
      return 1024;
    case CU_LIMIT_PRINTF_FIFO_SIZE:
      return 7 << 20;
    case CU_LIMIT_MALLOC_HEAP_SIZE:
      return 8 << 20;
    case CU_LIMIT_MAX_L2_FETCH_GRANULARITY:
      return 64;
    case CU_LIMIT_PERSISTING_L2_CACHE_SIZE:
      return 0;
    default:
      return SIZE_MAX;
  }
}

}  // namespace

VGPU_API cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice device) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st&) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
    if (gpu.context.retained == 0) gpu.reset_context(gpu.context);
    ++gpu.context.retained;
    *out = &gpu.context;
    return CUDA_SUCCESS;
  });
}

VGPU_API cuDevicePrimaryCtxRelease(CUdevice device) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st&) {
    if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
    if (gpu.context.retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (gpu.context.retained == 1) vgpu::drain(gpu, gpu.context);
    if (--gpu.context.retained == 0) gpu.reset_context(gpu.context);
    return CUDA_SUCCESS;
  });
}

VGPU_API cuDevicePrimaryCtxReset(CUdevice device) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st&) {
    if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
    vgpu::drain(gpu, gpu.context);
    gpu.reset_context(gpu.context);
    return CUDA_SUCCESS;
  });
}

VGPU_API cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st&) {
    if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
    if ((flags & ~kFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
    gpu.context.flags = flags;
    return CUDA_SUCCESS;
  });
}

VGPU_API cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags, int* active) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st&) {
    if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
    if (!flags || !active) return CUDA_ERROR_INVALID_VALUE;
    *flags = gpu.context.flags;
    *active = gpu.context.active();
    return CUDA_SUCCESS;
  });
}

/// Since CUDA 12.5.
VGPU_API cuCtxCreate(CUcontext* out, CUctxCreateParams* params, unsigned int flags,
                     CUdevice device) {
  if (params && (params->numExecAffinityParams != 0 || params->cigParams))
    return CUDA_ERROR_NOT_SUPPORTED;
  return create(out, flags, device);
}

/// Of CUDA 11.4 to 12.4, under a name that cuda.h no longer declares.
VGPU_API cuCtxCreate_v3(CUcontext* out, CUexecAffinityParam*, int count, unsigned int flags,
                        CUdevice device) {
  return count != 0 ? CUDA_ERROR_NOT_SUPPORTED : create(out, flags, device);
}

VGPU_API cuCtxCreate_v2(CUcontext* out, unsigned int flags, CUdevice device) {
  return create(out, flags, device);
}

VGPU_API cuCtxDestroy(CUcontext handle) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st&) {
    auto found = gpu.contexts.find(handle);
    if (found == gpu.contexts.end()) return CUDA_ERROR_INVALID_CONTEXT;
    vgpu::drain(gpu, *handle);
    gpu.reset_context(*handle);
    auto& stack = vgpu::context_stack();
    if (!stack.empty() && stack.back() == handle) stack.pop_back();
    gpu.contexts.erase(found);
    return CUDA_SUCCESS;
  });
}

VGPU_API cuCtxPushCurrent(CUcontext handle) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st&) {
    if (!handle || !gpu.is_active(handle)) return CUDA_ERROR_INVALID_CONTEXT;
    if (vgpu::context_stack().full()) return CUDA_ERROR_OUT_OF_MEMORY;
    vgpu::context_stack().push_back(handle);
    return CUDA_SUCCESS;
  });
}

VGPU_API cuCtxPopCurrent(CUcontext* out) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu&, CUctx_st&) {
    auto& stack = vgpu::context_stack();
    if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
    if (out) *out = stack.back();
    stack.pop_back();
    return CUDA_SUCCESS;
  });
}

VGPU_API cuCtxSetCurrent(CUcontext handle) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st&) {
    if (handle && !gpu.is_active(handle)) return CUDA_ERROR_INVALID_CONTEXT;
    auto& stack = vgpu::context_stack();
    if (!stack.empty()) stack.pop_back();
    if (handle) stack.push_back(handle);
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

VGPU_API cuCtxGetDevice(CUdevice* out) {
  return enter(Needs::kContext, [&](vgpu::Gpu&, CUctx_st&) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = 0;
    return CUDA_SUCCESS;
  });
}

VGPU_API cuCtxGetFlags(unsigned int* flags) {
  return enter(Needs::kContext, [&](vgpu::Gpu&, CUctx_st& context) {
    if (!flags) return CUDA_ERROR_INVALID_VALUE;
    *flags = context.flags;
    return CUDA_SUCCESS;
  });
}

VGPU_API cuCtxGetId(CUcontext handle, unsigned long long* id) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    if (!id) return CUDA_ERROR_INVALID_VALUE;
    const CUcontext which = handle ? handle : &context;
    if (!gpu.is_active(which)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *id = which->id;
    return CUDA_SUCCESS;
  });
}

VGPU_API cuCtxGetApiVersion(CUcontext handle, unsigned int* version) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    if (!version) return CUDA_ERROR_INVALID_VALUE;
    if (!gpu.is_active(handle ? handle : &context)) return CUDA_ERROR_INVALID_CONTEXT;
    *version = 3020;
    return CUDA_SUCCESS;
  });
}

VGPU_API cuCtxGetLimit(size_t* value, CUlimit limit) {
  return enter(Needs::kContext, [&](vgpu::Gpu&, CUctx_st& context) {
    if (!value) return CUDA_ERROR_INVALID_VALUE;
    const std::size_t initial = initial_limit(limit);
    if (initial == SIZE_MAX) return CUDA_ERROR_UNSUPPORTED_LIMIT;
    auto set = context.limits.find(limit);
    *value = set == context.limits.end() ? initial : set->second;
    return CUDA_SUCCESS;
  });
}

/// Kept for whoever asks: nothing here is short of a stack or of a heap.
VGPU_API cuCtxSetLimit(CUlimit limit, size_t value) {
  return enter(Needs::kContext, [&](vgpu::Gpu&, CUctx_st& context) {
    if (initial_limit(limit) == SIZE_MAX) return CUDA_ERROR_UNSUPPORTED_LIMIT;
    context.limits[limit] = value;
    return CUDA_SUCCESS;
  });
}

VGPU_API cuCtxGetCacheConfig(CUfunc_cache* config) {
  return enter(Needs::kContext, [&](vgpu::Gpu&, CUctx_st& context) {
    if (!config) return CUDA_ERROR_INVALID_VALUE;
    *config = context.cache_config;
    return CUDA_SUCCESS;
  });
}

VGPU_API cuCtxSetCacheConfig(CUfunc_cache config) {
  return enter(Needs::kContext, [&](vgpu::Gpu&, CUctx_st& context) {
    context.cache_config = config;
    return CUDA_SUCCESS;
  });
}

VGPU_API cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return enter(Needs::kContext, [&](vgpu::Gpu&, CUctx_st&) {
    if (least) *least = 0;
    if (greatest) *greatest = vgpu::kGreatestPriority;
    return CUDA_SUCCESS;
  });
}

VGPU_API cuCtxSynchronize() {
  return enter(Needs::kHealthyContext, [](vgpu::Gpu& gpu, CUctx_st& context) {
    if (CUresult refused = vgpu::refuse_during_capture(context)) return refused;
    vgpu::drain(gpu, context);
    context.host_us = context.device_us;
    return context.error;
  });
}

VGPU_API cuCtxSetFlags(unsigned int flags) {
  return enter(Needs::kContext, [&](vgpu::Gpu&, CUctx_st& context) {
    if ((flags & ~kFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
    context.flags = flags;
    return CUDA_SUCCESS;
  });
}

VGPU_API cuCtxResetPersistingL2Cache() {
  return enter(Needs::kContext, [](vgpu::Gpu&, CUctx_st&) { return CUDA_SUCCESS; });
}
