#include "search/measure/runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "search/measure/measurer.h"
#include "search/measure/timer.h"
#include "search/verify.h"
#include "search/verify/device_budget.h"

namespace tilewright::search {
namespace {

using Clock = std::chrono::steady_clock;

std::uint64_t now_us() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(now).count());
}

// All that makes two trials share data and buffers.
struct ProblemKey {
  std::string operator_text;
  templates::Bindings bindings;
  std::uint64_t seed = 0;
  std::map<std::string, std::int64_t> displacement;

  bool operator==(const ProblemKey&) const = default;
};

struct Problem {
  ProblemKey key;
  std::shared_ptr<const templates::Operator> op;
  std::unique_ptr<VerifySession> session;
};

Result<jit::LoadedPlan> load(const jit::Context& context, const Trial& trial, const jit::Plan& plan,
                             const std::vector<std::shared_ptr<const jit::Image>>& images) {
  return jit::LoadedPlan::load(context, plan, [&](const Digest& digest) -> Result<jit::Image> {
    for (const auto& image : images)
      if (image->digest == digest) return *image;
    return fail(ErrorCode::kNotFound,
                fmt::format("trial {} has no image {}", trial.id, digest.hex()));
  });
}

Result<jit::LoadedPlan> load(const jit::Context& context, const Trial& trial) {
  return load(context, trial, trial.plan, trial.images);
}

Result<void> check_inputs(const Trial& trial, const VerifyJob& job) {
  if (trial.inputs.empty()) return {};
  TILEWRIGHT_ASSIGN_OR_RETURN(const Digest inputs, input_digest(job));
  if (inputs == trial.inputs) return {};
  return fail(ErrorCode::kCorrupt,
              fmt::format("input data of seed {} is {} on this machine, expected {}", trial.seed,
                          inputs.hex(), trial.inputs.hex()));
}

// On the virtual GPU: how many blocks a launch executes, and for how long, while this lives.
class VirtualLimits {
 public:
  VirtualLimits(const jit::Driver& driver, const MeasureSettings& settings, std::uint64_t seed,
                Deadline deadline)
      : api_(driver.virtual_api()) {
    if (!api_) return;
    api_->tilewrightVgpuSampleBlocks(settings.sample_blocks, seed);
    const std::chrono::duration<double> left = deadline - Clock::now();
    // 0 would be no limit.
    api_->tilewrightVgpuSetDeadline(std::max(left.count(), 1e-3));
  }
  ~VirtualLimits() {
    if (!api_) return;
    api_->tilewrightVgpuSampleBlocks(0, 0);
    api_->tilewrightVgpuSetDeadline(0);
  }
  VirtualLimits(const VirtualLimits&) = delete;
  VirtualLimits& operator=(const VirtualLimits&) = delete;

 private:
  const jit::VirtualApi* api_;
};

}  // namespace

struct TrialRunner::State {
  std::shared_ptr<jit::Context> context;  // first: it goes last
  std::size_t memory_bytes = 0;
  std::shared_ptr<DeviceBudget> device_memory;
  std::optional<Problem> problem;
  std::optional<Timer> timer;
  std::optional<jit::Telemetry> telemetry;
  bool lost = false;

  Result<VerifySession*> session(const Trial& trial) {
    ProblemKey key{templates::print(*trial.op), trial.bindings, trial.seed, trial.displacement};
    if (problem && problem->key == key) return problem->session.get();
    problem.reset();  // first, since both might not fit
    VerifyJob job;
    job.op = trial.op.get();
    job.bindings = trial.bindings;
    job.settings = trial.verify;
    job.seed = trial.seed;
    job.displacement = trial.displacement;
    job.memory_bytes = memory_bytes;
    job.device_memory = device_memory;
    TILEWRIGHT_TRY(check_inputs(trial, job));
    TILEWRIGHT_ASSIGN_OR_RETURN(auto session, VerifySession::create(*context, job));
    TILEWRIGHT_TRY(session->make_data(trial.verify));
    problem.emplace(Problem{std::move(key), trial.op, std::move(session)});
    return problem->session.get();
  }

  Result<Timer*> need_timer() {
    if (!timer) {
      TILEWRIGHT_ASSIGN_OR_RETURN(timer, Timer::create(*context, device_memory));
    }
    return &*timer;
  }

  Result<Verification> verify(const Trial& trial, const jit::LoadedPlan& plan, Deadline deadline) {
    const VirtualLimits limits(context->driver(), trial.measure, trial.seed, deadline);
    TILEWRIGHT_ASSIGN_OR_RETURN(VerifySession * session, this->session(trial));
    std::optional<jit::LoadedPlan> anchor;
    if (trial.anchor) {
      TILEWRIGHT_ASSIGN_OR_RETURN(anchor,
                                  load(*context, trial, trial.anchor->plan, trial.anchor->images));
    }
    return session->verify(plan, trial.verify, trial.measure.sample_blocks,
                           anchor ? &*anchor : nullptr);
  }

  Result<std::vector<TimedPlan>> ready(std::span<const Trial* const> trials,
                                       std::span<const jit::LoadedPlan* const> plans) {
    TILEWRIGHT_ASSIGN_OR_RETURN(VerifySession * session, this->session(*trials.front()));
    VerifyJob job;
    job.op = trials.front()->op.get();
    job.bindings = trials.front()->bindings;
    TILEWRIGHT_ASSIGN_OR_RETURN(const std::size_t bytes, tensor_bytes(job));
    const std::size_t sets = buffer_sets(trials.front()->measure, context->device(), bytes);
    TILEWRIGHT_ASSIGN_OR_RETURN(auto prepared, session->ready(plans, sets));
    std::vector<TimedPlan> timed(prepared.size());
    for (std::size_t i = 0; i < prepared.size(); ++i) {
      timed[i].settings = trials[i]->measure;
      for (VerifySession::Ready& set : prepared[i])
        timed[i].sets.push_back({std::move(set.launch), set.workspace});
    }
    return timed;
  }

  Result<void> run(const Trial& trial, TrialResult& result) {
    TILEWRIGHT_TRY(context->activate());
    TILEWRIGHT_TRY(session(trial));  // before the deadline begins
    const Deadline deadline = deadline_in(trial.measure.deadline_s);
    TILEWRIGHT_ASSIGN_OR_RETURN(const jit::LoadedPlan plan, load(*context, trial));
    // What timing takes beside the data is refused before anything has run, too.
    if (trial.timed) {
      TILEWRIGHT_ASSIGN_OR_RETURN(Timer * timer, need_timer());
      TILEWRIGHT_TRY(timer->take_memory(trial.measure));
    }
    TILEWRIGHT_ASSIGN_OR_RETURN(result.verification, verify(trial, plan, deadline));
    if (!trial.timed) return {};
    const VirtualLimits limits(context->driver(), trial.measure, trial.seed, deadline);
    TILEWRIGHT_ASSIGN_OR_RETURN(Timer * timer, need_timer());
    const Trial* const trials[] = {&trial};
    const jit::LoadedPlan* const plans[] = {&plan};
    TILEWRIGHT_ASSIGN_OR_RETURN(const std::vector<TimedPlan> timed, ready(trials, plans));
    TILEWRIGHT_ASSIGN_OR_RETURN(result.sample, timer->time(timed.front(), deadline));
    return {};
  }

  // Times those of `trials` that have not failed, in turns.
  Result<void> time_in_turns(std::span<const Trial> trials, int rounds, Deadline deadline,
                             std::vector<TrialResult>& results) {
    std::vector<jit::LoadedPlan> loaded;
    std::vector<const Trial*> sound;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < trials.size(); ++i) {
      if (results[i].failure) continue;
      TILEWRIGHT_ASSIGN_OR_RETURN(jit::LoadedPlan plan, load(*context, trials[i]));
      loaded.push_back(std::move(plan));
      sound.push_back(&trials[i]);
      places.push_back(i);
    }
    if (sound.empty()) return {};
    std::vector<const jit::LoadedPlan*> plans;
    for (const jit::LoadedPlan& plan : loaded) plans.push_back(&plan);
    const VirtualLimits limits(context->driver(), sound.front()->measure, sound.front()->seed,
                               deadline);
    TILEWRIGHT_ASSIGN_OR_RETURN(Timer * timer, need_timer());
    TILEWRIGHT_ASSIGN_OR_RETURN(const std::vector<TimedPlan> timed, ready(sound, plans));
    std::vector<Result<Sample>> samples = timer->time_in_turns(timed, rounds, deadline);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      if (samples[i]) {
        results[places[i]].sample = std::move(*samples[i]);
      } else {
        note(samples[i].error());
        results[places[i]].failure = std::move(samples[i].error());
      }
    }
    return {};
  }

  // What other processes had of the device's time since then, where that is told from our own.
  unsigned others_percent(std::uint64_t since_us) const {
    if (!telemetry || lost) return 0;
    const auto others = telemetry->others(since_us);
    return others && others->exact ? others->busy_percent : 0;
  }

  // Whether what failed took the context along.
  void note(const Error& failure) {
    if (failure.code == ErrorCode::kFault || failure.code == ErrorCode::kHang ||
        failure.code == ErrorCode::kDeviceLost || !context->synchronize())
      lost = true;
  }
};

TrialRunner::TrialRunner(std::shared_ptr<jit::Context> context, std::size_t memory_bytes,
                         std::size_t device_memory_bytes)
    : state_(std::make_unique<State>()) {
  state_->context = std::move(context);
  state_->memory_bytes = memory_bytes;
  state_->device_memory = std::make_shared<DeviceBudget>(*state_->context, device_memory_bytes);
  const jit::Context& opened = *state_->context;
  if (auto telemetry = jit::Telemetry::open(opened.driver(), opened.ordinal()))
    state_->telemetry = std::move(*telemetry);
}

TrialRunner::~TrialRunner() = default;

Result<jit::OthersUse> TrialRunner::others(std::uint64_t since_us) {
  if (!state_->telemetry) return jit::OthersUse();
  return state_->telemetry->others(since_us);
}

bool TrialRunner::lost() const { return state_->lost; }

const jit::DeviceInfo& TrialRunner::device() const { return state_->context->device(); }

Result<void> TrialRunner::prepare(const Trial& trial) {
  TILEWRIGHT_TRY(state_->context->activate());
  TILEWRIGHT_TRY(state_->session(trial));
  return {};
}

TrialResult TrialRunner::run(const Trial& trial) {
  const auto begin = Clock::now();
  const std::uint64_t began_us = now_us();
  TrialResult result;
  result.id = trial.id;
  auto ran = state_->lost
                 ? Result<void>(fail(ErrorCode::kDeviceLost,
                                     "an earlier trial of this process lost the device's context"))
                 : state_->run(trial, result);
  if (!ran) {
    state_->note(ran.error());
    result.failure = std::move(ran.error());
  }
  result.sample.others_percent = state_->others_percent(began_us);
  result.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return result;
}

std::vector<TrialResult> TrialRunner::run_interleaved(std::span<const Trial> trials, int rounds) {
  const auto begin = Clock::now();
  const std::uint64_t began_us = now_us();
  double deadline_s = 0;
  for (const Trial& trial : trials) deadline_s += trial.measure.deadline_s;
  std::vector<TrialResult> results;
  if (trials.empty()) return results;
  // What fails here fails again in run(), which reports it.
  static_cast<void>(prepare(trials.front()));
  const Deadline deadline = deadline_in(deadline_s);
  for (const Trial& trial : trials) {
    Trial untimed = trial;
    untimed.timed = false;
    results.push_back(run(untimed));
  }
  if (state_->lost) return results;
  if (auto timed = state_->time_in_turns(trials, rounds, deadline, results); !timed) {
    state_->note(timed.error());
    for (TrialResult& result : results)
      if (!result.failure) result.failure = timed.error();
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  const unsigned others_percent = state_->others_percent(began_us);
  for (TrialResult& result : results) {
    result.seconds = seconds;
    result.sample.others_percent = std::max(result.sample.others_percent, others_percent);
  }
  return results;
}

namespace {

class HereMeasurer final : public Measurer {
 public:
  explicit HereMeasurer(std::shared_ptr<jit::Context> context) : runner_(std::move(context)) {}

  const jit::DeviceInfo& device() const override { return runner_.device(); }
  Result<TrialResult> run(const Trial& trial) override { return runner_.run(trial); }
  Result<std::vector<TrialResult>> run_interleaved(std::span<const Trial> trials,
                                                   int rounds) override {
    return runner_.run_interleaved(trials, std::max(rounds, 1));
  }

 private:
  TrialRunner runner_;
};

}  // namespace

std::unique_ptr<Measurer> measure_here(std::shared_ptr<jit::Context> context) {
  return std::make_unique<HereMeasurer>(std::move(context));
}

}  // namespace tilewright::search
