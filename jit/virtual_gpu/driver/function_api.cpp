// What there is to ask of functions, and to set.
#include "jit/virtual_gpu/driver/function.h"
#include "jit/virtual_gpu/driver/state.h"
#include "jit/virtual_gpu/occupancy.h"

using namespace tilewright;
using vgpu::enter;
using vgpu::Needs;

namespace {

/// Calls `body(Gpu&, CUctx_st&, CUfunc_st&)` with what a handle stands for.
template <typename Body>
CUresult with_function(CUfunction handle, Body&& body) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    const CUfunction function = vgpu::find_function(gpu, context, handle);
    return function ? body(gpu, context, *function) : CUDA_ERROR_INVALID_HANDLE;
  });
}

CUresult parameter_info(const CUfunc_st& function, std::size_t index, std::size_t* offset,
                        std::size_t* size) {
  if (!offset) return CUDA_ERROR_INVALID_VALUE;
  if (index >= function.info->parameters.size()) return CUDA_ERROR_INVALID_VALUE;
  const auto& parameter = function.info->parameters[index];
  *offset = std::size_t(parameter.offset);
  if (size) *size = std::size_t(parameter.size);
  return CUDA_SUCCESS;
}

CUfunction as_function(CUkernel kernel) { return reinterpret_cast<CUfunction>(kernel); }

}  // namespace

VGPU_API cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction handle) {
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  return with_function(handle, [&](vgpu::Gpu& gpu, CUctx_st&, CUfunc_st& function) {
    return vgpu::get_attribute(gpu, function, attribute, value);
  });
}

VGPU_API cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
  return with_function(handle, [&](vgpu::Gpu& gpu, CUctx_st&, CUfunc_st& function) {
    return vgpu::set_attribute(gpu, function, attribute, value);
  });
}

VGPU_API cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache) {
  return with_function(handle, [](vgpu::Gpu&, CUctx_st&, CUfunc_st&) { return CUDA_SUCCESS; });
}

VGPU_API cuFuncGetModule(CUmodule* module, CUfunction handle) {
  if (!module) return CUDA_ERROR_INVALID_VALUE;
  return with_function(handle, [&](vgpu::Gpu&, CUctx_st&, CUfunc_st& function) {
    *module = function.module;
    return CUDA_SUCCESS;
  });
}

VGPU_API cuFuncGetName(const char** name, CUfunction handle) {
  if (!name) return CUDA_ERROR_INVALID_VALUE;
  return with_function(handle, [&](vgpu::Gpu&, CUctx_st&, CUfunc_st& function) {
    *name = function.info->name.c_str();
    return CUDA_SUCCESS;
  });
}

VGPU_API cuFuncGetParamInfo(CUfunction handle, size_t index, size_t* offset, size_t* size) {
  return with_function(handle, [&](vgpu::Gpu&, CUctx_st&, CUfunc_st& function) {
    return parameter_info(function, index, offset, size);
  });
}

VGPU_API cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction handle) {
  if (!state) return CUDA_ERROR_INVALID_VALUE;
  return with_function(handle, [&](vgpu::Gpu&, CUctx_st&, CUfunc_st&) {
    *state = CU_FUNCTION_LOADING_STATE_LOADED;
    return CUDA_SUCCESS;
  });
}

VGPU_API cuFuncLoad(CUfunction handle) {
  return with_function(handle, [](vgpu::Gpu&, CUctx_st&, CUfunc_st&) { return CUDA_SUCCESS; });
}

VGPU_API cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel kernel,
                              CUdevice device) {
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  return cuFuncGetAttribute(value, attribute, as_function(kernel));
}

VGPU_API cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel,
                              CUdevice device) {
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  return cuFuncSetAttribute(as_function(kernel), attribute, value);
}

VGPU_API cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice device) {
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  return cuFuncSetCacheConfig(as_function(kernel), config);
}

VGPU_API cuKernelGetName(const char** name, CUkernel kernel) {
  return cuFuncGetName(name, as_function(kernel));
}

VGPU_API cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t* offset, size_t* size) {
  return cuFuncGetParamInfo(as_function(kernel), index, offset, size);
}
