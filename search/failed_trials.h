/// Trials of a cache that failed: to be listed by whoever owns the store, sent to whoever does not,
/// and replayed (replay.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cache/store.h"
#include "search/tuner.h"

namespace tilewright::search {

struct FailedTrial {
  std::string id;
  CandidateReport report;   ///< without its replay, which may be long
  bool has_replay = false;  ///< the store has it
};

/// Those whose id begins so; "": all of them. What cannot be read is left out. Errors: the store's.
Result<std::vector<FailedTrial>> failed_trials(const cache::Store& store, std::string_view prefix);

/// One JSON object a line.
std::string to_lines(const std::vector<FailedTrial>& trials);
/// Errors: kCorrupt names the line.
Result<std::vector<FailedTrial>> parse_failed_trials(std::string_view lines);

}  // namespace tilewright::search
