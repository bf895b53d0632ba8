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

jit::Conditions conditions_of(const MeasureSettings& settings) {
  return {settings.objective, settings.graph, !settings.cold_l2};
}

void set_conditions(MeasureSettings& settings, const jit::Conditions& conditions) {
  settings.objective = conditions.objective;
  settings.graph = conditions.graph;
  settings.cold_l2 = !conditions.warm_l2;
}

}  // namespace tilewright::search
