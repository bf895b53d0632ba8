#include "search/record.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <ctime>
#include <sstream>

namespace tilewright::search {
namespace {

std::string now_text() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text.data();
}

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "";
  return name.data();
}

}  // namespace

std::string to_text(const GroupChoice& choice) {
  return fmt::format("{} {} of {}", choice.family, templates::to_string(choice.config),
                     fmt::join(choice.statements, "+"));
}

Result<GroupChoice> parse_group(const std::string& text) {
  const auto refused = [&] {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("group is '{}', expected FAMILY TUNABLE=VALUE... of STATEMENT+...", text));
  };
  const auto number = [](std::string_view digits, auto& out) {
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), out);
    return parsed.ec == std::errc() && parsed.ptr == digits.data() + digits.size();
  };
  GroupChoice choice;
  std::istringstream words(text);
  std::string word;
  if (!(words >> choice.family)) return refused();
  while (words >> word && word != "of") {
    const auto equals = word.find('=');
    if (equals == std::string::npos ||
        !number(std::string_view(word).substr(equals + 1), choice.config[word.substr(0, equals)]))
      return refused();
  }
  if (word != "of" || !(words >> word) || word.ends_with('+')) return refused();
  std::istringstream statements(word);
  for (std::string index; std::getline(statements, index, '+');)
    if (!number(index, choice.statements.emplace_back())) return refused();
  if (words >> word) return refused();
  return choice;
}

Result<cache::Entry> to_entry(const TuneReport& report, const TuneRequest& request) {
  if (report.choice < 0)
    return fail(ErrorCode::kNotFound, fmt::format("{}: no plan was found", report.problem));
  if (!report.choice_verified)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: the plan was not verified as a whole, expected a finished tune",
                            report.problem));
  cache::Entry entry;
  entry.plan = report.plan;
  entry.narrow = report.narrow;
  const PartitionReport& partition = report.partitions[static_cast<std::size_t>(report.choice)];
  for (const GroupReport& group : partition.groups)
    entry.groups.push_back(to_text({group.best.family, group.best.config, group.indices}));
  cache::Evidence& evidence = entry.evidence;
  evidence.sizes = request.bindings;
  evidence.conditions = conditions_of(request.measure);
  for (const ProbeReport& probe : report.probes)
    if (probe.measured)
      evidence.probes.push_back({probe.sizes, probe.held, probe.sample.time_us,
                                 probe.sample.spread_us, probe.baseline_us});
  const Sample& sample = report.choice_sample;
  evidence.time_us = sample.time_us;
  evidence.spread_us = sample.spread_us;
  evidence.modelled = sample.modelled;
  evidence.p99_us = sample.p99_us;
  evidence.energy_uj = sample.energy_uj;
  evidence.launch_overhead_us = sample.launch_overhead_us;
  evidence.sm_clock_mhz = sample.sm_clock_mhz;
  evidence.temperature_c = sample.temperature_c;
  evidence.verified = true;
  evidence.baseline_us = report.baseline.time_us;
  evidence.margin = report.margin;
  evidence.baseline = report.baseline_name;
  evidence.seed = request.seed;
  evidence.tried = report.tried;
  for (const auto& [reason, count] : report.failed) evidence.failed += count;
  evidence.driver_version = report.device.driver_version;
  evidence.nvrtc_version = report.nvrtc_version;
  evidence.created = now_text();
  evidence.host = host_name();
  return entry;
}

Result<void> store_report(cache::Store& store, const TuneReport& report,
                          const TuneRequest& request) {
  if (report.choice < 0 || !report.choice_verified) return {};
  TILEWRIGHT_ASSIGN_OR_RETURN(cache::Entry entry, to_entry(report, request));
  const cache::Key key = cache::Key::of(*request.op, report.device);
  // An entry without its images is a miss however good it was: it does not stand in the way.
  std::optional<cache::Entry> lost;
  if (const auto known = store.get(key); known && *known) {
    if (const cache::Entry* rival = (*known)->rival(entry)) {
      TILEWRIGHT_ASSIGN_OR_RETURN(const bool whole, cache::has_images(store, *rival));
      if (!whole) lost = *rival;
    }
  }
  const auto join = [&](cache::Record& record) {
    // Plans of another generator may have faults that this one has not.
    if (record.generator != request.generator) record.entries.clear();
    record.key = key;
    record.generator = request.generator;
    const cache::Entry* rival = record.rival(entry);
    if (request.replace || (rival && lost == *rival)) {
      record.put(std::move(entry));
    } else {
      record.offer(std::move(entry));
    }
  };
  return store.update(key, join, report.images);
}

namespace {

/// Begun so often and never ended, a trial is not begun again: it may be what takes the host down.
constexpr int kQuarantine = 2;

/// The compiler's word on a source, and a compile that never ends: of nothing but the source. A
/// worker that died may have been killed.
bool is_sources_own(ErrorCode code) {
  return code == ErrorCode::kCompile || code == ErrorCode::kHang;
}

/// A failure that comes again; the others may be the machine's, and are tried again.
bool is_candidates_own(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kUnsupported:
    case ErrorCode::kCompile:
    case ErrorCode::kFault:
    case ErrorCode::kHang:
    case ErrorCode::kWrongResult:
    case ErrorCode::kCrash:  // twice: the measurer tries again
      return true;
    default:
      return false;
  }
}

}  // namespace

TuneHooks journal_in(cache::Store& store, const TuneRequest& request,
                     const jit::DeviceInfo& device) {
  TuneHooks hooks;
  hooks.recall = [&store, request, device](
                     const Digest& group, const std::string& family,
                     const templates::Config& config) -> std::optional<CandidateReport> {
    const auto stored = store.trial(trial_id(request, device, group, family, config));
    // What cannot be read is tried again.
    if (!stored || !*stored) return std::nullopt;
    auto candidate = parse_trial_body((*stored)->body);
    if (!candidate || candidate->config != config) return std::nullopt;
    if (candidate->begun > 0 && candidate->begun < kQuarantine) return std::nullopt;
    if (candidate->failure && !is_candidates_own(candidate->failure->code)) return std::nullopt;
    return std::move(*candidate);
  };
  const auto put = [&store, request, device](const CandidateReport& candidate, bool synced) {
    return store.put_trial(
        {trial_id(request, device, candidate.group, candidate.family, candidate.config),
         trial_body(candidate), request.generator, synced});
  };
  hooks.journal = [put](const CandidateReport& candidate) { return put(candidate, false); };
  hooks.recall_compile = [&store](const Digest& image) -> std::optional<Error> {
    const auto stored = store.trial(compile_id(image));
    if (!stored || !*stored) return std::nullopt;
    auto candidate = parse_trial_body((*stored)->body);
    return candidate ? std::move(candidate->failure) : std::nullopt;
  };
  hooks.not_compiled = [&store, request](const Digest& image,
                                         const CandidateReport& candidate) -> Result<void> {
    if (!candidate.failure || !is_sources_own(candidate.failure->code)) return {};
    CandidateReport kept = candidate;
    kept.images = {image};
    kept.begun = 0;
    return store.put_trial({compile_id(image), trial_body(kept), request.generator, false});
  };
  hooks.begin = [&store, request, device, put](const CandidateReport& candidate) {
    CandidateReport begun = candidate;
    begun.begun = 1;
    const auto stored =
        store.trial(trial_id(request, device, candidate.group, candidate.family, candidate.config));
    if (stored && *stored)
      if (const auto before = parse_trial_body((*stored)->body)) begun.begun += before->begun;
    return put(begun, true);
  };
  hooks.stopped = [put](const CandidateReport& candidate) {
    CandidateReport stopped = candidate;
    stopped.failure = Error{ErrorCode::kCancelled, "stopped amid the trial", {}};
    return put(stopped, false);
  };
  return hooks;
}

}  // namespace tilewright::search
