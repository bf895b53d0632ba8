/// The queue of tunes: one at a time (there is one device), equal ones joined, higher priorities
/// first, first come first within one. Runs on a thread of its own.
///
/// Thread-safe. Callbacks come from the scheduler's thread, or from the one that cancels or stops.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "daemon/planner.h"

namespace tilewright::daemon {

/// Names a tune: of the problem, its sizes and the conditions.
using TuneKey = Digest;

struct SchedulerOptions {
  std::size_t queue = 256;                         ///< background tunes that wait, at most
  std::chrono::milliseconds retry_after{600'000};  ///< background tunes that failed
  /// Whether a plan of the problem's conditions is known by now: then a background tune is dropped when its turn comes, since
  /// one before it found a plan whose range these sizes are in. Empty: never.
  std::function<bool(const Problem&)> known;
};

struct SchedulerCounts {
  std::size_t waiting = 0, running = 0;
  std::size_t finished = 0, failed = 0, interrupted = 0, refused = 0;
};

class Scheduler {
 public:
  using Run = std::function<Result<TuneOutcome>(
      const Problem&, const TuneSettings&, const std::function<void(const TuneStep&)>& progress,
      std::stop_token)>;
  /// `tuned` is called after every tune, before those who asked for it are answered.
  using Tuned = std::function<void(const TuneKey&, const Problem&, const Result<TuneOutcome>&)>;

  Scheduler(SchedulerOptions options, Run run, Tuned tuned);
  ~Scheduler();

  /// False: refused, since the queue is full, or the same failed a short time ago.
  bool background(const TuneKey& key, const Problem& problem, const TuneSettings& settings);

  struct Listener {
    std::function<void(const TuneStep&)> progress;
    std::function<void(const Result<TuneOutcome>&)> done;  ///< once, always
  };
  /// Asked for by somebody who waits. Joins the same tune where one waits or runs; one that waits
  /// takes over these settings. Whoever asked with others than those that counted is told. A background tune that runs makes way: it is interrupted, which
  /// keeps its trials, and begun again later. Returns a ticket for cancel().
  std::uint64_t request(const TuneKey& key, const Problem& problem, const TuneSettings& settings,
                        int priority, Listener listener);
  /// The listener is answered: as interrupted, with what was found, if it was alone with its tune
  /// and the tune runs; with kCancelled otherwise. False: it has been answered already.
  bool cancel(std::uint64_t ticket);

  /// Interrupts what runs, drops what waits, and waits for the thread.
  void stop();
  /// Until nothing waits or runs, or the time has passed. For tests.
  bool drain(std::chrono::milliseconds limit);
  SchedulerCounts counts() const;
  /// Failures that are remembered, at most.
  static constexpr std::size_t kMaxFailed = 4096;

 private:
  struct Job {
    TuneKey key;
    Problem problem;
    TuneSettings settings;
    int priority = 0;
    std::uint64_t order = 0;
    bool background = false;
    bool preempted = false;  ///< to be begun again
    std::stop_source stop;
    struct Asker {
      Listener listener;
      TuneSettings settings;
    };
    std::map<std::uint64_t, Asker> listeners;
  };
  using Jobs = std::list<Job>;

  void work();
  Jobs::iterator next();
  /// True if what runs is not needed any more, and nobody waits for it: then nothing runs.
  bool drop_known(std::unique_lock<std::mutex>& lock);
  /// After a run: true if the job was put back into the queue.
  bool put_back(const Result<TuneOutcome>& outcome);
  Job* find(const TuneKey& key);
  void remember_failure(const TuneKey& key);

  const SchedulerOptions options_;
  const Run run_;
  const Tuned tuned_;

  mutable std::mutex mutex_;
  std::condition_variable wake_, idle_;
  Jobs waiting_, running_;  ///< running_ holds one at most
  /// Those that failed, until when they are left alone: at most kMaxFailed, the last that failed.
  std::map<TuneKey, std::chrono::steady_clock::time_point> failed_until_;
  std::uint64_t next_ = 1;
  SchedulerCounts counts_;
  bool stopped_ = false, answering_ = false;
  std::thread thread_;
};

}  // namespace tilewright::daemon
