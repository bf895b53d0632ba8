// What a choice loses at the sizes where others were measured as well.
#include <algorithm>

#include "search/tuner.h"

namespace tilewright::search {
namespace {

std::optional<double> share_lost(const Sample& choice, double best) {
  if (choice.count == 0 || best <= 0) return std::nullopt;
  return std::max(0.0, choice.cost() / best - 1);
}

}  // namespace

std::optional<double> regret(const TuneReport& report) {
  if (report.choice < 0) return std::nullopt;
  double best = report.choice_sample.cost();
  for (const PartitionReport& partition : report.partitions)
    if (partition.whole && !partition.failure) best = std::min(best, partition.whole->cost());
  return share_lost(report.choice_sample, best);
}

std::optional<double> regret(const ProbeReport& probe) {
  return share_lost(probe.sample, probe.best);
}

double worst_regret(const TuneReport& report) {
  double worst = regret(report).value_or(0);
  for (const ProbeReport& probe : report.probes)
    if (probe.held) worst = std::max(worst, regret(probe).value_or(0));
  return worst;
}

}  // namespace tilewright::search
