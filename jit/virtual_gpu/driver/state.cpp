#include "jit/virtual_gpu/driver/state.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "jit/virtual_gpu/driver/default_device.h"

namespace tilewright::vgpu {

Gpu& Gpu::instance() {
  static Gpu gpu;
  return gpu;
}

CUcontext& current_context() {
  static thread_local CUcontext current = nullptr;
  return current;
}

void Gpu::explain(std::string text) { report = reports_.insert(std::move(text)).first->c_str(); }

CUresult Gpu::initialise() {
  if (initialised) return CUDA_SUCCESS;
  if (!description) {
    std::string text = kDefaultDevice, file = "h200.yaml";
    if (const char* given = std::getenv("TILEWRIGHT_VGPU_DEVICE")) {
      file = given;
      std::ifstream stream(file, std::ios::binary);
      std::stringstream content;
      content << stream.rdbuf();
      text = content.str();
      if (!stream.good()) {
        explain(file + ": cannot be read, expected a device description");
        // Foreign programs know no report.
        std::fprintf(stderr, "tilewright vgpu: TILEWRIGHT_VGPU_DEVICE: %s\n", report);
        return CUDA_ERROR_INVALID_VALUE;
      }
    }
    auto parsed = jit::DeviceDescription::parse(text, file);
    if (!parsed) {
      explain(parsed.error().message);
      std::fprintf(stderr, "tilewright vgpu: %s\n", report);
      return CUDA_ERROR_INVALID_VALUE;
    }
    description = std::move(*parsed);
  }
  if (const char* given = std::getenv("TILEWRIGHT_VGPU_THREADS"))
    threads = std::clamp(std::atoi(given), 1, 256);
  reset_context();
  initialised = true;
  return CUDA_SUCCESS;
}

void Gpu::reset_context() {
  // Programs hold variables in the memory: they go first.
  for (auto& [handle, graph] : graphs) graph->nodes.clear();
  for (auto& [handle, exec] : graph_execs) exec->nodes.clear();
  for (auto& capture : context.captures) {
    capture->active = false;
    capture->nodes.clear();
  }
  context.modules.clear();
  const int retained = context.retained;
  context = CUctx_st{};
  context.retained = retained;
  context.memory = Memory::create(description->info.memory_bytes);
  report = "";
}

CUstream find_stream(CUctx_st& context, CUstream handle) {
  if (handle == nullptr || handle == CU_STREAM_LEGACY) return &context.default_stream;
  return context.streams.count(handle) ? handle : nullptr;
}

double ready_us(const CUctx_st& context, const CUstream_st& stream) {
  double ready = std::max(stream.ready_us, context.host_us);
  if (&stream == &context.default_stream) {
    for (const auto& [handle, other] : context.streams)
      if (other->blocking) ready = std::max(ready, other->ready_us);
  } else if (stream.blocking) {
    ready = std::max(ready, context.default_stream.ready_us);
  }
  return ready;
}

void advance(CUctx_st& context, CUstream_st& stream, double duration_us) {
  const double start = std::max(ready_us(context, stream), context.device_us);
  stream.ready_us = context.device_us = start + duration_us;
}

CUresult refuse_during_capture(CUctx_st& context) {
  CUresult result = CUDA_SUCCESS;
  for (auto& capture : context.captures) {
    const bool ours = capture->thread == std::this_thread::get_id();
    if (capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL ||
        (capture->mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL && ours)) {
      capture->invalid = true;
      result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
  }
  return result;
}

}  // namespace tilewright::vgpu
