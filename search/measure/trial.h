/// A trial: one plan to verify and to time; and what came of it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "jit/conditions.h"
#include "jit/image.h"
#include "jit/plan.h"
#include "search/verify.h"
#include "templates/operator/operator.h"

namespace tilewright::search {

using jit::Objective;
using jit::objective_named;

struct MeasureSettings {
  int repeats = 400;       ///< timed launches, at most
  double budget_ms = 100;  ///< device time of the timed launches, at most
  /// Stop when the interval of the median reaches no further than this share of it to either side.
  double precision = 0.02;
  /// Of an interleaved comparison; of tails, which need more, ten times as many.
  int rounds = 20;
  Objective objective = Objective::kLatency;
  bool graph = false;      ///< replay a captured graph instead of stream launches
  bool cold_l2 = true;     ///< flush L2 before each timed launch; back to back: other buffers
  double deadline_s = 20;  ///< wall time, from when its data is made: then the process is killed
  /// The same of making its data, once per problem. As it is, only a machine out of order needs more.
  double prepare_deadline_s = 120;
  double cut_off_us = 0;             ///< stop early once the median is surely above this; 0: never
  std::uint64_t sample_blocks = 24;  ///< on the virtual GPU; 0: all blocks
};
jit::Conditions conditions_of(const MeasureSettings& settings);
void set_conditions(MeasureSettings& settings, const jit::Conditions& conditions);

struct Trial {
  std::string id;  ///< journaled before the launch
  std::shared_ptr<const templates::Operator> op;
  templates::Bindings bindings;
  jit::Plan plan;
  std::vector<std::shared_ptr<const jit::Image>> images;
  std::uint64_t seed = 1;
  VerifySettings verify;
  MeasureSettings measure;
  bool timed = true;
  /// Of a batch-invariant operator: a plan whose bits the results have to have, with its images;
  /// null: none. It does not travel in bundles.
  struct Anchor {
    jit::Plan plan;
    std::vector<std::shared_ptr<const jit::Image>> images;
  };
  std::shared_ptr<const Anchor> anchor;
  /// Bytes to displace each tensor's base by from a 256-byte boundary, by name.
  std::map<std::string, std::int64_t> displacement;
  /// input_digest of the data that it is to be verified with, so that a machine that would make
  /// other data of the same seed refuses; empty: not checked.
  Digest inputs;
};

/// Medians in microseconds, with their spread (half the interquartile range).
struct Sample {
  double time_us = 0, spread_us = 0;
  int count = 0;
  /// Every timed launch, in the order in which they ran: what paired tests need (statistics.h). Of
  /// an interleaved run, index r is round r, of every plan.
  std::vector<double> times_us;
  bool cut_off = false;   ///< given up early: surely slower than MeasureSettings::cut_off_us
  bool modelled = false;  ///< by the virtual GPU, not measured
  bool cold_l2 = true, graph = false;
  std::string bound_by;       ///< modelled: the resource that binds the longest launch
  double bound_fraction = 0;  ///< modelled: its share of the time, at most 1

  Objective objective = Objective::kLatency;
  double low_us = 0, high_us = 0;  ///< of the median, at 95 %; infinite ends: too few launches
  double p99_us = 0;
  double energy_uj = 0;             ///< per launch; 0: not asked for
  std::vector<double> energies_uj;  ///< its readings; of an interleaved run one a round
  double launch_overhead_us = 0;    ///< of the host, to enqueue the plan; modelled: of the model
  int warm_up = 0;                  ///< launches before the steady state
  bool steady = true;               ///< false: it was not reached, the times may still fall
  int rejected = 0;  ///< launches while the device was throttled or changed its clock
  // The device while it was measured: the clock of most launches, the highest of the others.
  unsigned sm_clock_mhz = 0, temperature_c = 0;  ///< 0: not told
  double power_w = 0;
  std::uint64_t throttle_reasons = 0;  ///< bits of nvmlClocksEventReasons that were seen
  unsigned others_percent = 0;         ///< of the device's time that other processes had meanwhile
  int discarded = 0;  ///< runs before this one that are not here, since others used the device
  int attempts = 1;   ///< 2: the first failed in a way that says little of the trial

  /// What the objective says: the less, the better. Microseconds; of kEnergy microjoules.
  double cost() const;
};

struct TrialResult {
  std::string id;
  std::optional<Error> failure;  ///< typed; empty if verified (and timed if asked)
  Verification verification;
  Sample sample;
  double seconds = 0;  ///< wall time that the trial took, restart of the worker included
  int attempts = 1;    ///< of which this is the last
};

}  // namespace tilewright::search
