#include "search/measure/timer.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "search/measure/statistics.h"

namespace tilewright::search {
namespace {

constexpr int kWarmUpLaunches = 3;
// Launches that are enqueued before the host waits: few, so that a slow plan is cut off early.
constexpr int kBatch = 5;

// One launch of a plan between two events.
struct EventPair {
  jit::Event begin, end;
};

// What is timed, as it is launched: on the stream, or as a graph.
struct Subject {
  Enqueue enqueue;
  MeasureSettings settings;
  std::optional<jit::Graph> graph;

  Result<void> launch(const jit::Stream& stream) const {
    return graph ? graph->launch(stream) : enqueue(stream);
  }
};

Enqueue enqueue_of(const TimedPlan& plan) {
  return [&plan](const jit::Stream& stream) { return plan.launch.launch(plan.workspace, stream); };
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

Error deadline_passed() {
  return {ErrorCode::kHang, "the deadline of the trial passed between two launches", {}};
}

bool is_over(Deadline deadline) { return std::chrono::steady_clock::now() >= deadline; }

}  // namespace

Deadline deadline_in(double seconds) {
  // Far deadlines would overflow the clock.
  const double bounded = std::clamp(seconds, 0.0, 1e8);
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<Deadline::duration>(std::chrono::duration<double>(bounded));
}

struct Timer::State {
  const jit::Context* context = nullptr;
  jit::Stream stream;
  std::vector<EventPair> events;
  jit::DeviceBuffer flush;

  const jit::VirtualApi* virtual_api() const { return context->driver().virtual_api(); }

  Result<void> need_events(std::size_t count) {
    while (events.size() < count) {
      TILEWRIGHT_ASSIGN_OR_RETURN(auto begin, jit::Event::create(*context));
      TILEWRIGHT_ASSIGN_OR_RETURN(auto end, jit::Event::create(*context));
      events.push_back({std::move(begin), std::move(end)});
    }
    return {};
  }

  Result<Subject> make_subject(Enqueue enqueue, const MeasureSettings& settings) {
    Subject subject{std::move(enqueue), settings, std::nullopt};
    if (!settings.graph) return subject;
    TILEWRIGHT_TRY(jit::Graph::begin_capture(stream));
    auto enqueued = subject.enqueue(stream);
    // The capture has to end also after a launch that was refused.
    auto graph = jit::Graph::end_capture(stream);
    TILEWRIGHT_TRY(enqueued);
    if (!graph) return fail(std::move(graph.error()));
    subject.graph = std::move(*graph);
    return subject;
  }

  // Writes more than L2 holds, so that nothing of the plan's tensors is left in it.
  Result<void> flush_l2() {
    if (flush.size() == 0) {
      const std::size_t bytes = std::max<std::size_t>(2 * context->device().l2_bytes, 1 << 20);
      TILEWRIGHT_ASSIGN_OR_RETURN(flush, jit::DeviceBuffer::allocate(*context, bytes));
    }
    return flush.fill_async(0, stream);
  }

  // Before the timed launch: L2 flushed, or warmed by a launch that is not timed. Either keeps the
  // device busy while the host enqueues, so that its haste or delay is not in the times.
  Result<void> set_l2(const Subject& subject) {
    if (virtual_api()) return {};
    return subject.settings.cold_l2 ? flush_l2() : subject.launch(stream);
  }

  Result<void> enqueue(const Subject& subject, EventPair& pair) {
    TILEWRIGHT_TRY(set_l2(subject));
    TILEWRIGHT_TRY(pair.begin.record(stream));
    TILEWRIGHT_TRY(subject.launch(stream));
    return pair.end.record(stream);
  }

  // `count` launches, enqueued together.
  Result<std::vector<double>> batch(const Subject& subject, int count) {
    TILEWRIGHT_TRY(need_events(static_cast<std::size_t>(count)));
    for (int i = 0; i < count; ++i)
      TILEWRIGHT_TRY(enqueue(subject, events[static_cast<std::size_t>(i)]));
    TILEWRIGHT_TRY(stream.synchronize());
    std::vector<double> times_us;
    for (int i = 0; i < count; ++i) {
      const EventPair& pair = events[static_cast<std::size_t>(i)];
      TILEWRIGHT_ASSIGN_OR_RETURN(const double time_us, pair.end.elapsed_us(pair.begin));
      times_us.push_back(time_us);
    }
    return times_us;
  }

  Result<Sample> time_measured(Enqueue enqueue, const MeasureSettings& settings,
                               Deadline deadline) {
    TILEWRIGHT_ASSIGN_OR_RETURN(const Subject subject, make_subject(std::move(enqueue), settings));
    Sample sample = empty_sample(settings);
    for (int i = 0; i < kWarmUpLaunches; ++i) {
      TILEWRIGHT_TRY(batch(subject, 1));
      if (is_over(deadline)) return fail(deadline_passed());
    }
    const int repeats = std::max(settings.repeats, 1);
    double spent_us = 0;
    while (sample.count < repeats && spent_us < settings.budget_ms * 1000) {
      if (is_over(deadline)) return fail(deadline_passed());
      // The first alone: it says what a batch would cost.
      const int count = sample.count == 0 ? 1 : std::min(kBatch, repeats - sample.count);
      TILEWRIGHT_ASSIGN_OR_RETURN(const std::vector<double> times_us, batch(subject, count));
      for (double time_us : times_us) {
        sample.times_us.push_back(time_us);
        spent_us += time_us;
      }
      summarise(sample);
      sample.cut_off =
          settings.cut_off_us > 0 && surely_above(sample.times_us, settings.cut_off_us);
      if (sample.cut_off) break;
    }
    return sample;
  }

  // One launch after the other, so that the model's account of each can be read; its longest names
  // what binds.
  Result<Sample> time_modelled(const TimedPlan& plan) {
    Sample sample = empty_sample(plan.settings);
    TILEWRIGHT_TRY(need_events(1));
    EventPair& pair = events.front();
    jit::VirtualLaunch longest;
    TILEWRIGHT_TRY(pair.begin.record(stream));
    for (std::size_t i = 0; i < plan.launch.launches(); ++i) {
      TILEWRIGHT_TRY(plan.launch.launch_one(i, plan.workspace, stream));
      jit::VirtualLaunch launch;
      TILEWRIGHT_TRY(context->driver().check(virtual_api()->tilewrightVgpuLastLaunch(&launch),
                                             "tilewrightVgpuLastLaunch"));
      if (launch.modelled_us > longest.modelled_us) longest = launch;
    }
    TILEWRIGHT_TRY(pair.end.record(stream));
    TILEWRIGHT_TRY(stream.synchronize());
    sample.bound_by = longest.bound_by;
    sample.bound_fraction = share(longest);
    if (plan.settings.graph) {
      TILEWRIGHT_ASSIGN_OR_RETURN(const Subject subject,
                                  make_subject(enqueue_of(plan), plan.settings));
      TILEWRIGHT_ASSIGN_OR_RETURN(sample.times_us, batch(subject, 1));
    } else {
      TILEWRIGHT_ASSIGN_OR_RETURN(const double time_us, pair.end.elapsed_us(pair.begin));
      sample.times_us = {time_us};
    }
    summarise(sample);
    return sample;
  }

  Sample empty_sample(const MeasureSettings& settings) const {
    Sample sample;
    sample.modelled = virtual_api() != nullptr;
    sample.cold_l2 = sample.modelled || settings.cold_l2;
    sample.graph = settings.graph;
    return sample;
  }
};

Timer::Timer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Timer::Timer(Timer&&) noexcept = default;
Timer& Timer::operator=(Timer&&) noexcept = default;
Timer::~Timer() = default;

Result<Timer> Timer::create(const jit::Context& context) {
  TILEWRIGHT_ASSIGN_OR_RETURN(jit::Stream stream, jit::Stream::create(context));
  return Timer(std::make_unique<State>(State{&context, std::move(stream), {}, {}}));
}

Result<Sample> Timer::time(const TimedPlan& plan, Deadline deadline) {
  TILEWRIGHT_TRY(state_->context->activate());
  if (state_->virtual_api()) return state_->time_modelled(plan);
  return state_->time_measured(enqueue_of(plan), plan.settings, deadline);
}

Result<Sample> Timer::time_enqueued(const Enqueue& enqueue, const MeasureSettings& settings,
                                    Deadline deadline) {
  TILEWRIGHT_TRY(state_->context->activate());
  return state_->time_measured(enqueue, settings, deadline);
}

std::vector<Result<Sample>> Timer::time_in_turns(std::span<const TimedPlan> plans, int rounds,
                                                 Deadline deadline) {
  std::vector<Result<Sample>> samples(plans.size());
  std::vector<Subject> subjects(plans.size());
  if (auto active = state_->context->activate(); !active) {
    for (auto& sample : samples) sample = fail(active.error());
    return samples;
  }
  if (state_->virtual_api()) {
    for (std::size_t i = 0; i < plans.size(); ++i) samples[i] = state_->time_modelled(plans[i]);
    return samples;
  }
  for (std::size_t i = 0; i < plans.size(); ++i) {
    auto subject = state_->make_subject(enqueue_of(plans[i]), plans[i].settings);
    if (subject) {
      subjects[i] = std::move(*subject);
      samples[i] = state_->empty_sample(plans[i].settings);
    } else {
      samples[i] = fail(std::move(subject.error()));
    }
  }
  for (int round = -kWarmUpLaunches; round < rounds; ++round) {
    for (std::size_t i = 0; i < plans.size(); ++i) {
      if (!samples[i]) continue;
      if (is_over(deadline)) {
        samples[i] = fail(deadline_passed());
        continue;
      }
      auto times_us = state_->batch(subjects[i], 1);
      if (!times_us) {
        samples[i] = fail(std::move(times_us.error()));
      } else if (round >= 0) {
        samples[i]->times_us.push_back(times_us->front());
      }
    }
  }
  for (auto& sample : samples)
    if (sample) summarise(*sample);
  return samples;
}

}  // namespace tilewright::search
