#include "search/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "jit/conditions_json.h"
#include "search/measure/journal.h"
#include "search/report.h"

namespace tilewright::search {
namespace {

using nlohmann::json;

std::string_view to_string(SweepItem::State state) {
  switch (state) {
    case SweepItem::State::kPending:
      return "pending";
    case SweepItem::State::kTuned:
      return "tuned";
    case SweepItem::State::kKept:
      return "kept";
    case SweepItem::State::kFailed:
      return "failed";
    case SweepItem::State::kCovered:
      return "covered";
  }
  return "unknown";
}

json json_of(const SweepItem& item) {
  json ranges = json::object();
  for (const auto& [name, range] : item.range) ranges[name] = {range.low, range.high};
  return {{"title", item.title},
          {"chosen_for", std::move(ranges)},
          {"covered_by", item.covered_by},
          {"problem", item.digest.hex()},
          {"state", to_string(item.state)},
          {"error", item.error},
          {"choice", item.choice},
          {"time_us", item.time_us},
          {"baseline_us", item.baseline_us},
          {"margin", item.margin},
          {"regret", item.regret},
          {"time_kind", item.time_kind},
          {"tried", item.tried},
          {"failed", item.failed},
          {"seconds", item.seconds}};
}

SweepItem item_of(const json& line) {
  SweepItem item;
  item.title = line.at("title");
  const auto digest = Digest::parse(line.at("problem").get<std::string>());
  if (digest) item.digest = *digest;
  item.state = line.at("state") == "tuned" ? SweepItem::State::kTuned : SweepItem::State::kFailed;
  item.error = line.at("error");
  item.choice = line.at("choice");
  item.time_us = line.at("time_us");
  item.baseline_us = line.at("baseline_us");
  item.margin = line.at("margin");
  item.regret = line.value("regret", 0.0);  // as chosen_for
  item.time_kind = line.at("time_kind");
  item.tried = line.at("tried");
  item.failed = line.at("failed");
  item.seconds = line.at("seconds");
  if (line.contains("chosen_for"))  // not in manifests that are older than ranges
    for (const auto& [name, range] : line.at("chosen_for").items())
      item.range[name] = {range.at(0), range.at(1)};
  return item;
}

/// The file of what is done: a journal with one line per problem.
class Manifest {
 public:
  static Result<Manifest> open(const std::filesystem::path& path) {
    Manifest manifest;
    if (path.empty()) return manifest;
    TILEWRIGHT_ASSIGN_OR_RETURN(const std::vector<json> lines, read_journal(path));
    for (std::size_t i = 0; i < lines.size(); ++i) {
      try {
        SweepItem item = item_of(lines[i]);
        if (item.state == SweepItem::State::kTuned) manifest.tuned_[item.digest] = std::move(item);
      } catch (const json::exception&) {
        return fail(ErrorCode::kCorrupt, fmt::format("{}:{}: this is no line of a sweep's manifest",
                                                     path.string(), i + 1));
      }
    }
    TILEWRIGHT_ASSIGN_OR_RETURN(manifest.journal_, Journal::open(path));
    return manifest;
  }

  const SweepItem* tuned(const Digest& problem) const {
    const auto found = tuned_.find(problem);
    return found == tuned_.end() ? nullptr : &found->second;
  }

  Result<void> add(const SweepItem& item) {
    if (item.state == SweepItem::State::kTuned) tuned_[item.digest] = item;
    return journal_ ? journal_->append(json_of(item)) : Result<void>();
  }

 private:
  std::optional<Journal> journal_;
  std::map<Digest, SweepItem> tuned_;
};

bool holds(const std::map<std::string, jit::DimensionRange>& range,
           const templates::Bindings& sizes) {
  return std::all_of(sizes.begin(), sizes.end(), [&](const auto& size) {
    const auto found = range.find(size.first);
    return found != range.end() && size.second >= found->second.low &&
           size.second <= found->second.high;
  });
}

/// The item whose choice holds for this problem, too; null if there is none.
const SweepItem* cover(const std::vector<SweepProblem>& problems,
                       const std::vector<SweepItem>& items, const SweepProblem& problem) {
  const std::string text = templates::print(*problem.op);
  for (std::size_t i = 0; i < items.size(); ++i)
    if ((items[i].state == SweepItem::State::kTuned || items[i].state == SweepItem::State::kKept) &&
        holds(items[i].range, problem.bindings) && templates::print(*problems[i].op) == text)
      return &items[i];
  return nullptr;
}

void fill(SweepItem& item, const TuneReport& report) {
  item.state = SweepItem::State::kTuned;
  item.time_us = report.choice_sample.time_us;
  item.time_kind = time_kind(report.choice_sample);
  item.baseline_us = report.baseline.time_us;
  item.margin = report.margin;
  item.regret = worst_regret(report);
  item.tried = report.tried;
  for (const auto& [reason, count] : report.failed) item.failed += count;
  item.seconds = report.seconds;
  item.range = report.range;
  for (const GroupReport& group : report.partitions[static_cast<std::size_t>(report.choice)].groups)
    item.choice += fmt::format("{}{} {}", item.choice.empty() ? "" : " | ", group.best.family,
                               templates::to_string(group.best.config));
}

}  // namespace

Result<SweepReport> run_sweep(const std::vector<SweepProblem>& problems,
                              const std::filesystem::path& manifest_path, const SweepHooks& hooks,
                              std::stop_token stop) {
  TILEWRIGHT_ASSIGN_OR_RETURN(Manifest manifest, Manifest::open(manifest_path));
  const auto begin = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  SweepReport report;
  std::size_t worked = 0, kept = 0;
  for (const SweepProblem& problem : problems) {
    SweepItem item;
    if (const SweepItem* done = manifest.tuned(problem.digest)) {
      item = *done;
      item.state = SweepItem::State::kKept;
      ++kept;
    }
    item.title = problem.title;
    item.digest = problem.digest;
    report.items.push_back(std::move(item));
  }
  for (std::size_t i = 0; i < problems.size(); ++i) {
    SweepItem& item = report.items[i];
    if (item.state == SweepItem::State::kKept) continue;
    if (const SweepItem* done = manifest.tuned(item.digest)) {  // of another model, just now
      const std::string title = item.title;
      item = *done;
      item.title = title;
      item.state = SweepItem::State::kKept;
      ++kept;
      continue;
    }
    if (const SweepItem* covering = cover(problems, report.items, problems[i])) {
      item.state = SweepItem::State::kCovered;
      item.choice = covering->choice;
      item.covered_by = covering->title;
      ++kept;
      continue;
    }
    if (stop.stop_requested()) {
      report.interrupted = true;
      break;
    }
    if (hooks.progress) {
      SweepProgress progress{worked + kept, problems.size(), seconds(), 0, item.title};
      if (worked > 0)
        progress.eta_seconds = progress.seconds / static_cast<double>(worked) *
                               static_cast<double>(problems.size() - worked - kept);
      hooks.progress(progress);
    }
    const Result<TuneReport> tuned = hooks.tune(problems[i]);
    if (tuned && tuned->interrupted) {  // what it found is the caller's; the problem stays open
      report.interrupted = true;
      break;
    }
    ++worked;
    if (tuned && tuned->choice >= 0) {
      fill(item, *tuned);
    } else {
      item.state = SweepItem::State::kFailed;
      item.error = tuned ? "no candidate survived"
                         : fmt::format("{}: {}", tilewright::to_string(tuned.error().code),
                                       tuned.error().message);
    }
    TILEWRIGHT_TRY(manifest.add(item));
  }
  report.seconds = seconds();
  return report;
}

std::string to_text(const SweepReport& report) {
  std::string text;
  std::map<SweepItem::State, int> count;
  for (const SweepItem& item : report.items) {
    ++count[item.state];
    text += fmt::format("{:<8}{}", to_string(item.state), item.title);
    if (item.state == SweepItem::State::kFailed) text += ": " + item.error;
    if (item.state == SweepItem::State::kCovered) text += ": in the range of " + item.covered_by;
    if (item.time_us > 0)
      text += fmt::format(
          ": {:.2f} us {}, {:.1f} % less time than the baseline, regret {:.1f} %, {} "
          "tried, {} failed",
          item.time_us, item.time_kind, 100 * item.margin, 100 * item.regret, item.tried,
          item.failed);
    text += '\n';
  }
  text += fmt::format("{} tuned, {} kept, {} covered, {} failed, {} pending in {:.1f} s, for {}\n",
                      count[SweepItem::State::kTuned], count[SweepItem::State::kKept],
                      count[SweepItem::State::kCovered], count[SweepItem::State::kFailed],
                      count[SweepItem::State::kPending], report.seconds,
                      jit::to_text(report.conditions));
  if (report.interrupted) text += "interrupted: the same command goes on from here\n";
  return text;
}

std::string to_json_text(const SweepReport& report) {
  json out{{"items", json::array()},
           {"conditions", jit::to_json(report.conditions)},
           {"seconds", report.seconds},
           {"interrupted", report.interrupted}};
  for (const SweepItem& item : report.items) out["items"].push_back(json_of(item));
  return out.dump(2, ' ', false, json::error_handler_t::replace);
}

}  // namespace tilewright::search
