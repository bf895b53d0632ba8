/// A group of a partition is an operator in its own right: the statements it computes, with what
/// they read from outside as inputs and what is read outside as outputs. It is generated, verified
/// and measured as such, and equal groups of different operators have equal digests.
#pragma once

#include <vector>

#include "templates/operator/operator.h"

namespace tilewright::templates {

/// `statements` are indices into op.statements, ascending. Value names are kept. A value that
/// leaves the group and is not an output of `op` is an output of dtype op.intermediate (its own
/// dtype if a cast made it); where it enters another group, it is an input of that dtype, dense.
Operator extract_group(const Operator& op, const std::vector<int>& statements);

}  // namespace tilewright::templates
