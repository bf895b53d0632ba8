#include "search/candidates.h"

#include <fmt/format.h>

#include <algorithm>

#include "search/journal.h"
#include "search/replay.h"

namespace tilewright::search {
namespace {

using namespace std::chrono_literals;

/// Candidates compiled or waiting for it, beside the one that is measured.
constexpr std::size_t kAhead = 6;

constexpr char kAnchor[] = "the plan that this record begins with";

}  // namespace

void TuneClock::step(const std::string& current, double best_us, bool known) {
  ++done_;
  known_ += known;
  show(current, best_us);
}

void TuneClock::show(const std::string& current, double best_us) const {
  if (!hooks_.progress) return;
  TuneProgress progress;
  progress.done = done_;
  progress.total = std::max(total_, done_);
  progress.seconds = seconds();
  if (done_ > 0) {
    const int ran = std::max(done_ - known_, 1);
    progress.eta_seconds = progress.seconds / ran * (progress.total - done_);
  }
  progress.current = current;
  progress.best_us = best_us;
  hooks_.progress(progress);
}

CandidatePipeline::CandidatePipeline(const TuneRequest& request, jit::CompilePool& compiler,
                                     Measurer& measurer, const TuneHooks& hooks, TuneClock& clock,
                                     std::stop_token stop)
    : request_(request),
      compiler_(compiler),
      measurer_(measurer),
      hooks_(hooks),
      clock_(clock),
      stop_(std::move(stop)) {}

bool CandidatePipeline::stopped() const {
  return stop_.stop_requested() ||
         (request_.budget.seconds > 0 && clock_.seconds() > 0.75 * request_.budget.seconds);
}

void CandidatePipeline::prepare(Arm& arm) {
  const std::optional<templates::Config> config = arm.strategy->ask();
  if (!config) {
    arm.exhausted = true;
    return;
  }
  Job job;
  job.arm = &arm;
  if (hooks_.recall) {
    if (auto known = hooks_.recall(arm.digest, std::string(arm.family->name()), *config)) {
      job.report = std::move(*known);
      job.report.recalled = true;
      job.known = true;
    }
  }
  job.report.group = arm.digest;
  job.report.family = arm.family->name();
  job.report.config = *config;
  job.report.id =
      trial_id(request_, measurer_.device(), arm.digest, std::string(arm.family->name()), *config);
  if (!job.known) {
    auto generated = arm.family->generate(*arm.op, *config, arm.facts);
    if (auto begun = begin_anchor(arm); !begun) generated = fail(std::move(begun.error()));
    if (generated) {
      const jit::CompileOptions options = compile_options(measurer_.device());
      job.plan = std::move(generated->plan);
      job.source = compiler_.digest(generated->source, options);
      if (hooks_.recall_compile) job.report.failure = hooks_.recall_compile(job.source);
      job.known = job.report.failure.has_value();
      if (!job.known) job.image = compiler_.submit(std::move(generated->source), options);
    } else {
      job.report.failure = generated.error();
      job.known = true;
    }
  }
  jobs_.push_back(std::move(job));
}

Result<void> CandidatePipeline::begin_anchor(const Arm& arm) {
  if (!arm.anchor.family || anchors_.contains(arm.digest)) return {};
  auto generated = arm.anchor.family->generate(*arm.op, arm.anchor.config, arm.facts);
  if (!generated) return fail(with_context(std::move(generated.error()), kAnchor));
  anchors_[arm.digest] = {
      std::move(generated->plan),
      compiler_.submit(std::move(generated->source), compile_options(measurer_.device())), nullptr};
  return {};
}

Result<std::shared_ptr<const Trial::Anchor>> CandidatePipeline::anchor_of(const Arm& arm) {
  if (!arm.anchor.family) return nullptr;
  AnchorCode& code = anchors_.at(arm.digest);
  if (!code.made) {
    const Result<jit::Image>& compiled = code.image.get();
    if (!compiled) return fail(with_context(compiled.error(), kAnchor));
    set_image(code.plan, compiled->digest);
    code.made = std::make_shared<const Trial::Anchor>(
        Trial::Anchor{code.plan, {std::make_shared<const jit::Image>(*compiled)}});
  }
  return code.made;
}

Trial CandidatePipeline::trial_of(const Job& job) const {
  Trial trial;
  trial.id = job.report.id;
  trial.op = job.arm->op;
  trial.bindings = job.arm->bindings;
  trial.plan = job.plan;
  trial.seed = request_.seed;
  trial.verify = request_.verify;
  trial.measure = request_.measure;
  return trial;
}

Result<std::shared_ptr<const jit::Image>> CandidatePipeline::measure(Job& job) {
  CandidateReport& report = job.report;
  const Result<jit::Image>& compiled = job.image.get();
  if (!compiled) {
    report.failure = compiled.error();
    if (hooks_.not_compiled) note_written(hooks_.not_compiled(job.source, report));
    return nullptr;
  }
  const auto image = std::make_shared<const jit::Image>(*compiled);
  set_image(job.plan, image->digest);
  describe_image(report, *image, job.plan);
  Trial trial = trial_of(job);
  trial.images = {image};
  // A time above this can be no part of the best plan. Energies do not compare with times.
  if (job.arm->best >= 0 && trial.measure.objective != Objective::kEnergy)
    trial.measure.cut_off_us = 2 * job.arm->best_us();
  trial.measure.deadline_s = deadline_s(*job.arm);
  auto anchor = anchor_of(*job.arm);
  if (!anchor) {
    report.failure = std::move(anchor.error());
    return image;
  }
  // The anchor itself has its own bits.
  if (*anchor && (*anchor)->plan != trial.plan) trial.anchor = std::move(*anchor);
  note(hooks_.begin, report);
  TILEWRIGHT_ASSIGN_OR_RETURN(TrialResult result, measurer_.run(trial));
  if (!result.failure) {
    SoundTrials& sound = sound_[job.arm];
    ++sound.count;
    sound.longest_s = std::max(sound.longest_s, result.seconds);
  }
  report.failure = std::move(result.failure);
  report.verification = result.verification;
  report.sample = std::move(result.sample);
  return image;
}

double CandidatePipeline::deadline_s(const Arm& arm) const {
  constexpr int kFewTrials = 8;
  constexpr double kTimesTheLongest = 20, kShortest_s = 5;
  const double longest_s = request_.measure.deadline_s;
  const auto sound = sound_.find(&arm);
  if (sound == sound_.end() || sound->second.count < kFewTrials) return longest_s;
  return std::clamp(kTimesTheLongest * sound->second.longest_s, std::min(kShortest_s, longest_s),
                    longest_s);
}

/// A disk that is full costs the next tune its memory, and this one nothing.
void CandidatePipeline::note(const std::function<Result<void>(const CandidateReport&)>& hook,
                             const CandidateReport& report) {
  if (hook) note_written(hook(report));
}

void CandidatePipeline::note_written(Result<void> written) {
  if (written || journal_failure_) return;
  journal_failure_ = with_context(std::move(written.error()), "a trial was not recorded");
  if (hooks_.warn) hooks_.warn(*journal_failure_);
}

Result<bool> CandidatePipeline::finish(Job& job) {
  const std::string what =
      fmt::format("{} {}", job.report.family, templates::to_string(job.report.config));
  const auto best_us = [&] { return job.arm->best < 0 ? 0 : job.arm->best_us(); };
  clock_.show(what, best_us());
  std::shared_ptr<const jit::Image> image;
  if (!job.known) {
    while (job.image.wait_for(50ms) != std::future_status::ready)
      if (stop_.stop_requested()) return false;
    auto measured = measure(job);
    if (!measured && measured.error().code == ErrorCode::kCancelled && stop_.stop_requested()) {
      note(hooks_.stopped, job.report);
      return false;
    }
    TILEWRIGHT_ASSIGN_OR_RETURN(image, std::move(measured));
  }
  // A replay has no anchor to compare with: of what failed by it, it would show nothing.
  const bool by_anchor = job.arm->anchor.family && job.report.failure &&
                         job.report.failure->code == ErrorCode::kUnsupported;
  if (job.report.failure && !job.plan.launches.empty() && !by_anchor)
    job.report.replay = replay_text(
        {trial_of(job), job.report.family, job.report.config, job.arm->facts, measurer_.device()});
  // First of all: a tune that is killed now knows it the next time.
  if (!job.report.recalled) note(hooks_.journal, job.report);
  job.arm->take(std::move(job.report), std::move(image));
  clock_.step(what, best_us(), job.known);
  return true;
}

Result<int> CandidatePipeline::run(std::span<Arm* const> order) {
  int evaluated = 0;
  std::size_t next = 0;
  while (!stopped()) {
    while (next < order.size() && jobs_.size() <= kAhead) prepare(*order[next++]);
    if (jobs_.empty()) break;
    TILEWRIGHT_ASSIGN_OR_RETURN(const bool finished, finish(jobs_.front()));
    if (!finished) break;
    jobs_.pop_front();
    ++evaluated;
  }
  jobs_.clear();
  return evaluated;
}

jit::CompileOptions compile_options(const jit::DeviceInfo& device) {
  jit::CompileOptions options;
  options.architecture = device.architecture();
  return options;
}

void describe_image(CandidateReport& report, const jit::Image& image, const jit::Plan& plan) {
  report.images = {image.digest};
  report.resources = image.kernels;
  report.compile_ms = image.compile_ms;
  for (const jit::PlanLaunch& launch : plan.launches) {
    const jit::KernelResources* kernel = image.find(launch.kernel);
    const int fixed = kernel != nullptr ? kernel->static_shared_bytes : 0;
    report.shared_bytes = std::max(report.shared_bytes, launch.dynamic_shared_bytes + fixed);
  }
}

void set_image(jit::Plan& plan, const Digest& image) {
  for (jit::PlanLaunch& launch : plan.launches) launch.image = image;
}

}  // namespace tilewright::search
