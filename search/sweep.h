/// A sweep: the operators of a model at many sizes, tuned one after the other, so that the cache is
/// full before the model is served.
///
/// What is to be done is a list that follows from the arguments; what is done is journaled in a
/// manifest, one JSON line per problem, so that a sweep that was interrupted goes on where it was.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "search/tuner.h"
#include "templates/operator/parse.h"

namespace tilewright::search {

struct SweepOptions {
  std::vector<std::filesystem::path> models;  ///< configs/models/*.yaml
  std::vector<std::int64_t> tokens{1, 16, 256};
  std::vector<int> tensor_parallel{1};
  std::filesystem::path operators;  ///< the folder with the operators' files
  /// Of what else decides the result (device, generator, NVRTC): a manifest that was begun under
  /// others keeps nothing.
  Digest conditions;
};

struct SweepProblem {
  std::string title;  ///< "llama-3.1-8b swiglu M=16 tp=1"
  std::string model;
  std::shared_ptr<const templates::Operator> op;
  templates::Bindings bindings;
  /// Of operator and shape: problems that models have in common are tuned once.
  Digest digest;
};

struct SweepPlan {
  /// In the order of the arguments: models, then tp, then operators, then tokens.
  std::vector<SweepProblem> problems;
  /// Models that cannot be served at a degree, and why: "FILE:LINE: num_attention_heads is 12,
  /// expected a multiple of tp 8".
  std::vector<std::string> left_out;
};

/// Errors: kInvalidArgument with file and line; so is a plan from which all models are left out.
Result<SweepPlan> plan_sweep(const SweepOptions& options);

struct SweepItem {
  std::string title;
  Digest digest;
  /// kKept: tuned before. kCovered: in the range of another problem of this sweep.
  enum class State { kPending, kTuned, kKept, kFailed, kCovered } state = State::kPending;
  std::string error;                                ///< kFailed
  std::string choice;                               ///< "2 kernels", configs
  double time_us = 0, baseline_us = 0, margin = 0;  ///< none of kCovered: not measured there
  double regret = 0;                                ///< worst_regret()
  std::string time_kind;
  std::map<std::string, jit::DimensionRange> range;  ///< that the choice holds for
  std::string covered_by;                            ///< kCovered: the title of that problem
  int tried = 0, failed = 0;
  double seconds = 0;
};

struct SweepReport {
  std::vector<SweepItem> items;  ///< one per problem
  jit::Conditions conditions;    ///< of all times. The caller fills it in: `tune` knows them
  double seconds = 0;
  bool interrupted = false;
};

struct SweepProgress {
  std::size_t done = 0, total = 0;
  double seconds = 0, eta_seconds = 0;
  std::string current;
};

struct SweepHooks {
  /// Tunes one problem and stores what it finds.
  std::function<Result<TuneReport>(const SweepProblem&)> tune;
  std::function<void(const SweepProgress&)> progress;
};

/// `manifest`: made if it is not there; problems that it says are tuned are kept, failed ones are
/// tried again. A torn last line (a crash) is ignored. Empty path: nothing is remembered.
/// A problem in the range of one that this sweep tuned is covered: it is not tuned.
/// A problem that fails does not end the sweep. Errors: kIo; kCorrupt names the manifest's line.
Result<SweepReport> run_sweep(const std::vector<SweepProblem>& problems,
                              const std::filesystem::path& manifest, const SweepHooks& hooks,
                              std::stop_token stop = {});

std::string to_text(const SweepReport& report);
std::string to_json_text(const SweepReport& report);  ///< one object

}  // namespace tilewright::search
