#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <utility>

#include "jit/locations.h"
#include "search/measure/journal.h"
#include "search/measure/lease.h"
#include "search/measure/measurer.h"
#include "search/measure/protocol.h"
#include "search/measure/worker_process.h"

namespace tilewright::search {
namespace {

using Clock = std::chrono::steady_clock;

// For how long a problem's data is not made again, in the same tune.
constexpr double kMemoryRefusalHolds_s = 30, kHangHolds_s = 1e8;

// Images that a worker may hold before it is told to forget them: a long tune has thousands.
constexpr std::size_t kMaximumImages = 512;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The trials that the journal says are running, for as long as this lives.
class JournaledTrials {
 public:
  JournaledTrials(Journal* journal, std::span<const Trial> trials)
      : journal_(journal), trials_(trials) {}
  Result<void> start() {
    if (!journal_) return {};
    for (const Trial& trial : trials_) TILEWRIGHT_TRY(journal_->started(trial.id));
    return {};
  }
  Result<void> end(int attempts) {
    if (!journal_) return {};
    for (const Trial& trial : trials_) TILEWRIGHT_TRY(journal_->ended(trial.id, attempts));
    return {};
  }

 private:
  Journal* journal_;
  std::span<const Trial> trials_;
};

// Whether a failure says so little of the trial that another attempt may end otherwise. What is wrong
// or faults is evidence, and a hang would cost its deadline again; what was refused before it was
// taken (kOutOfMemory) would be refused again.
bool is_worth_another_attempt(ErrorCode failure) {
  switch (failure) {
    case ErrorCode::kCrash:
    case ErrorCode::kDeviceLost:
    case ErrorCode::kDeviceMemory:
    case ErrorCode::kBusy:
    case ErrorCode::kThrottled:
      return true;
    default:
      return false;
  }
}

bool any_worth_another_attempt(std::span<const TrialResult> results) {
  return std::any_of(results.begin(), results.end(), [](const TrialResult& result) {
    return result.failure && is_worth_another_attempt(result.failure->code);
  });
}

// A descriptor that is readable once a stop is requested.
class StopSignal {
 public:
  explicit StopSignal(std::stop_token stop)
      : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        callback_(std::in_place, std::move(stop), Write{event_}) {}
  ~StopSignal() {
    callback_.reset();
    ::close(event_);
  }
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  int descriptor() const { return event_; }

 private:
  struct Write {
    int event;
    void operator()() const { ::eventfd_write(event, 1); }
  };
  const int event_;
  std::optional<std::stop_callback<Write>> callback_;
};

class ProcessMeasurer final : public Measurer {
 public:
  ProcessMeasurer(MeasureProcessOptions options, WorkerProcess worker, std::optional<Lease> lease,
                  std::optional<Journal> journal)
      : options_(std::move(options)),
        lease_(std::move(lease)),
        journal_(std::move(journal)),
        device_(worker.device()),
        worker_(std::move(worker)) {}

  const jit::DeviceInfo& device() const override { return device_; }

  void watch(std::stop_token stop) override {
    if (worker_) worker_->watch(-1);
    refusal_.reset();
    stop_.reset();
    if (stop.stop_possible()) stop_.emplace(std::move(stop));
  }

  void set_policy(BusyPolicy policy) override { options_.busy = std::move(policy); }

  Result<TrialResult> run(const Trial& trial) override {
    TILEWRIGHT_ASSIGN_OR_RETURN(std::vector<TrialResult> results, measure({&trial, 1}, 0));
    return std::move(results.front());
  }

  Result<std::vector<TrialResult>> run_interleaved(std::span<const Trial> trials,
                                                   int rounds) override {
    if (trials.empty()) return std::vector<TrialResult>();
    TILEWRIGHT_ASSIGN_OR_RETURN(std::vector<TrialResult> results,
                                measure(trials, std::max(rounds, 1)));
    if (!took_worker_along(results)) return results;
    return without_culprits(trials, rounds);
  }

 private:
  static bool took_worker_along(std::span<const TrialResult> results) {
    return std::any_of(results.begin(), results.end(), [](const TrialResult& result) {
      return result.failure && (result.failure->code == ErrorCode::kCrash ||
                                result.failure->code == ErrorCode::kHang ||
                                result.failure->code == ErrorCode::kFault ||
                                result.failure->code == ErrorCode::kDeviceLost);
    });
  }

  // One of them lost the worker or its context, and the others' samples with it: who fails alone is
  // out, and the others are measured together once more.
  Result<std::vector<TrialResult>> without_culprits(std::span<const Trial> trials, int rounds) {
    std::vector<TrialResult> results(trials.size());
    std::vector<Trial> sound;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < trials.size(); ++i) {
      TILEWRIGHT_ASSIGN_OR_RETURN(results[i], run(trials[i]));
      if (results[i].failure) continue;
      sound.push_back(trials[i]);
      places.push_back(i);
    }
    if (sound.empty()) return results;
    TILEWRIGHT_ASSIGN_OR_RETURN(std::vector<TrialResult> again,
                                measure(sound, std::max(rounds, 1)));
    for (std::size_t i = 0; i < sound.size(); ++i) results[places[i]] = std::move(again[i]);
    return results;
  }

  // As the policy allows: what others came between is measured again, later. Errors: kBusy when it
  // never came to that.
  Result<std::vector<TrialResult>> measure(std::span<const Trial> trials, int rounds) {
    const auto begin = Clock::now();
    const BusyPolicy& policy = options_.busy;
    if (policy.when == When::kNever)
      return fail(ErrorCode::kBusy, "the device is not to be measured on: when is never");
    const Moment give_up = deadline_in(policy.patience_s);
    for (int discarded = 0;; ++discarded) {
      if (policy.when == When::kIdle) TILEWRIGHT_TRY(wait_for_others(give_up));
      TILEWRIGHT_ASSIGN_OR_RETURN(std::vector<TrialResult> results, measure_now(trials, rounds));
      for (TrialResult& result : results) {
        result.seconds = seconds_since(begin);
        result.sample.discarded = discarded;
      }
      if (policy.when != When::kIdle || !disturbed(results)) return results;
      if (is_over(give_up))
        return fail(ErrorCode::kBusy,
                    fmt::format("others used the device in each of {} runs within {} s",
                                discarded + 1, policy.patience_s));
    }
  }

  // Whether others may have made times longer. What is wrong without them is so with them.
  bool disturbed(std::span<const TrialResult> results) const {
    return std::any_of(results.begin(), results.end(), [&](const TrialResult& result) {
      return !result.failure && options_.busy.is_busy(result.sample.others_percent);
    });
  }

  Result<void> wait_for_others(Moment give_up) {
    const auto look = [&]() -> Result<jit::OthersUse> {
      for (bool again = true;; again = false) {
        TILEWRIGHT_TRY(need_worker());
        auto looked = worker_->look();
        if (looked || looked.error().code == ErrorCode::kCancelled) return looked;
        const bool died = !worker_->running();
        if (died) worker_.reset();
        // Nobody tells: what is wrong with the device, the trial will say.
        if (!died || !again) return jit::OthersUse();
      }
    };
    return wait_until_idle(options_.busy, look, stop_descriptor(), give_up);
  }

  Result<void> need_worker() {
    if (!worker_) {
      TILEWRIGHT_ASSIGN_OR_RETURN(worker_, WorkerProcess::start(options_, stop_descriptor()));
    }
    worker_->watch(stop_descriptor());
    return {};
  }

  Result<std::vector<TrialResult>> measure_now(std::span<const Trial> trials, int rounds) {
    JournaledTrials journaled(journal_ ? &*journal_ : nullptr, trials);
    double deadline_s = 0;
    for (const Trial& trial : trials) deadline_s += trial.measure.deadline_s;
    for (int attempt = 1;; ++attempt) {
      if (auto ready = need_worker(); !ready) {
        if (attempt > 1) TILEWRIGHT_TRY(journaled.end(attempt - 1));
        return fail(std::move(ready.error()));
      }
      if (attempt == 1) TILEWRIGHT_TRY(journaled.start());
      auto results = ask(trials, rounds, deadline_s);
      // Of several, who took the worker along is found by itself.
      const bool again = results && attempt < options_.attempts &&
                         any_worth_another_attempt(*results) &&
                         (trials.size() == 1 || !took_worker_along(*results));
      if (again) {
        worker_.reset();
        continue;
      }
      TILEWRIGHT_TRY(journaled.end(attempt));
      if (results) count_attempts(*results, attempt);
      return results;
    }
  }

  static void count_attempts(std::span<TrialResult> results, int attempts) {
    for (TrialResult& result : results) {
      result.attempts = result.sample.attempts = attempts;
      if (result.failure && attempts > 1)
        result.failure->message += fmt::format(" (attempt {})", attempts);
    }
  }

  // Errors: kCancelled.
  Result<std::vector<TrialResult>> ask(std::span<const Trial> trials, int rounds,
                                       double deadline_s) {
    if (auto prepared = prepare(trials.front()); !prepared)
      return all_failed(trials, std::move(prepared.error()));
    auto reply = worker_->ask(request(trials, rounds), deadline_s);
    if (!reply) {
      Error error = std::move(reply.error());
      if (error.code == ErrorCode::kHang)
        error.message =
            fmt::format("no end within {} s: the measuring worker was killed", deadline_s);
      return all_failed(trials, std::move(error));
    }
    const wire::RanT* ran = reply->body.AsRan();
    if (!ran || ran->results.size() != trials.size()) {
      return all_failed(trials,
                        {ErrorCode::kInternal, "the measuring worker answered nonsense", {}});
    }
    std::vector<TrialResult> results;
    for (const auto& result : ran->results) results.push_back(from_wire(*result));
    if (ran->lost) worker_.reset();
    return results;
  }

  // Data that did not fit, or was not made in time, is not tried again for the next trial of the same
  // tune, unless that comes so much later that others may have left more memory.
  Result<void> prepare(const Trial& trial) {
    const double deadline_s = trial.measure.prepare_deadline_s;
    const Digest problem = problem_of(trial);
    if (refusal_ && refusal_->problem == problem && refusal_->deadline_s >= deadline_s &&
        !is_over(refusal_->until))
      return fail(refusal_->error);
    auto prepared = worker_->prepare(trial);
    if (prepared) return {};
    Error error = std::move(prepared.error());
    if (error.code == ErrorCode::kHang)
      error.message = fmt::format(
          "its data was not made within {} s: the measuring worker was killed", deadline_s);
    if (error.code == ErrorCode::kHang)
      refusal_ = {problem, deadline_s, deadline_in(kHangHolds_s), error};
    if (error.code == ErrorCode::kOutOfMemory)
      refusal_ = {problem, deadline_s, deadline_in(kMemoryRefusalHolds_s), error};
    return fail(std::move(error));
  }

  wire::FrameT request(std::span<const Trial> trials, int rounds) {
    wire::RunT run;
    run.rounds = rounds;
    run.forget = worker_->images().size() > kMaximumImages;
    if (run.forget) worker_->images().clear();
    const auto send = [&](const std::vector<std::shared_ptr<const jit::Image>>& images) {
      for (const auto& image : images) {
        if (worker_->images().insert(image->digest).second)
          run.images.push_back(std::make_unique<wire::ImageT>(to_wire(*image)));
      }
    };
    for (const Trial& trial : trials) {
      send(trial.images);
      if (trial.anchor) send(trial.anchor->images);
      run.trials.push_back(std::make_unique<wire::TrialT>(to_wire(trial)));
    }
    wire::FrameT frame;
    frame.body.Set(std::move(run));
    return frame;
  }

  int stop_descriptor() const { return stop_ ? stop_->descriptor() : -1; }

  struct Refusal {
    Digest problem;
    double deadline_s = 0;
    Deadline until;
    Error error;
  };

  // A worker that went down with it is started again for the next trial.
  Result<std::vector<TrialResult>> all_failed(std::span<const Trial> trials, Error error) {
    if (!worker_->running() || error.code == ErrorCode::kInternal) worker_.reset();
    if (error.code == ErrorCode::kCancelled) return fail(std::move(error));
    if (error.code == ErrorCode::kCrash) error = with_context(std::move(error), "measuring worker");
    std::vector<TrialResult> results;
    for (const Trial& trial : trials) results.push_back({.id = trial.id, .failure = error});
    return results;
  }

  MeasureProcessOptions options_;
  std::optional<Lease> lease_;
  std::optional<Journal> journal_;
  jit::DeviceInfo device_;
  std::optional<Refusal> refusal_;
  std::optional<StopSignal> stop_;
  std::optional<WorkerProcess> worker_;  // none: started again when it is needed
};

}  // namespace

Result<std::unique_ptr<Measurer>> measure_in_process(MeasureProcessOptions options) {
  if (options.busy.when == When::kNever)
    return fail(ErrorCode::kBusy, "the device is not to be measured on: when is never");
  std::optional<Journal> journal;
  if (!options.journal.empty()) {
    TILEWRIGHT_ASSIGN_OR_RETURN(journal, Journal::open(options.journal));
  }
  TILEWRIGHT_ASSIGN_OR_RETURN(WorkerProcess worker, WorkerProcess::start(options));
  std::optional<Lease> lease;
  if (worker.shared()) {
    const auto folder =
        options.runtime_folder.empty() ? jit::runtime_folder() : options.runtime_folder;
    TILEWRIGHT_ASSIGN_OR_RETURN(lease, Lease::take(folder, worker.device().uuid));
  }
  return std::make_unique<ProcessMeasurer>(std::move(options), std::move(worker), std::move(lease),
                                           std::move(journal));
}

}  // namespace tilewright::search
