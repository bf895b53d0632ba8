/// A plan as JSON: what --json prints and what an exported cache holds. Digests are hexadecimal,
/// dtypes by name; unknown members are ignored, missing ones have the value of an empty plan.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "jit/plan.h"

namespace tilewright::jit {

nlohmann::json to_json(const Plan& plan);

/// Errors: kInvalidArgument names the member, what it is and what was expected. Rules are not
/// parsed: check() does that.
Result<Plan> plan_from_json(const nlohmann::json& json);

}  // namespace tilewright::jit
