// Streams and events.
#include <algorithm>

#include "jit/virtual_gpu/driver/queue.h"
#include "jit/virtual_gpu/driver/state.h"

using namespace tilewright;
using vgpu::enter;
using vgpu::Needs;

namespace {

/// What a capturing stream must not be asked: it has no state to tell.
CUresult refuse_if_capturing(CUstream stream) {
  if (!stream->capture) return CUDA_SUCCESS;
  stream->capture->invalid = true;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

void join(std::vector<CUgraphNode>& frontier, const std::vector<CUgraphNode>& other) {
  for (CUgraphNode node : other)
    if (std::find(frontier.begin(), frontier.end(), node) == frontier.end())
      frontier.push_back(node);
}

CUresult wait_in_capture(CUctx_st& context, CUstream stream, const CUevent_st& event) {
  auto& capture = stream->capture;
  if (!event.capture) {
    capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  if (!event.capture->active) return CUDA_ERROR_CAPTURED_EVENT;
  if (!capture) {
    if (stream == &context.default_stream) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    capture = event.capture;
    capture->members.push_back(stream);
  } else if (capture != event.capture) {
    capture->invalid = event.capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  join(stream->frontier, event.frontier);
  return CUDA_SUCCESS;
}

CUresult sync_stream(CUstream handle, bool wait) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    const CUstream stream = vgpu::find_stream(context, handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    if (CUresult refused = refuse_if_capturing(stream)) return refused;
    if (!wait) return vgpu::query(gpu, context, vgpu::pending(context, *stream));
    vgpu::wait_for_stream(gpu, context, *stream);
    return context.error;
  });
}

CUresult sync_event(CUevent handle, bool wait) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    auto event = context.events.find(handle);
    if (event == context.events.end()) return CUDA_ERROR_INVALID_HANDLE;
    if (event->second->capture) return CUDA_ERROR_CAPTURED_EVENT;
    const vgpu::TaskPointer record = event->second->record;
    if (!wait) return vgpu::query(gpu, context, record);
    vgpu::wait_for(gpu, context, record);
    return context.error;
  });
}

/// Calls `body(CUctx_st&, CUstream_st&)`.
template <typename Body>
CUresult with_stream(CUstream handle, Body&& body) {
  return enter(Needs::kContext, [&](vgpu::Gpu&, CUctx_st& context) {
    const CUstream stream = vgpu::find_stream(context, handle);
    return stream ? body(context, *stream) : CUDA_ERROR_INVALID_HANDLE;
  });
}

}  // namespace

VGPU_API cuStreamCreate(CUstream* out, unsigned int flags) {
  return cuStreamCreateWithPriority(out, flags, 0);
}

VGPU_API cuStreamCreateWithPriority(CUstream* out, unsigned int flags, int priority) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    if (!out || (flags & ~unsigned(CU_STREAM_NON_BLOCKING)) != 0) return CUDA_ERROR_INVALID_VALUE;
    auto stream = std::make_unique<CUstream_st>();
    stream->blocking = flags != CU_STREAM_NON_BLOCKING;
    stream->priority = std::clamp(priority, vgpu::kGreatestPriority, 0);
    stream->id = ++gpu.ids;
    *out = stream.get();
    context.streams.emplace(*out, std::move(stream));
    return CUDA_SUCCESS;
  });
}

VGPU_API cuStreamGetPriority(CUstream handle, int* priority) {
  return with_stream(handle, [&](CUctx_st&, CUstream_st& stream) {
    if (!priority) return CUDA_ERROR_INVALID_VALUE;
    *priority = stream.priority;
    return CUDA_SUCCESS;
  });
}

VGPU_API cuStreamGetFlags(CUstream handle, unsigned int* flags) {
  return with_stream(handle, [&](CUctx_st&, CUstream_st& stream) {
    if (!flags) return CUDA_ERROR_INVALID_VALUE;
    *flags = stream.blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING;
    return CUDA_SUCCESS;
  });
}

VGPU_API cuStreamGetId(CUstream handle, unsigned long long* id) {
  return with_stream(handle, [&](CUctx_st&, CUstream_st& stream) {
    if (!id) return CUDA_ERROR_INVALID_VALUE;
    *id = stream.id;
    return CUDA_SUCCESS;
  });
}

VGPU_API cuStreamGetCtx(CUstream handle, CUcontext* out) {
  return with_stream(handle, [&](CUctx_st& context, CUstream_st&) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = &context;
    return CUDA_SUCCESS;
  });
}

/// There are no green contexts.
VGPU_API cuStreamGetCtx_v2(CUstream handle, CUcontext* out, CUgreenCtx* green) {
  if (green) *green = nullptr;
  return cuStreamGetCtx(handle, out);
}

VGPU_API cuStreamGetDevice(CUstream handle, CUdevice* out) {
  return with_stream(handle, [&](CUctx_st&, CUstream_st&) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = 0;
    return CUDA_SUCCESS;
  });
}

VGPU_API cuLaunchHostFunc(CUstream handle, CUhostFn function, void* data) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    const CUstream stream = vgpu::find_stream(context, handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    if (!function) return CUDA_ERROR_INVALID_VALUE;
    return vgpu::submit(gpu, context, stream, vgpu::HostOperation{function, data});
  });
}

VGPU_API cuStreamAddCallback(CUstream handle, CUstreamCallback callback, void* data,
                             unsigned int flags) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    const CUstream stream = vgpu::find_stream(context, handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    if (!callback || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (CUresult refused = refuse_if_capturing(stream)) return refused;
    struct Call {
      CUstreamCallback callback;
      CUstream stream;
      void* data;
    };
    auto call = std::make_shared<Call>(Call{callback, handle, data});
    auto run = [](void* at) {
      const Call& what = *static_cast<Call*>(at);
      what.callback(what.stream, CUDA_SUCCESS, what.data);
    };
    return vgpu::submit(gpu, context, stream, vgpu::HostOperation{run, call.get(), call});
  });
}

VGPU_API cuStreamDestroy(CUstream handle) {
  return enter(Needs::kContext, [&](vgpu::Gpu&, CUctx_st& context) {
    auto stream = context.streams.find(handle);
    if (stream == context.streams.end()) return CUDA_ERROR_INVALID_HANDLE;
    if (auto& capture = stream->second->capture) {
      capture->invalid = true;
      std::erase(capture->members, handle);
    }
    if (!stream->second->queue.empty()) context.retired.push_back(std::move(stream->second));
    context.streams.erase(stream);
    return CUDA_SUCCESS;
  });
}

VGPU_API cuStreamSynchronize(CUstream stream) { return sync_stream(stream, true); }
VGPU_API cuStreamQuery(CUstream stream) { return sync_stream(stream, false); }

VGPU_API cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned int flags) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    if (flags != CU_EVENT_WAIT_DEFAULT && flags != CU_EVENT_WAIT_EXTERNAL)
      return CUDA_ERROR_INVALID_VALUE;
    const CUstream stream = vgpu::find_stream(context, handle);
    auto event = context.events.find(event_handle);
    if (!stream || event == context.events.end()) return CUDA_ERROR_INVALID_HANDLE;
    if (flags == CU_EVENT_WAIT_EXTERNAL) {
      if (!stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
      return vgpu::submit(gpu, context, stream, vgpu::WaitOperation{event_handle});
    }
    if (!event->second->recorded) return CUDA_SUCCESS;
    if (stream->capture || event->second->capture)
      return wait_in_capture(context, stream, *event->second);
    vgpu::enqueue(gpu, context, *stream, vgpu::EmptyOperation{}, {event->second->record});
    return CUDA_SUCCESS;
  });
}

VGPU_API cuEventCreate(CUevent* out, unsigned int flags) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu&, CUctx_st& context) {
    constexpr unsigned kKnown = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING;
    if (!out || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
    auto event = std::make_unique<CUevent_st>();
    event->timed = (flags & CU_EVENT_DISABLE_TIMING) == 0;
    *out = event.get();
    context.events.emplace(*out, std::move(event));
    return CUDA_SUCCESS;
  });
}

VGPU_API cuEventDestroy(CUevent event) {
  return enter(Needs::kContext, [&](vgpu::Gpu&, CUctx_st& context) {
    return context.events.erase(event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  });
}

VGPU_API cuEventRecord(CUevent event_handle, CUstream stream_handle) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    const CUstream stream = vgpu::find_stream(context, stream_handle);
    auto found = context.events.find(event_handle);
    if (!stream || found == context.events.end()) return CUDA_ERROR_INVALID_HANDLE;
    CUevent_st& event = *found->second;
    if (stream->capture && stream->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    event.recorded = true;
    event.capture = stream->capture;
    event.frontier = stream->frontier;
    event.node_us.reset();
    if (!stream->capture)
      event.record = vgpu::enqueue(gpu, context, *stream, vgpu::EmptyOperation{});
    return CUDA_SUCCESS;
  });
}

VGPU_API cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags) {
  if (flags == CU_EVENT_RECORD_DEFAULT) return cuEventRecord(event, stream);
  if (flags != CU_EVENT_RECORD_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    const CUstream found = vgpu::find_stream(context, stream);
    if (!found || !context.events.count(event)) return CUDA_ERROR_INVALID_HANDLE;
    if (!found->capture) return CUDA_ERROR_ILLEGAL_STATE;
    return vgpu::submit(gpu, context, found, vgpu::RecordOperation{event});
  });
}

VGPU_API cuEventSynchronize(CUevent event) { return sync_event(event, true); }
VGPU_API cuEventQuery(CUevent event) { return sync_event(event, false); }

VGPU_API cuEventElapsedTime(float* milliseconds, CUevent start_handle, CUevent end_handle) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu&, CUctx_st& context) {
    if (!milliseconds) return CUDA_ERROR_INVALID_VALUE;
    auto start = context.events.find(start_handle), end = context.events.find(end_handle);
    if (start == context.events.end() || end == context.events.end())
      return CUDA_ERROR_INVALID_HANDLE;
    for (const CUevent_st* event : {start->second.get(), end->second.get()}) {
      if (!event->timed || !event->recorded) return CUDA_ERROR_INVALID_HANDLE;
      if (event->capture) return CUDA_ERROR_CAPTURED_EVENT;
      if (!event->record->done) return CUDA_ERROR_NOT_READY;
    }
    auto time_us = [](const CUevent_st& event) {
      return event.node_us.value_or(event.record->time_us);
    };
    *milliseconds = float((time_us(*end->second) - time_us(*start->second)) * 1e-3);
    return CUDA_SUCCESS;
  });
}
