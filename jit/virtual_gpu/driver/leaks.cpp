#include "jit/virtual_gpu/driver/leaks.h"

#include <unistd.h>

#include <mutex>

namespace tilewright::vgpu {

void report_leaks(Gpu& gpu, const CUctx_st& context, const char* ended) {
  Checking& checking = gpu.checking;
  if (checking.check == Check::kOff || context.error != CUDA_SUCCESS) return;
  for (const auto& [address, bytes] : context.allocations)
    if (!context.freeing.count(address)) checking.add_leak(ended, address, bytes);
  std::size_t pinned = 0, graphs = 0, graph_execs = 0, of_libraries = 0;
  for (const auto& [address, range] : context.host_ranges) {
    if (range.kind == CUctx_st::HostRange::Kind::kManaged)
      checking.add_leak(ended, address, range.bytes);
    pinned += range.kind == CUctx_st::HostRange::Kind::kAllocated ? 1 : 0;
  }
  for (const auto& [handle, graph] : gpu.graphs)
    graphs += graph->context == &context && !graph->owned ? 1 : 0;
  for (const auto& [handle, exec] : gpu.graph_execs)
    graph_execs += exec->context == &context ? 1 : 0;
  for (const auto& [handle, library] : gpu.libraries)
    for (const auto& [of, module] : library->modules) of_libraries += of == &context ? 1 : 0;
  checking.add_leaks(ended, "modules", context.modules.size() - of_libraries);
  checking.add_leaks(ended, "streams", context.streams.size());
  checking.add_leaks(ended, "events", context.events.size());
  checking.add_leaks(ended, "graphs", graphs);
  checking.add_leaks(ended, "instantiated graphs", graph_execs);
  checking.add_leaks(ended, "page-locked host allocations", pinned);
}

namespace {

/// The process that loaded the library: what it forked ends with nothing of its own.
const pid_t& owner() {
  static const pid_t pid = getpid();
  return pid;
}

[[gnu::constructor]] void loaded() { owner(); }

void report_all(Gpu& gpu) {
  constexpr const char* kEnded = "the process";
  report_leaks(gpu, gpu.context, kEnded);
  bool healthy = gpu.context.error == CUDA_SUCCESS;
  for (const auto& [handle, context] : gpu.contexts) {
    report_leaks(gpu, *context, kEnded);
    healthy = healthy && context->error == CUDA_SUCCESS;
  }
  if (!healthy) return;
  gpu.checking.add_leaks(kEnded, "contexts", gpu.contexts.size());
  gpu.checking.add_leaks(kEnded, "libraries", gpu.libraries.size());
  gpu.checking.add_leaks(kEnded, "memory pools", gpu.pools.size());
  gpu.checking.add_leaks(kEnded, "physical allocations", gpu.physical.size());
}

/// When the process ends, or the library is unloaded: after all that the program does at its exit.
[[gnu::destructor]] void ended() {
  Gpu& gpu = Gpu::instance();
  // A thread that goes on while the process ends keeps what it uses.
  std::unique_lock lock(gpu.mutex, std::try_to_lock);
  if (!lock) return;
  if (gpu.initialised && owner() == getpid()) report_all(gpu);
  lock.unlock();
  Gpu::gone = true;
  delete &gpu;
}

}  // namespace
}  // namespace tilewright::vgpu
