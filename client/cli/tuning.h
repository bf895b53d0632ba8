/// What `tune` and `sweep` share: a compile pool, a measuring process and a cache, tuned with; or the
/// daemon that owns the cache, which is asked to tune.
#pragma once

#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include "client/cli/cache_access.h"
#include "client/cli/daemon_tuning.h"
#include "client/cli/session.h"
#include "search/tuner.h"

namespace tilewright::cli {

struct TuningFlags {
  int budget = 64;
  double seconds = 0;
  std::uint64_t seed = 1;
  std::string strategy = "random";
  bool fresh = false;
  jit::Wishes wishes;
  double precision = search::MeasureSettings{}.precision;
  std::string when;  ///< empty: always, or as the daemon is configured
  std::uint64_t memory_mib = 0;
  std::uint64_t sample_blocks = search::MeasureSettings{}.sample_blocks;
};
void add_tuning_flags(CLI::App& command, TuningFlags& flags);

class Tuning {
 public:
  static Result<Tuning> start(const Session& session, const TuningFlags& flags);

  /// Journals every trial, recalls those known unless the flags say fresh, stores what was chosen.
  Result<TuneAnswer> tune(std::shared_ptr<const templates::Operator> op,
                          const templates::Bindings& bindings,
                          const std::function<void(const search::TuneProgress&)>& progress,
                          std::stop_token stop);
  /// How its plans are measured.
  const jit::Conditions& measured() const { return daemon_ ? daemon_->measured() : measured_; }
  /// Digest of device, generator and NVRTC, and of how plans are measured.
  Digest conditions() const;

 private:
  Result<search::TuneReport> tune_here(
      std::shared_ptr<const templates::Operator> op, const templates::Bindings& bindings,
      const std::function<void(const search::TuneProgress&)>& progress, std::stop_token stop,
      std::optional<Error>& unsaved);

  std::optional<DaemonTuning> daemon_;  ///< if set, nothing below is
  TuningFlags flags_;
  jit::Conditions measured_;
  std::filesystem::path spaces_;
  Digest generator_;
  std::unique_ptr<jit::CompilePool> compiler_;
  std::unique_ptr<search::Measurer> measurer_;
  CacheAccess cache_;
};

Digest tuning_conditions(const Digest& device, const Digest& generator, const std::string& nvrtc,
                         const jit::Conditions& measured);

}  // namespace tilewright::cli
