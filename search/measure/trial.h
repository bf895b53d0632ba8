/// A trial: one plan to verify and to time; and what came of it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "jit/image.h"
#include "jit/plan.h"
#include "search/verify.h"
#include "templates/operator/operator.h"

namespace tilewright::search {

struct MeasureSettings {
  int repeats = 20;        ///< timed launches, at most
  double budget_ms = 100;  ///< device time of the timed launches, at most
  bool graph = false;      ///< replay a captured graph instead of stream launches
  bool cold_l2 = true;     ///< flush L2 before each timed launch
  double deadline_s = 20;  ///< wall time, from when its data is made: then the process is killed
  /// The same of making its data, once per problem. As it is, only a machine out of order needs more.
  double prepare_deadline_s = 120;
  double cut_off_us = 0;             ///< stop early once the median is surely above this; 0: never
  std::uint64_t sample_blocks = 24;  ///< on the virtual GPU; 0: all blocks
};

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
};

struct TrialResult {
  std::string id;
  std::optional<Error> failure;  ///< typed; empty if verified (and timed if asked)
  Verification verification;
  Sample sample;
  double seconds = 0;  ///< wall time that the trial took, restart of the worker included
};

}  // namespace tilewright::search
