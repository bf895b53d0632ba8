// Stream capture, and graphs as they are instantiated and launched.
#include <algorithm>
#include <unordered_set>

#include "jit/virtual_gpu/driver/graph.h"
#include "jit/virtual_gpu/driver/queue.h"
#include "jit/virtual_gpu/driver/state.h"

using namespace tilewright;
using vgpu::enter;
using vgpu::Needs;

namespace {

/// Every node that nothing comes after must be waited for by the stream that began.
bool is_joined(const vgpu::Capture& capture) {
  std::unordered_set<CUgraphNode> followed(capture.origin->frontier.begin(),
                                           capture.origin->frontier.end());
  for (const auto& node : capture.graph->nodes)
    followed.insert(node->after.begin(), node->after.end());
  return std::all_of(capture.nodes.begin(), capture.nodes.end(),
                     [&](CUgraphNode node) { return followed.count(node) != 0; });
}

/// `given`: the graph to add to; null: a new one.
CUresult begin_capture(CUstream handle, CUgraph given, const CUgraphNode* after, std::size_t count,
                       CUstreamCaptureMode mode) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    if (mode != CU_STREAM_CAPTURE_MODE_GLOBAL && mode != CU_STREAM_CAPTURE_MODE_THREAD_LOCAL &&
        mode != CU_STREAM_CAPTURE_MODE_RELAXED)
      return CUDA_ERROR_INVALID_VALUE;
    const CUstream stream = vgpu::find_stream(context, handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    if (stream == &context.default_stream) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
    if (given && !vgpu::find_graph(gpu, given)) return CUDA_ERROR_INVALID_VALUE;
    if (count > 0 && !after) return CUDA_ERROR_INVALID_VALUE;
    for (std::size_t i = 0; i < count; ++i) {
      const CUgraphNode node = vgpu::find_node(gpu, after[i]);
      if (!node || node->graph != given) return CUDA_ERROR_INVALID_VALUE;
    }
    auto capture = std::make_shared<vgpu::Capture>();
    capture->graph = given ? given : vgpu::add_graph(gpu, context, {});
    capture->given = given != nullptr;
    capture->id = ++gpu.ids;
    capture->members = {stream};
    capture->origin = stream;
    capture->mode = mode;
    capture->thread = std::this_thread::get_id();
    stream->capture = capture;
    stream->frontier.assign(after, after + count);
    context.captures.push_back(std::move(capture));
    return CUDA_SUCCESS;
  });
}

/// Calls `body(const GraphNode&)` for the nodes and those of child graphs.
template <typename Body>
void for_nodes(const std::vector<vgpu::GraphNode>& nodes, Body&& body) {
  for (const auto& node : nodes) {
    if (!node.enabled) continue;
    if (auto* child = std::get_if<vgpu::ChildOperation>(&node.operation)) {
      for_nodes(*child->nodes, body);
    } else {
      body(node);
    }
  }
}

/// What a graph allocates must have been freed since its last launch.
CUresult take_memory(const CUgraphExec_st& exec) {
  const bool frees_itself = (exec.flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0;
  bool wrong = false;
  for_nodes(exec.nodes, [&](const vgpu::GraphNode& node) {
    if (auto* made = std::get_if<vgpu::AllocateOperation>(&node.operation))
      wrong = wrong || (made->memory->live && !frees_itself);
  });
  if (wrong) return CUDA_ERROR_INVALID_VALUE;
  for_nodes(exec.nodes, [&](const vgpu::GraphNode& node) {
    if (auto* made = std::get_if<vgpu::AllocateOperation>(&node.operation))
      made->memory->live = true;
    auto* freed = std::get_if<vgpu::FreeOperation>(&node.operation);
    if (freed && freed->memory) freed->memory->live = false;
  });
  return CUDA_SUCCESS;
}

}  // namespace

VGPU_API cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode) {
  return begin_capture(stream, nullptr, nullptr, 0, mode);
}

VGPU_API cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode* after,
                                     const CUgraphEdgeData*, size_t count,
                                     CUstreamCaptureMode mode) {
  return graph ? begin_capture(stream, graph, after, count, mode) : CUDA_ERROR_INVALID_VALUE;
}

VGPU_API cuStreamEndCapture(CUstream handle, CUgraph* out) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = nullptr;
    const CUstream stream = vgpu::find_stream(context, handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    const std::shared_ptr<vgpu::Capture> capture = stream->capture;
    if (!capture) return CUDA_ERROR_ILLEGAL_STATE;
    if (stream != capture->origin) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
        capture->thread != std::this_thread::get_id())
      return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    CUresult result = CUDA_SUCCESS;
    if (capture->invalid) {
      result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    } else if (!is_joined(*capture)) {
      result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    }
    capture->active = false;
    for (CUstream member : capture->members) {
      member->capture = nullptr;
      member->frontier.clear();
    }
    std::erase(context.captures, capture);
    if (result == CUDA_SUCCESS) {
      *out = capture->graph;
    } else if (!capture->given) {
      vgpu::destroy_graph(gpu, capture->graph);
    }
    return result;
  });
}

VGPU_API cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu&, CUctx_st& context) {
    if (!status) return CUDA_ERROR_INVALID_VALUE;
    const CUstream stream = vgpu::find_stream(context, handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (stream->capture)
      *status = stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                         : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
  });
}

VGPU_API cuStreamGetCaptureInfo(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
                                CUgraph* graph, const CUgraphNode** dependencies,
                                const CUgraphEdgeData** edges, size_t* count) {
  const CUresult result = cuStreamIsCapturing(handle, status);
  if (result != CUDA_SUCCESS || *status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return result;
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu&, CUctx_st& context) {
    const CUstream stream = vgpu::find_stream(context, handle);
    stream->edges.assign(stream->frontier.size(), CUgraphEdgeData{});
    if (id) *id = stream->capture->id;
    if (graph) *graph = stream->capture->graph;
    if (dependencies) *dependencies = stream->frontier.data();
    if (edges) *edges = stream->edges.data();
    if (count) *count = stream->frontier.size();
    return CUDA_SUCCESS;
  });
}

VGPU_API cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                   CUgraph* graph, const CUgraphNode** dependencies,
                                   size_t* count) {
  return cuStreamGetCaptureInfo(stream, status, id, graph, dependencies, nullptr, count);
}

VGPU_API cuStreamUpdateCaptureDependencies(CUstream handle, CUgraphNode* nodes,
                                           const CUgraphEdgeData*, size_t count,
                                           unsigned int flags) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    const CUstream stream = vgpu::find_stream(context, handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    if (!stream->capture || stream->capture->invalid) return CUDA_ERROR_ILLEGAL_STATE;
    if ((count > 0 && !nodes) || flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES)
      return CUDA_ERROR_INVALID_VALUE;
    for (std::size_t i = 0; i < count; ++i) {
      const CUgraphNode node = vgpu::find_node(gpu, nodes[i]);
      if (!node || node->graph != stream->capture->graph) return CUDA_ERROR_INVALID_VALUE;
    }
    auto& frontier = stream->frontier;
    if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) {
      // What is dropped so does not have to be joined.
      for (CUgraphNode dropped : frontier) std::erase(stream->capture->nodes, dropped);
      frontier.clear();
    }
    for (std::size_t i = 0; i < count; ++i) {
      if (std::find(frontier.begin(), frontier.end(), nodes[i]) == frontier.end())
        frontier.push_back(nodes[i]);
    }
    return CUDA_SUCCESS;
  });
}

VGPU_API cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  if (!mode) return CUDA_ERROR_INVALID_VALUE;
  static thread_local CUstreamCaptureMode current = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return enter(Needs::kInitialised, [&](vgpu::Gpu&, CUctx_st&) {
    std::swap(current, *mode);
    return CUDA_SUCCESS;
  });
}

VGPU_API cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph handle, unsigned long long flags) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    constexpr unsigned long long kIgnored = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
                                            CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
                                            CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    if (!out || (flags & ~kIgnored) != 0) return CUDA_ERROR_INVALID_VALUE;
    const CUgraph graph = vgpu::find_graph(gpu, handle);
    if (!graph) return CUDA_ERROR_INVALID_VALUE;
    auto exec = std::make_unique<CUgraphExec_st>();
    exec->context = &context;
    exec->flags = flags;
    if (!vgpu::order_nodes(*graph, &exec->nodes)) return CUDA_ERROR_INVALID_VALUE;
    exec->objects = graph->objects;
    for (const auto& [object, count] : exec->objects) object->references += count;
    *out = exec.get();
    gpu.graph_execs.emplace(*out, std::move(exec));
    return CUDA_SUCCESS;
  });
}

VGPU_API cuGraphInstantiateWithParams(CUgraphExec* out, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = cuGraphInstantiateWithFlags(out, graph, params->flags);
  params->hErrNode_out = nullptr;
  params->result_out =
      result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
  return result;
}

VGPU_API cuGraphUpload(CUgraphExec handle, CUstream stream) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    if (!gpu.graph_execs.count(handle)) return CUDA_ERROR_INVALID_VALUE;
    return vgpu::find_stream(context, stream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  });
}

VGPU_API cuGraphLaunch(CUgraphExec handle, CUstream stream_handle) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    auto exec = gpu.graph_execs.find(handle);
    const CUstream stream = vgpu::find_stream(context, stream_handle);
    if (exec == gpu.graph_execs.end()) return CUDA_ERROR_INVALID_VALUE;
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    std::vector<vgpu::TaskPointer> after;
    std::vector<CUevent_st*> recorded;
    for_nodes(exec->second->nodes, [&](const vgpu::GraphNode& node) {
      auto* wait = std::get_if<vgpu::WaitOperation>(&node.operation);
      auto* record = std::get_if<vgpu::RecordOperation>(&node.operation);
      if (!wait && !record) return;
      auto event = context.events.find(wait ? wait->event : record->event);
      if (event == context.events.end()) return;
      if (record) recorded.push_back(event->second.get());
      if (wait && event->second->record) after.push_back(event->second->record);
    });
    if (!stream->capture) {
      if (CUresult wrong = take_memory(*exec->second)) return wrong;
      if (!after.empty())
        vgpu::enqueue(gpu, context, *stream, vgpu::EmptyOperation{}, std::move(after));
      for (CUevent_st* event : recorded) event->capture = nullptr;
    }
    // What is changed in it from here on is for later launches.
    auto nodes = std::make_shared<const std::vector<vgpu::GraphNode>>(exec->second->nodes);
    vgpu::TaskPointer task;
    if (CUresult wrong =
            vgpu::submit(gpu, context, stream, vgpu::ChildOperation{std::move(nodes)}, &task))
      return wrong;
    for (CUevent_st* event : recorded) {
      if (!task) break;
      event->recorded = true;
      event->record = task;
    }
    return CUDA_SUCCESS;
  });
}

VGPU_API cuGraphExecGetFlags(CUgraphExec handle, cuuint64_t* flags) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st&) {
    auto exec = gpu.graph_execs.find(handle);
    if (exec == gpu.graph_execs.end() || !flags) return CUDA_ERROR_INVALID_VALUE;
    *flags = exec->second->flags;
    return CUDA_SUCCESS;
  });
}

VGPU_API cuGraphExecDestroy(CUgraphExec handle) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st&) {
    auto exec = gpu.graph_execs.find(handle);
    if (exec == gpu.graph_execs.end()) return CUDA_ERROR_INVALID_VALUE;
    const auto objects = std::move(exec->second->objects);
    gpu.graph_execs.erase(exec);
    for (const auto& [object, count] : objects) vgpu::release_object(gpu, object, count);
    return CUDA_SUCCESS;
  });
}
