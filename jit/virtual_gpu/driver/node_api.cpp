// Graphs built by hand: nodes, what they depend on, and changes of what they do.
#include <algorithm>

#include "jit/virtual_gpu/driver/copy.h"
#include "jit/virtual_gpu/driver/function.h"
#include "jit/virtual_gpu/driver/graph.h"
#include "jit/virtual_gpu/driver/node.h"
#include "jit/virtual_gpu/driver/state.h"

using namespace tilewright;
using vgpu::enter;
using vgpu::Needs;

namespace tilewright::vgpu {

CUresult read(Gpu& gpu, CUctx_st& context, const CUDA_KERNEL_NODE_PARAMS& given, Operation* out) {
  const CUfunction handle = given.func ? given.func : reinterpret_cast<CUfunction>(given.kern);
  const CUfunction function = find_function(gpu, context, handle);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  KernelOperation launch;
  launch.program = context.modules.at(function->module)->program;
  launch.kernel = function->info;
  launch.function = function;
  launch.grid = {given.gridDimX, given.gridDimY, given.gridDimZ};
  launch.block = {given.blockDimX, given.blockDimY, given.blockDimZ};
  launch.dynamic_shared_bytes = given.sharedMemBytes;
  if (CUresult wrong = check_limits(gpu.description->info, *function, launch)) return wrong;
  if (CUresult wrong =
          pack_parameters(*function->info, given.kernelParams, given.extra, launch.parameters))
    return wrong;
  *out = std::move(launch);
  return CUDA_SUCCESS;
}

CUresult read(Gpu&, CUctx_st& context, const CUDA_MEMCPY3D& given, Operation* out) {
  CopyOperation copy;
  if (CUresult wrong = read_copy(given, &copy)) return wrong;
  *out = copy;
  return check_copy(context, copy);
}

CUresult read(Gpu&, CUctx_st& context, const CUDA_MEMSET_NODE_PARAMS& given, Operation* out) {
  if (given.elementSize != 1 && given.elementSize != 2 && given.elementSize != 4)
    return CUDA_ERROR_INVALID_VALUE;
  const FillOperation fill{given.dst,   given.value,  int(given.elementSize),
                           given.width, given.height, given.height > 1 ? given.pitch : 0};
  *out = fill;
  return check_fill(context, fill);
}

CUresult read(Gpu&, CUctx_st&, const CUDA_HOST_NODE_PARAMS& given, Operation* out) {
  if (!given.fn) return CUDA_ERROR_INVALID_VALUE;
  *out = HostOperation{given.fn, given.userData};
  return CUDA_SUCCESS;
}

}  // namespace tilewright::vgpu

namespace {

using vgpu::add_node;
using vgpu::read;

template <typename Parameters>
CUresult add_operation(CUgraphNode* out, CUgraph graph, const CUgraphNode* after, std::size_t count,
                       const Parameters* given) {
  if (!given) return CUDA_ERROR_INVALID_VALUE;
  return add_node(out, graph, after, count,
                  [&](vgpu::Gpu& gpu, CUctx_st& context, CUgraphNode_st& node) {
                    return read(gpu, context, *given, &node.operation);
                  });
}

/// Replaces what a node does by something of its kind.
template <typename Parameters>
CUresult set_operation(CUgraphNode handle, const Parameters* given) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    const CUgraphNode node = vgpu::find_node(gpu, handle);
    if (!node || !given) return CUDA_ERROR_INVALID_VALUE;
    vgpu::Operation operation;
    if (CUresult wrong = read(gpu, context, *given, &operation)) return wrong;
    if (operation.index() != node->operation.index()) return CUDA_ERROR_INVALID_VALUE;
    node->operation = std::move(operation);
    return CUDA_SUCCESS;
  });
}

template <typename Parameters>
CUresult set_in_exec(CUgraphExec handle, CUgraphNode original, const Parameters* given) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    auto exec = gpu.graph_execs.find(handle);
    if (exec == gpu.graph_execs.end() || !given) return CUDA_ERROR_INVALID_VALUE;
    auto& nodes = exec->second->nodes;
    auto node = std::find_if(nodes.begin(), nodes.end(),
                             [&](const auto& each) { return each.original == original; });
    if (node == nodes.end()) return CUDA_ERROR_INVALID_VALUE;
    vgpu::Operation operation;
    if (CUresult wrong = read(gpu, context, *given, &operation)) return wrong;
    if (operation.index() != node->operation.index()) return CUDA_ERROR_INVALID_VALUE;
    node->operation = std::move(operation);
    return CUDA_SUCCESS;
  });
}

/// As many as fit, or only their number where there is no place for them.
CUresult give(const std::vector<CUgraphNode>& all, CUgraphNode* out, std::size_t* count) {
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  if (out) {
    for (std::size_t i = 0; i < *count; ++i) out[i] = i < all.size() ? all[i] : nullptr;
  }
  *count = out ? std::min(*count, all.size()) : all.size();
  return CUDA_SUCCESS;
}

CUresult change_dependencies(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to,
                             std::size_t count, bool add) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st&) {
    const CUgraph graph = vgpu::find_graph(gpu, handle);
    if (!graph || (count > 0 && (!from || !to))) return CUDA_ERROR_INVALID_VALUE;
    for (std::size_t i = 0; i < count; ++i) {
      const CUgraphNode before = vgpu::find_node(gpu, from[i]), after = vgpu::find_node(gpu, to[i]);
      if (!before || !after || before->graph != graph || after->graph != graph || before == after)
        return CUDA_ERROR_INVALID_VALUE;
      auto place = std::find(after->after.begin(), after->after.end(), before);
      if ((place == after->after.end()) != add) return CUDA_ERROR_INVALID_VALUE;
      if (add) {
        after->after.push_back(before);
      } else {
        after->after.erase(place);
      }
    }
    return CUDA_SUCCESS;
  });
}

}  // namespace

VGPU_API cuGraphCreate(CUgraph* out, unsigned int flags) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    if (!out || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    *out = vgpu::add_graph(gpu, context, {});
    return CUDA_SUCCESS;
  });
}

VGPU_API cuGraphClone(CUgraph* out, CUgraph handle) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st&) {
    const CUgraph graph = vgpu::find_graph(gpu, handle);
    if (!out || !graph) return CUDA_ERROR_INVALID_VALUE;
    if (vgpu::has_memory(*graph)) return CUDA_ERROR_NOT_SUPPORTED;
    *out = vgpu::clone_graph(gpu, *graph);
    return CUDA_SUCCESS;
  });
}

VGPU_API cuGraphDestroy(CUgraph handle) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    const CUgraph graph = vgpu::find_graph(gpu, handle);
    if (!graph || graph->owned) return CUDA_ERROR_INVALID_VALUE;
    for (const auto& capture : context.captures)
      if (capture->graph == graph) return CUDA_ERROR_INVALID_VALUE;
    vgpu::destroy_graph(gpu, graph);
    return CUDA_SUCCESS;
  });
}

VGPU_API cuGraphNodeFindInClone(CUgraphNode* out, CUgraphNode original, CUgraph handle) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st&) {
    const CUgraph graph = vgpu::find_graph(gpu, handle);
    if (!out || !graph) return CUDA_ERROR_INVALID_VALUE;
    for (const auto& node : graph->nodes) {
      if (node->original != original) continue;
      *out = node.get();
      return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
  });
}

VGPU_API cuGraphAddKernelNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after,
                              size_t count, const CUDA_KERNEL_NODE_PARAMS* given) {
  return add_operation(out, graph, after, count, given);
}

VGPU_API cuGraphAddMemcpyNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after,
                              size_t count, const CUDA_MEMCPY3D* given, CUcontext) {
  return add_operation(out, graph, after, count, given);
}

VGPU_API cuGraphAddMemsetNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after,
                              size_t count, const CUDA_MEMSET_NODE_PARAMS* given, CUcontext) {
  return add_operation(out, graph, after, count, given);
}

VGPU_API cuGraphAddHostNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after, size_t count,
                            const CUDA_HOST_NODE_PARAMS* given) {
  return add_operation(out, graph, after, count, given);
}

VGPU_API cuGraphAddEmptyNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after,
                             size_t count) {
  return add_node(out, graph, after, count, [](vgpu::Gpu&, CUctx_st&, CUgraphNode_st& node) {
    node.operation = vgpu::EmptyOperation{};
    return CUDA_SUCCESS;
  });
}

VGPU_API cuGraphAddChildGraphNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after,
                                  size_t count, CUgraph child) {
  return add_node(out, graph, after, count, [&](vgpu::Gpu& gpu, CUctx_st&, CUgraphNode_st& node) {
    const CUgraph found = vgpu::find_graph(gpu, child);
    if (!found || found == graph) return CUDA_ERROR_INVALID_VALUE;
    if (vgpu::has_memory(*found)) return CUDA_ERROR_NOT_SUPPORTED;
    node.operation = vgpu::EmptyOperation{};
    node.child = vgpu::clone_graph(gpu, *found);
    node.child->owned = true;
    return CUDA_SUCCESS;
  });
}

VGPU_API cuGraphChildGraphNodeGetGraph(CUgraphNode handle, CUgraph* out) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st&) {
    const CUgraphNode node = vgpu::find_node(gpu, handle);
    if (!out || !node || !node->child) return CUDA_ERROR_INVALID_VALUE;
    *out = node->child;
    return CUDA_SUCCESS;
  });
}

VGPU_API cuGraphDestroyNode(CUgraphNode handle) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    const CUgraphNode node = vgpu::find_node(gpu, handle);
    if (!node) return CUDA_ERROR_INVALID_VALUE;
    for (const auto& capture : context.captures) {
      std::erase(capture->nodes, node);
      for (CUstream member : capture->members) std::erase(member->frontier, node);
    }
    if (node->child) vgpu::destroy_graph(gpu, node->child);
    auto& nodes = node->graph->nodes;
    for (auto& other : nodes) std::erase(other->after, handle);
    std::erase_if(nodes, [&](const auto& each) { return each.get() == handle; });
    return CUDA_SUCCESS;
  });
}

VGPU_API cuGraphAddDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                const CUgraphEdgeData*, size_t count) {
  return change_dependencies(graph, from, to, count, true);
}

VGPU_API cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                   const CUgraphEdgeData*, size_t count) {
  return change_dependencies(graph, from, to, count, false);
}

VGPU_API cuGraphGetNodes(CUgraph handle, CUgraphNode* out, size_t* count) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st&) {
    const CUgraph graph = vgpu::find_graph(gpu, handle);
    if (!graph) return CUDA_ERROR_INVALID_VALUE;
    std::vector<CUgraphNode> nodes;
    for (const auto& node : graph->nodes) nodes.push_back(node.get());
    return give(nodes, out, count);
  });
}

VGPU_API cuGraphGetRootNodes(CUgraph handle, CUgraphNode* out, size_t* count) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st&) {
    const CUgraph graph = vgpu::find_graph(gpu, handle);
    if (!graph) return CUDA_ERROR_INVALID_VALUE;
    std::vector<CUgraphNode> nodes;
    for (const auto& node : graph->nodes)
      if (node->after.empty()) nodes.push_back(node.get());
    return give(nodes, out, count);
  });
}

VGPU_API cuGraphGetEdges(CUgraph handle, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data,
                         size_t* count) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st&) {
    const CUgraph graph = vgpu::find_graph(gpu, handle);
    if (!graph || !count || (from == nullptr) != (to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
    std::vector<CUgraphNode> starts, ends;
    for (const auto& node : graph->nodes) {
      for (CUgraphNode before : node->after) {
        starts.push_back(before);
        ends.push_back(node.get());
      }
    }
    if (data && from) std::fill_n(data, std::min(*count, starts.size()), CUgraphEdgeData{});
    std::size_t same = *count;
    if (CUresult wrong = give(starts, from, &same)) return wrong;
    return give(ends, to, count);
  });
}

VGPU_API cuGraphNodeGetDependencies(CUgraphNode handle, CUgraphNode* out, CUgraphEdgeData* data,
                                    size_t* count) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st&) {
    const CUgraphNode node = vgpu::find_node(gpu, handle);
    if (!node || !count) return CUDA_ERROR_INVALID_VALUE;
    if (data && out) std::fill_n(data, std::min(*count, node->after.size()), CUgraphEdgeData{});
    return give(node->after, out, count);
  });
}

VGPU_API cuGraphNodeGetDependentNodes(CUgraphNode handle, CUgraphNode* out, CUgraphEdgeData* data,
                                      size_t* count) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st&) {
    const CUgraphNode node = vgpu::find_node(gpu, handle);
    if (!node || !count) return CUDA_ERROR_INVALID_VALUE;
    std::vector<CUgraphNode> found;
    for (const auto& other : node->graph->nodes)
      if (std::find(other->after.begin(), other->after.end(), node) != other->after.end())
        found.push_back(other.get());
    if (data && out) std::fill_n(data, std::min(*count, found.size()), CUgraphEdgeData{});
    return give(found, out, count);
  });
}

VGPU_API cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType* out) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st&) {
    const CUgraphNode node = vgpu::find_node(gpu, handle);
    if (!node || !out) return CUDA_ERROR_INVALID_VALUE;
    *out = vgpu::type_of(*node);
    return CUDA_SUCCESS;
  });
}

VGPU_API cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* given) {
  return set_operation(node, given);
}

VGPU_API cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D* given) {
  return set_operation(node, given);
}

VGPU_API cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* given) {
  return set_operation(node, given);
}

VGPU_API cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS* given) {
  return set_operation(node, given);
}

VGPU_API cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_KERNEL_NODE_PARAMS* given) {
  return set_in_exec(exec, node, given);
}

VGPU_API cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMCPY3D* given, CUcontext) {
  return set_in_exec(exec, node, given);
}

VGPU_API cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMSET_NODE_PARAMS* given, CUcontext) {
  return set_in_exec(exec, node, given);
}

VGPU_API cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                      const CUDA_HOST_NODE_PARAMS* given) {
  return set_in_exec(exec, node, given);
}

/// The same nodes in the same order, with what they now do.
VGPU_API cuGraphExecUpdate(CUgraphExec handle, CUgraph graph_handle,
                           CUgraphExecUpdateResultInfo* info) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st&) {
    auto exec = gpu.graph_execs.find(handle);
    const CUgraph graph = vgpu::find_graph(gpu, graph_handle);
    if (exec == gpu.graph_execs.end() || !graph || !info) return CUDA_ERROR_INVALID_VALUE;
    *info = {};
    info->result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
    std::vector<vgpu::GraphNode> nodes;
    auto& old = exec->second->nodes;
    if (!vgpu::order_nodes(*graph, &nodes)) return CUDA_ERROR_INVALID_VALUE;
    if (nodes.size() != old.size()) info->result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (info->result != CU_GRAPH_EXEC_UPDATE_SUCCESS) break;
      if (nodes[i].after != old[i].after) {
        info->result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
      } else if (nodes[i].operation.index() != old[i].operation.index()) {
        info->result = CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
      } else {
        continue;
      }
      info->errorNode = nodes[i].original;
    }
    if (info->result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    // Nodes keep the handles that they were instantiated by.
    for (std::size_t i = 0; i < nodes.size(); ++i) old[i].operation = nodes[i].operation;
    return CUDA_SUCCESS;
  });
}
