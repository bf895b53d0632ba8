#include "jit/virtual_gpu/driver/state.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>

#include "jit/virtual_gpu/driver/default_device.h"
#include "jit/virtual_gpu/driver/leaks.h"
#include "jit/virtual_gpu/memory.h"

namespace tilewright::vgpu {

Gpu& Gpu::instance() {
  // Programs call the driver from what they run at exit, too: it goes when the library does (leaks.cpp).
  static Gpu* gpu = new Gpu;
  return *gpu;
}

Gpu::~Gpu() {
  // What nobody waited for is not printed, as on hardware.
  if (description) totals.write(description->info.name + " (virtual)");
}

ContextStack& context_stack() {
  static thread_local ContextStack stack;
  return stack;
}

bool& in_host_function() {
  static thread_local bool running = false;
  return running;
}

bool Gpu::is_active(CUcontext which) const {
  return which == &context ? context.active() : contexts.count(which) != 0;
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
  if (const char* given = std::getenv("TILEWRIGHT_VGPU_DEADLINE"))
    deadline_s = std::max(std::strtod(given, nullptr), 0.0);
  if (const char* given = std::getenv("TILEWRIGHT_VGPU_STREAMS"); given && !streams.set(given)) {
    explain("TILEWRIGHT_VGPU_STREAMS is '" + std::string(given) +
            "', expected eager, late or late:SEED");
    std::fprintf(stderr, "tilewright vgpu: %s\n", report);
    return CUDA_ERROR_INVALID_VALUE;
  }
  totals.read_environment();
  auto wanted = Faults::from_environment();
  if (!wanted) {
    explain("TILEWRIGHT_VGPU_FAULTS: " + wanted.error().message);
    std::fprintf(stderr, "tilewright vgpu: %s\n", report);
    return CUDA_ERROR_INVALID_VALUE;
  }
  faults = std::move(*wanted);
  if (!checking.read_environment()) {
    explain("TILEWRIGHT_VGPU_CHECK is none of off, memory, full");
    std::fprintf(stderr, "tilewright vgpu: %s\n", report);
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (std::string wrong = checking.read_arithmetic(); !wrong.empty()) {
    explain(wrong);
    std::fprintf(stderr, "tilewright vgpu: %s\n", report);
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (const char* file = std::getenv("TILEWRIGHT_VGPU_SHARED"); file && *file && !board) {
    auto opened = Board::open(file, description->info.memory_bytes);
    if (!opened) {
      explain("TILEWRIGHT_VGPU_SHARED: " + opened.error().message);
      std::fprintf(stderr, "tilewright vgpu: %s\n", report);
      return CUDA_ERROR_OPERATING_SYSTEM;
    }
    board = std::move(*opened);
  }
  reset_context(context);
  initialised = true;
  return CUDA_SUCCESS;
}

void Gpu::reset_context(CUctx_st& which) {
  report_leaks(*this, which, "the context");
  // Programs hold variables in the memory: they go first.
  for (auto& [handle, graph] : graphs)
    if (graph->context == &which) graph->nodes.clear();
  for (auto& [handle, exec] : graph_execs)
    if (exec->context == &which) exec->nodes.clear();
  for (auto& capture : which.captures) {
    capture->active = false;
    capture->nodes.clear();
  }
  for (auto& [handle, library] : libraries) library->modules.erase(&which);
  which.modules.clear();
  for (const auto& [address, of_graph] : which.graph_memory) which.allocations.erase(address);
  for (const auto& [address, pooled] : which.pooled) pooled->used -= which.allocations.at(address);
  const bool alone = contexts.empty() || (contexts.size() == 1 && contexts.count(&which) != 0);
  if (alone && !(&which != &context && context.active())) {
    end_mappings(*this);
    memory = Memory::create(description->info.memory_bytes);
    if (board) static_cast<Arena&>(*memory).share(board);
    if (checking.check != Check::kOff) memory->track();
  } else {
    auto& arena = static_cast<Arena&>(*memory);
    for (const auto& [address, bytes] : which.allocations) (void)memory->free(address);
    for (const auto& [address, range] : which.host_ranges) arena.hide(address);
  }
  past_us += which.device_us;
  const int retained = which.retained;
  const unsigned flags = which.flags;
  which = CUctx_st{};
  which.retained = retained;
  which.flags = flags;
  which.id = ++ids;
  which.memory = memory;
  context.memory = memory;
  report = "";
}

GraphMemory::~GraphMemory() {
  if (memory) (void)memory->free(address);
}

bool& null_is_per_thread() {
  static thread_local bool is = false;
  return is;
}

CUstream find_stream(CUctx_st& context, CUstream handle) {
  if (handle == nullptr && null_is_per_thread()) handle = CU_STREAM_PER_THREAD;
  if (handle == nullptr || handle == CU_STREAM_LEGACY) return &context.default_stream;
  if (handle == CU_STREAM_PER_THREAD) {
    auto& stream = context.thread_streams[std::this_thread::get_id()];
    if (!stream) {
      stream = std::make_unique<CUstream_st>();
      stream->id = ++Gpu::instance().ids;
    }
    return stream.get();
  }
  return context.streams.count(handle) ? handle : nullptr;
}

double ready_us(const CUctx_st& context, const CUstream_st& stream) {
  double ready = std::max(stream.ready_us, context.host_us);
  if (&stream == &context.default_stream) {
    for (const auto& [handle, other] : context.streams)
      if (other->blocking) ready = std::max(ready, other->ready_us);
    for (const auto& [thread, other] : context.thread_streams)
      ready = std::max(ready, other->ready_us);
  } else if (stream.blocking) {
    ready = std::max(ready, context.default_stream.ready_us);
  }
  return ready;
}

void advance(CUctx_st& context, CUstream_st& stream, double duration_us) {
  if (const auto& board = Gpu::instance().board) duration_us += board->occupy(duration_us);
  const double start = std::max(ready_us(context, stream), context.device_us);
  stream.ready_us = context.device_us = start + duration_us;
}

bool is_device_address(CUdeviceptr address) { return address >= kArenaBase; }

Range find_range(Gpu& gpu, CUdeviceptr address) {
  auto holding = [&](const auto& table, auto&& bytes_of) {
    auto after = table.upper_bound(address);
    if (after == table.begin()) return table.end();
    --after;
    return address - after->first < bytes_of(after->second) ? after : table.end();
  };
  auto size = [](std::size_t bytes) { return bytes; };
  auto size_of = [](const auto& entry) { return entry.bytes; };
  auto search = [&](CUctx_st& context) -> Range {
    if (auto at = holding(context.allocations, size); at != context.allocations.end())
      return {at->first, at->first, 0, at->second, &context};
    auto host = holding(context.host_ranges, size_of);
    if (host == context.host_ranges.end()) return {};
    return {host->first, host->first,
            host->first, host->second.bytes,
            &context,    host->second.kind == CUctx_st::HostRange::Kind::kManaged};
  };
  Range found = search(gpu.context);
  for (auto& [handle, context] : gpu.contexts)
    if (found.bytes == 0) found = search(*context);
  if (found.bytes != 0) return found;
  auto mapped = holding(gpu.mappings, size_of);
  if (mapped == gpu.mappings.end()) return {};
  return {mapped->first, mapped->first, 0, mapped->second.bytes, mapped->second.context};
}

void call_host(Gpu& gpu, const HostOperation& operation) {
  gpu.mutex.unlock();
  in_host_function() = true;
  operation.function(operation.data);
  in_host_function() = false;
  gpu.mutex.lock();
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
