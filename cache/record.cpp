#include "cache/record.h"

#include <algorithm>
#include <cmath>
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

void add_images(const jit::Plan& plan, std::vector<Digest>& images) {
  for (const jit::PlanLaunch& launch : plan.launches) {
    if (std::find(images.begin(), images.end(), launch.image) == images.end())
      images.push_back(launch.image);
  }
}

}  // namespace

const Entry* Record::find(const templates::Bindings& bindings) const {
  const Entry* best = nullptr;
  double best_distance = 0;
  for (const Entry& entry : entries) {
    if (!holds(entry.plan.chosen_for, bindings)) continue;
    double here = distance(entry.evidence.sizes, bindings);
    if (best && here >= best_distance) continue;
    best = &entry;
    best_distance = here;
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
  if (a.modelled != b.modelled) return b.modelled;
  if (a.nvrtc_version != b.nvrtc_version) return true;
  if (same_but_for_ranges(found.plan, known.plan)) {
    auto knows = [](const Evidence& e) { return std::pair(e.probes.size(), e.tried); };
    if (knows(a) != knows(b)) return knows(a) > knows(b);
  }
  return a.time_us < b.time_us;
}

const Entry* Record::nearest(const templates::Bindings& bindings) const {
  const Entry* best = nullptr;
  // Of several that hold, the one that find() would choose.
  std::pair<double, double> best_distance;
  for (const Entry& entry : entries) {
    std::pair here(distance(entry.plan.chosen_for, bindings),
                   distance(entry.evidence.sizes, bindings));
    if (!best || here < best_distance) {
      best = &entry;
      best_distance = here;
    }
  }
  return best;
}

const Entry* Record::rival(const Entry& entry) const {
  for (const Entry& known : entries)
    if (known.evidence.sizes == entry.evidence.sizes) return &known;
  return nullptr;
}

void Record::put(Entry entry) {
  for (Entry& known : entries) {
    if (known.evidence.sizes == entry.evidence.sizes) {
      known = std::move(entry);
      return;
    }
  }
  entries.push_back(std::move(entry));
}

bool Record::offer(Entry entry) {
  for (const Entry& known : entries)
    if (known.evidence.sizes == entry.evidence.sizes && !displaces(entry, known)) return false;
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
