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
/// And the graphs of its child nodes. Gives references to user objects back.
void destroy_graph(Gpu& gpu, CUgraph graph);

/// The nodes, each after those that it depends on; false where they form a cycle.
bool order_nodes(const CUgraph_st& graph, std::vector<GraphNode>* out);

/// Memory for a node that allocates. Errors: CUDA_ERROR_OUT_OF_MEMORY.
CUresult make_graph_memory(Gpu& gpu, CUctx_st& context, std::size_t bytes,
                           std::shared_ptr<GraphMemory>* out);
/// Null where no node allocates there.
std::shared_ptr<GraphMemory> find_graph_memory(Gpu& gpu, CUdeviceptr address);
/// Whether a node of the graph frees it.
bool frees(const CUgraph_st& graph, const GraphMemory& memory);
/// Whether there are nodes that allocate or free: such a graph is not copied.
bool has_memory(const CUgraph_st& graph);
/// Reads what a child node does; of others the operation.
CUgraphNodeType type_of(const CUgraphNode_st& node);

/// Takes references away; the last one destroys the object.
void release_object(Gpu& gpu, CUuserObject object, std::uint64_t count);

}  // namespace tilewright::vgpu
