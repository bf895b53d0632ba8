/// Queues of streams: what is executed when. A task comes after those before it in its stream, after
/// the records of the events that its stream waits for, and, between the default stream and blocking
/// ones, after whatever was enqueued before it.
///
/// eager: the call that enqueues a task executes it. late: a task is executed when a call requires
/// it - a synchronisation, a copy that the host waits for, a task of another stream that comes after
/// it, an end of memory or of a module - and not before; queries execute one task at a time. So what
/// nothing orders is in an order that hardware allows and that a program with a missing wait does not
/// expect.
#pragma once

#include "jit/virtual_gpu/driver/state.h"

namespace tilewright::vgpu {

/// Outside of captures. Executes it where streams are eager.
TaskPointer enqueue(Gpu& gpu, CUctx_st& context, CUstream_st& stream, Operation operation,
                    std::vector<TaskPointer> after = {});

/// Executes what `task` needs and the task itself. Null: nothing.
void complete(Gpu& gpu, CUctx_st& context, TaskPointer task);
/// Writes what kernels have printed to stdout: when the host waits, as on hardware, before the next
/// launch, and after a fault.
void show_printed(Gpu& gpu);
/// The same as complete(), for the host to go on after it.
void wait_for(Gpu& gpu, CUctx_st& context, const TaskPointer& task);
/// What a stream holds; of the default stream what blocking ones hold as well.
void wait_for_stream(Gpu& gpu, CUctx_st& context, CUstream_st& stream);
/// What all streams of the context hold, in the order that StreamOrder says. The host has waited.
void drain(Gpu& gpu, CUctx_st& context);
/// The same of all contexts.
void drain_all(Gpu& gpu);

/// CUDA_SUCCESS where it is done; else executes the first task of its stream, and says
/// CUDA_ERROR_NOT_READY. Or the error of the context.
CUresult query(Gpu& gpu, CUctx_st& context, const TaskPointer& task);

/// A task that is not done, or null: of the default stream also one of a blocking stream.
TaskPointer pending(CUctx_st& context, CUstream_st& stream);

/// Whether the bytes are page-locked memory, which work reads when it is executed.
bool is_pinned(Gpu& gpu, CUdeviceptr host, std::size_t bytes);

/// Calls `body(CUstream_st&)` for every stream, default ones included.
template <typename Body>
void for_streams(CUctx_st& context, Body&& body) {
  body(context.default_stream);
  for (auto& [thread, stream] : context.thread_streams) body(*stream);
  for (auto& [handle, stream] : context.streams) body(*stream);
}

}  // namespace tilewright::vgpu
