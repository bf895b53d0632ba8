/// Nodes of graphs: their parameters as operations, and how they are added.
#pragma once

#include "jit/virtual_gpu/driver/graph.h"

namespace tilewright::vgpu {

CUresult read(Gpu& gpu, CUctx_st& context, const CUDA_KERNEL_NODE_PARAMS& given, Operation* out);
CUresult read(Gpu& gpu, CUctx_st& context, const CUDA_MEMCPY3D& given, Operation* out);
CUresult read(Gpu& gpu, CUctx_st& context, const CUDA_MEMSET_NODE_PARAMS& given, Operation* out);
CUresult read(Gpu& gpu, CUctx_st& context, const CUDA_HOST_NODE_PARAMS& given, Operation* out);

/// Adds a node; `fill(Gpu&, CUctx_st&, CUgraphNode_st&)` says what it does.
template <typename Fill>
CUresult add_node(CUgraphNode* out, CUgraph handle, const CUgraphNode* after, std::size_t count,
                  Fill&& fill) {
  return enter(Needs::kHealthyContext, [&](Gpu& gpu, CUctx_st& context) {
    const CUgraph graph = find_graph(gpu, handle);
    if (!out || !graph || (count > 0 && !after)) return CUDA_ERROR_INVALID_VALUE;
    auto node = std::make_unique<CUgraphNode_st>();
    node->graph = graph;
    for (std::size_t i = 0; i < count; ++i) {
      const CUgraphNode before = find_node(gpu, after[i]);
      if (!before || before->graph != graph) return CUDA_ERROR_INVALID_VALUE;
      node->after.push_back(before);
    }
    if (CUresult wrong = fill(gpu, context, *node)) return wrong;
    *out = node.get();
    graph->nodes.push_back(std::move(node));
    return CUDA_SUCCESS;
  });
}

}  // namespace tilewright::vgpu
