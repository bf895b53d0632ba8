/// What the virtual driver keeps: one process, one device, its primary context and its handles.
///
/// Work waits in the queue of its stream (queue.h) and is executed by the call that enqueues it, or
/// as late as streams and events allow. As on hardware, an enqueueing call succeeds when the work it
/// enqueues faults; the context's error is returned by the calls after it, until the context is
/// reset. Every call holds the one lock of the process.
#pragma once

#include <cuda.h>

#include <array>
#include <deque>
#include <iterator>
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
#include "jit/virtual_gpu/driver/board.h"
#include "jit/virtual_gpu/driver/checking.h"
#include "jit/virtual_gpu/driver/faults.h"
#include "jit/virtual_gpu/driver/known_launches.h"
#include "jit/virtual_gpu/driver/launch_totals.h"
#include "jit/virtual_gpu/driver/stream_clock.h"
#include "jit/virtual_gpu/driver/stream_history.h"
#include "jit/virtual_gpu/driver/telemetry.h"
#include "jit/virtual_gpu/machine.h"

/// Of the definition of an exported function.
#define VGPU_API extern "C" __attribute__((visibility("default"))) CUresult CUDAAPI

namespace tilewright::vgpu {

struct KernelOperation {
  std::shared_ptr<Program> program;
  const KernelInfo* kernel = nullptr;  ///< of `program`
  CUfunction function = nullptr;       ///< the handle it was launched by
  std::array<unsigned, 3> grid{}, block{};
  std::array<unsigned, 3> cluster{};  ///< zeros: what the kernel requires, else none
  unsigned dynamic_shared_bytes = 0;
  bool cooperative = false;
  std::vector<std::byte> parameters;
  std::optional<Faults::Decision> decision;  ///< none: drawn when it is executed
};

struct FillOperation {
  CUdeviceptr target = 0;
  std::uint32_t value = 0;
  int width = 1;          ///< bytes of an element: 1, 2 or 4
  std::size_t count = 0;  ///< elements of a row
  std::size_t rows = 1, pitch = 0;
};

/// Rows of bytes. With one row, the pitches do not count.
struct CopyOperation {
  enum class Direction { kToDevice, kToHost, kInside, kOnHost } direction = Direction::kInside;
  CUdeviceptr target = 0, source = 0;  ///< a host address where that is its side
  std::size_t bytes = 0;
  std::size_t rows = 1, target_pitch = 0, source_pitch = 0;
  std::shared_ptr<const std::vector<std::byte>> staged;  ///< rows without a pitch, for `source`
};

struct HostOperation {
  CUhostFn function = nullptr;
  void* data = nullptr;
  std::shared_ptr<void> kept;  ///< what `data` points to, where it is the driver's own
};

struct EmptyOperation {};

/// Memory that a node of a graph allocates, at one address for good. The bytes are the device's from
/// then on until nobody refers to the node.
struct GraphMemory {
  std::shared_ptr<Memory> memory;
  CUdeviceptr address = 0;
  std::size_t bytes = 0;
  bool live = false;  ///< allocated and not freed, in the order of the calls
  ~GraphMemory();
};

/// Makes the memory of a graph valid, with nothing in it.
struct AllocateOperation {
  std::shared_ptr<GraphMemory> memory;
};

/// Frees memory in the order of a stream.
struct FreeOperation {
  CUdeviceptr address = 0;
  std::shared_ptr<GraphMemory> memory;  ///< null: of no graph
};

/// In graphs: the launch waits for what the event recorded, or is what it records.
struct WaitOperation {
  CUevent event = nullptr;
};
struct RecordOperation {
  CUevent event = nullptr;
};

struct GraphNode;
/// A graph as a node of another one, as it was when it was added.
struct ChildOperation {
  std::shared_ptr<const std::vector<GraphNode>> nodes;
};

using Operation =
    std::variant<KernelOperation, FillOperation, CopyOperation, HostOperation, EmptyOperation,
                 ChildOperation, FreeOperation, AllocateOperation, WaitOperation, RecordOperation>;

struct GraphNode {
  Operation operation;
  std::vector<int> after;          ///< indices of earlier nodes
  CUgraphNode original = nullptr;  ///< the node that an instantiated one was made from
  bool enabled = true;
};

/// Work in the queue of a stream.
struct Task {
  std::uint64_t number = 0;  ///< in the order of the calls
  CUstream stream = nullptr;
  Operation operation;
  std::vector<std::shared_ptr<Task>> after;  ///< of other streams; none once it is done
  StreamClock clock;                         ///< what it comes after
  std::uint64_t stream_id = 0, count = 0;    ///< its place: the `count`-th of its stream
  double time_us = 0;                        ///< modelled time at which it was done
  bool done = false;
};
using TaskPointer = std::shared_ptr<Task>;

/// A capture in progress: streams that a wait drew in share it.
struct Capture {
  CUgraph graph = nullptr;
  bool given = false;  ///< the graph is the caller's
  std::uint64_t id = 0;
  std::vector<CUgraphNode> nodes;  ///< that it added
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
  bool large_clusters = false;  ///< of more than 8 blocks, as opted in to
};

struct CUmod_st {
  std::shared_ptr<tilewright::vgpu::Program> program;
  int ptx_version = 0;
  std::map<std::string, std::unique_ptr<CUfunc_st>> functions;
};

/// A function of a library, whichever context it is launched in.
struct CUkern_st {
  CUlibrary library = nullptr;
  std::string name;
};

/// PTX that becomes a module in each context that uses it.
struct CUlib_st {
  std::string image;
  std::map<CUcontext, CUmodule> modules;
  std::map<std::string, std::unique_ptr<CUkern_st>> kernels;
};

/// Memory that can be mapped, as a file that is the memory.
struct CUphysical_st {
  int file = -1;
  std::size_t bytes = 0;
  CUmemAllocationProp properties{};
  int handles = 0, mappings = 0;  ///< it lives as long as there are any
  bool fresh = true;              ///< was never mapped
};

struct CUmemPoolHandle_st {
  std::uint64_t release_threshold = 0, used = 0, most_used = 0;
  std::map<CUmemPool_attribute, int> reuse;  ///< policies, kept for whoever asks
};

struct CUstream_st {
  bool blocking = true;  ///< synchronises with the default stream
  int priority = 0;
  std::uint64_t id = 0;
  double ready_us = 0;  ///< modelled time at which its work is done
  std::deque<tilewright::vgpu::TaskPointer> queue;
  tilewright::vgpu::TaskPointer last;  ///< that was enqueued; null: none yet
  bool running = false;                ///< a task of its queue, maybe on another thread
  tilewright::vgpu::StreamClock clock;
  std::uint64_t count = 0;  ///< tasks so far
  std::shared_ptr<tilewright::vgpu::Capture> capture;
  std::vector<CUgraphNode> frontier;   ///< nodes of the capture that the next one comes after
  std::vector<CUgraphEdgeData> edges;  ///< to them, for whoever asks
  std::map<CUstreamAttrID, CUstreamAttrValue> attributes;  ///< those that were set
};

struct CUevent_st {
  bool timed = true;
  bool recorded = false;
  tilewright::vgpu::TaskPointer record;                ///< its last one, outside of captures
  std::shared_ptr<tilewright::vgpu::Capture> capture;  ///< of its last record, if captured
  std::vector<CUgraphNode> frontier;
  std::optional<double> node_us;  ///< of its last record, if a graph's node was it
};

struct CUgraphNode_st {
  CUgraph graph = nullptr;
  tilewright::vgpu::Operation operation;
  std::vector<CUgraphNode> after;
  CUgraph child = nullptr;         ///< of a child node
  CUgraphNode original = nullptr;  ///< in the graph that this one's graph was cloned from
  std::vector<void*> parameters;   ///< of a kernel, as they were last given away
  std::map<CUkernelNodeAttrID, CUkernelNodeAttrValue> attributes;
};

/// What lives as long as the graphs that refer to it.
struct CUuserObject_st {
  void* pointer = nullptr;
  CUhostFn destroy = nullptr;
  std::uint64_t references = 0;
};

struct CUgraph_st {
  CUcontext context = nullptr;               ///< in which it was made
  bool owned = false;                        ///< by a child node, that destroys it
  std::map<CUuserObject, unsigned> objects;  ///< references that it has
  std::vector<std::unique_ptr<CUgraphNode_st>> nodes;
};

/// Nodes in an order to run them in.
struct CUgraphExec_st {
  CUcontext context = nullptr;
  std::vector<tilewright::vgpu::GraphNode> nodes;
  unsigned long long flags = 0;
  std::map<CUuserObject, unsigned> objects;
};

struct CUctx_st {
  int retained = 0;
  unsigned flags = 0;
  std::uint64_t id = 0;
  CUresult error = CUDA_SUCCESS;                     ///< sticky
  std::shared_ptr<tilewright::vgpu::Memory> memory;  ///< of the device: all contexts share it
  std::map<CUdeviceptr, std::size_t> allocations;
  std::map<CUdeviceptr, CUmemoryPool> pooled;  ///< of `allocations`, those from a pool
  /// Of `allocations`, those that nodes of graphs made.
  std::map<CUdeviceptr, std::shared_ptr<tilewright::vgpu::GraphMemory>> graph_memory;
  /// Host memory that kernels reach at its host address.
  struct HostRange {
    enum class Kind { kAllocated, kRegistered, kManaged } kind = Kind::kAllocated;
    std::size_t bytes = 0;
    unsigned flags = 0;
    std::shared_ptr<void> memory;  ///< null: registered
  };
  std::map<CUdeviceptr, HostRange> host_ranges;
  std::map<CUlimit, std::size_t> limits;
  CUfunc_cache cache_config = CU_FUNC_CACHE_PREFER_NONE;
  std::unordered_map<CUmodule, std::unique_ptr<CUmod_st>> modules;
  std::unordered_map<CUstream, std::unique_ptr<CUstream_st>> streams;
  std::unordered_map<CUevent, std::unique_ptr<CUevent_st>> events;
  std::unordered_set<CUfunction> functions;
  CUstream_st default_stream;
  std::map<std::thread::id, std::unique_ptr<CUstream_st>> thread_streams;  ///< default ones
  std::vector<std::unique_ptr<CUstream_st>> retired;  ///< destroyed before their work was done
  std::unordered_set<CUdeviceptr> freeing;            ///< by tasks
  std::unordered_set<CUdeviceptr> synchronous;        ///< allocations, as they were marked
  tilewright::vgpu::StreamClock host_clock;           ///< what the host has waited for
  tilewright::vgpu::StreamHistory history;
  std::vector<std::shared_ptr<tilewright::vgpu::Capture>> captures;  ///< active ones

  double device_us = 0;  ///< modelled time at which the device is idle: it does one thing at a time
  double host_us = 0;    ///< modelled time that the host has waited for

  bool active() const { return retained > 0; }
};

namespace tilewright::vgpu {

/// Of streams; the least is 0.
inline constexpr int kGreatestPriority = -5;

/// Everything that a CUDA driver keeps per process.
struct Gpu {
  std::mutex mutex;
  bool initialised = false;
  std::optional<jit::DeviceDescription> description;
  std::string description_text;  ///< as it was described, to tell a repetition from a change
  CUctx_st context;              ///< the primary one of the only device
  std::unordered_map<CUcontext, std::unique_ptr<CUctx_st>> contexts;  ///< the others
  std::shared_ptr<Board> board;  ///< null: no other process has the device
  std::shared_ptr<Memory> memory;
  /// Of the device's memory, by all processes.
  std::uint64_t memory_used() const { return board ? board->used() : memory->used(); }
  std::unordered_map<CUlibrary, std::unique_ptr<CUlib_st>> libraries;
  std::unordered_map<CUkernel, CUkern_st*> kernels;  ///< of the libraries
  std::unordered_map<CUmemoryPool, std::unique_ptr<CUmemPoolHandle_st>> pools;
  CUmemPoolHandle_st default_pool;
  CUmemoryPool pool = nullptr;  ///< of cuMemAllocAsync; null: the default one
  std::map<CUmemGenericAllocationHandle, CUphysical_st> physical;
  std::map<CUdeviceptr, std::size_t> reservations;
  struct Mapping {
    CUmemGenericAllocationHandle handle = 0;
    std::size_t bytes = 0;
    CUmemAccess_flags access = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    CUcontext context = nullptr;
  };
  std::map<CUdeviceptr, Mapping> mappings;
  std::uint64_t ids = 0;  ///< given to contexts and streams so far
  std::unordered_map<CUgraph, std::unique_ptr<CUgraph_st>> graphs;
  std::unordered_map<CUgraphExec, std::unique_ptr<CUgraphExec_st>> graph_execs;
  std::map<CUdeviceptr, std::weak_ptr<GraphMemory>> graph_memory;  ///< of nodes
  std::unordered_map<CUuserObject, std::unique_ptr<CUuserObject_st>> objects;

  std::uint64_t sample_blocks = 0, sample_seed = 1;
  std::vector<std::uint64_t> chosen_blocks;  ///< ascending; empty: as sample_blocks says
  double deadline_s = 0;
  int threads = 1;
  StreamOrder streams;
  std::uint64_t tasks = 0;         ///< enqueued so far
  Footprint* footprint = nullptr;  ///< of the operation under way; null: nobody asks
  Checking checking;

  Telemetry telemetry;
  Faults faults;                    ///< on request
  bool lost = false;                ///< the device, for good
  CUresult refused = CUDA_SUCCESS;  ///< of the launch under way, by faults on request
  double past_us = 0;               ///< modelled time of contexts that are no more

  KnownLaunches known_launches;
  jit::VirtualLaunch last_launch;
  std::vector<std::uint64_t> last_executed;  ///< empty: all of them
  bool launched = false;
  LaunchTotals totals;
  std::string printed;  ///< by kernels, until the host waits

  /// Says why a call failed, to whoever asks for the report. Texts stay valid for good.
  void explain(std::string text);
  const char* report = "";

  static Gpu& instance();
  static inline bool gone = false;  ///< the library has ended: there is no instance any more
  ~Gpu();

  /// Reads the description if none was given, and the settings of the environment.
  CUresult initialise();
  /// Frees whatever a context holds, and clears its error.
  void reset_context(CUctx_st& which);
  /// Whether calls can be made in it: one that was created, or the primary one while retained.
  bool is_active(CUcontext which) const;

 private:
  std::unordered_set<std::string> reports_;
};

/// Of a device description, always the same one; of a device that processes share, its board's.
std::array<unsigned char, 16> uuid_of(const Gpu& gpu);

/// The contexts of a thread; the last one is current. Without a destructor: one per thread would keep
/// the library from being unloaded.
class ContextStack {
 public:
  bool empty() const { return size_ == 0; }
  CUcontext back() const { return contexts_[size_ - 1]; }
  bool full() const { return size_ == std::size(contexts_); }
  void push_back(CUcontext context) { contexts_[size_++] = context; }
  void pop_back() { --size_; }

 private:
  CUcontext contexts_[256] = {};
  std::size_t size_ = 0;
};
ContextStack& context_stack();
/// Null if none is current.
inline CUcontext current_context() {
  return context_stack().empty() ? nullptr : context_stack().back();
}
/// Whether a host function of a stream is running on this thread: it must not call the driver.
bool& in_host_function();

enum class Needs { kNothing, kInitialised, kContext, kHealthyContext };

/// What every exported function does first: takes the lock, checks what `needs` asks for, returns
/// the sticky error, and lets no exception out. `body(Gpu&, CUctx_st&)` returns a CUresult; its
/// context is the current one, or the primary one where none is needed and none is current.
template <typename Body>
CUresult enter(Needs needs, Body&& body) noexcept {
  try {
    if (Gpu::gone) return CUDA_ERROR_DEINITIALIZED;
    if (in_host_function()) return CUDA_ERROR_NOT_PERMITTED;
    Gpu& gpu = Gpu::instance();
    std::lock_guard lock(gpu.mutex);
    if (needs >= Needs::kInitialised && !gpu.initialised) return CUDA_ERROR_NOT_INITIALIZED;
    const CUcontext current = current_context();
    const bool usable = current && gpu.is_active(current);
    if (needs >= Needs::kContext && !usable) return CUDA_ERROR_INVALID_CONTEXT;
    CUctx_st& context = usable ? *current : gpu.context;
    if (needs >= Needs::kHealthyContext && gpu.lost) return CUDA_ERROR_DEVICE_UNAVAILABLE;
    if (needs >= Needs::kHealthyContext && context.error != CUDA_SUCCESS) return context.error;
    if (context.error == CUDA_SUCCESS) gpu.report = "";
    return body(gpu, context);
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  } catch (...) {
    return CUDA_ERROR_UNKNOWN;
  }
}

/// Whether stream 0 is the thread's own on this thread, for the length of a call.
bool& null_is_per_thread();

/// The default stream for 0 and CU_STREAM_LEGACY, the thread's own for CU_STREAM_PER_THREAD; null
/// where the handle is none of ours.
CUstream find_stream(CUctx_st& context, CUstream handle);

/// Modelled time at which what `stream` holds is done: the default stream waits for blocking ones.
double ready_us(const CUctx_st& context, const CUstream_st& stream);
void advance(CUctx_st& context, CUstream_st& stream, double duration_us);

/// Enqueues: adds a node where the stream captures, else a task. `task`: gets it, null for a node.
CUresult submit(Gpu& gpu, CUctx_st& context, CUstream handle, Operation operation,
                TaskPointer* task = nullptr);

/// Executes now; a fault becomes the error of the context. Gives the lock of the process away while
/// a host function runs.
void execute_task(Gpu& gpu, CUctx_st& context, const Task& task);

/// CUDA_SUCCESS, or the error of a call that must not be made while a capture goes on: it ends the
/// capture.
CUresult refuse_during_capture(CUctx_st& context);

/// CUDA_SUCCESS if both ranges lie within one allocation each.
CUresult check_copy(CUctx_st& context, const CopyOperation& copy);
CUresult check_fill(CUctx_st& context, const FillOperation& fill);

/// Of either kind. Errors: CUDA_ERROR_INVALID_VALUE.
CUresult free_memory(CUctx_st& context, CUdeviceptr address);

/// Of device memory, by its number: no host has such addresses.
bool is_device_address(CUdeviceptr address);

/// An allocation, or a range of page-locked host memory; size 0: neither.
struct Range {
  CUdeviceptr begin = 0, device = 0, host = 0;  ///< device, host: 0 where there is no such address
  std::size_t bytes = 0;
  CUcontext context = nullptr;
  bool managed = false;
};
Range find_range(Gpu& gpu, CUdeviceptr address);

/// Ends all mappings, reservations and their memory.
void end_mappings(Gpu& gpu);

/// Calls a function of the host: without the lock, which is held before and after.
void call_host(Gpu& gpu, const HostOperation& operation);

}  // namespace tilewright::vgpu
