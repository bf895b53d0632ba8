// cuLaunchKernel: limits, and parameters in either of their two forms.
#include <cstring>

#include "jit/virtual_gpu/driver/function.h"
#include "jit/virtual_gpu/driver/state.h"
#include "jit/virtual_gpu/occupancy.h"

using namespace tilewright;
using vgpu::enter;
using vgpu::Needs;

namespace {

/// CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
CUresult check_limits(const jit::DeviceInfo& info, const CUfunc_st& function,
                      const vgpu::KernelOperation& launch) {
  constexpr unsigned kMostBlocksX = 0x7fffffff, kMostBlocksYZ = 65535;
  const auto& [blocks_x, blocks_y, blocks_z] = launch.grid;
  const auto& [threads_x, threads_y, threads_z] = launch.block;
  if (blocks_x == 0 || blocks_y == 0 || blocks_z == 0 || threads_x == 0 || threads_y == 0 ||
      threads_z == 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (blocks_x > kMostBlocksX || blocks_y > kMostBlocksYZ || blocks_z > kMostBlocksYZ)
    return CUDA_ERROR_INVALID_VALUE;
  if (threads_x > 1024 || threads_y > 1024 || threads_z > 64) return CUDA_ERROR_INVALID_VALUE;
  const unsigned threads = threads_x * threads_y * threads_z;
  if (threads > 1024 || threads > unsigned(function.info->max_threads))
    return CUDA_ERROR_INVALID_VALUE;
  if (launch.dynamic_shared_bytes > unsigned(vgpu::max_dynamic_shared_of(function)))
    return CUDA_ERROR_INVALID_VALUE;
  if (!vgpu::registers_fit(info, int(threads), function.info->resources.registers))
    return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  return CUDA_SUCCESS;
}

/// The parameter buffer, from one pointer per parameter or from the caller's own buffer.
CUresult pack(const vgpu::KernelInfo& info, void** parameters, void** extra,
              std::vector<std::byte>& out) {
  if (parameters && extra) return CUDA_ERROR_INVALID_VALUE;
  out.assign(std::size_t(info.parameter_bytes), std::byte{0});
  if (info.parameters.empty()) return CUDA_SUCCESS;
  if (parameters) {
    for (std::size_t i = 0; i < info.parameters.size(); ++i) {
      if (!parameters[i]) return CUDA_ERROR_INVALID_VALUE;
      std::memcpy(out.data() + info.parameters[i].offset, parameters[i],
                  std::size_t(info.parameters[i].size));
    }
    return CUDA_SUCCESS;
  }
  if (!extra) return CUDA_ERROR_INVALID_VALUE;
  const void* buffer = nullptr;
  std::size_t bytes = 0;
  for (void** at = extra; *at != CU_LAUNCH_PARAM_END; at += 2) {
    if (*at == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      buffer = at[1];
    } else if (*at == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      bytes = *static_cast<const std::size_t*>(at[1]);
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  // The buffer ends with the last parameter; what pads it to a multiple may be there or not.
  const auto& last = info.parameters.back();
  if (!buffer || bytes < std::size_t(last.offset + last.size)) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(out.data(), buffer, std::min(bytes, out.size()));
  return CUDA_SUCCESS;
}

}  // namespace

VGPU_API cuLaunchKernel(CUfunction handle, unsigned int grid_x, unsigned int grid_y,
                        unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                        unsigned int block_z, unsigned int shared_bytes, CUstream stream_handle,
                        void** parameters, void** extra) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    const CUfunction function = vgpu::find_function(context, handle);
    const CUstream stream = vgpu::find_stream(context, stream_handle);
    if (!function || !stream) return CUDA_ERROR_INVALID_HANDLE;
    vgpu::KernelOperation launch;
    launch.program = context.modules.at(function->module)->program;
    launch.kernel = function->info;
    launch.grid = {grid_x, grid_y, grid_z};
    launch.block = {block_x, block_y, block_z};
    launch.dynamic_shared_bytes = shared_bytes;
    if (CUresult wrong = check_limits(gpu.description->info, *function, launch)) return wrong;
    if (CUresult wrong = pack(*function->info, parameters, extra, launch.parameters)) return wrong;
    return vgpu::submit(gpu, context, stream, std::move(launch));
  });
}
