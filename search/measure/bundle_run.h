/// Measures a bundle's trials and journals what comes of them; and reads a journal back.
///
/// The journal (journal.h) says which bundle and device it is of, then of each trial that it started
/// and what came of it. Running again goes on where it stopped; a trial that was started and has no
/// result brought the machine or the process down, is journaled as crashed and not tried again.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "search/measure/bundle.h"
#include "search/measure/measurer.h"

namespace tilewright::search {

struct BundleRunOptions {
  std::filesystem::path journal;
  double seconds = 0;  ///< no further trial is started after so long; 0: no limit
  /// Called after each trial; `done` counts those of earlier runs as well.
  std::function<void(std::size_t done, std::size_t total, const TrialResult& result)> progress;
};

struct BundleRunSummary {
  std::size_t total = 0, earlier = 0, run = 0, failed = 0;
  std::vector<std::string> crashed;  ///< found in the journal without a result
  double seconds = 0;
};

/// Errors: kUnsupported (other device), kInvalidArgument (the journal is of another bundle or
/// device), kIo, and whatever ends the measurer.
Result<BundleRunSummary> run_bundle(const Bundle& bundle, Measurer& measurer,
                                    const BundleRunOptions& options);

struct BundleOutcome {
  const BundleTrial* trial = nullptr;  ///< the bundle's
  TrialResult result;
};
struct BundleResults {
  /// As far as its key goes; nothing was run yet: without a name.
  jit::DeviceInfo device;
  std::vector<BundleOutcome> outcomes;  ///< in the order of the bundle; those that have a result
};

/// Errors: kNotFound (no journal), kInvalidArgument (of another bundle), kCorrupt.
Result<BundleResults> read_results(const Bundle& bundle, const std::filesystem::path& journal);

}  // namespace tilewright::search
