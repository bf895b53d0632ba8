/// The phases of a row reduction: what each one loads, computes, keeps, gathers and stores.
#pragma once

#include <vector>

#include "templates/families/group_code.h"

namespace tilewright::templates {

struct RowPhase {
  std::vector<int> loads;     ///< input nodes read in this phase
  std::vector<int> restores;  ///< nodes that an earlier phase kept
  std::vector<int> computes;  ///< fragments computed here, in order
  std::vector<int> keeps;     ///< loads and computes that a later phase restores
  std::vector<int> gathers;   ///< reduction nodes
  std::vector<int> stores;    ///< outputs (their number in the group)
};

struct RowPhases {
  std::vector<RowPhase> phases;
  bool held = false;
};

/// `held`: a row stays in registers between phases, and outputs are stored as soon as they are
/// known. Else every phase loads and computes again what it needs, and stores come last: an output
/// may lie in the memory of an input that a later phase still reads.
RowPhases plan_phases(const NodeGraph& graph, const RowSpace& space, bool held);

void write_row_visitor(Code& code, const GroupCode& group, const RowPhases& phases);

}  // namespace tilewright::templates
