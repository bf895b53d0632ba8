/// What makes plans: the compiler, the device and the tuner behind one interface, so that the
/// service can be tested without any of them.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "cache/record.h"
#include "jit/conditions.h"
#include "jit/device.h"
#include "jit/image.h"

namespace tilewright::daemon {

/// What a client asks about, understood: the operator parsed, its sizes bound.
struct Problem {
  cache::Key key;
  std::shared_ptr<const templates::Operator> op;
  templates::Bindings bindings;
  jit::Conditions conditions;  ///< that a plan is to be best under
};

/// An entry with the images that its plans launch.
struct Planned {
  cache::Entry entry;
  std::vector<std::shared_ptr<const jit::Image>> images;
};

struct TuneSettings {
  int evaluations = 64;
  double seconds = 0;  ///< 0: no limit
  std::string strategy = "random";
  std::uint64_t seed = 1;
  bool replace = false;                        ///< run known trials again, and keep the result
  std::optional<std::uint64_t> sample_blocks;  ///< of the virtual GPU; 0: all
  double precision = 0;  ///< share of the median to which it is measured; 0: the usual one
  std::string when;      ///< others use the device: "idle", "always"; empty: as configured

  bool operator==(const TuneSettings&) const = default;
};
/// "64 evaluations, 120 s, seed 1, random": as people are told of them.
std::string to_text(const TuneSettings& settings);

struct TuneStep {
  int done = 0, total = 0;
  double seconds = 0, eta_seconds = 0, best_us = 0;
  std::string current;
};

struct TuneOutcome {
  std::string report;  ///< JSON
  bool interrupted = false;
  bool stored = false;  ///< a record holds the choice
  bool failed = false;  ///< no candidate survived: the report says why
  std::string text;     ///< the report for people
  /// To one listener: empty, or the settings that counted in place of those it asked for.
  std::string joined;
};

/// Synchronous and thread-safe; calls take from milliseconds to minutes.
class Planner {
 public:
  virtual ~Planner() = default;

  /// The one device that is served.
  virtual const jit::DeviceInfo& device() const = 0;
  /// Records of another generator are misses.
  virtual Digest generator() const = 0;
  /// What clients compare with their own before they have something tuned here.
  virtual std::string nvrtc_version() const { return {}; }
  virtual std::filesystem::path configs() const { return {}; }

  /// A plan at once: `nearest`'s configs for this shape if they are legal here, else the families'
  /// safe ones. Evidence says whether it was verified.
  virtual Result<Planned> fallback(const Problem& problem, const cache::Entry* nearest) = 0;

  /// Tunes under the problem's conditions, journals and stores what it found. A stop keeps what was found.
  virtual Result<TuneOutcome> tune(const Problem& problem, const TuneSettings& settings,
                                   const std::function<void(const TuneStep&)>& progress,
                                   std::stop_token stop) = 0;

  /// Trials that failed and whose id begins so, as JSON lines (search/failed_trials.h).
  virtual Result<std::string> failed_trials(const std::string& prefix) = 0;
};

}  // namespace tilewright::daemon
