// What streams and graphs hold - kernels, copies, fills - enqueued and executed.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "jit/lazy_memory.h"
#include "jit/virtual_gpu/check/shadow.h"
#include "jit/virtual_gpu/driver/graph.h"
#include "jit/virtual_gpu/driver/inject.h"
#include "jit/virtual_gpu/driver/queue.h"
#include "jit/virtual_gpu/driver/state.h"
#include "jit/virtual_gpu/memory.h"
#include "jit/virtual_gpu/occupancy.h"
#include "jit/virtual_gpu/timing.h"

namespace tilewright::vgpu {
namespace {

CUresult error_of(FaultKind kind) {
  switch (kind) {
    case FaultKind::kOutOfBounds:
      return CUDA_ERROR_ILLEGAL_ADDRESS;
    case FaultKind::kMisaligned:
      return CUDA_ERROR_MISALIGNED_ADDRESS;
    case FaultKind::kIllegalInstruction:
      return CUDA_ERROR_ILLEGAL_INSTRUCTION;
    // Hardware waits for ever, until its watchdog or its user ends the launch.
    case FaultKind::kTimeout:
    case FaultKind::kBarrier:
      return CUDA_ERROR_LAUNCH_TIMEOUT;
    case FaultKind::kTrap:
      return CUDA_ERROR_LAUNCH_FAILED;
  }
  return CUDA_ERROR_LAUNCH_FAILED;
}

/// The memory that the parameters point into, each range once.
std::vector<Range> reachable(Gpu& gpu, const KernelOperation& kernel) {
  std::vector<Range> ranges;
  for (const KernelInfo::Parameter& parameter : kernel.kernel->parameters) {
    for (int at = 0; at + 8 <= parameter.size; at += 8) {
      CUdeviceptr address = 0;
      std::memcpy(&address, kernel.parameters.data() + parameter.offset + at, sizeof address);
      const Range range = find_range(gpu, address);
      if (range.bytes != 0 && std::none_of(ranges.begin(), ranges.end(), [&](const Range& known) {
            return known.begin == range.begin;
          }))
        ranges.push_back(range);
    }
  }
  return ranges;
}

jit::VirtualLaunch summary(const LaunchTime& time, const Counters& counters, std::uint64_t blocks) {
  jit::VirtualLaunch out;
  out.blocks = blocks;
  out.blocks_executed = counters.blocks_executed;
  out.modelled_us = time.total_us;
  out.warp_instructions = counters.warp_instructions;
  out.global_load_bytes = counters.global_load_bytes;
  out.global_store_bytes = counters.global_store_bytes;
  out.global_sectors = counters.global_load_sectors + counters.global_store_sectors;
  out.shared_wavefronts = counters.shared_wavefronts;
  out.shared_conflicts = counters.shared_conflicts;
  out.global_requests = counters.global_loads + counters.global_stores;
  for (const std::uint64_t operations : counters.tensor_operations)
    out.tensor_operations += operations;
  out.barriers = counters.barriers;
  out.fma_lanes = counters.fma_warps * 32;
  out.dram_us = time.dram_us;
  out.l2_us = time.l2_us;
  out.tensor_us = time.tensor_us;
  out.fma_us = time.fma_us;
  out.integer_us = time.integer_us;
  out.issue_us = time.issue_us;
  out.shared_us = time.shared_us;
  out.special_us = time.special_us;
  out.latency_us = time.latency_us;
  out.launch_us = time.launch_us;
  out.dram_bytes = time.dram_bytes;
  out.l2_bytes = time.l2_bytes;
  out.waves = time.waves;
  std::strncpy(out.occupancy_limiter, time.occupancy.limiter, sizeof out.occupancy_limiter - 1);
  out.occupancy_blocks_per_sm = time.occupancy.blocks_per_sm;
  std::strncpy(out.bound_by, time.bound_by, sizeof out.bound_by - 1);
  return out;
}

/// Makes `launch` the last one; returns its time. `launch_us`: of this launch, which may be one of a
/// graph where the one that was executed was none.
double account(Gpu& gpu, const KnownLaunches::Entry& launch, double time_factor, double launch_us) {
  gpu.last_launch = launch.summary;
  gpu.last_launch.modelled_us += launch_us - launch.summary.launch_us;
  gpu.last_launch.launch_us = launch_us;
  gpu.last_launch.modelled_us *= time_factor;
  gpu.last_executed = launch.executed;
  gpu.launched = true;
  return gpu.last_launch.modelled_us;
}

/// Tells the checkers where to note what the launch touches.
Outcome run_watched(Gpu& gpu, Memory& memory, const Launch& launch) {
  if (!gpu.footprint) return execute(memory, launch);
  auto& arena = static_cast<Arena&>(memory);
  if (!arena.shadow) arena.shadow = std::make_shared<GlobalShadow>();
  arena.shadow->footprint = gpu.footprint;
  Outcome outcome = execute(memory, launch);
  arena.shadow->footprint = nullptr;
  return outcome;
}

double run_kernel(Gpu& gpu, CUctx_st& context, const KernelOperation& kernel, double launch_us) {
  Launch launch;
  launch.program = kernel.program.get();
  launch.kernel = kernel.kernel->name;
  launch.grid = kernel.grid;
  launch.block = kernel.block;
  launch.dynamic_shared_bytes = kernel.dynamic_shared_bytes;
  launch.parameters = kernel.parameters;
  launch.sample_blocks = gpu.sample_blocks;
  launch.seed = gpu.sample_seed;
  const std::uint64_t blocks = std::uint64_t(kernel.grid[0]) * kernel.grid[1] * kernel.grid[2];
  for (std::uint64_t block : gpu.chosen_blocks)
    if (block < blocks) launch.chosen.push_back(block);
  launch.cluster = kernel.cluster;
  launch.deadline_s = gpu.deadline_s;
  launch.threads = gpu.threads;
  launch.check = gpu.checking.check;
  launch.schedule_seed = gpu.checking.seed;
  launch.accumulation = gpu.checking.accumulation;
  launch.approximation_seed = gpu.checking.approximation_seed;
  launch.cooperative = kernel.cooperative;
  std::mutex printing;  // blocks may be on several threads
  launch.print = [&](std::string_view text) {
    std::lock_guard lock(printing);
    gpu.printed += text;
  };
  BlockDemand demand;
  demand.threads = int(kernel.block[0] * kernel.block[1] * kernel.block[2]);
  demand.registers = kernel.kernel->resources.registers;
  demand.shared_bytes =
      std::size_t(kernel.kernel->static_shared_bytes) + kernel.dynamic_shared_bytes;
  const jit::DeviceInfo& info = gpu.description->info;
  launch.resident_blocks = std::uint64_t(std::max(occupancy(info, demand).blocks_per_sm, 1)) *
                           std::uint64_t(info.sm_count);
  Faults::Decision decision;
  if (kernel.decision) {
    decision = *kernel.decision;
  } else if (gpu.faults.any()) {
    decision = gpu.faults.next(launch.kernel, kernel.program.get());
  }
  if (!inject_before(gpu, context, decision, launch.kernel)) return launch_us;
  if (const KnownLaunches::Entry* known = gpu.known_launches.find(kernel);
      known && decision.action == FaultAction::kNone)
    return account(gpu, *known, decision.time_factor, launch_us);
  const std::vector<Range> touched = reachable(gpu, kernel);
  std::optional<OutputDamage> damage;
  if (decision.action == FaultAction::kCorrupt) damage.emplace(context, touched);
  const Outcome outcome = run_watched(gpu, *context.memory, launch);
  if (damage) damage->apply(context, decision.random);
  gpu.checking.add(outcome.reports);
  if (outcome.fault) {
    gpu.checking.add_fault(*outcome.fault);
    context.error = error_of(outcome.fault->kind);
    gpu.explain(outcome.fault->report);
    return launch_us;
  }

  LaunchShape shape;
  shape.blocks = std::uint64_t(kernel.grid[0]) * kernel.grid[1] * kernel.grid[2];
  shape.block.threads = int(kernel.block[0] * kernel.block[1] * kernel.block[2]);
  shape.block.registers = kernel.kernel->resources.registers;
  shape.block.shared_bytes =
      std::size_t(kernel.kernel->static_shared_bytes) + kernel.dynamic_shared_bytes;
  for (const Range& range : touched) shape.reachable_bytes += range.bytes;
  shape.launch_us = launch_us;
  const LaunchTime time = model_launch(*gpu.description, shape, outcome.counters);
  KnownLaunches::Entry done{summary(time, outcome.counters, shape.blocks), outcome.executed,
                            kernel.program};
  const double time_us = account(gpu, done, decision.time_factor, launch_us);
  gpu.known_launches.add(kernel, std::move(done));
  return time_us;
}

/// Bytes from the first to the end of the last row.
std::size_t extent(std::size_t bytes, std::size_t rows, std::size_t pitch) {
  return rows == 0 ? 0 : (rows - 1) * pitch + bytes;
}

double run_fill(Gpu& gpu, CUctx_st& context, const FillOperation& fill) {
  if (check_fill(context, fill) != CUDA_SUCCESS) {  // freed between capture and replay
    context.error = CUDA_ERROR_ILLEGAL_ADDRESS;
    gpu.explain("memset of memory that was freed");
    return 0;
  }
  const std::size_t bytes = fill.count * std::size_t(fill.width);
  for (std::size_t row = 0; row < fill.rows; ++row) {
    void* target = context.memory->at(fill.target + row * fill.pitch, bytes);
    if (gpu.footprint)
      gpu.footprint->add(Footprint::Kind::kWrite, fill.target + row * fill.pitch, bytes);
    // Not over memory that has a second address.
    if (fill.width == 1 && !context.allocations.count(find_range(gpu, fill.target).begin)) {
      std::memset(target, int(fill.value & 0xff), bytes);
    } else if (fill.width == 1) {
      jit::fill_lazily(static_cast<std::byte*>(target), bytes, std::uint8_t(fill.value));
    } else if (fill.width == 2) {
      std::fill_n(static_cast<std::uint16_t*>(target), fill.count, std::uint16_t(fill.value));
    } else {
      std::fill_n(static_cast<std::uint32_t*>(target), fill.count, fill.value);
    }
  }
  return model_device_bytes(*gpu.description, double(bytes) * double(fill.rows));
}

bool is_host_target(CopyOperation::Direction direction) {
  using Direction = CopyOperation::Direction;
  return direction == Direction::kToHost || direction == Direction::kOnHost;
}

bool is_host_source(CopyOperation::Direction direction) {
  using Direction = CopyOperation::Direction;
  return direction == Direction::kToDevice || direction == Direction::kOnHost;
}

double run_copy(Gpu& gpu, CUctx_st& context, const CopyOperation& copy) {
  if (check_copy(context, copy) != CUDA_SUCCESS) {
    context.error = CUDA_ERROR_ILLEGAL_ADDRESS;
    gpu.explain("memcpy of memory that was freed");
    return 0;
  }
  for (std::size_t row = 0; row < copy.rows; ++row) {
    const CUdeviceptr to = copy.target + row * copy.target_pitch;
    CUdeviceptr from = copy.source + row * copy.source_pitch;
    if (gpu.footprint) {
      gpu.footprint->add(Footprint::Kind::kWrite, to, copy.bytes);
      if (!copy.staged) gpu.footprint->add(Footprint::Kind::kRead, from, copy.bytes);
    }
    if (copy.staged) from = reinterpret_cast<CUdeviceptr>(copy.staged->data()) + row * copy.bytes;
    void* target = is_host_target(copy.direction) ? reinterpret_cast<void*>(to)
                                                  : context.memory->at(to, copy.bytes);
    const void* source = is_host_source(copy.direction) ? reinterpret_cast<const void*>(from)
                                                        : context.memory->view(from, copy.bytes);
    std::memmove(target, source, copy.bytes);
    if (copy.direction == CopyOperation::Direction::kInside)
      context.memory->copied(to, from, copy.bytes);
  }
  const double bytes = double(copy.bytes) * double(copy.rows);
  switch (copy.direction) {
    case CopyOperation::Direction::kInside:
      return model_device_bytes(*gpu.description, 2.0 * bytes);
    case CopyOperation::Direction::kOnHost:
      return 0;
    default:
      return model_bus_copy(*gpu.description, bytes);
  }
}

}  // namespace

CUresult check_copy(CUctx_st& context, const CopyOperation& copy) {
  auto valid = [&](CUdeviceptr address, std::size_t pitch, bool host) {
    if (host) return address != 0 && !is_device_address(address);
    return context.memory->view(address, extent(copy.bytes, copy.rows, pitch)) != nullptr;
  };
  return valid(copy.target, copy.target_pitch, is_host_target(copy.direction)) &&
                 valid(copy.source, copy.source_pitch, is_host_source(copy.direction))
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}

CUresult check_fill(CUctx_st& context, const FillOperation& fill) {
  const auto width = std::size_t(fill.width);
  if (fill.target % width != 0 || fill.pitch % width != 0 || fill.count > SIZE_MAX / width)
    return CUDA_ERROR_INVALID_VALUE;
  if (fill.rows > 1 && (fill.pitch < fill.count * width || fill.rows > SIZE_MAX / fill.pitch))
    return CUDA_ERROR_INVALID_VALUE;
  return context.memory->view(fill.target, extent(fill.count * width, fill.rows, fill.pitch))
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}

namespace {

void run_allocate(Gpu& gpu, CUctx_st& context, const GraphMemory& made,
                  const std::shared_ptr<GraphMemory>& owner) {
  context.allocations[made.address] = made.bytes;
  context.graph_memory[made.address] = owner;
  if (gpu.footprint) gpu.footprint->add(Footprint::Kind::kWrite, made.address, made.bytes);
  // Nothing of what an earlier launch wrote is there. No other allocation has a bit of these words.
  if (std::uint64_t* written = static_cast<Arena&>(*context.memory).written())
    std::fill_n(written + (made.address - kArenaBase) / 64, (made.bytes + 63) / 64, 0);
}

std::string name_of(const Operation& operation) {
  if (auto* kernel = std::get_if<KernelOperation>(&operation))
    return "kernel " + kernel->kernel->name;
  if (auto* copy = std::get_if<CopyOperation>(&operation)) {
    using Direction = CopyOperation::Direction;
    return copy->direction == Direction::kToDevice ? "copy to the device"
           : copy->direction == Direction::kToHost ? "copy to the host"
                                                   : "copy";
  }
  if (std::holds_alternative<AllocateOperation>(operation)) return "allocation";
  return std::holds_alternative<FillOperation>(operation) ? "fill" : "free";
}

/// Of an operation that touches memory, while streams are there that it could race with.
std::unique_ptr<StreamAccess> watch(Gpu& gpu, CUctx_st& context, const Task& task,
                                    const Operation& operation) {
  if (gpu.checking.check != Check::kFull) return nullptr;
  if (context.streams.empty() && context.thread_streams.empty()) return nullptr;
  if (std::holds_alternative<HostOperation>(operation) ||
      std::holds_alternative<EmptyOperation>(operation) ||
      std::holds_alternative<WaitOperation>(operation) ||
      std::holds_alternative<RecordOperation>(operation))
    return nullptr;
  auto access = std::make_unique<StreamAccess>();
  access->stream = task.stream_id;
  access->count = task.count;
  access->clock = task.clock;
  access->name = name_of(operation);
  return access;
}

void note(Gpu& gpu, CUctx_st& context, std::unique_ptr<StreamAccess> access) {
  auto found = context.history.add(std::move(access));
  if (!found) return;
  const Range range = find_range(gpu, found->address);
  if (range.bytes != 0)
    found->allocation = fmt::format("{} bytes into an allocation of {} bytes at {:#x}",
                                    found->address - range.begin, range.bytes, range.begin);
  gpu.checking.add({std::move(*found)});
}

/// Returns the modelled time. `launch_us`: of a kernel.
double execute_one(Gpu& gpu, CUctx_st& context, const Task& task, const Operation& operation,
                   double launch_us) {
  if (auto* host = std::get_if<HostOperation>(&operation)) {
    call_host(gpu, *host);
    return 0;
  }
  auto access = watch(gpu, context, task, operation);
  gpu.footprint = access ? &access->footprint : nullptr;
  double time_us = 0;
  if (auto* kernel = std::get_if<KernelOperation>(&operation)) {
    time_us = run_kernel(gpu, context, *kernel, launch_us);
    if (context.error == CUDA_SUCCESS) gpu.totals.add(kernel->kernel->name, gpu.last_launch);
  } else if (auto* fill = std::get_if<FillOperation>(&operation)) {
    time_us = run_fill(gpu, context, *fill);
    gpu.totals.add_copy("fill", double(fill->count) * fill->width * double(fill->rows), time_us);
  } else if (auto* copy = std::get_if<CopyOperation>(&operation)) {
    time_us = run_copy(gpu, context, *copy);
    gpu.totals.add_copy(name_of(operation).c_str(), double(copy->bytes) * double(copy->rows),
                        time_us);
  } else if (auto* freed = std::get_if<FreeOperation>(&operation)) {
    const Range range = find_range(gpu, freed->address);
    if (gpu.footprint) gpu.footprint->add(Footprint::Kind::kWrite, range.begin, range.bytes);
    context.freeing.erase(freed->address);
    (void)free_memory(context, freed->address);
  } else if (auto* made = std::get_if<AllocateOperation>(&operation)) {
    run_allocate(gpu, context, *made->memory, made->memory);
  } else if (auto* recorded = std::get_if<RecordOperation>(&operation)) {
    if (auto event = context.events.find(recorded->event); event != context.events.end())
      event->second->node_us = ready_us(context, *task.stream);
  }
  gpu.footprint = nullptr;
  if (access) note(gpu, context, std::move(access));
  return time_us;
}

/// One after the other, until one faults. Late streams begin with those that come last.
void execute_nodes(Gpu& gpu, CUctx_st& context, const Task& task,
                   const std::vector<GraphNode>& nodes) {
  double launch_us = gpu.description->launch_us;
  std::vector<bool> done(nodes.size());
  for (std::size_t left = nodes.size(); left > 0; --left) {
    if (context.error != CUDA_SUCCESS) return;
    std::size_t next = nodes.size() - left;
    if (gpu.streams.late) {
      auto is_ready = [&](std::size_t i) {
        return !done[i] && std::all_of(nodes[i].after.begin(), nodes[i].after.end(),
                                       [&](int before) { return done[std::size_t(before)]; });
      };
      next = nodes.size() - 1;
      while (!is_ready(next)) --next;
    }
    done[next] = true;
    const Operation& operation = nodes[next].operation;
    if (!nodes[next].enabled) continue;
    if (auto* child = std::get_if<ChildOperation>(&operation)) {
      execute_nodes(gpu, context, task, *child->nodes);
    } else {
      advance(context, *task.stream, execute_one(gpu, context, task, operation, launch_us));
      // A graph has no call that could refuse one of its nodes.
      if (gpu.refused != CUDA_SUCCESS) context.error = std::exchange(gpu.refused, CUDA_SUCCESS);
    }
    launch_us = graph_node_us(*gpu.description);
  }
}

}  // namespace

void execute_task(Gpu& gpu, CUctx_st& context, const Task& task) {
  if (auto* child = std::get_if<ChildOperation>(&task.operation))
    return execute_nodes(gpu, context, task, *child->nodes);
  if (std::holds_alternative<EmptyOperation>(task.operation)) return;
  advance(context, *task.stream,
          execute_one(gpu, context, task, task.operation, gpu.description->launch_us));
}

CUresult submit(Gpu& gpu, CUctx_st& context, CUstream handle, Operation operation,
                TaskPointer* task) {
  CUstream_st& stream = *handle;
  if (!stream.capture) {
    if (handle == &context.default_stream) {
      // It would wait for a blocking stream that is being recorded, and does not run.
      bool conflict = false;
      for (auto& capture : context.captures)
        for (CUstream member : capture->members)
          if (member->blocking) conflict = capture->invalid = true;
      if (conflict) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    if (auto* kernel = std::get_if<KernelOperation>(&operation); kernel && gpu.faults.any()) {
      // A launch that is refused is refused by its call.
      kernel->decision = gpu.faults.next(kernel->kernel->name, kernel->program.get());
      if (kernel->decision->action == FaultAction::kOutOfMemory) {
        inject_before(gpu, context, *kernel->decision, kernel->kernel->name);
        return std::exchange(gpu.refused, CUDA_SUCCESS);
      }
    }
    const TaskPointer made = enqueue(gpu, context, stream, std::move(operation));
    if (task) *task = made;
    return CUDA_SUCCESS;
  }
  if (task) *task = nullptr;
  Capture& capture = *stream.capture;
  if (capture.invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  auto node = std::make_unique<CUgraphNode_st>();
  node->graph = capture.graph;
  node->after = stream.frontier;
  if (auto* child = std::get_if<ChildOperation>(&operation)) {
    node->child = add_graph(gpu, context, *child->nodes);
    node->child->owned = true;
    operation = EmptyOperation{};
  }
  node->operation = std::move(operation);
  stream.frontier = {node.get()};
  capture.nodes.push_back(node.get());
  capture.graph->nodes.push_back(std::move(node));
  return CUDA_SUCCESS;
}

}  // namespace tilewright::vgpu
