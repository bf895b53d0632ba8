// What the library exports beside the driver API.
#include <algorithm>

#include "jit/virtual_gpu/driver/queue.h"

using namespace tilewright;
using vgpu::enter;
using vgpu::Needs;

namespace tilewright::jit {

VGPU_API tilewrightVgpuDescribe(const char* yaml, const char* file) {
  return enter(Needs::kNothing, [&](vgpu::Gpu& gpu, CUctx_st&) {
    if (!yaml || !file) return CUDA_ERROR_INVALID_VALUE;
    if (gpu.initialised) {
      if (gpu.description_text == yaml) return CUDA_SUCCESS;
      gpu.explain("the virtual GPU of this process is already '" + gpu.description->id +
                  "', expected the same description as before");
      return CUDA_ERROR_ILLEGAL_STATE;
    }
    auto parsed = DeviceDescription::parse(yaml, file);
    if (!parsed) {
      gpu.explain(parsed.error().message);
      return CUDA_ERROR_INVALID_VALUE;
    }
    gpu.description = std::move(*parsed);
    gpu.description_text = yaml;
    return CUDA_SUCCESS;
  });
}

VGPU_API tilewrightVgpuSampleBlocks(std::uint64_t blocks, std::uint64_t seed) {
  return enter(Needs::kNothing, [&](vgpu::Gpu& gpu, CUctx_st&) {
    vgpu::drain_all(gpu);
    gpu.sample_blocks = blocks;
    gpu.sample_seed = seed;
    return CUDA_SUCCESS;
  });
}

VGPU_API tilewrightVgpuChooseBlocks(const std::uint64_t* blocks, std::uint64_t count) {
  return enter(Needs::kNothing, [&](vgpu::Gpu& gpu, CUctx_st&) {
    if (count > 0 && !blocks) return CUDA_ERROR_INVALID_VALUE;
    if (!std::is_sorted(blocks, blocks + count)) return CUDA_ERROR_INVALID_VALUE;
    vgpu::drain_all(gpu);
    gpu.chosen_blocks.assign(blocks, blocks + count);
    return CUDA_SUCCESS;
  });
}

VGPU_API tilewrightVgpuSetDeadline(double seconds) {
  return enter(Needs::kNothing, [&](vgpu::Gpu& gpu, CUctx_st&) {
    if (!(seconds >= 0)) return CUDA_ERROR_INVALID_VALUE;
    vgpu::drain_all(gpu);
    gpu.deadline_s = seconds;
    return CUDA_SUCCESS;
  });
}

VGPU_API tilewrightVgpuSetChecks(const char* level, std::uint64_t seed) {
  return enter(Needs::kNothing, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    vgpu::drain_all(gpu);
    if (level && !gpu.checking.set(level)) return CUDA_ERROR_INVALID_VALUE;
    gpu.checking.seed = level ? seed : gpu.checking.seed ^ seed;
    if (gpu.checking.check != vgpu::Check::kOff && context.memory) context.memory->track();
    return CUDA_SUCCESS;
  });
}

VGPU_API tilewrightVgpuReuseTimes(int on) {
  return enter(Needs::kNothing, [&](vgpu::Gpu& gpu, CUctx_st&) {
    gpu.known_launches.keep(on != 0);
    return CUDA_SUCCESS;
  });
}

VGPU_API tilewrightVgpuTimesVary(int* out) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st&) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = gpu.faults.vary_times() || vgpu::others_work(gpu.board);
    return CUDA_SUCCESS;
  });
}

VGPU_API tilewrightVgpuShared(int* out) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st&) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = gpu.board != nullptr;
    return CUDA_SUCCESS;
  });
}

VGPU_API tilewrightVgpuLastLaunch(VirtualLaunch* out) {
  return enter(Needs::kNothing, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    vgpu::drain_all(gpu);
    // The last launch did not finish: its fault, and not what was before it.
    if (context.error != CUDA_SUCCESS) return context.error;
    if (!gpu.launched) return CUDA_ERROR_NOT_FOUND;
    *out = gpu.last_launch;
    return CUDA_SUCCESS;
  });
}

extern "C" __attribute__((visibility("default"))) const char* tilewrightVgpuReport() {
  vgpu::Gpu& gpu = vgpu::Gpu::instance();
  std::lock_guard lock(gpu.mutex);
  return gpu.report;
}

extern "C" __attribute__((visibility("default"))) const char* tilewrightVgpuReports() {
  vgpu::Gpu& gpu = vgpu::Gpu::instance();
  std::lock_guard lock(gpu.mutex);
  vgpu::drain_all(gpu);
  return gpu.checking.take();
}

extern "C" __attribute__((visibility("default"))) std::uint64_t tilewrightVgpuExecutedBlocks(
    std::uint64_t* out, std::uint64_t capacity) {
  vgpu::Gpu& gpu = vgpu::Gpu::instance();
  std::lock_guard lock(gpu.mutex);
  vgpu::drain_all(gpu);
  if (!gpu.launched) return 0;
  const std::uint64_t count = gpu.last_launch.blocks_executed;
  for (std::uint64_t i = 0; out && i < std::min(count, capacity); ++i)
    out[i] = gpu.last_executed.empty() ? i : gpu.last_executed[i];
  return count;
}

}  // namespace tilewright::jit

extern "C" __attribute__((visibility("default"))) int tilewrightVgpuSetStreams(const char* mode) {
  return enter(Needs::kNothing, [&](vgpu::Gpu& gpu, CUctx_st&) {
    vgpu::drain_all(gpu);
    return mode && gpu.streams.set(mode) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}
