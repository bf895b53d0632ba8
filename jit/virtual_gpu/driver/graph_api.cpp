// Stream capture, and graphs as they are instantiated and launched.
#include <algorithm>

#include "jit/virtual_gpu/driver/graph.h"
#include "jit/virtual_gpu/driver/state.h"

using namespace tilewright;
using vgpu::enter;
using vgpu::Needs;

namespace {

/// Every node that nothing comes after must be waited for by the stream that began.
bool is_joined(const vgpu::Capture& capture) {
  std::vector<bool> followed(capture.nodes.size());
  for (const auto& node : capture.nodes)
    for (int before : node.after) followed[std::size_t(before)] = true;
  for (int node : capture.origin->frontier) followed[std::size_t(node)] = true;
  return std::all_of(followed.begin(), followed.end(), [](bool is) { return is; });
}

}  // namespace

VGPU_API cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode mode) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu&, CUctx_st& context) {
    if (mode != CU_STREAM_CAPTURE_MODE_GLOBAL && mode != CU_STREAM_CAPTURE_MODE_THREAD_LOCAL &&
        mode != CU_STREAM_CAPTURE_MODE_RELAXED)
      return CUDA_ERROR_INVALID_VALUE;
    const CUstream stream = vgpu::find_stream(context, handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    if (stream == &context.default_stream) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
    auto capture = std::make_shared<vgpu::Capture>();
    capture->members = {stream};
    capture->origin = stream;
    capture->mode = mode;
    capture->thread = std::this_thread::get_id();
    stream->capture = capture;
    stream->frontier.clear();
    context.captures.push_back(std::move(capture));
    return CUDA_SUCCESS;
  });
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
    if (result != CUDA_SUCCESS) return result;
    *out = vgpu::add_graph(gpu, context, capture->nodes);
    return CUDA_SUCCESS;
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

/// The graph and what the next node would depend on are not told.
VGPU_API cuStreamGetCaptureInfo(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
                                CUgraph* graph, const CUgraphNode** dependencies,
                                const CUgraphEdgeData** edges, size_t* count) {
  if (graph || dependencies || edges || count) return CUDA_ERROR_NOT_SUPPORTED;
  const CUresult result = cuStreamIsCapturing(handle, status);
  if (result != CUDA_SUCCESS || !id) return result;
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu&, CUctx_st& context) {
    const CUstream stream = vgpu::find_stream(context, handle);
    if (stream->capture) *id = reinterpret_cast<std::uintptr_t>(stream->capture.get());
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
    if (!vgpu::order_nodes(*graph, &exec->nodes)) return CUDA_ERROR_INVALID_VALUE;
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
    // What is changed in it from here on is for later launches.
    auto nodes = std::make_shared<const std::vector<vgpu::GraphNode>>(exec->second->nodes);
    return vgpu::submit(gpu, context, stream, vgpu::ChildOperation{std::move(nodes)});
  });
}

VGPU_API cuGraphExecDestroy(CUgraphExec exec) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st&) {
    return gpu.graph_execs.erase(exec) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}
