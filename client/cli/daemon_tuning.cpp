#include "client/cli/daemon_tuning.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "client/cli/tuning.h"
#include "templates/headers.h"
#include "templates/operator/parse.h"

namespace tilewright::cli {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

constexpr std::chrono::milliseconds kSend{10'000};
/// Between looks at what the user wants.
constexpr std::chrono::milliseconds kLook{100};
/// A daemon that says nothing for so long is asked whether it lives, and then given up.
constexpr std::chrono::seconds kQuiet{10}, kDead{60};

Result<void> check_same(const Session& session, const protocol::Welcome& daemon) {
  if (!session.options.templates.empty()) {
    TILEWRIGHT_ASSIGN_OR_RETURN(auto headers, session.headers());
    if (templates::generator_digest(headers) != daemon.generator) {
      return fail(
          ErrorCode::kUnsupported,
          fmt::format("--templates is {}, and the daemon that owns the cache compiles others: "
                      "end it, or give --no-daemon and another --cache",
                      session.options.templates.string()));
    }
  }
  std::error_code ignored;
  const auto& configs = session.options.configs;
  if (!configs.empty() && !std::filesystem::equivalent(configs, daemon.configs, ignored)) {
    return fail(
        ErrorCode::kUnsupported,
        fmt::format("--configs is {}, and the daemon that owns the cache reads {}: end it, or "
                    "give --no-daemon and another --cache",
                    configs.string(), daemon.configs));
  }
  return {};
}

/// What a sweep keeps of a report.
search::TuneReport summary_of(const json& from) {
  search::TuneReport report;
  report.problem = from.at("problem");
  report.interrupted = from.at("interrupted");
  report.seconds = from.at("seconds");
  report.tried = from.at("candidates").at("tried");
  report.failed = from.at("candidates").at("failed").get<std::map<std::string, int>>();
  const auto sample = [](const json& timed) {
    search::Sample sample;
    sample.time_us = timed.at("time_us");
    sample.spread_us = timed.at("spread_us");
    sample.modelled = timed.at("time_kind") == "modelled";
    return sample;
  };
  if (!from.at("baseline").is_null()) report.baseline = sample(from["baseline"]);
  if (from.at("choice").is_null()) return report;
  report.choice = 0;
  report.choice_sample = sample(from["choice"]);
  report.choice_verified = from["choice"].at("verified");
  report.margin = from.at("margin");
  search::PartitionReport& partition = report.partitions.emplace_back();
  const auto index = from["choice"].at("partition").get<std::size_t>();
  for (const auto& group : from.at("partitions").at(index).at("groups")) {
    search::CandidateReport& best = partition.groups.emplace_back().best;
    best.family = group.at("family");
    best.config = group.at("config").get<templates::Config>();
  }
  return report;
}

Result<TuneAnswer> answer_of(protocol::Tuned tuned) {
  TuneAnswer answer;
  try {
    answer.report = summary_of(json::parse(tuned.report));
  } catch (const json::exception& error) {
    return fail(ErrorCode::kCorrupt, fmt::format("the daemon's report: {}", error.what()));
  }
  answer.json = std::move(tuned.report);
  answer.text = std::move(tuned.text);
  answer.joined = std::move(tuned.joined);
  return answer;
}

}  // namespace

Result<DaemonTuning> DaemonTuning::start(const Session& session, const TuningFlags& flags,
                                         protocol::Channel daemon) {
  const protocol::Welcome& welcome = daemon.welcome();
  TILEWRIGHT_TRY(check_same(session, welcome));
  if (flags.memory_mib > 0)
    return fail(ErrorCode::kUnsupported,
                fmt::format("--memory is {}, and the daemon that owns the cache has its own cap "
                            "(tune.memory): end it, or give --no-daemon and another --cache",
                            flags.memory_mib));
  protocol::Tune settings;
  if (session.options.device != "auto") {
    TILEWRIGHT_ASSIGN_OR_RETURN(auto choice, session.device());
    TILEWRIGHT_ASSIGN_OR_RETURN(auto driver, session.driver());
    const jit::DeviceInfo& device = driver->device(choice.ordinal);
    if (welcome.devices.empty() || welcome.devices[0].key != device.key()) {
      return fail(
          ErrorCode::kUnsupported,
          fmt::format("--device is {} ({}), and the daemon that owns the cache serves {}: end "
                      "it, or give --no-daemon and another --cache",
                      session.options.device, device.name,
                      welcome.devices.empty() ? "none" : welcome.devices[0].name));
    }
    settings.problem.device = device.key();
  }
  settings.evaluations = flags.budget;
  settings.seconds = flags.seconds > 0 ? flags.seconds : -1;
  settings.seed = flags.seed;
  settings.strategy = flags.strategy;
  settings.problem.wishes = flags.wishes;
  TILEWRIGHT_ASSIGN_OR_RETURN(const jit::Conditions measured,
                              flags.wishes.over(welcome.conditions.value_or(jit::Conditions())));
  settings.replace = flags.fresh;
  settings.when = flags.when;
  // Said only where it differs from the usual one, so that equal tunes are equal.
  if (flags.precision != search::MeasureSettings{}.precision) settings.precision = flags.precision;
  // The daemon's default is this one too; said only where it differs, so that equal tunes are equal.
  if (flags.sample_blocks != search::MeasureSettings{}.sample_blocks)
    settings.sample_blocks = static_cast<std::int64_t>(flags.sample_blocks);
  DaemonTuning tuning(std::move(daemon));
  tuning.settings_ = std::move(settings);
  tuning.measured_ = measured;
  return tuning;
}

Digest DaemonTuning::conditions() const {
  const protocol::Welcome& daemon = daemon_.welcome();
  return tuning_conditions(daemon.devices.empty() ? Digest() : daemon.devices[0].key,
                           daemon.generator, daemon.nvrtc_version, measured_);
}

Result<TuneAnswer> DaemonTuning::tune(
    const templates::Operator& op, const templates::Bindings& bindings,
    const std::function<void(const search::TuneProgress&)>& progress, std::stop_token stop) {
  protocol::Tune request = settings_;
  request.problem.operator_text = templates::print(op);
  for (const std::string& dimension : op.dimensions)
    request.problem.sizes.push_back(bindings.at(dimension));
  TILEWRIGHT_ASSIGN_OR_RETURN(std::uint64_t id, daemon_.send(request, kSend));
  progress({0, request.evaluations, 0, 0, "waiting for the daemon", 0});
  bool cancelled = false, asked = false;
  Clock::time_point heard = Clock::now();
  for (;;) {
    if (stop.stop_requested() && !cancelled) {
      TILEWRIGHT_TRY(daemon_.send(protocol::Cancel{id}, kSend));
      cancelled = true;
    }
    auto answer = daemon_.receive(kLook);
    if (!answer) {
      if (answer.error().code != ErrorCode::kHang) return fail(std::move(answer.error()));
      auto quiet = Clock::now() - heard;
      if (quiet > kDead) return fail(ErrorCode::kHang, "the daemon has not answered for a minute");
      if (quiet > kQuiet && !asked) {
        TILEWRIGHT_TRY(daemon_.send(protocol::Ping{}, kSend));
        asked = true;
      }
      continue;
    }
    heard = Clock::now();
    asked = false;
    if (answer->id != id) continue;
    if (auto* failure = std::get_if<protocol::Failure>(&answer->message))
      return fail(std::move(failure->error));
    if (auto* tuned = std::get_if<protocol::Tuned>(&answer->message))
      return answer_of(std::move(*tuned));
    if (auto* at = std::get_if<protocol::Progress>(&answer->message)) {
      progress(
          {at->done, at->total, at->seconds, at->eta_seconds, std::move(at->current), at->best_us});
    }
  }
}

}  // namespace tilewright::cli
