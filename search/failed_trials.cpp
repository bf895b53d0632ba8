#include "search/failed_trials.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "search/journal.h"

namespace tilewright::search {
namespace {

using nlohmann::json;

Result<FailedTrial> parse_line(std::string_view line) {
  const json object = json::parse(line, nullptr, false);
  if (!object.is_object()) return fail(ErrorCode::kCorrupt, "it is not a JSON object");
  try {
    FailedTrial trial;
    trial.id = object.at("id");
    trial.has_replay = object.at("replay");
    TILEWRIGHT_ASSIGN_OR_RETURN(trial.report, parse_trial_body(object.at("body").dump()));
    if (!trial.report.failure) return fail(ErrorCode::kCorrupt, "its trial did not fail");
    return trial;
  } catch (const json::exception& error) {
    return fail(ErrorCode::kCorrupt, error.what());
  }
}

}  // namespace

Result<std::vector<FailedTrial>> failed_trials(const cache::Store& store, std::string_view prefix) {
  std::vector<FailedTrial> found;
  TILEWRIGHT_TRY(store.each_trial([&](const cache::StoredTrial& stored) {
    if (!stored.id.starts_with(prefix) || is_compile_id(stored.id)) return true;
    auto report = parse_trial_body(stored.body);
    if (!report || !report->failure) return true;
    FailedTrial trial{stored.id, std::move(*report), false};
    trial.has_replay = !trial.report.replay.empty();
    trial.report.replay.clear();
    found.push_back(std::move(trial));
    return true;
  }));
  return found;
}

std::string to_lines(const std::vector<FailedTrial>& trials) {
  std::string lines;
  for (const FailedTrial& trial : trials) {
    const json object{{"id", trial.id},
                      {"replay", trial.has_replay},
                      {"body", json::parse(trial_body(trial.report))}};
    lines += object.dump() + "\n";
  }
  return lines;
}

Result<std::vector<FailedTrial>> parse_failed_trials(std::string_view lines) {
  std::vector<FailedTrial> trials;
  while (!lines.empty()) {
    const std::size_t end = std::min(lines.find('\n'), lines.size());
    auto trial = parse_line(lines.substr(0, end));
    if (!trial)
      return fail(with_context(std::move(trial.error()),
                               fmt::format("line {} of the failed trials", trials.size() + 1)));
    trials.push_back(std::move(*trial));
    lines.remove_prefix(std::min(end + 1, lines.size()));
  }
  return trials;
}

}  // namespace tilewright::search
