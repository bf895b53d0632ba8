#include "jit/virtual_gpu/driver/graph.h"

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
  gpu.graphs.erase(graph);
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
