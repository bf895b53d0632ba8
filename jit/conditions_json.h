/// Conditions as JSON, the same wherever they are said.
#pragma once

#include <nlohmann/json.hpp>

#include "jit/conditions.h"

namespace tilewright::jit {

/// {"objective": "latency", "graph": false, "warm_l2": false}.
inline nlohmann::json to_json(const Conditions& conditions) {
  return {{"objective", to_string(conditions.objective)},
          {"graph", conditions.graph},
          {"warm_l2", conditions.warm_l2}};
}

}  // namespace tilewright::jit
