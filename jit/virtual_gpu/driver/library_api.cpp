// Libraries: PTX that any context may use.
#include "jit/virtual_gpu/driver/function.h"
#include "jit/virtual_gpu/driver/queue.h"
#include "jit/virtual_gpu/driver/state.h"

using namespace tilewright;
using vgpu::enter;
using vgpu::Needs;

namespace {

/// Calls `body(Gpu&, CUctx_st&, CUmodule)` with the module that a library is in the current context.
template <typename Body>
CUresult with_module(CUlibrary library, Body&& body) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    CUmodule module = nullptr;
    if (CUresult wrong = vgpu::module_of(gpu, context, library, &module)) return wrong;
    return body(gpu, context, module);
  });
}

CUresult load(vgpu::Gpu& gpu, CUctx_st& context, const void* image, CUlibrary* out) {
  auto library = std::make_unique<CUlib_st>();
  if (CUresult wrong = vgpu::text_of(gpu, image, &library->image)) return wrong;
  // Loads it at once, to tell what is wrong with it; a context that is not in use keeps nothing.
  CUmodule module = nullptr;
  if (CUresult wrong = vgpu::load_module(gpu, context, library->image.c_str(), &module))
    return wrong;
  if (gpu.is_active(&context)) {
    library->modules.emplace(&context, module);
  } else {
    vgpu::unload_module(context, module);
  }
  *out = library.get();
  gpu.libraries.emplace(*out, std::move(library));
  return CUDA_SUCCESS;
}

/// Of what PTX text has no way to hold: whether the library is one, and that it has it not.
CUresult find_none(CUlibrary handle, bool valid) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st&) {
    if (!valid) return CUDA_ERROR_INVALID_VALUE;
    return gpu.libraries.count(handle) ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_HANDLE;
  });
}

CUkernel kernel_of(vgpu::Gpu& gpu, CUlibrary library, const std::string& name) {
  auto& kernel = library->kernels[name];
  if (!kernel) {
    kernel = std::make_unique<CUkern_st>();
    kernel->library = library;
    kernel->name = name;
    gpu.kernels.emplace(kernel.get(), kernel.get());
  }
  return kernel.get();
}

}  // namespace

namespace tilewright::vgpu {

CUresult module_of(Gpu& gpu, CUctx_st& context, CUlibrary handle, CUmodule* out) {
  auto library = gpu.libraries.find(handle);
  if (library == gpu.libraries.end()) return CUDA_ERROR_INVALID_HANDLE;
  auto& modules = library->second->modules;
  if (auto known = modules.find(&context); known != modules.end()) {
    *out = known->second;
    return CUDA_SUCCESS;
  }
  if (CUresult wrong = load_module(gpu, context, library->second->image.c_str(), out)) return wrong;
  modules.emplace(&context, *out);
  return CUDA_SUCCESS;
}

}  // namespace tilewright::vgpu

VGPU_API cuLibraryLoadData(CUlibrary* out, const void* image, CUjit_option*, void**, unsigned int,
                           CUlibraryOption*, void**, unsigned int) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    if (!out || !image) return CUDA_ERROR_INVALID_VALUE;
    return load(gpu, context, image, out);
  });
}

VGPU_API cuLibraryLoadFromFile(CUlibrary* out, const char* file, CUjit_option*, void**,
                               unsigned int, CUlibraryOption*, void**, unsigned int) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    std::string image;
    if (!out || !file) return CUDA_ERROR_INVALID_VALUE;
    if (CUresult wrong = vgpu::read_image(file, &image)) return wrong;
    return load(gpu, context, image.data(), out);
  });
}

VGPU_API cuLibraryUnload(CUlibrary handle) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st&) {
    auto library = gpu.libraries.find(handle);
    if (library == gpu.libraries.end()) return CUDA_ERROR_INVALID_HANDLE;
    vgpu::drain_all(gpu);
    for (auto& [context, module] : library->second->modules) vgpu::unload_module(*context, module);
    for (auto& [name, kernel] : library->second->kernels) gpu.kernels.erase(kernel.get());
    gpu.libraries.erase(library);
    return CUDA_SUCCESS;
  });
}

VGPU_API cuLibraryGetModule(CUmodule* out, CUlibrary handle) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  return with_module(handle, [&](vgpu::Gpu&, CUctx_st&, CUmodule module) {
    *out = module;
    return CUDA_SUCCESS;
  });
}

VGPU_API cuLibraryGetKernel(CUkernel* out, CUlibrary handle, const char* name) {
  if (!out || !name) return CUDA_ERROR_INVALID_VALUE;
  return with_module(handle, [&](vgpu::Gpu& gpu, CUctx_st& context, CUmodule module) {
    if (!context.modules.at(module)->program->find(name)) return CUDA_ERROR_NOT_FOUND;
    *out = kernel_of(gpu, handle, name);
    return CUDA_SUCCESS;
  });
}

VGPU_API cuLibraryGetKernelCount(unsigned int* count, CUlibrary handle) {
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  return with_module(handle, [&](vgpu::Gpu&, CUctx_st& context, CUmodule module) {
    *count = unsigned(context.modules.at(module)->program->kernels().size());
    return CUDA_SUCCESS;
  });
}

VGPU_API cuLibraryEnumerateKernels(CUkernel* out, unsigned int count, CUlibrary handle) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  return with_module(handle, [&](vgpu::Gpu& gpu, CUctx_st& context, CUmodule module) {
    for (const std::string& name : context.modules.at(module)->program->kernels()) {
      if (count-- == 0) break;
      *out++ = kernel_of(gpu, handle, name);
    }
    return CUDA_SUCCESS;
  });
}

VGPU_API cuLibraryGetGlobal(CUdeviceptr* address, size_t* bytes, CUlibrary handle,
                            const char* name) {
  if (!name || (!address && !bytes)) return CUDA_ERROR_INVALID_VALUE;
  return with_module(handle, [&](vgpu::Gpu&, CUctx_st& context, CUmodule module) {
    const auto variable = context.modules.at(module)->program->variable(name);
    if (!variable) return CUDA_ERROR_NOT_FOUND;
    if (address) *address = variable->address;
    if (bytes) *bytes = variable->bytes;
    return CUDA_SUCCESS;
  });
}

VGPU_API cuLibraryGetManaged(CUdeviceptr* address, size_t* bytes, CUlibrary handle,
                             const char* name) {
  return find_none(handle, name && (address || bytes));
}

VGPU_API cuLibraryGetUnifiedFunction(void** out, CUlibrary handle, const char* name) {
  return find_none(handle, out && name);
}

VGPU_API cuKernelGetFunction(CUfunction* out, CUkernel handle) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    if (!gpu.kernels.count(handle)) return CUDA_ERROR_INVALID_HANDLE;
    *out = vgpu::find_function(gpu, context, reinterpret_cast<CUfunction>(handle));
    return *out ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
  });
}

VGPU_API cuKernelGetLibrary(CUlibrary* out, CUkernel handle) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st&) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    auto kernel = gpu.kernels.find(handle);
    if (kernel == gpu.kernels.end()) return CUDA_ERROR_INVALID_HANDLE;
    *out = kernel->second->library;
    return CUDA_SUCCESS;
  });
}
