/// Basic blocks of a kernel's drafts, and where divergent paths meet again.
#pragma once

#include <vector>

#include "jit/virtual_gpu/program/draft.h"

namespace tilewright::vgpu {

struct FlowBlock {
  int first = 0, end = 0;  ///< drafts, [first, end)
  std::vector<int> successors;
  std::vector<int> predecessors;
  int post_dominator = -1;  ///< immediate; -1: the exit
  bool conditional = false;
};

struct ControlFlow {
  std::vector<FlowBlock> blocks;
  std::vector<int> block_of_label;
};

ControlFlow control_flow(const DraftKernel& kernel);

}  // namespace tilewright::vgpu
