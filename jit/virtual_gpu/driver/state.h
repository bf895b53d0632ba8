/// What the virtual driver keeps: one process, one device, its primary context and its handles.
///
/// Work is executed when it is enqueued, in the order of the calls: one of the orders that streams
/// and events allow, so that whatever is enqueued later finds it done. As on hardware, an enqueueing
/// call succeeds when the work it enqueues faults; the context's error is returned by the calls after
/// it, until the context is reset. Every call holds the one lock of the process.
#pragma once

#include <cuda.h>

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <variant>
#include <vector>

#include "jit/device.h"
#include "jit/driver_api.h"
#include "jit/virtual_gpu/machine.h"

/// Of the definition of an exported function.
#define VGPU_API extern "C" __attribute__((visibility("default"))) CUresult CUDAAPI

namespace tilewright::vgpu {

struct KernelOperation {
  std::shared_ptr<Program> program;
  const KernelInfo* kernel = nullptr;  ///< of `program`
  std::array<unsigned, 3> grid{}, block{};
  unsigned dynamic_shared_bytes = 0;
  std::vector<std::byte> parameters;
};

struct FillOperation {
  CUdeviceptr target = 0;
  std::uint32_t value = 0;
  int width = 1;  ///< bytes of an element: 1 or 4
  std::size_t count = 0;
};

struct CopyOperation {
  enum class Direction { kToDevice, kToHost, kInside } direction = Direction::kInside;
  CUdeviceptr target = 0, source = 0;  ///< a host address where that is its side
  std::size_t bytes = 0;
};

using Operation = std::variant<KernelOperation, FillOperation, CopyOperation>;

struct GraphNode {
  Operation operation;
  std::vector<int> after;  ///< indices of earlier nodes
};

/// A capture in progress: streams that a wait drew in share it.
struct Capture {
  std::vector<GraphNode> nodes;
  std::vector<CUstream> members;
  CUstream origin = nullptr;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::thread::id thread;
  bool invalid = false;
  bool active = true;
};

}  // namespace tilewright::vgpu

// cuda.h leaves the types behind its handles to the driver.

struct CUfunc_st {
  CUmodule module = nullptr;
  const tilewright::vgpu::KernelInfo* info = nullptr;
  int ptx_version = 0;          ///< 90 for 9.0
  int max_dynamic_shared = -1;  ///< as opted in to; -1: never
};

struct CUmod_st {
  std::shared_ptr<tilewright::vgpu::Program> program;
  int ptx_version = 0;
  std::map<std::string, std::unique_ptr<CUfunc_st>> functions;
};

struct CUstream_st {
  bool blocking = true;  ///< synchronises with the default stream
  double ready_us = 0;   ///< modelled time at which its work is done
  std::shared_ptr<tilewright::vgpu::Capture> capture;
  std::vector<int> frontier;  ///< nodes of the capture that the next one comes after
};

struct CUevent_st {
  bool timed = true;
  bool recorded = false;
  double time_us = 0;
  std::shared_ptr<tilewright::vgpu::Capture> capture;  ///< of its last record, if captured
  std::vector<int> frontier;
};

struct CUgraph_st {
  std::vector<tilewright::vgpu::GraphNode> nodes;
};

struct CUgraphExec_st {
  std::vector<tilewright::vgpu::GraphNode> nodes;
};

struct CUctx_st {
  int retained = 0;
  CUresult error = CUDA_SUCCESS;  ///< sticky
  std::unique_ptr<tilewright::vgpu::Memory> memory;
  std::map<CUdeviceptr, std::size_t> allocations;
  std::unordered_map<CUmodule, std::unique_ptr<CUmod_st>> modules;
  std::unordered_map<CUstream, std::unique_ptr<CUstream_st>> streams;
  std::unordered_map<CUevent, std::unique_ptr<CUevent_st>> events;
  std::unordered_set<CUfunction> functions;
  CUstream_st default_stream;
  std::vector<std::shared_ptr<tilewright::vgpu::Capture>> captures;  ///< active ones

  double device_us = 0;  ///< modelled time at which the device is idle: it does one thing at a time
  double host_us = 0;    ///< modelled time that the host has waited for

  bool active() const { return retained > 0; }
};

namespace tilewright::vgpu {

/// Everything that a CUDA driver keeps per process.
struct Gpu {
  std::mutex mutex;
  bool initialised = false;
  std::optional<jit::DeviceDescription> description;
  std::string description_text;  ///< as it was described, to tell a repetition from a change
  CUctx_st context;              ///< the primary one of the only device
  std::unordered_map<CUgraph, std::unique_ptr<CUgraph_st>> graphs;
  std::unordered_map<CUgraphExec, std::unique_ptr<CUgraphExec_st>> graph_execs;

  std::uint64_t sample_blocks = 0, sample_seed = 1;
  std::vector<std::uint64_t> chosen_blocks;  ///< ascending; empty: as sample_blocks says
  double deadline_s = 0;
  int threads = 1;

  jit::VirtualLaunch last_launch;
  std::vector<std::uint64_t> last_executed;  ///< empty: all of them
  bool launched = false;

  /// Says why a call failed, to whoever asks for the report. Texts stay valid for good.
  void explain(std::string text);
  const char* report = "";

  static Gpu& instance();

  /// Reads the description if none was given, and the settings of the environment.
  CUresult initialise();
  /// Frees whatever the primary context holds, and clears its error.
  void reset_context();

 private:
  std::unordered_set<std::string> reports_;
};

/// The context that is current on this thread; null if none is.
CUcontext& current_context();

enum class Needs { kNothing, kInitialised, kContext, kHealthyContext };

/// What every exported function does first: takes the lock, checks what `needs` asks for, returns
/// the sticky error, and lets no exception out. `body(Gpu&, CUctx_st&)` returns a CUresult.
template <typename Body>
CUresult enter(Needs needs, Body&& body) noexcept {
  try {
    Gpu& gpu = Gpu::instance();
    std::lock_guard lock(gpu.mutex);
    CUctx_st& context = gpu.context;
    if (needs >= Needs::kInitialised && !gpu.initialised) return CUDA_ERROR_NOT_INITIALIZED;
    if (needs >= Needs::kContext && (current_context() != &context || !context.active()))
      return CUDA_ERROR_INVALID_CONTEXT;
    if (needs >= Needs::kHealthyContext && context.error != CUDA_SUCCESS) return context.error;
    if (context.error == CUDA_SUCCESS) gpu.report = "";
    return body(gpu, context);
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  } catch (...) {
    return CUDA_ERROR_UNKNOWN;
  }
}

/// The default stream for 0 and CU_STREAM_LEGACY; null where the handle is none of ours.
CUstream find_stream(CUctx_st& context, CUstream handle);

/// Modelled time at which what `stream` holds is done: the default stream waits for blocking ones.
double ready_us(const CUctx_st& context, const CUstream_st& stream);
void advance(CUctx_st& context, CUstream_st& stream, double duration_us);

/// Enqueues: adds a node where the stream captures, else executes.
CUresult submit(Gpu& gpu, CUctx_st& context, CUstream handle, Operation operation);

/// Executes now; a fault becomes the error of the context. `launch_us`: of a kernel.
/// Returns the modelled time.
double execute_now(Gpu& gpu, CUctx_st& context, const Operation& operation, double launch_us);

/// CUDA_SUCCESS, or the error of a call that must not be made while a capture goes on: it ends the
/// capture.
CUresult refuse_during_capture(CUctx_st& context);

/// CUDA_SUCCESS if both ranges lie within one allocation each.
CUresult check_copy(CUctx_st& context, const CopyOperation& copy);

}  // namespace tilewright::vgpu
