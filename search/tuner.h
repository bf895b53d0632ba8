/// The tuner: problem in, report and record out.
///
/// operator -> legal partitions -> for every distinct group: family -> space -> candidates
///   -> source -> image -> verified -> measured -> best per group
///   -> best partition -> the leaders measured whole, interleaved with the baseline -> choice
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
#include "search/measure/measurer.h"
#include "templates/families/family.h"
#include "templates/operator/operator.h"

namespace tilewright::search {

struct TuneBudget {
  int evaluations = 64;  ///< candidates over all groups; failures consume it
  double seconds = 0;    ///< 0: no limit
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
};

struct CandidateReport {
  Digest group;
  std::string family;
  templates::Config config;
  std::vector<Digest> images;
  std::optional<Error> failure;
  Sample sample;
  Verification verification;
  std::vector<jit::KernelResources> resources;
  double compile_ms = 0;
};

struct GroupReport {
  std::vector<std::string> statements;  ///< as printed
  Digest digest;
  CandidateReport best;  ///< failure set: no candidate of this group survived
  std::int64_t bytes_moved = 0, bytes_saved = 0;
};

struct PartitionReport {
  std::vector<GroupReport> groups;
  double sum_us = 0;              ///< of the groups' best times
  std::optional<Sample> whole;    ///< measured end to end, for the leaders
  Verification verification;      ///< of the whole
  std::int64_t bytes_moved = 0, bytes_saved = 0;  ///< saved against the unfused partition
};

struct IllegalFusion {
  std::vector<std::string> statements;
  std::string reason;  ///< every family's, with its name
};

struct TuneReport {
  std::string problem;  ///< "swiglu M=16"
  jit::DeviceInfo device;
  std::vector<PartitionReport> partitions;  ///< best first
  std::vector<IllegalFusion> illegal;
  int choice = -1;  ///< index into partitions
  Sample choice_sample;
  std::string baseline_name;  ///< "unfused defaults", "cublaslt"
  Sample baseline;
  double margin = 0;  ///< (baseline - choice) / baseline, from the interleaved samples
  bool better_beyond_noise = false;
  int tried = 0;
  std::map<std::string, int> failed;  ///< by to_string(ErrorCode)
  std::vector<CandidateReport> candidates;
  double seconds = 0;
  bool interrupted = false;

  /// What the choice launches, ready to be stored: whole plan and its images.
  jit::Plan plan;
  std::vector<std::shared_ptr<const jit::Image>> images;
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
  /// Called for every trial as soon as it is known, from the tuning thread.
  std::function<Result<void>(const CandidateReport&)> journal;
  std::function<void(const TuneProgress&)> progress;
};

/// Synchronous. A stop keeps what was found: the report says interrupted and holds the best so far.
Result<TuneReport> tune(const TuneRequest& request, jit::CompilePool& compiler, Measurer& measurer,
                        const TuneHooks& hooks = {}, std::stop_token stop = {});

}  // namespace tilewright::search
