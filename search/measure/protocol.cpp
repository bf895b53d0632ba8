#include "search/measure/protocol.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "search/measure/statistics.h"

namespace tilewright::search {
namespace {

// Launches that are enqueued before the host waits: few, so that a slow plan is cut off early, and
// that the device's state is read often.
constexpr int kBatch = 5;
// Of the budget, what one batch may take; and what the steady state may be looked for.
constexpr double kBatchShare = 0.1, kWarmUpShare = 0.5;
constexpr int kMostWarmUpBatches = 20;
// Fewer launches say too little of how they depend on each other.
constexpr int kFewest = 20, kFewestForTail = 200;
// From one look at the precision to the next; each look is a chance to be wrong.
constexpr double kLookGrowth = 1.5;
// Clocks that are this much apart are different ones; a power cap alone moves them by less.
constexpr double kSameClock = 0.03;
// Times the budget that may go to launches that do not count.
constexpr double kPatience = 4;
constexpr double kFirstRest = 0.05, kLongestRest = 1;
constexpr double kConfidence = 0.95;

bool same_clock(unsigned a, unsigned b) {
  return std::abs(double(a) - double(b)) <= kSameClock * std::max(a, b);
}

// The device's state around launches, and what was seen of it.
class Watch {
 public:
  explicit Watch(Bench& bench) : bench_(bench) {}

  Result<void> begin() {
    TILEWRIGHT_ASSIGN_OR_RETURN(before_, bench_.state());
    return {};
  }

  // Whether what ran since begin(), or since the last end(), counts.
  Result<bool> end() {
    TILEWRIGHT_ASSIGN_OR_RETURN(const auto after, bench_.state());
    const auto before = std::exchange(before_, after);
    if (!before || !after) return true;
    reasons_ |= before->throttle_reasons | after->throttle_reasons;
    temperature_c_ = std::max(temperature_c_, after->temperature_c);
    power_w_ = std::max(power_w_, after->power_w);
    return !before->throttled() && !after->throttled() &&
           same_clock(before->sm_clock_mhz, after->sm_clock_mhz);
  }

  bool throttled() const { return before_ && before_->throttled(); }
  unsigned clock() const { return before_ ? before_->sm_clock_mhz : 0; }

  // Longer each time in a row.
  void rest() {
    bench_.rest(rest_);
    rest_ = std::min(2 * rest_, kLongestRest);
  }
  void go_on() { rest_ = kFirstRest; }

  void tell(Sample& sample) const {
    sample.throttle_reasons = reasons_;
    sample.temperature_c = temperature_c_;
    sample.power_w = power_w_;
  }

 private:
  Bench& bench_;
  std::optional<jit::DeviceState> before_;
  std::uint64_t reasons_ = 0;
  unsigned temperature_c_ = 0;
  double power_w_ = 0;
  double rest_ = kFirstRest;
};

Error throttled_throughout(const Watch& watch, const Sample& sample) {
  Sample seen;
  watch.tell(seen);
  return {ErrorCode::kThrottled,
          fmt::format("the device was not in a state to measure in for {} of {} launches: {}",
                      sample.rejected, sample.rejected + int(sample.times_us.size()),
                      seen.throttle_reasons ? jit::throttle_text(seen.throttle_reasons)
                                            : "its clock changed"),
          {}};
}

// Times with the clock that they were taken at.
class Series {
 public:
  void add(const std::vector<double>& times_us, unsigned clock_mhz) {
    times_us_.insert(times_us_.end(), times_us.begin(), times_us.end());
    clocks_.insert(clocks_.end(), times_us.size(), clock_mhz);
    std::size_t most = 0;
    for (const unsigned clock : {clock_, clock_mhz}) {
      const auto count = static_cast<std::size_t>(
          std::count_if(clocks_.begin(), clocks_.end(),
                        [&](unsigned other) { return same_clock(clock, other); }));
      if (count > most) {
        most = count;
        clock_ = clock;
      }
    }
  }

  // Of the clock that most were taken at, in their order.
  std::vector<double> times_us() const {
    std::vector<double> result;
    for (std::size_t i = 0; i < times_us_.size(); ++i)
      if (same_clock(clocks_[i], clock_)) result.push_back(times_us_[i]);
    return result;
  }
  int size() const { return static_cast<int>(times_us_.size()); }
  unsigned clock() const { return clock_; }

 private:
  std::vector<double> times_us_;
  std::vector<unsigned> clocks_;
  unsigned clock_ = 0;
};

int fewest(const MeasureSettings& settings) {
  const int wanted = settings.objective == Objective::kTail ? kFewestForTail : kFewest;
  return std::clamp(settings.repeats, 1, wanted);
}

bool precise(const MeasureSettings& settings, const std::vector<double>& times_us) {
  const bool tail = settings.objective == Objective::kTail;
  const double value = tail ? quantile(times_us, 0.99) : median(times_us);
  const Interval interval = tail ? quantile_interval(times_us, 0.99, kConfidence)
                                 : series_median_interval(times_us, kConfidence);
  return interval.high - interval.low <= 2 * settings.precision * value;
}

bool hopeless(const MeasureSettings& settings, const std::vector<double>& times_us) {
  return settings.cut_off_us > 0 && surely_above(times_us, settings.cut_off_us);
}

int batch_size(const MeasureSettings& settings, double time_us) {
  const double share = settings.budget_ms * 1000 * kBatchShare / std::max(time_us, 1e-3);
  return std::clamp(static_cast<int>(std::min(share, 1e6)), 1, kBatch);
}

// Launches until a batch is no faster than the one before: some launch of it is as slow as the
// fastest there. Without a trend that happens in 251 of 252 pairs of batches.
Result<void> warm_up(Bench& bench, const MeasureSettings& settings, Deadline deadline,
                     Sample& sample) {
  std::vector<double> last;
  double spent_us = 0;
  sample.steady = false;
  for (int batch = 0; batch < kMostWarmUpBatches && !sample.steady; ++batch) {
    if (is_over(deadline)) return fail(deadline_passed());
    // The first launch alone: it loads code, and says what a batch would cost.
    const int count = batch == 0 ? 1 : batch_size(settings, last.back());
    TILEWRIGHT_ASSIGN_OR_RETURN(const std::vector<double> times_us, bench.launch(count));
    for (const double time_us : times_us) spent_us += time_us * bench.launches_per_time();
    sample.warm_up += count;
    if (batch > 1)
      sample.steady = *std::max_element(times_us.begin(), times_us.end()) >=
                      *std::min_element(last.begin(), last.end());
    last = times_us;
    // Later launches would be no slower than a third of these.
    if (batch > 0 && settings.cut_off_us > 0 && times_us.size() > 1 &&
        *std::min_element(times_us.begin(), times_us.end()) > 3 * settings.cut_off_us) {
      sample.cut_off = true;
      sample.times_us = times_us;
      return {};
    }
    if (spent_us > kWarmUpShare * settings.budget_ms * 1000 && batch > 1) break;
  }
  return {};
}

void finish(Sample& sample, const Series& series, const Watch& watch) {
  sample.times_us = series.times_us();
  sample.rejected += series.size() - static_cast<int>(sample.times_us.size());
  sample.sm_clock_mhz = series.clock();
  watch.tell(sample);
}

// The energy of a launch: of as many, back to back, as NVML's counter, which moves every 20 to
// 100 ms, can tell.
Result<void> add_energy(Bench& bench, Deadline deadline, Sample& sample) {
  constexpr double kWindow_us = 500e3;
  double spent_us = 0;
  int launches = 0;
  TILEWRIGHT_ASSIGN_OR_RETURN(const double before_uj, bench.energy_uj());
  while (spent_us < kWindow_us) {
    if (is_over(deadline)) return fail(deadline_passed());
    TILEWRIGHT_ASSIGN_OR_RETURN(const std::vector<double> times_us, bench.launch(kBatch));
    for (const double time_us : times_us) spent_us += time_us * bench.launches_per_time();
    launches += kBatch * bench.launches_per_time();
  }
  TILEWRIGHT_ASSIGN_OR_RETURN(const double after_uj, bench.energy_uj());
  sample.energies_uj.push_back((after_uj - before_uj) / launches);
  return {};
}

}  // namespace

Deadline deadline_in(double seconds) {
  // Far deadlines would overflow the clock.
  const double bounded = std::clamp(seconds, 0.0, 1e8);
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<Deadline::duration>(std::chrono::duration<double>(bounded));
}

bool is_over(Deadline deadline) { return std::chrono::steady_clock::now() >= deadline; }

Error deadline_passed() {
  return {ErrorCode::kHang, "the deadline of the trial passed between two launches", {}};
}

Result<void> measure(Bench& bench, const MeasureSettings& settings, Deadline deadline,
                     Sample& sample) {
  sample.objective = settings.objective;
  Watch watch(bench);
  TILEWRIGHT_TRY(warm_up(bench, settings, deadline, sample));
  if (sample.cut_off) {
    summarise(sample);
    return {};
  }
  TILEWRIGHT_TRY(watch.begin());
  Series series;
  double spent_us = 0, wasted_us = 0, last_us = 0;
  int look = fewest(settings);
  std::vector<double> times_us;
  while (static_cast<int>(times_us.size()) < std::max(settings.repeats, 1) &&
         spent_us < settings.budget_ms * 1000) {
    if (is_over(deadline)) return fail(deadline_passed());
    const int left = std::max(settings.repeats, 1) - static_cast<int>(times_us.size());
    const int count = series.size() == 0 ? 1 : std::min(batch_size(settings, last_us), left);
    TILEWRIGHT_ASSIGN_OR_RETURN(const std::vector<double> batch_us, bench.launch(count));
    last_us = median(batch_us);
    const double batch_spent_us = last_us * count * bench.launches_per_time();
    TILEWRIGHT_ASSIGN_OR_RETURN(const bool counts, watch.end());
    if (!counts) {
      sample.rejected += count;
      wasted_us += batch_spent_us;
      if (wasted_us > kPatience * settings.budget_ms * 1000 ||
          sample.rejected > kPatience * std::max(settings.repeats, kFewest)) {
        if (times_us.empty()) return fail(throttled_throughout(watch, sample));
        break;
      }
      if (watch.throttled()) watch.rest();
      continue;
    }
    watch.go_on();
    spent_us += batch_spent_us;
    series.add(batch_us, watch.clock());
    times_us = series.times_us();
    if (hopeless(settings, times_us)) {
      sample.cut_off = true;
      break;
    }
    if (static_cast<int>(times_us.size()) < look) continue;
    if (precise(settings, times_us)) break;
    look = static_cast<int>(kLookGrowth * static_cast<double>(times_us.size())) + 1;
  }
  finish(sample, series, watch);
  if (settings.objective == Objective::kEnergy) TILEWRIGHT_TRY(add_energy(bench, deadline, sample));
  summarise(sample);
  return {};
}

void measure_in_turns(std::span<Turn> turns, int rounds, Deadline deadline) {
  std::vector<std::optional<Watch>> watches(turns.size());
  const auto alive = [&](std::size_t i) { return turns[i].sample.has_value(); };
  const auto give_up = [&](std::size_t i, Error error) {
    turns[i].sample = fail(std::move(error));
  };
  for (std::size_t i = 0; i < turns.size(); ++i) {
    if (!alive(i)) continue;
    watches[i].emplace(*turns[i].bench);
    Sample& sample = *turns[i].sample;
    sample.objective = turns[i].settings.objective;
    MeasureSettings whole = turns[i].settings;
    whole.cut_off_us = 0;
    if (auto warm = warm_up(*turns[i].bench, whole, deadline, sample); !warm)
      give_up(i, std::move(warm.error()));
  }
  std::vector<double> times_us(turns.size());
  int attempts = 0;
  for (int round = 0; round < rounds; ++attempts) {
    bool counts = true, any = false;
    unsigned clock = 0;
    for (std::size_t place = 0; place < turns.size(); ++place) {
      // Each plan comes after each other one, and first, about as often.
      const std::size_t step = static_cast<std::size_t>(attempts) % turns.size();
      const bool backwards = (static_cast<std::size_t>(attempts) / turns.size()) % 2 == 1;
      const std::size_t turn = (place + step) % turns.size();
      const std::size_t i = backwards ? turns.size() - 1 - turn : turn;
      if (!alive(i)) continue;
      if (is_over(deadline)) {
        give_up(i, deadline_passed());
        continue;
      }
      const auto once = [&]() -> Result<bool> {
        TILEWRIGHT_TRY(watches[i]->begin());
        TILEWRIGHT_ASSIGN_OR_RETURN(const std::vector<double> launched, turns[i].bench->launch(1));
        times_us[i] = launched.front();
        if (turns[i].settings.objective == Objective::kEnergy)
          TILEWRIGHT_TRY(add_energy(*turns[i].bench, deadline, *turns[i].sample));
        return watches[i]->end();
      };
      auto sound = once();
      if (!sound) {
        give_up(i, std::move(sound.error()));
        continue;
      }
      // All of a round at one clock, or its pairs say nothing.
      if (any && !same_clock(clock, watches[i]->clock())) counts = false;
      any = true;
      clock = watches[i]->clock();
      counts = counts && *sound;
    }
    if (!any) return;
    for (std::size_t i = 0; i < turns.size(); ++i) {
      if (!alive(i)) continue;
      Sample& sample = *turns[i].sample;
      if (counts) {
        sample.times_us.push_back(times_us[i]);
        sample.sm_clock_mhz = watches[i]->clock();
        watches[i]->go_on();
      } else {
        ++sample.rejected;
        if (sample.energies_uj.size() > sample.times_us.size()) sample.energies_uj.pop_back();
      }
      watches[i]->tell(sample);
    }
    if (counts) {
      ++round;
      continue;
    }
    std::size_t first = 0;
    while (!alive(first)) ++first;
    if (attempts >= (kPatience + 1) * rounds) {
      for (std::size_t i = 0; i < turns.size(); ++i)
        if (alive(i)) give_up(i, throttled_throughout(*watches[i], *turns[i].sample));
      return;
    }
    if (watches[first]->throttled()) watches[first]->rest();
  }
  for (Turn& turn : turns)
    if (turn.sample) summarise(*turn.sample);
}

}  // namespace tilewright::search
