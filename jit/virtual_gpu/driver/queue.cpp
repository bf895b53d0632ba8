#include "jit/virtual_gpu/driver/queue.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>

namespace tilewright::vgpu {
namespace {

/// Tasks that a stream holds before a call waits for the first of them, as hardware's queues do.
constexpr std::size_t kMostTasks = 1024;

/// Lets another thread end what it executes.
void give_way(Gpu& gpu) {
  gpu.mutex.unlock();
  std::this_thread::sleep_for(std::chrono::microseconds(50));
  gpu.mutex.lock();
}

/// Executes the first task of the stream's queue, after what it waits for.
void run_first(Gpu& gpu, CUctx_st& context, CUstream_st& stream) {
  if (stream.running) return give_way(gpu);
  if (stream.queue.empty()) return;
  const TaskPointer task = stream.queue.front();
  for (std::size_t i = 0; i < task->after.size(); ++i) {
    const TaskPointer before = task->after[i];
    complete(gpu, context, before);
  }
  // The lock may have been given away, and another thread been faster.
  if (stream.running || stream.queue.empty() || stream.queue.front() != task) return;
  for (const TaskPointer& before : task->after)
    stream.ready_us = std::max(stream.ready_us, before->time_us);
  stream.running = true;
  if (context.error == CUDA_SUCCESS) execute_task(gpu, context, *task);
  if (context.error != CUDA_SUCCESS) show_printed(gpu);  // no call waits after a fault
  stream.running = false;
  task->time_us = ready_us(context, stream);
  task->after.clear();
  task->operation = EmptyOperation{};
  task->done = true;
  stream.queue.pop_front();
}

/// Takes a task that is not done to what comes after it.
void add_before(std::vector<TaskPointer>& after, StreamClock& clock, const CUstream_st& stream) {
  if (stream.last && !stream.last->done) after.push_back(stream.last);
  clock.join(stream.clock);
}

/// All that was enqueued is done, and whatever comes is after it.
void forget_order(CUctx_st& context) {
  context.host_clock.clear();
  context.history.clear();
  for_streams(context, [](CUstream_st& stream) { stream.clock.clear(); });
}

}  // namespace

bool StreamOrder::set(const std::string& text) {
  constexpr std::string_view kLate = "late";
  std::uint64_t given = 0;
  if (text.starts_with("late:")) {
    const char* end = text.data() + text.size();
    auto [last, wrong] = std::from_chars(text.data() + kLate.size() + 1, end, given);
    if (wrong != std::errc() || last != end) return false;
  } else if (text != kLate && text != "eager") {
    return false;
  }
  late = text != "eager";
  seed = given;
  random = Random(given);
  return true;
}

TaskPointer enqueue(Gpu& gpu, CUctx_st& context, CUstream_st& stream, Operation operation,
                    std::vector<TaskPointer> after) {
  if (std::holds_alternative<KernelOperation>(operation)) show_printed(gpu);
  auto task = std::make_shared<Task>();
  task->number = ++gpu.tasks;
  task->stream = &stream;
  task->operation = std::move(operation);
  stream.clock.join(context.host_clock);
  for (const TaskPointer& before : after) {
    stream.clock.join(before->clock);
    stream.clock.set(before->stream_id, before->count);
  }
  if (&stream == &context.default_stream) {
    for_streams(context, [&](CUstream_st& other) {
      if (&other != &stream && other.blocking) add_before(after, stream.clock, other);
    });
  } else if (stream.blocking) {
    add_before(after, stream.clock, context.default_stream);
  }
  task->after = std::move(after);
  task->stream_id = stream.id;
  task->count = ++stream.count;
  stream.clock.set(stream.id, task->count);
  task->clock = stream.clock;
  stream.queue.push_back(task);
  stream.last = task;
  if (!gpu.streams.late) complete(gpu, context, task);
  while (stream.queue.size() > kMostTasks) run_first(gpu, context, stream);
  return task;
}

void complete(Gpu& gpu, CUctx_st& context, TaskPointer task) {
  while (task && !task->done) run_first(gpu, context, *task->stream);
}

void show_printed(Gpu& gpu) {
  if (gpu.printed.empty()) return;
  std::fwrite(gpu.printed.data(), 1, gpu.printed.size(), stdout);
  std::fflush(stdout);
  gpu.printed.clear();
}

void wait_for(Gpu& gpu, CUctx_st& context, const TaskPointer& task) {
  if (task) complete(gpu, context, task);
  show_printed(gpu);
  if (!task) return;
  context.host_us = std::max(context.host_us, task->time_us);
  context.host_clock.join(task->clock);
  bool idle = true;
  for_streams(context, [&](CUstream_st& stream) { idle = idle && stream.queue.empty(); });
  if (idle) context.history.forget(context.host_clock);
}

void wait_for_stream(Gpu& gpu, CUctx_st& context, CUstream_st& stream) {
  wait_for(gpu, context, stream.last);
  if (&stream == &context.default_stream) {
    while (TaskPointer task = pending(context, stream)) complete(gpu, context, task);
    for_streams(context, [&](CUstream_st& other) {
      if (other.blocking) wait_for(gpu, context, other.last);
    });
  }
  context.host_us = ready_us(context, stream);
}

TaskPointer pending(CUctx_st& context, CUstream_st& stream) {
  if (stream.last && !stream.last->done) return stream.last;
  TaskPointer found;
  if (&stream != &context.default_stream) return found;
  for_streams(context, [&](CUstream_st& other) {
    if (other.blocking && other.last && !other.last->done) found = other.last;
  });
  return found;
}

void drain(Gpu& gpu, CUctx_st& context) {
  while (true) {
    std::vector<CUstream_st*> busy;
    auto look = [&](CUstream_st& stream) {
      if (!stream.queue.empty()) busy.push_back(&stream);
    };
    for_streams(context, look);
    for (auto& stream : context.retired) look(*stream);
    if (busy.empty()) break;
    // In the order of their work: the table of streams has none.
    std::sort(busy.begin(), busy.end(), [](const CUstream_st* a, const CUstream_st* b) {
      return a->queue.front()->number < b->queue.front()->number;
    });
    CUstream_st* next =
        gpu.streams.seed == 0 ? busy.back() : busy[gpu.streams.random.below(busy.size())];
    run_first(gpu, context, *next);
  }
  show_printed(gpu);
  context.retired.clear();
  forget_order(context);
}

void drain_all(Gpu& gpu) {
  drain(gpu, gpu.context);
  std::vector<CUcontext> others;
  for (auto& [handle, context] : gpu.contexts) others.push_back(handle);
  for (CUcontext other : others)
    if (gpu.contexts.count(other)) drain(gpu, *other);
}

CUresult query(Gpu& gpu, CUctx_st& context, const TaskPointer& task) {
  if (!task || task->done) return context.error;
  run_first(gpu, context, *task->stream);
  return context.error == CUDA_SUCCESS ? CUDA_ERROR_NOT_READY : context.error;
}

bool is_pinned(Gpu& gpu, CUdeviceptr host, std::size_t bytes) {
  const Range range = find_range(gpu, host);
  return range.bytes != 0 && bytes <= range.bytes - (host - range.begin);
}

}  // namespace tilewright::vgpu
