/// The limits of a function that attributes and launches share.
#pragma once

#include "jit/virtual_gpu/driver/state.h"

namespace tilewright::vgpu {

inline constexpr int kSharedWithoutOptIn = 48 * 1024;

/// The smaller of its launch bound and of what its registers allow.
int max_threads_of(const jit::DeviceInfo& info, const CUfunc_st& function);
int max_dynamic_shared_of(const CUfunc_st& function);
/// A function, or a library's kernel in its stead: then the function that it is in `context`, whose
/// module is loaded if it was not yet. Null where the handle is none of ours.
CUfunction find_function(Gpu& gpu, CUctx_st& context, CUfunction handle);

/// CUDA C++ Programming Guide, "Technical Specifications per Compute Capability". A cluster, a
/// cooperative grid included.
CUresult check_limits(const jit::DeviceInfo& info, const CUfunc_st& function,
                      const KernelOperation& launch);
/// The parameter buffer, from one pointer per parameter or from the caller's own buffer.
CUresult pack_parameters(const KernelInfo& info, void** parameters, void** extra,
                         std::vector<std::byte>& out);
/// Blocks per SM; 0 where one does not fit.
int resident_blocks(const jit::DeviceInfo& info, const CUfunc_st& function, int threads,
                    std::size_t dynamic_shared);

/// The PTX of an image: itself, or what a fat binary holds for the device.
CUresult text_of(Gpu& gpu, const void* image, std::string* out);
/// Errors: CUDA_ERROR_FILE_NOT_FOUND.
CUresult read_image(const char* file, std::string* out);
/// Loads PTX, or the PTX of a fat binary, into a context.
CUresult load_module(Gpu& gpu, CUctx_st& context, const char* image, CUmodule* out);
void unload_module(CUctx_st& context, CUmodule module);
/// Errors: CUDA_ERROR_NOT_FOUND.
CUresult get_function(CUctx_st& context, CUmodule module, const char* name, CUfunction* out);
CUresult get_attribute(Gpu& gpu, const CUfunc_st& function, CUfunction_attribute attribute,
                       int* value);
CUresult set_attribute(Gpu& gpu, CUfunc_st& function, CUfunction_attribute attribute, int value);
/// The module that a library is in `context`.
CUresult module_of(Gpu& gpu, CUctx_st& context, CUlibrary library, CUmodule* out);

}  // namespace tilewright::vgpu
