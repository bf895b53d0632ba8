/// A planner that neither compiles nor measures: plans of one launch whose image carries a number.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "cache/store.h"
#include "daemon/planner.h"
#include "daemon/protocol/messages.h"
#include "tests/cache/samples.h"

namespace tilewright::daemon::testing {

class FakePlanner : public Planner {
 public:
  explicit FakePlanner(cache::Store& store) : store_(store) {}

  const jit::DeviceInfo& device() const override { return served; }
  Digest generator() const override { return cache::testing::sample_digest(-1); }

  Result<Planned> fallback(const Problem& problem, const cache::Entry* nearest) override {
    ++fallbacks;
    wait_at_gate();
    if (fallback_error) return fail(*fallback_error);
    {
      std::lock_guard lock(mutex_);
      last_nearest = nearest ? nearest->groups : std::vector<std::string>();
    }
    return planned(problem, 1, nearest ? nearest->groups[0] : "pointwise safe");
  }

  Result<TuneOutcome> tune(const Problem& problem, const TuneSettings& settings,
                           const std::function<void(const TuneStep&)>& progress,
                           std::stop_token stop) override {
    ++tunes;
    {
      std::lock_guard lock(mutex_);
      last_settings = settings;
      last_conditions = problem.conditions;
    }
    TuneOutcome outcome;
    for (int step = 1; step <= steps; ++step) {
      progress({step, steps, 0.1 * step, 0.1 * (steps - step), 10.0, "pointwise threads=128"});
      auto until = std::chrono::steady_clock::now() + step_time;
      while (!stop.stop_requested() && std::chrono::steady_clock::now() < until)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (stop.stop_requested()) {
        outcome.interrupted = true;
        break;
      }
    }
    wait_at_gate();
    if (tune_error) return fail(*tune_error);
    Planned best = planned(problem, tuned_image ? tuned_image : 2 + tunes, "pointwise tuned");
    best.entry.evidence.conditions = problem.conditions;
    for (const auto& image : best.images) TILEWRIGHT_TRY(store_.put_image(*image));
    TILEWRIGHT_TRY(store_.update(problem.key, [&](cache::Record& record) {
      record.generator = generator();
      record.put(best.entry);
    }));
    outcome.stored = true;
    outcome.report = "{\"tune\": " + std::to_string(int(tunes)) + "}";
    outcome.text = "tune " + std::to_string(int(tunes));
    return outcome;
  }

  Result<std::string> failed_trials(const std::string& prefix) override {
    return prefix == failed_prefix ? "{\"id\": 1}\n{\"id\": 2}\n" : "";
  }

  /// What reaches fallback() or the end of tune() waits there until the gate is opened.
  void close_gate() {
    std::lock_guard lock(mutex_);
    open_ = false;
  }
  void open_gate() {
    std::lock_guard lock(mutex_);
    open_ = true;
    opened_.notify_all();
  }

  virtual Planned planned(const Problem& problem, int image, const std::string& group) const {
    Planned planned;
    planned.entry = cache::testing::sample_entry(image, 0, 0);
    for (jit::Plan* plan : {&planned.entry.plan, &planned.entry.narrow}) {
      plan->dimensions = problem.op->dimensions;
      plan->chosen_for.clear();
      for (const auto& [name, size] : problem.bindings)
        plan->chosen_for[name] = {size - reach, size + reach};
    }
    planned.entry.evidence.sizes = problem.bindings;
    planned.entry.groups = {group};
    planned.entry.evidence.verified = verified;
    for (int number : {image, image + 1000}) {
      planned.images.push_back(
          std::make_shared<const jit::Image>(cache::testing::sample_image(number, image_bytes)));
    }
    return planned;
  }

  jit::DeviceInfo served = cache::testing::sample_device();
  std::atomic<int> fallbacks{0}, tunes{0};
  std::optional<Error> fallback_error, tune_error;
  std::vector<std::string> last_nearest;
  TuneSettings last_settings;
  std::string failed_prefix = "ab";  ///< two trials failed whose ids begin so
  jit::Conditions last_conditions;
  std::atomic<bool> verified = true;
  std::int64_t reach = 0;  ///< of chosen_for to both sides of the sizes
  int tuned_image = 0;     ///< 0: another one of each tune
  int steps = 2;
  std::chrono::milliseconds step_time{0};
  std::size_t image_bytes = 2000;

 private:
  void wait_at_gate() {
    std::unique_lock lock(mutex_);
    opened_.wait(lock, [&] { return open_; });
  }

  cache::Store& store_;
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = true;
};

/// The sample operator's problem at M rows.
inline protocol::Problem sample_problem(std::int64_t rows, int columns = 4096) {
  return {templates::print(cache::testing::sample_operator(columns)), {rows}, {}, {}};
}

}  // namespace tilewright::daemon::testing
