#include "jit/virtual_gpu/program/control_flow.h"

#include <algorithm>

namespace tilewright::vgpu {
namespace {

bool ends_block(Op op) {
  return op == Op::kBranch || op == Op::kBranchIf || op == Op::kBranchIndex || op == Op::kExit;
}

/// Cooper, Harvey, Kennedy, "A Simple, Fast Dominance Algorithm", on the reversed graph. Node
/// blocks.size() is the exit.
void post_dominators(std::vector<FlowBlock>& blocks) {
  const int exit = static_cast<int>(blocks.size());
  std::vector<int> order;  // post-order of the reversed graph, the exit last
  std::vector<int> number(blocks.size() + 1, -1);
  std::vector<char> seen(blocks.size() + 1, 0);
  std::vector<int> exiting;
  for (int b = 0; b < exit; ++b)
    if (blocks[static_cast<std::size_t>(b)].successors.empty()) exiting.push_back(b);
  auto reversed = [&](int node) -> const std::vector<int>& {
    return node == exit ? exiting : blocks[static_cast<std::size_t>(node)].predecessors;
  };
  std::vector<std::pair<int, std::size_t>> stack{{exit, 0}};
  seen[static_cast<std::size_t>(exit)] = 1;
  while (!stack.empty()) {
    auto& [node, next] = stack.back();
    const auto& edges = reversed(node);
    if (next < edges.size()) {
      int to = edges[next++];
      if (seen[static_cast<std::size_t>(to)] == 0) {
        seen[static_cast<std::size_t>(to)] = 1;
        stack.push_back({to, 0});
      }
    } else {
      number[static_cast<std::size_t>(node)] = static_cast<int>(order.size());
      order.push_back(node);
      stack.pop_back();
    }
  }
  std::vector<int> dominator(blocks.size() + 1, -1);
  dominator[static_cast<std::size_t>(exit)] = exit;
  auto meet = [&](int a, int b) {
    while (a != b) {
      while (number[static_cast<std::size_t>(a)] < number[static_cast<std::size_t>(b)])
        a = dominator[static_cast<std::size_t>(a)];
      while (number[static_cast<std::size_t>(b)] < number[static_cast<std::size_t>(a)])
        b = dominator[static_cast<std::size_t>(b)];
    }
    return a;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (auto it = order.rbegin(); it != order.rend(); ++it) {
      int node = *it;
      if (node == exit) continue;
      const auto& successors = blocks[static_cast<std::size_t>(node)].successors;
      int found = successors.empty() ? exit : -1;
      for (int successor : successors) {
        if (dominator[static_cast<std::size_t>(successor)] < 0) continue;
        found = found < 0 ? successor : meet(successor, found);
      }
      if (found >= 0 && dominator[static_cast<std::size_t>(node)] != found) {
        dominator[static_cast<std::size_t>(node)] = found;
        changed = true;
      }
    }
  }
  for (int b = 0; b < exit; ++b) {
    int d = dominator[static_cast<std::size_t>(b)];
    blocks[static_cast<std::size_t>(b)].post_dominator = d == exit ? -1 : d;
  }
}

}  // namespace

ControlFlow control_flow(const DraftKernel& kernel) {
  const auto count = static_cast<int>(kernel.drafts.size());
  std::vector<char> leads(static_cast<std::size_t>(count) + 1, 0);
  leads[0] = 1;
  for (int i = 0; i < count; ++i)
    if (ends_block(kernel.drafts[static_cast<std::size_t>(i)].form.op))
      leads[static_cast<std::size_t>(i) + 1] = 1;
  for (int at : kernel.labels)
    if (at >= 0) leads[static_cast<std::size_t>(at)] = 1;

  ControlFlow flow;
  std::vector<int> block_at(static_cast<std::size_t>(count) + 1, -1);
  for (int i = 0; i < count; ++i) {
    if (leads[static_cast<std::size_t>(i)] != 0) {
      if (!flow.blocks.empty()) flow.blocks.back().end = i;
      flow.blocks.push_back({i, count, {}, {}, -1, false});
    }
    block_at[static_cast<std::size_t>(i)] = static_cast<int>(flow.blocks.size()) - 1;
  }
  for (int at : kernel.labels)
    flow.block_of_label.push_back(at < 0 ? -1 : block_at[static_cast<std::size_t>(at)]);

  for (std::size_t b = 0; b < flow.blocks.size(); ++b) {
    FlowBlock& block = flow.blocks[b];
    const Draft& last = kernel.drafts[static_cast<std::size_t>(block.end) - 1];
    auto target = [&](int label) {
      block.successors.push_back(flow.block_of_label[static_cast<std::size_t>(label)]);
    };
    bool falls = true;
    if (last.form.op == Op::kBranch) {
      target(last.target);
      falls = false;
    } else if (last.form.op == Op::kBranchIf) {
      target(last.target);
      block.conditional = true;
    } else if (last.form.op == Op::kBranchIndex) {
      for (int label : last.targets) target(label);
      block.conditional = true;
      falls = false;
    } else if (last.form.op == Op::kExit) {
      falls = false;
    }
    if (falls && b + 1 < flow.blocks.size()) block.successors.push_back(static_cast<int>(b) + 1);
    std::sort(block.successors.begin(), block.successors.end());
    block.successors.erase(std::unique(block.successors.begin(), block.successors.end()),
                           block.successors.end());
  }
  for (std::size_t b = 0; b < flow.blocks.size(); ++b)
    for (int successor : flow.blocks[b].successors)
      flow.blocks[static_cast<std::size_t>(successor)].predecessors.push_back(static_cast<int>(b));
  post_dominators(flow.blocks);
  return flow;
}

}  // namespace tilewright::vgpu
