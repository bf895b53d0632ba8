#include "search/record.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>

#include "jit/expression.h"
#include "search/verify/equal_bits.h"

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

namespace {

bool binds_bits(const templates::Operator& op) {
  return op.numerics.batch_invariant && !batch_dimensions(op).empty();
}

/// As far as sizes alone tell: what asks for alignments is not looked at.
bool may_run(const cache::Entry& entry, const templates::Bindings& sizes) {
  const jit::Plan& plan = entry.narrow.launches.empty() ? entry.plan : entry.narrow;
  const auto size_of = [&](std::string_view name) -> std::optional<std::int64_t> {
    const auto found = sizes.find(std::string(name));
    return found == sizes.end() ? std::nullopt : std::optional(found->second);
  };
  return std::none_of(plan.legal.begin(), plan.legal.end(), [&](const std::string& text) {
    const auto predicate = jit::Expression::parse(text);
    if (!predicate) return false;
    const auto holds = predicate->evaluate(size_of);
    return holds && *holds == 0;
  });
}

/// Whether a plan that was tuned with the request's anchor has the record's bits. The first plan may
/// have been replaced since, by one with the same bits.
bool has_plan_of(const cache::Record& record, const TuneRequest& request) {
  std::vector<std::string> groups;
  for (const GroupChoice& choice : request.anchor) groups.push_back(to_text(choice));
  return std::any_of(record.entries.begin(), record.entries.end(),
                     [&](const cache::Entry& entry) { return entry.groups == groups; });
}

/// Makes the record one that `entry` may join.
Result<void> keep_bits(cache::Record& record, const cache::Entry& entry,
                       const TuneRequest& request) {
  if (record.entries.empty()) return {};
  const cache::Entry& first = record.entries.front();
  const bool other_compiler = first.evidence.nvrtc_version != request.nvrtc_version;
  if (request.anchor.empty() && (request.replace || other_compiler)) {
    if (other_compiler || first.groups != entry.groups) record.entries.clear();
    return {};
  }
  if (!request.anchor.empty() && has_plan_of(record, request)) return {};
  // Its plans are not for these sizes: no row has bits by them yet.
  if (request.anchor.empty() &&
      std::none_of(record.entries.begin(), record.entries.end(),
                   [&](const cache::Entry& known) { return may_run(known, request.bindings); }))
    return {};
  return fail(
      ErrorCode::kBusy,
      fmt::format("{} is batch-invariant, and another tune has begun its record with a plan "
                  "that this one was not compared with: tune again",
                  request.op->name));
}

}  // namespace

Result<std::vector<GroupChoice>> anchor_of(const cache::Store& store, const TuneRequest& request,
                                           const jit::DeviceInfo& device) {
  std::vector<GroupChoice> anchor;
  if (!binds_bits(*request.op)) return anchor;
  const auto record = store.get(cache::Key::of(*request.op, device));
  if (!record && record.error().code == ErrorCode::kCorrupt) return anchor;
  if (!record) return fail(record.error());
  if (!*record || (*record)->generator != request.generator) return anchor;
  const auto& entries = (*record)->entries;
  const auto first = std::find_if(entries.begin(), entries.end(), [&](const cache::Entry& entry) {
    return may_run(entry, request.bindings);
  });
  if (first == entries.end()) return anchor;
  if (first->evidence.nvrtc_version != request.nvrtc_version) return anchor;
  if (request.replace && first->evidence.sizes == request.bindings) return anchor;
  for (const std::string& text : first->groups) {
    TILEWRIGHT_ASSIGN_OR_RETURN(anchor.emplace_back(), parse_group(text));
  }
  return anchor;
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
  Result<void> kept;
  const auto join = [&](cache::Record& record) {
    // Plans of another generator may have faults that this one has not.
    if (record.generator != request.generator) record.entries.clear();
    record.key = key;
    record.generator = request.generator;
    if (binds_bits(*request.op)) kept = keep_bits(record, entry, request);
    if (!kept) return;
    const cache::Entry* rival = record.rival(entry);
    if (request.replace || (rival && lost == *rival)) {
      record.put(std::move(entry));
    } else {
      record.offer(std::move(entry));
    }
  };
  TILEWRIGHT_TRY(store.update(key, join, report.images));
  return kept;
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
