// Launches: limits, parameters in either of their two forms, attributes; and what fits the device.
#include <algorithm>
#include <array>
#include <cstring>

#include "jit/virtual_gpu/driver/function.h"
#include "jit/virtual_gpu/driver/state.h"
#include "jit/virtual_gpu/occupancy.h"

using namespace tilewright;
using vgpu::enter;
using vgpu::Needs;

namespace tilewright::vgpu {
namespace {

constexpr unsigned kPortableCluster = 8;

/// With non-portable sizes allowed: 16 is documented of Hopper and of 10.x, of others nothing.
unsigned largest_cluster(const jit::DeviceInfo& info) {
  return info.compute_major == 9 || info.compute_major == 10 ? 16 : kPortableCluster;
}

bool is_given(const std::array<unsigned, 3>& cluster) {
  return cluster[0] != 0 || cluster[1] != 0 || cluster[2] != 0;
}

unsigned blocks_of(const std::array<unsigned, 3>& shape) { return shape[0] * shape[1] * shape[2]; }

CUresult check_cluster(const jit::DeviceInfo& info, const CUfunc_st& function,
                       const KernelOperation& launch) {
  const KernelInfo& kernel = *function.info;
  if (!is_given(launch.cluster)) {
    if (kernel.explicit_cluster && !is_given(kernel.cluster))
      return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    if (!is_given(kernel.cluster)) return CUDA_SUCCESS;
  }
  if (info.compute_major < 9) return CUDA_ERROR_NOT_SUPPORTED;
  const auto& cluster = is_given(launch.cluster) ? launch.cluster : kernel.cluster;
  if (is_given(kernel.cluster) && cluster != kernel.cluster) return CUDA_ERROR_INVALID_VALUE;
  std::uint64_t blocks = 1;
  for (int i = 0; i < 3; ++i) {
    if (cluster[i] == 0 || launch.grid[i] % cluster[i] != 0) return CUDA_ERROR_INVALID_VALUE;
    blocks *= cluster[i];
  }
  const unsigned most = function.large_clusters ? largest_cluster(info) : kPortableCluster;
  if (blocks > most || (kernel.max_cluster_blocks != 0 && blocks > kernel.max_cluster_blocks))
    return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult check_limits(const jit::DeviceInfo& info, const CUfunc_st& function,
                      const KernelOperation& launch) {
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
  if (launch.dynamic_shared_bytes > unsigned(max_dynamic_shared_of(function)))
    return CUDA_ERROR_INVALID_VALUE;
  if (!registers_fit(info, int(threads), function.info->resources.registers))
    return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  if (CUresult wrong = check_cluster(info, function, launch)) return wrong;
  const std::uint64_t blocks = std::uint64_t(blocks_x) * blocks_y * blocks_z;
  if (launch.cooperative && blocks > std::uint64_t(resident_blocks(info, function, int(threads),
                                                                   launch.dynamic_shared_bytes)) *
                                         std::uint64_t(info.sm_count))
    return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  return CUDA_SUCCESS;
}

CUresult pack_parameters(const KernelInfo& info, void** parameters, void** extra,
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

}  // namespace tilewright::vgpu

namespace {

/// Events that a launch records.
struct Attributes {
  std::vector<CUevent> recorded;
};

CUresult read_attributes(const CUlaunchConfig& config, vgpu::KernelOperation* launch,
                         Attributes* out) {
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const CUlaunchAttributeValue& value = config.attrs[i].value;
    unsigned id = 0;  // of newer drivers perhaps, hence no value of the enumeration
    std::memcpy(&id, &config.attrs[i].id, sizeof id);
    switch (id) {
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        launch->cluster = {value.clusterDim.x, value.clusterDim.y, value.clusterDim.z};
        break;
      case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        launch->cooperative = value.cooperative != 0;
        break;
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
        out->recorded.push_back(value.programmaticEvent.event);
        break;
      case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
        out->recorded.push_back(value.launchCompletionEvent.event);
        break;
      // What a device that executes launches one by one may leave aside.
      case CU_LAUNCH_ATTRIBUTE_IGNORE:
      case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
      case CU_LAUNCH_ATTRIBUTE_PRIORITY:
      case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
      case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
      case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        break;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

CUresult launch(const CUlaunchConfig& config, CUfunction handle, void** parameters, void** extra,
                bool cooperative) {
  Attributes attributes;
  const CUresult result = enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    const CUfunction function = vgpu::find_function(gpu, context, handle);
    const CUstream stream = vgpu::find_stream(context, config.hStream);
    if (!function || !stream) return CUDA_ERROR_INVALID_HANDLE;
    if (config.numAttrs > 0 && !config.attrs) return CUDA_ERROR_INVALID_VALUE;
    vgpu::KernelOperation launch;
    launch.program = context.modules.at(function->module)->program;
    launch.kernel = function->info;
    launch.function = function;
    launch.grid = {config.gridDimX, config.gridDimY, config.gridDimZ};
    launch.block = {config.blockDimX, config.blockDimY, config.blockDimZ};
    launch.dynamic_shared_bytes = config.sharedMemBytes;
    launch.cooperative = cooperative;
    if (CUresult wrong = read_attributes(config, &launch, &attributes)) return wrong;
    if (CUresult wrong = vgpu::check_limits(gpu.description->info, *function, launch)) return wrong;
    if (CUresult wrong =
            vgpu::pack_parameters(*function->info, parameters, extra, launch.parameters))
      return wrong;
    return vgpu::submit(gpu, context, stream, std::move(launch));
  });
  if (result != CUDA_SUCCESS) return result;
  for (CUevent event : attributes.recorded)
    if (CUresult wrong = cuEventRecord(event, config.hStream)) return wrong;
  return CUDA_SUCCESS;
}

CUlaunchConfig config_of(std::array<unsigned, 3> grid, std::array<unsigned, 3> block,
                         unsigned shared_bytes, CUstream stream) {
  CUlaunchConfig config{};
  config.gridDimX = grid[0];
  config.gridDimY = grid[1];
  config.gridDimZ = grid[2];
  config.blockDimX = block[0];
  config.blockDimY = block[1];
  config.blockDimZ = block[2];
  config.sharedMemBytes = shared_bytes;
  config.hStream = stream;
  return config;
}

/// The largest block, in whole warps, that gives an SM the most threads.
void choose_block(const jit::DeviceInfo& info, const CUfunc_st& function,
                  CUoccupancyB2DSize shared_of, std::size_t shared, int limit, int* blocks,
                  int* threads) {
  int most = 0;
  *blocks = *threads = 0;
  const int bound = vgpu::max_threads_of(info, function);
  const int start = limit > 0 ? std::min(limit, bound) : bound;
  for (int count = (start + 31) / 32 * 32; count > 0; count -= 32) {
    const int size = std::min(count, start);
    const std::size_t bytes = shared_of ? shared_of(size) : shared;
    const int resident = vgpu::resident_blocks(info, function, size, bytes);
    if (resident * size <= most) continue;
    most = resident * size;
    *threads = size;
    *blocks = resident * info.sm_count;
  }
}

}  // namespace

VGPU_API cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                        unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                        unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                        void** parameters, void** extra) {
  return launch(
      config_of({grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes, stream),
      function, parameters, extra, false);
}

VGPU_API cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters,
                          void** extra) {
  if (!config) return CUDA_ERROR_INVALID_VALUE;
  return launch(*config, function, parameters, extra, false);
}

VGPU_API cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                   unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                   unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                                   void** parameters) {
  return launch(
      config_of({grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes, stream),
      function, parameters, nullptr, true);
}

VGPU_API cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int threads,
                                                     size_t dynamic_shared) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads,
                                                              dynamic_shared, 0);
}

VGPU_API cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction handle,
                                                              int threads, size_t dynamic_shared,
                                                              unsigned int flags) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    if (!blocks || threads <= 0 || flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)
      return CUDA_ERROR_INVALID_VALUE;
    const CUfunction function = vgpu::find_function(gpu, context, handle);
    if (!function) return CUDA_ERROR_INVALID_HANDLE;
    *blocks = vgpu::resident_blocks(gpu.description->info, *function, threads, dynamic_shared);
    return CUDA_SUCCESS;
  });
}

VGPU_API cuOccupancyMaxPotentialBlockSize(int* blocks, int* threads, CUfunction function,
                                          CUoccupancyB2DSize shared_of, size_t dynamic_shared,
                                          int limit) {
  return cuOccupancyMaxPotentialBlockSizeWithFlags(blocks, threads, function, shared_of,
                                                   dynamic_shared, limit, 0);
}

VGPU_API cuOccupancyMaxPotentialBlockSizeWithFlags(int* blocks, int* threads, CUfunction handle,
                                                   CUoccupancyB2DSize shared_of,
                                                   size_t dynamic_shared, int limit,
                                                   unsigned int flags) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    if (!blocks || !threads || limit < 0 || flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)
      return CUDA_ERROR_INVALID_VALUE;
    const CUfunction function = vgpu::find_function(gpu, context, handle);
    if (!function) return CUDA_ERROR_INVALID_HANDLE;
    choose_block(gpu.description->info, *function, shared_of, dynamic_shared, limit, blocks,
                 threads);
    return CUDA_SUCCESS;
  });
}

VGPU_API cuOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, CUfunction handle, int blocks,
                                                 int threads) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    if (!bytes || blocks <= 0 || threads <= 0) return CUDA_ERROR_INVALID_VALUE;
    const CUfunction function = vgpu::find_function(gpu, context, handle);
    if (!function) return CUDA_ERROR_INVALID_HANDLE;
    const jit::DeviceInfo& info = gpu.description->info;
    if (vgpu::resident_blocks(info, *function, threads, 0) < blocks)
      return CUDA_ERROR_INVALID_VALUE;
    std::size_t least = 0, most = std::size_t(vgpu::max_dynamic_shared_of(*function));
    while (least < most) {
      const std::size_t middle = least + (most - least + 1) / 2;
      if (vgpu::resident_blocks(info, *function, threads, middle) >= blocks) {
        least = middle;
      } else {
        most = middle - 1;
      }
    }
    *bytes = least;
    return CUDA_SUCCESS;
  });
}

/// As if every GPC had the SMs for its clusters: a bound from above of what hardware reports.
VGPU_API cuOccupancyMaxActiveClusters(int* clusters, CUfunction handle,
                                      const CUlaunchConfig* config) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    if (!clusters || !config) return CUDA_ERROR_INVALID_VALUE;
    const CUfunction function = vgpu::find_function(gpu, context, handle);
    if (!function) return CUDA_ERROR_INVALID_HANDLE;
    vgpu::KernelOperation launch;
    Attributes ignored;
    launch.grid = {config->gridDimX, config->gridDimY, config->gridDimZ};
    launch.block = {config->blockDimX, config->blockDimY, config->blockDimZ};
    launch.dynamic_shared_bytes = config->sharedMemBytes;
    if (CUresult wrong = read_attributes(*config, &launch, &ignored)) return wrong;
    const jit::DeviceInfo& info = gpu.description->info;
    if (CUresult wrong = vgpu::check_limits(info, *function, launch)) return wrong;
    const auto& required = function->info->cluster;
    const auto& shape = vgpu::is_given(launch.cluster) ? launch.cluster : required;
    const unsigned blocks = std::max(vgpu::blocks_of(shape), 1u);
    *clusters = vgpu::resident_blocks(info, *function, int(vgpu::blocks_of(launch.block)),
                                      config->sharedMemBytes) *
                info.sm_count / int(blocks);
    return CUDA_SUCCESS;
  });
}

VGPU_API cuOccupancyMaxPotentialClusterSize(int* blocks, CUfunction handle,
                                            const CUlaunchConfig* config) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    if (!blocks || !config) return CUDA_ERROR_INVALID_VALUE;
    const CUfunction function = vgpu::find_function(gpu, context, handle);
    if (!function) return CUDA_ERROR_INVALID_HANDLE;
    const jit::DeviceInfo& info = gpu.description->info;
    if (info.compute_major < 9) return CUDA_ERROR_NOT_SUPPORTED;
    *blocks = int(function->large_clusters ? vgpu::largest_cluster(info) : vgpu::kPortableCluster);
    return CUDA_SUCCESS;
  });
}
