/// What a plan of several launches computes: the operator, with a cast wherever a launch reads what
/// an earlier one has stored, and nowhere else.
#pragma once

#include <span>

#include "search/verify/plan_facts.h"
#include "templates/operator/operator.h"

namespace tilewright::search {

/// Same inputs, outputs and names of outputs. A launch computes what it writes from inputs and from
/// what it reads; so a value may be computed unrounded in the launch that stores it, and rounded
/// in another.
templates::Operator as_stored(const templates::Operator& op, std::span<const LaunchFacts> launches);

}  // namespace tilewright::search
