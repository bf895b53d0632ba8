#include "search/measure/bundle_run.h"

#include <fmt/format.h>

#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "search/measure/journal.h"
#include "search/measure/trial_json.h"

namespace tilewright::search {
namespace {

using nlohmann::json;

// What a journal says.
struct Progress {
  std::optional<jit::DeviceInfo> device;
  std::map<std::string, TrialResult> results;
  std::set<std::string> open;  // started, without a result
};

Result<void> take_line(const Bundle& bundle, const std::filesystem::path& path, const json& line,
                       Progress& progress) {
  const std::string event = line.value("event", "");
  if (event == "session") {
    const std::string digest = line.value("bundle", "");
    if (digest != bundle.digest().hex())
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{} is the journal of bundle {}, this is {}", path.string(), digest,
                              bundle.digest().hex()));
    TILEWRIGHT_ASSIGN_OR_RETURN(progress.device,
                                device_from_json(line.value("device", json::object())));
  } else if (event == "started") {
    progress.open.insert(line.value("id", ""));
  } else if (event == "finished") {
    TILEWRIGHT_ASSIGN_OR_RETURN(TrialResult result,
                                result_from_json(line.value("result", json::object())));
    progress.open.erase(result.id);
    progress.results.insert_or_assign(std::string(result.id), std::move(result));
  }
  return {};
}

Result<Progress> read_progress(const Bundle& bundle, const std::filesystem::path& path) {
  TILEWRIGHT_ASSIGN_OR_RETURN(const std::vector<json> lines, read_journal(path));
  Progress progress;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    try {
      TILEWRIGHT_TRY(take_line(bundle, path, lines[i], progress));
    } catch (const json::exception& error) {
      return fail(ErrorCode::kCorrupt,
                  fmt::format("{}:{}: {}", path.string(), i + 1, error.what()));
    }
  }
  return progress;
}

json finished(const TrialResult& result) {
  return {{"event", "finished"}, {"result", to_json(result)}};
}

TrialResult crashed(const std::string& id) {
  TrialResult result;
  result.id = id;
  result.failure = Error{ErrorCode::kCrash, "this trial was running when its runner died", {}};
  return result;
}

Result<void> begin_session(Journal& journal, const Bundle& bundle, const jit::DeviceInfo& device,
                           const Progress& progress, const std::filesystem::path& path) {
  if (progress.device && progress.device->key() != device.key())
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} is the journal of a run on {}, which is not this {}", path.string(),
                            progress.device->name, device.name));
  return journal.append(
      {{"event", "session"}, {"bundle", bundle.digest().hex()}, {"device", device_json(device)}});
}

}  // namespace

Result<BundleRunSummary> run_bundle(const Bundle& bundle, Measurer& measurer,
                                    const BundleRunOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  TILEWRIGHT_TRY(bundle.check_device(measurer.device()));
  TILEWRIGHT_ASSIGN_OR_RETURN(Progress progress, read_progress(bundle, options.journal));
  TILEWRIGHT_ASSIGN_OR_RETURN(Journal journal, Journal::open(options.journal));
  TILEWRIGHT_TRY(begin_session(journal, bundle, measurer.device(), progress, options.journal));

  BundleRunSummary summary;
  summary.total = bundle.trials().size();
  for (const std::string& id : progress.open) {
    summary.crashed.push_back(id);
    TILEWRIGHT_TRY(journal.append(finished(crashed(id))));
    progress.results.emplace(id, crashed(id));
  }
  summary.earlier = progress.results.size();
  for (const BundleTrial& item : bundle.trials()) {
    if (progress.results.contains(item.trial.id)) continue;
    if (options.seconds > 0 && seconds() > options.seconds) break;
    TILEWRIGHT_TRY(journal.started(item.trial.id));
    TILEWRIGHT_ASSIGN_OR_RETURN(const TrialResult result, measurer.run(item.trial));
    TILEWRIGHT_TRY(journal.append(finished(result)));
    ++summary.run;
    if (options.progress) options.progress(summary.earlier + summary.run, summary.total, result);
    progress.results.emplace(item.trial.id, result);
  }
  for (const auto& [id, result] : progress.results) summary.failed += result.failure.has_value();
  summary.seconds = seconds();
  return summary;
}

Result<BundleResults> read_results(const Bundle& bundle, const std::filesystem::path& journal) {
  if (!std::filesystem::exists(journal))
    return fail(ErrorCode::kNotFound, fmt::format("{} does not exist", journal.string()));
  TILEWRIGHT_ASSIGN_OR_RETURN(Progress progress, read_progress(bundle, journal));
  BundleResults results;
  if (progress.device) results.device = *progress.device;
  for (const BundleTrial& item : bundle.trials()) {
    const auto found = progress.results.find(item.trial.id);
    if (found != progress.results.end())
      results.outcomes.push_back({&item, std::move(found->second)});
  }
  return results;
}

}  // namespace tilewright::search
