#include "cache/record.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

namespace tilewright::cache {
namespace {

using Ranges = std::map<std::string, jit::DimensionRange>;

bool holds(const Ranges& ranges, const templates::Bindings& bindings) {
  for (const auto& [dimension, range] : ranges) {
    auto bound = bindings.find(dimension);
    if (bound == bindings.end()) return false;
    if (bound->second < range.low || bound->second > range.high) return false;
  }
  return true;
}

/// In ratios of sizes.
double distance(std::int64_t a, std::int64_t b) {
  return std::abs(std::log((double(a) + 1) / (double(b) + 1)));
}

double distance(const templates::Bindings& tuned, const templates::Bindings& bindings) {
  double sum = 0;
  for (const auto& [dimension, size] : tuned)
    if (auto bound = bindings.find(dimension); bound != bindings.end())
      sum += distance(bound->second, size);
  return sum;
}

double distance(const Ranges& ranges, const templates::Bindings& bindings) {
  double sum = 0;
  for (const auto& [dimension, range] : ranges) {
    auto bound = bindings.find(dimension);
    if (bound == bindings.end()) continue;
    std::int64_t nearest = std::clamp(bound->second, range.low, std::max(range.low, range.high));
    sum += distance(bound->second, nearest);
  }
  return sum;
}

bool same_but_for_ranges(jit::Plan a, jit::Plan b) {
  a.chosen_for = b.chosen_for = {};
  return a == b;
}

/// Of two entries, the lesser serves: whatever is of the wanted conditions; then nearer sizes; then
/// fewer differences.
using Preference = std::tuple<bool, double, int>;
Preference preference(const Evidence& evidence, const templates::Bindings& bindings,
                      const jit::Conditions& wanted) {
  int differences = jit::differences(evidence.conditions, wanted);
  return {differences > 0, distance(evidence.sizes, bindings), differences};
}

bool are_rivals(const Evidence& a, const Evidence& b) {
  return a.sizes == b.sizes && a.conditions == b.conditions;
}

void add_images(const jit::Plan& plan, std::vector<Digest>& images) {
  for (const jit::PlanLaunch& launch : plan.launches) {
    if (std::find(images.begin(), images.end(), launch.image) == images.end())
      images.push_back(launch.image);
  }
}

}  // namespace

double Evidence::cost() const {
  switch (conditions.objective) {
    case jit::Objective::kLatency:
    case jit::Objective::kThroughput:
      break;
    case jit::Objective::kTail:
      return p99_us;
    case jit::Objective::kEnergy:
      return energy_uj;
  }
  return time_us;
}

const Entry* Record::find(const templates::Bindings& bindings,
                          const jit::Conditions& wanted) const {
  const Entry* best = nullptr;
  Preference best_preference;
  for (const Entry& entry : entries) {
    if (!holds(entry.plan.chosen_for, bindings)) continue;
    Preference here = preference(entry.evidence, bindings, wanted);
    if (best && here >= best_preference) continue;
    best = &entry;
    best_preference = here;
  }
  return best;
}

std::optional<Probe> measured_at(const Evidence& evidence, const templates::Bindings& sizes) {
  if (sizes == evidence.sizes)
    return Probe{sizes, true, evidence.time_us, evidence.spread_us, evidence.baseline_us};
  for (const Probe& probe : evidence.probes)
    if (probe.held && probe.sizes == sizes) return probe;
  return std::nullopt;
}

bool displaces(const Entry& found, const Entry& known) {
  const Evidence& a = found.evidence;
  const Evidence& b = known.evidence;
  if (a.conditions != b.conditions) return false;
  if (a.modelled != b.modelled) return b.modelled;
  if (a.nvrtc_version != b.nvrtc_version) return true;
  if (same_but_for_ranges(found.plan, known.plan)) {
    auto knows = [](const Evidence& e) { return std::pair(e.probes.size(), e.tried); };
    if (knows(a) != knows(b)) return knows(a) > knows(b);
  }
  return a.cost() < b.cost();
}

const Entry* Record::nearest(const templates::Bindings& bindings,
                             const jit::Conditions& wanted) const {
  const Entry* best = nullptr;
  // Sizes first: a config depends on them far more than on how it is measured.
  std::pair<double, Preference> best_preference;
  for (const Entry& entry : entries) {
    std::pair here(distance(entry.plan.chosen_for, bindings),
                   preference(entry.evidence, bindings, wanted));
    if (!best || here < best_preference) {
      best = &entry;
      best_preference = here;
    }
  }
  return best;
}

const Entry* Record::rival(const Entry& entry) const {
  for (const Entry& known : entries)
    if (are_rivals(known.evidence, entry.evidence)) return &known;
  return nullptr;
}

void Record::put(Entry entry) {
  for (Entry& known : entries) {
    if (are_rivals(known.evidence, entry.evidence)) {
      known = std::move(entry);
      return;
    }
  }
  entries.push_back(std::move(entry));
}

bool Record::offer(Entry entry) {
  if (const Entry* known = rival(entry); known && !displaces(entry, *known)) return false;
  put(std::move(entry));
  return true;
}

std::vector<Digest> Record::images() const {
  std::vector<Digest> images;
  for (const Entry& entry : entries) {
    add_images(entry.plan, images);
    add_images(entry.narrow, images);
  }
  return images;
}

std::vector<Digest> images_of(const jit::Plan& plan) {
  std::vector<Digest> images;
  add_images(plan, images);
  return images;
}

}  // namespace tilewright::cache
