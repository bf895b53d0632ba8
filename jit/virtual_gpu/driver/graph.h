/// Graphs: nodes with handles, and the order that an instantiated one runs them in.
#pragma once

#include "jit/virtual_gpu/driver/state.h"

namespace tilewright::vgpu {

/// Null where the handle is none of ours.
CUgraph find_graph(Gpu& gpu, CUgraph handle);
CUgraphNode find_node(Gpu& gpu, CUgraphNode handle);

/// A graph of nodes that come after earlier ones only.
CUgraph add_graph(Gpu& gpu, CUctx_st& context, const std::vector<GraphNode>& nodes);
/// A copy, whose nodes remember those they were made from.
CUgraph clone_graph(Gpu& gpu, const CUgraph_st& graph);
/// And the graphs of its child nodes.
void destroy_graph(Gpu& gpu, CUgraph graph);

/// The nodes, each after those that it depends on; false where they form a cycle.
bool order_nodes(const CUgraph_st& graph, std::vector<GraphNode>* out);

}  // namespace tilewright::vgpu
