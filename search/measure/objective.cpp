#include <utility>

#include "search/measure/trial.h"

namespace tilewright::search {

double Sample::cost() const {
  switch (objective) {
    case Objective::kLatency:
    case Objective::kThroughput:
      return time_us;
    case Objective::kTail:
      return p99_us;
    case Objective::kEnergy:
      return energy_uj;
  }
  return time_us;
}

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
  return "";
}

std::optional<Objective> objective_named(std::string_view name) {
  for (const auto& [value, known] : kObjectives)
    if (known == name) return value;
  return std::nullopt;
}

}  // namespace tilewright::search
