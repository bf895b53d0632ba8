#include "jit/virtual_gpu/driver/graph.h"

#include <algorithm>
#include <unordered_map>

namespace tilewright::vgpu {

CUgraph find_graph(Gpu& gpu, CUgraph handle) { return gpu.graphs.count(handle) ? handle : nullptr; }

CUgraphNode find_node(Gpu& gpu, CUgraphNode handle) {
  for (const auto& [graph, state] : gpu.graphs)
    for (const auto& node : state->nodes)
      if (node.get() == handle) return handle;
  return nullptr;
}

CUgraph add_graph(Gpu& gpu, CUctx_st& context, const std::vector<GraphNode>& nodes) {
  auto graph = std::make_unique<CUgraph_st>();
  graph->context = &context;
  for (const GraphNode& given : nodes) {
    auto node = std::make_unique<CUgraphNode_st>();
    node->graph = graph.get();
    node->operation = given.operation;
    if (auto* child = std::get_if<ChildOperation>(&given.operation)) {
      node->child = add_graph(gpu, context, *child->nodes);
      node->child->owned = true;
    }
    for (int before : given.after) node->after.push_back(graph->nodes[std::size_t(before)].get());
    graph->nodes.push_back(std::move(node));
  }
  const CUgraph handle = graph.get();
  gpu.graphs.emplace(handle, std::move(graph));
  return handle;
}

CUgraph clone_graph(Gpu& gpu, const CUgraph_st& graph) {
  auto copy = std::make_unique<CUgraph_st>();
  copy->context = graph.context;
  std::unordered_map<CUgraphNode, CUgraphNode> copies;
  for (const auto& original : graph.nodes) {
    auto node = std::make_unique<CUgraphNode_st>(*original);
    node->graph = copy.get();
    node->original = original.get();
    if (node->child) {
      node->child = clone_graph(gpu, *node->child);
      node->child->owned = true;
    }
    copies.emplace(original.get(), node.get());
    copy->nodes.push_back(std::move(node));
  }
  for (auto& node : copy->nodes)
    for (CUgraphNode& before : node->after) before = copies.at(before);
  const CUgraph handle = copy.get();
  gpu.graphs.emplace(handle, std::move(copy));
  return handle;
}

void destroy_graph(Gpu& gpu, CUgraph graph) {
  for (const auto& node : graph->nodes)
    if (node->child) destroy_graph(gpu, node->child);
  const auto objects = std::move(graph->objects);
  gpu.graphs.erase(graph);
  for (const auto& [object, count] : objects) release_object(gpu, object, count);
}

CUresult make_graph_memory(Gpu& gpu, CUctx_st& context, std::size_t bytes,
                           std::shared_ptr<GraphMemory>* out) {
  auto address = context.memory->allocate(bytes);
  if (!address) {
    gpu.explain(address.error().message);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *out = std::make_shared<GraphMemory>();
  (*out)->memory = context.memory;
  (*out)->address = *address;
  (*out)->bytes = bytes;
  std::erase_if(gpu.graph_memory, [](const auto& entry) { return entry.second.expired(); });
  gpu.graph_memory[*address] = *out;
  return CUDA_SUCCESS;
}

std::shared_ptr<GraphMemory> find_graph_memory(Gpu& gpu, CUdeviceptr address) {
  auto found = gpu.graph_memory.find(address);
  return found == gpu.graph_memory.end() ? nullptr : found->second.lock();
}

bool frees(const CUgraph_st& graph, const GraphMemory& memory) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const auto& node) {
    auto* free = std::get_if<FreeOperation>(&node->operation);
    return free && free->memory.get() == &memory;
  });
}

bool has_memory(const CUgraph_st& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const auto& node) {
    return std::holds_alternative<AllocateOperation>(node->operation) ||
           std::holds_alternative<FreeOperation>(node->operation);
  });
}

CUgraphNodeType type_of(const CUgraphNode_st& node) {
  constexpr CUgraphNodeType kTypes[] = {
      CU_GRAPH_NODE_TYPE_KERNEL,      CU_GRAPH_NODE_TYPE_MEMSET,    CU_GRAPH_NODE_TYPE_MEMCPY,
      CU_GRAPH_NODE_TYPE_HOST,        CU_GRAPH_NODE_TYPE_EMPTY,     CU_GRAPH_NODE_TYPE_GRAPH,
      CU_GRAPH_NODE_TYPE_MEM_FREE,    CU_GRAPH_NODE_TYPE_MEM_ALLOC, CU_GRAPH_NODE_TYPE_WAIT_EVENT,
      CU_GRAPH_NODE_TYPE_EVENT_RECORD};
  return node.child ? CU_GRAPH_NODE_TYPE_GRAPH : kTypes[node.operation.index()];
}

void release_object(Gpu& gpu, CUuserObject handle, std::uint64_t count) {
  auto object = gpu.objects.find(handle);
  if (object == gpu.objects.end()) return;
  object->second->references -= std::min(object->second->references, count);
  if (object->second->references > 0) return;
  const auto ended = std::move(object->second);
  gpu.objects.erase(object);
  call_host(gpu, {ended->destroy, ended->pointer, nullptr});
}

bool order_nodes(const CUgraph_st& graph, std::vector<GraphNode>* out) {
  std::unordered_map<CUgraphNode, int> placed;
  out->clear();
  while (out->size() < graph.nodes.size()) {
    const std::size_t before = out->size();
    for (const auto& node : graph.nodes) {
      if (placed.count(node.get())) continue;
      GraphNode next;
      bool ready = true;
      for (CUgraphNode other : node->after) {
        auto position = placed.find(other);
        ready = ready && position != placed.end();
        if (ready) next.after.push_back(position->second);
      }
      if (!ready) continue;
      next.operation = node->operation;
      next.original = node.get();
      if (node->child) {
        auto nodes = std::make_shared<std::vector<GraphNode>>();
        if (!order_nodes(*node->child, nodes.get())) return false;
        next.operation = ChildOperation{std::move(nodes)};
      }
      placed.emplace(node.get(), int(out->size()));
      out->push_back(std::move(next));
    }
    if (out->size() == before) return false;
  }
  return true;
}

}  // namespace tilewright::vgpu
