#include "jit/conditions.h"

#include <fmt/format.h>

#include <utility>

namespace tilewright::jit {
namespace {

constexpr std::pair<Objective, std::string_view> kObjectives[] = {
    {Objective::kLatency, "latency"},
    {Objective::kThroughput, "throughput"},
    {Objective::kTail, "p99"},
    {Objective::kEnergy, "energy"},
};

}  // namespace

std::string_view to_string(Objective objective) {
  for (const auto& [value, name] : kObjectives)
    if (value == objective) return name;
  return "?";
}

std::optional<Objective> objective_named(std::string_view name) {
  for (const auto& [value, known] : kObjectives)
    if (known == name) return value;
  return std::nullopt;
}

std::optional<Objective> objective_numbered(std::uint8_t number) {
  for (const auto& [value, name] : kObjectives)
    if (static_cast<std::uint8_t>(value) == number) return value;
  return std::nullopt;
}

std::string to_text(const Conditions& conditions) {
  return fmt::format("{}, {}, {} L2", to_string(conditions.objective),
                     conditions.graph ? "graph" : "stream", conditions.warm_l2 ? "warm" : "cold");
}

int differences(const Conditions& a, const Conditions& b) {
  return (a.objective != b.objective) + (a.graph != b.graph) + (a.warm_l2 != b.warm_l2);
}

Result<Conditions> Wishes::over(const Conditions& otherwise) const {
  Conditions conditions = otherwise;
  if (!objective.empty()) {
    const auto named = objective_named(objective);
    if (!named)
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("objective is '{}', expected latency, throughput, p99 or energy", objective));
    conditions.objective = *named;
  }
  conditions.graph = graph.value_or(conditions.graph);
  conditions.warm_l2 = warm_l2.value_or(conditions.warm_l2);
  return conditions;
}

bool Wishes::met_by(const Conditions& conditions) const {
  return (objective.empty() || objective == to_string(conditions.objective)) &&
         graph.value_or(conditions.graph) == conditions.graph &&
         warm_l2.value_or(conditions.warm_l2) == conditions.warm_l2;
}

Wishes wishes_for(const Conditions& conditions) {
  return {std::string(to_string(conditions.objective)), conditions.graph, conditions.warm_l2};
}

}  // namespace tilewright::jit
