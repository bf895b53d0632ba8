/// The tuner: problem in, report and record out.
///
/// operator -> legal partitions -> for every distinct group: family -> space -> candidates
///   -> source -> image -> verified -> measured -> best per group
///   -> best partition -> the leaders measured whole, interleaved with the baseline -> choice
///   -> the same at the ends of its sizes' buckets -> the range that it is chosen for
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "jit/compile_pool.h"
#include "jit/device.h"
#include "search/group_choice.h"
#include "search/measure/measurer.h"
#include "search/measure/statistics.h"
#include "search/partition.h"
#include "templates/families/family.h"
#include "templates/operator/operator.h"

namespace tilewright::search {

struct TuneBudget {
  /// Candidates over all groups; failures and recalled trials consume it. Half of it may go to one
  /// safe config for every group, the rest goes to the groups of the leading partitions.
  int evaluations = 64;
  /// 0: no limit. Candidates are started for three quarters of it; the rest is for the leaders and,
  /// where enough is left, for the ends of the range.
  double seconds = 0;
};

struct TuneRequest {
  std::shared_ptr<const templates::Operator> op;
  templates::Bindings bindings;
  TuneBudget budget;
  std::uint64_t seed = 1;
  std::string strategy = "random";  ///< or "exhaustive"
  MeasureSettings measure;
  VerifySettings verify;
  std::filesystem::path spaces;  ///< empty: the installed configs/spaces
  /// Empty: templates::families().
  std::vector<const templates::Family*> families;
  /// templates::generator_digest of the headers that the pool compiles with: part of trial ids.
  Digest generator;
  std::string nvrtc_version;  ///< the compile pool's, for the same reason
  /// Of a batch-invariant operator that has a record: how its first plan was made, whose bits this
  /// tune's plans have to have (docs/adr/0015); empty: none. Record.h's anchor_of() finds it.
  std::vector<GroupChoice> anchor;
  bool replace = false;  ///< the result takes the place of a better one that is known
  /// Partitions that are measured whole, beside the baseline, at most: not those whose kernels take
  /// half as long again as the best one's in sum, which no influence of kernels on each other mends.
  int leaders = 3;
};

struct CandidateReport {
  std::string id;  ///< trial_id()
  Digest group;
  std::string family;
  templates::Config config;
  std::vector<Digest> images;
  std::optional<Error> failure;
  Sample sample;
  Verification verification;
  std::vector<jit::KernelResources> resources;
  int shared_bytes = 0;  ///< static and dynamic, of the launch that needs most
  double compile_ms = 0;
  bool recalled = false;  ///< from the journal: not run this time
  int begun = 0;  ///< of a trial without an end: how often it was begun. Then failure is kCrash
  std::string replay;  ///< of one that failed: replay_text()
};

struct GroupReport {
  std::vector<std::string> statements;  ///< as printed
  std::vector<int> indices;             ///< of the statements in the operator
  Digest digest;
  CandidateReport best;  ///< failure set: no candidate of this group survived
  /// Saved against computing the same statements as the unfused partition does.
  std::int64_t bytes_moved = 0, bytes_saved = 0;
  std::string bound_by;       ///< the resource that binds: of the sample, else of the cost model
  double bound_fraction = 0;  ///< of that resource's ceiling, at most 1
};

struct PartitionReport {
  std::vector<GroupReport> groups;
  double sum_us = 0;             ///< of the groups' times
  std::optional<Sample> whole;   ///< measured end to end, for the leaders and the baseline
  std::optional<Error> failure;  ///< of the whole
  Verification verification;     ///< of the whole
  /// The baseline: every group with its family's safe config; of a request with an anchor, with
  /// the anchor's.
  bool safe_configs = false;
  std::int64_t bytes_moved = 0, bytes_saved = 0;  ///< saved against the unfused partition
};

/// The choice at other sizes than it was tuned for: an end of the range that was asked for.
struct ProbeReport {
  templates::Bindings sizes;
  bool measured = false;  ///< it was tried there
  bool held = false;      ///< verified there, and nothing was better
  std::string reason;  ///< why it does not hold: what failed, what was better, why it was skipped
  Sample sample;       ///< of the choice; empty where it failed
  double baseline_us = 0;  ///< 0: not measured there
  double best = 0;         ///< cost() of the best plan that was measured there; 0: none was
};

struct TuneReport {
  std::string problem;  ///< "swiglu M=16"
  templates::Bindings sizes;
  jit::DeviceInfo device;
  jit::Conditions conditions;               ///< of all times
  std::vector<PartitionReport> partitions;  ///< best first
  std::vector<IllegalFusion> illegal;
  int choice = -1;  ///< index into partitions; -1: none was found (interrupted, or all failed)
  Sample choice_sample;
  bool choice_verified = false;
  int baseline_partition = -1;  ///< index into partitions; it may be the choice
  std::string baseline_name;    ///< "unfused defaults", or "the record's first plan"
  Sample baseline;
  double margin = 0;         ///< (baseline - choice) / baseline, from the interleaved samples
  Interval margin_interval;  ///< equal ends: modelled, no noise
  bool better_beyond_noise = false;
  int tried = 0;
  std::map<std::string, int> failed;  ///< by to_string(ErrorCode)
  std::vector<CandidateReport> candidates;
  double seconds = 0;
  bool interrupted = false;
  std::optional<Error> journal_failure;  ///< why not all trials are in the journal

  /// What the choice launches, ready to be stored: the whole plan, the same groups and configs for
  /// tensors of any alignment, and the images of both. Empty where choice is -1.
  jit::Plan plan;
  jit::Plan narrow;
  std::optional<Error> narrow_failure;  ///< why `narrow` is empty: it did not compile, or was wrong
  /// How far the choice holds: chosen_for of the plans, and where that was measured beside `sizes`.
  std::map<std::string, jit::DimensionRange> range;
  std::vector<ProbeReport> probes;
  std::vector<std::shared_ptr<const jit::Image>> images;

  std::uint64_t seed = 0;
  std::string nvrtc_version;
  Digest generator;
};

struct TuneProgress {
  int done = 0, total = 0;
  double seconds = 0, eta_seconds = 0;
  std::string current;
  double best_us = 0;
};

struct TuneHooks {
  /// A trial known from the journal: it is not run again.
  std::function<std::optional<CandidateReport>(const Digest& group, const std::string& family,
                                               const templates::Config& config)>
      recall;
  /// Why an image cannot be compiled, known from any problem that needed it: it is not tried again.
  std::function<std::optional<Error>(const Digest& image)> recall_compile;
  /// An image did not compile; handled as journal, which is called for the trial as well.
  std::function<Result<void>(const Digest& image, const CandidateReport&)> not_compiled;
  /// Called for every trial as soon as it is known, from the tuning thread.
  /// One that fails is in the report, and does not end the tune.
  std::function<Result<void>(const CandidateReport&)> journal;
  /// Called before a trial is run, with group, family and config: what takes the process or the host
  /// down is known afterwards. What it returns is handled as journal's.
  std::function<Result<void>(const CandidateReport&)> begin;
  /// The trial that was begun was stopped: it says nothing.
  std::function<Result<void>(const CandidateReport&)> stopped;
  std::function<void(const Error&)> warn;  ///< the first time that the journal fails
  std::function<void(const TuneProgress&)> progress;
};

/// What the choice loses to the best plan that was measured at the same sizes, as a share of that
/// one's cost. Nothing where it was not measured.
std::optional<double> regret(const TuneReport& report);
std::optional<double> regret(const ProbeReport& probe);
/// The largest at the sizes of the tune and at the ends that held: of what is served.
double worst_regret(const TuneReport& report);

/// Synchronous. A stop keeps what was found: the report says interrupted and holds the best so far.
/// A candidate that fails is in the report; errors are what ends a tune: a space that is wrong, an
/// operator that no family can do, a device that is gone.
Result<TuneReport> tune(const TuneRequest& request, jit::CompilePool& compiler, Measurer& measurer,
                        const TuneHooks& hooks = {}, std::stop_token stop = {});

}  // namespace tilewright::search
