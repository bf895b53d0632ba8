#include "cache/record.h"

#include <algorithm>
#include <cmath>
#include <limits>

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

/// How many orders of magnitude a table of ranges spans: of two that hold, the narrower is meant.
double width(const Ranges& ranges) {
  double sum = 0;
  for (const auto& [dimension, range] : ranges)
    sum += std::log((double(range.high) + 1) / (double(range.low) + 1));
  return sum;
}

double distance(const Ranges& ranges, const templates::Bindings& bindings) {
  double sum = 0;
  for (const auto& [dimension, range] : ranges) {
    auto bound = bindings.find(dimension);
    if (bound == bindings.end()) continue;
    std::int64_t nearest = std::clamp(bound->second, range.low, std::max(range.low, range.high));
    sum += std::abs(std::log((double(bound->second) + 1) / (double(nearest) + 1)));
  }
  return sum;
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
  for (const Entry& entry : entries) {
    if (!holds(entry.plan.chosen_for, bindings)) continue;
    if (!best || width(entry.plan.chosen_for) < width(best->plan.chosen_for)) best = &entry;
  }
  return best;
}

bool displaces(const Entry& found, const Entry& known) {
  const Evidence& a = found.evidence;
  const Evidence& b = known.evidence;
  if (a.modelled != b.modelled) return b.modelled;
  if (a.nvrtc_version != b.nvrtc_version) return true;
  return a.time_us < b.time_us;
}

const Entry* Record::nearest(const templates::Bindings& bindings) const {
  const Entry* best = nullptr;
  double best_distance = std::numeric_limits<double>::infinity();
  for (const Entry& entry : entries) {
    double here = distance(entry.plan.chosen_for, bindings);
    if (here < best_distance) {
      best = &entry;
      best_distance = here;
    }
  }
  return best;
}

void Record::put(Entry entry) {
  for (Entry& known : entries) {
    if (known.plan.chosen_for == entry.plan.chosen_for) {
      known = std::move(entry);
      return;
    }
  }
  entries.push_back(std::move(entry));
}

bool Record::offer(Entry entry) {
  for (const Entry& known : entries)
    if (known.plan.chosen_for == entry.plan.chosen_for && !displaces(entry, known)) return false;
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
