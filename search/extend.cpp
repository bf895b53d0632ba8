#include "search/extend.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "search/measure/statistics.h"

namespace tilewright::search {
namespace {

/// All rivals together may be wrong about the noise this often.
constexpr double kSignificance = 0.02;

/// Modelled times have no noise. The model's error is larger than this share of a time, so less of
/// a gain is no reason to tune again.
constexpr double kModelledShare = 0.02;

std::string sizes_text(const templates::Bindings& sizes) {
  std::string text;
  for (const auto& [name, size] : sizes)
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, size);
  return text;
}

Trial at(const Trial& trial, const templates::Bindings& sizes) {
  Trial moved = trial;
  moved.id += " at " + sizes_text(sizes);
  moved.bindings = sizes;
  return moved;
}

std::string failure_text(const Error& failure) {
  return fmt::format("{}: {}", to_string(failure.code),
                     failure.message.substr(0, failure.message.find('\n')));
}

bool beats(const Sample& rival, const Sample& choice, std::size_t rivals) {
  if (is_exact(rival)) return rival.cost() < (1 - kModelledShare) * choice.cost();
  return compare(rival, choice, kSignificance / static_cast<double>(rivals)).better;
}

/// Why the choice does not hold with these results, the choice's first; empty if it does.
std::string judge(const std::vector<TrialResult>& results) {
  const TrialResult& choice = results.front();
  if (choice.failure) return failure_text(*choice.failure);
  if (!choice.verification.verified) return "not verified";
  const Sample* best = nullptr;
  for (const TrialResult& rival : results) {
    if (&rival == &choice || rival.failure) continue;
    if (!beats(rival.sample, choice.sample, results.size() - 1)) continue;
    if (best == nullptr || rival.sample.cost() < best->cost()) best = &rival.sample;
  }
  if (best == nullptr) return "";
  return fmt::format("another plan takes {:.2f} us", best->time_us);
}

class Prober {
 public:
  Prober(const Contest& contest, double budget_seconds, Measurer& measurer, const TuneClock& clock,
         std::stop_token stop)
      : contest_(contest),
        budget_seconds_(budget_seconds),
        measurer_(measurer),
        clock_(clock),
        stop_(std::move(stop)),
        expected_seconds_(contest.seconds) {}

  ProbeReport probe(const templates::Bindings& sizes) {
    ProbeReport report;
    report.sizes = sizes;
    report.reason = cannot_begin();
    if (!report.reason.empty()) return report;
    clock_.show("the choice at " + sizes_text(sizes), 0);
    const double begin = clock_.seconds();
    measure(report);
    expected_seconds_ = clock_.seconds() - begin;
    return report;
  }

 private:
  std::string cannot_begin() const {
    if (illegal_) return "skipped: not legal at the low end";
    if (failed_) return "skipped: the low end was not measured";
    if (stop_.stop_requested()) return "skipped: the tune was stopped";
    if (budget_seconds_ > 0 && clock_.seconds() + expected_seconds_ > budget_seconds_)
      return "skipped: no time was left";
    return "";
  }

  void measure(ProbeReport& report) {
    std::vector<Trial> trials;
    for (const Trial& trial : contest_.trials) {
      trials.push_back(at(trial, report.sizes));
      // Rivals were verified at the sizes of the tune. One that is wrong here can only make the
      // range narrower.
      if (&trial != &contest_.trials.front()) trials.back().verify = {false, false, false, 0};
      if (budget_seconds_ > 0) {
        double& deadline_s = trials.back().measure.deadline_s;
        deadline_s = std::min(deadline_s, std::max(1.0, budget_seconds_ - clock_.seconds()));
      }
    }
    const auto results = measurer_.run_interleaved(trials, trials.front().measure.rounds);
    if (!results || results->size() != trials.size()) {
      report.reason =
          results ? "skipped: results are missing" : "skipped: " + failure_text(results.error());
      failed_ = true;
      return;
    }
    report.measured = true;
    const TrialResult& choice = results->front();
    illegal_ = choice.failure && choice.failure->code == ErrorCode::kUnsupported;
    if (!choice.failure) report.sample = choice.sample;
    if (contest_.baseline >= 0) {
      const TrialResult& baseline = (*results)[static_cast<std::size_t>(contest_.baseline)];
      if (!baseline.failure) report.baseline_us = baseline.sample.time_us;
    }
    for (const TrialResult& result : *results)
      if (!result.failure && (report.best == 0 || result.sample.cost() < report.best))
        report.best = result.sample.cost();
    report.reason = judge(*results);
    if (report.reason.empty() && contest_.narrow) report.reason = verify_narrow(report.sizes);
    report.held = report.reason.empty();
  }

  std::string verify_narrow(const templates::Bindings& sizes) {
    Trial trial = at(*contest_.narrow, sizes);
    trial.timed = false;
    trial.displacement.clear();  // the data of the others is at hand
    const auto result = measurer_.run(trial);
    if (!result) return failure_text(result.error());
    if (result->failure) return "unaligned tensors: " + failure_text(*result->failure);
    return "";
  }

  const Contest& contest_;
  const double budget_seconds_;
  Measurer& measurer_;
  const TuneClock& clock_;
  const std::stop_token stop_;
  double expected_seconds_;
  bool illegal_ = false, failed_ = false;
};

}  // namespace

jit::DimensionRange bucket_of(std::int64_t size) {
  if (size <= 1) return {size, size};
  const std::uint64_t high = std::bit_ceil(static_cast<std::uint64_t>(size));
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  return {static_cast<std::int64_t>(high / 2 + 1),
          static_cast<std::int64_t>(std::min(high, kMost))};
}

std::vector<ProbeReport> probe_ends(const Contest& contest, double budget_seconds,
                                    Measurer& measurer, const TuneClock& clock,
                                    std::stop_token stop) {
  std::vector<ProbeReport> probes;
  if (contest.trials.empty()) return probes;
  const templates::Bindings& sizes = contest.trials.front().bindings;
  templates::Bindings low, high;
  for (const auto& [name, size] : sizes) {
    const jit::DimensionRange bucket = bucket_of(size);
    low[name] = bucket.low;
    high[name] = bucket.high;
  }
  Prober prober(contest, budget_seconds, measurer, clock, std::move(stop));
  for (const templates::Bindings* end : {&low, &high})
    if (*end != sizes) probes.push_back(prober.probe(*end));
  return probes;
}

std::map<std::string, jit::DimensionRange> range_of(const templates::Bindings& sizes,
                                                    const std::vector<ProbeReport>& probes) {
  std::map<std::string, jit::DimensionRange> range;
  for (const auto& [name, size] : sizes) range[name] = {size, size};
  for (const ProbeReport& probe : probes) {
    if (!probe.held) continue;
    for (const auto& [name, size] : probe.sizes) {
      range[name].low = std::min(range[name].low, size);
      range[name].high = std::max(range[name].high, size);
    }
  }
  return range;
}

}  // namespace tilewright::search
