#include "search/measure/timer.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "search/measure/statistics.h"

namespace tilewright::search {
namespace {

constexpr std::size_t kMostSets = 32;
constexpr int kTailRounds = 10;

std::vector<Enqueue> enqueue_of(const TimedPlan& plan) {
  std::vector<Enqueue> result;
  for (const TimedPlan::Set& set : plan.sets)
    result.push_back(
        [&set](const jit::Stream& stream) { return set.launch.launch(set.workspace, stream); });
  return result;
}

double share(const jit::VirtualLaunch& launch) {
  const std::string_view bound_by = launch.bound_by;
  const std::pair<std::string_view, double> resources[] = {
      {"integer", launch.integer_us}, {"dram", launch.dram_us},
      {"l2", launch.l2_us},           {"fma", launch.fma_us},
      {"tensor", launch.tensor_us},   {"issue", launch.issue_us},
      {"shared", launch.shared_us},   {"special", launch.special_us},
      {"latency", launch.latency_us}, {"launch", launch.launch_us}};
  for (const auto& [name, time_us] : resources)
    if (name == bound_by && launch.modelled_us > 0)
      return std::min(1.0, time_us / launch.modelled_us);
  return 0;
}

// While it lives, launches on the virtual GPU that are like earlier ones are not executed again.
class ReuseTimes {
 public:
  explicit ReuseTimes(const jit::VirtualApi* api) : api_(api) {
    if (api_) api_->tilewrightVgpuReuseTimes(1);
  }
  ~ReuseTimes() {
    if (api_) api_->tilewrightVgpuReuseTimes(0);
  }
  ReuseTimes(const ReuseTimes&) = delete;
  ReuseTimes& operator=(const ReuseTimes&) = delete;

 private:
  const jit::VirtualApi* api_;
};

}  // namespace

struct Timer::State {
  std::unique_ptr<BenchDevice> device;

  const jit::VirtualApi* virtual_api() const { return device->context->driver().virtual_api(); }

  // Whether one launch says all.
  bool is_exact() const {
    int vary = 0;
    return virtual_api() && virtual_api()->tilewrightVgpuTimesVary(&vary) == CUDA_SUCCESS &&
           vary == 0;
  }

  Sample empty_sample(const MeasureSettings& settings) const {
    Sample sample;
    sample.modelled = virtual_api() != nullptr;
    sample.cold_l2 = sample.modelled || settings.cold_l2;
    sample.graph = settings.graph;
    sample.objective = settings.objective;
    return sample;
  }

  Result<Sample> time_measured(std::vector<Enqueue> enqueue, const MeasureSettings& settings,
                               Deadline deadline, Sample sample) {
    TILEWRIGHT_ASSIGN_OR_RETURN(DeviceBench bench,
                                DeviceBench::create(*device, std::move(enqueue), settings));
    TILEWRIGHT_TRY(measure(bench, settings, deadline, sample));
    if (!sample.modelled) sample.launch_overhead_us = bench.overhead_us();
    return sample;
  }

  // One launch after the other, so that the model's account of each can be read; its longest names
  // what binds.
  Result<Sample> time_modelled(const TimedPlan& plan) {
    Sample sample = empty_sample(plan.settings);
    if (plan.settings.objective == Objective::kEnergy)
      return fail(ErrorCode::kUnsupported,
                  "energy is the objective on a virtual device, expected a real one");
    TILEWRIGHT_TRY(device->need_events(1));
    BenchDevice::EventPair& pair = device->events.front();
    const TimedPlan::Set& set = plan.sets.front();
    const jit::Stream& stream = device->stream;
    jit::VirtualLaunch longest;
    TILEWRIGHT_TRY(pair.begin.record(stream));
    for (std::size_t i = 0; i < set.launch.launches(); ++i) {
      TILEWRIGHT_TRY(set.launch.launch_one(i, set.workspace, stream));
      jit::VirtualLaunch launch;
      TILEWRIGHT_TRY(device->context->driver().check(
          virtual_api()->tilewrightVgpuLastLaunch(&launch), "tilewrightVgpuLastLaunch"));
      sample.launch_overhead_us += launch.launch_us;
      if (launch.modelled_us > longest.modelled_us) longest = launch;
    }
    TILEWRIGHT_TRY(pair.end.record(stream));
    TILEWRIGHT_TRY(stream.synchronize());
    sample.bound_by = longest.bound_by;
    sample.bound_fraction = share(longest);
    if (plan.settings.graph) {
      MeasureSettings once = plan.settings;
      once.objective = Objective::kLatency;
      TILEWRIGHT_ASSIGN_OR_RETURN(DeviceBench bench,
                                  DeviceBench::create(*device, enqueue_of(plan), once));
      TILEWRIGHT_ASSIGN_OR_RETURN(sample.times_us, bench.launch(1));
    } else {
      TILEWRIGHT_ASSIGN_OR_RETURN(const double time_us, pair.end.elapsed_us(pair.begin));
      sample.times_us = {time_us};
    }
    summarise(sample);
    return sample;
  }

  Result<Sample> time(const TimedPlan& plan, Deadline deadline) {
    if (!virtual_api())
      return time_measured(enqueue_of(plan), plan.settings, deadline, empty_sample(plan.settings));
    const ReuseTimes reuse(virtual_api());
    TILEWRIGHT_ASSIGN_OR_RETURN(Sample sample, time_modelled(plan));
    if (is_exact()) return sample;
    sample.times_us.clear();
    return time_measured(enqueue_of(plan), plan.settings, deadline, std::move(sample));
  }
};

Timer::Timer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Timer::Timer(Timer&&) noexcept = default;
Timer& Timer::operator=(Timer&&) noexcept = default;
Timer::~Timer() = default;

Result<Timer> Timer::create(const jit::Context& context, std::shared_ptr<DeviceBudget> memory) {
  TILEWRIGHT_ASSIGN_OR_RETURN(auto device, BenchDevice::create(context, std::move(memory)));
  return Timer(std::make_unique<State>(State{std::move(device)}));
}

Result<void> Timer::take_memory(const MeasureSettings& settings) {
  if (!settings.cold_l2 || state_->virtual_api()) return {};
  return state_->device->need_flush();
}

Result<Sample> Timer::time(const TimedPlan& plan, Deadline deadline) {
  TILEWRIGHT_TRY(state_->device->context->activate());
  return state_->time(plan, deadline);
}

Result<Sample> Timer::time_enqueued(const Enqueue& enqueue, const MeasureSettings& settings,
                                    Deadline deadline) {
  TILEWRIGHT_TRY(state_->device->context->activate());
  return state_->time_measured({enqueue}, settings, deadline, state_->empty_sample(settings));
}

std::vector<Result<Sample>> Timer::time_in_turns(std::span<const TimedPlan> plans, int rounds,
                                                 Deadline deadline) {
  std::vector<Result<Sample>> samples(plans.size());
  if (auto active = state_->device->context->activate(); !active) {
    for (auto& sample : samples) sample = fail(active.error());
    return samples;
  }
  const ReuseTimes reuse(state_->virtual_api());
  const bool exact = state_->is_exact();
  std::vector<std::optional<DeviceBench>> benches(plans.size());
  std::vector<Turn> turns(plans.size());
  for (std::size_t i = 0; i < plans.size(); ++i) {
    turns[i].settings = plans[i].settings;
    turns[i].sample = state_->empty_sample(plans[i].settings);
    // On the virtual GPU what binds is read from launches of their own.
    if (state_->virtual_api()) turns[i].sample = state_->time_modelled(plans[i]);
    if (exact || !turns[i].sample) continue;
    turns[i].sample->times_us.clear();
    auto bench = DeviceBench::create(*state_->device, enqueue_of(plans[i]), plans[i].settings);
    if (bench) {
      turns[i].bench = &benches[i].emplace(std::move(*bench));
    } else {
      turns[i].sample = fail(std::move(bench.error()));
    }
  }
  const bool tails = !plans.empty() && plans.front().settings.objective == Objective::kTail;
  if (!exact) measure_in_turns(turns, tails ? kTailRounds * rounds : rounds, deadline);
  for (std::size_t i = 0; i < plans.size(); ++i) {
    if (turns[i].sample && benches[i] && !turns[i].sample->modelled)
      turns[i].sample->launch_overhead_us = benches[i]->overhead_us();
    samples[i] = std::move(turns[i].sample);
  }
  return samples;
}

std::size_t buffer_sets(const MeasureSettings& settings, const jit::DeviceInfo& device,
                        std::size_t bytes) {
  const bool back_to_back =
      settings.objective == Objective::kThroughput || settings.objective == Objective::kEnergy;
  if (!back_to_back || !settings.cold_l2 || device.virtual_gpu || bytes == 0) return 1;
  // All sets together twice the L2, so that none is left of a set when its turn comes.
  return std::clamp<std::size_t>(2 * device.l2_bytes / bytes + 1, 2, kMostSets);
}

}  // namespace tilewright::search
