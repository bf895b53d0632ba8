#include "daemon/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tilewright::daemon {
namespace {

constexpr int kBackgroundPriority = -1'000'000;

}  // namespace

std::string to_text(const TuneSettings& settings) {
  std::string text = fmt::format("{} evaluations", settings.evaluations);
  if (settings.seconds > 0) text += fmt::format(", {} s", settings.seconds);
  text += fmt::format(", seed {}, {}", settings.seed, settings.strategy);
  if (settings.precision > 0) text += fmt::format(", to {} %", 100 * settings.precision);
  if (!settings.when.empty()) text += ", when " + settings.when;
  if (settings.replace) text += ", fresh";
  if (settings.sample_blocks) text += fmt::format(", {} sampled blocks", *settings.sample_blocks);
  return text;
}

Scheduler::Scheduler(SchedulerOptions options, Run run, Tuned tuned)
    : options_(options), run_(std::move(run)), tuned_(std::move(tuned)) {
  thread_ = std::thread([this] { work(); });
}

Scheduler::~Scheduler() { stop(); }

Scheduler::Job* Scheduler::find(const TuneKey& key) {
  for (Jobs* jobs : {&running_, &waiting_})
    for (Job& job : *jobs)
      if (job.key == key && !job.stop.stop_requested()) return &job;
  return nullptr;
}

bool Scheduler::background(const TuneKey& key, const Problem& problem,
                           const TuneSettings& settings) {
  std::lock_guard lock(mutex_);
  if (stopped_) return false;
  if (Job* job = find(key)) {
    job->background = true;
    return true;
  }
  auto now = std::chrono::steady_clock::now();
  auto failed = failed_until_.find(key);
  if (failed != failed_until_.end() && now < failed->second) return false;
  if (waiting_.size() >= options_.queue) {
    ++counts_.refused;
    return false;
  }
  Job job;
  job.key = key;
  job.problem = problem;
  job.settings = settings;
  job.priority = kBackgroundPriority;
  job.order = next_++;
  job.background = true;
  waiting_.push_back(std::move(job));
  wake_.notify_one();
  return true;
}

std::uint64_t Scheduler::request(const TuneKey& key, const Problem& problem,
                                 const TuneSettings& settings, int priority, Listener listener) {
  std::unique_lock lock(mutex_);
  std::uint64_t ticket = next_++;
  if (stopped_) {
    lock.unlock();
    listener.done(fail(ErrorCode::kCancelled, "the daemon is stopping"));
    return ticket;
  }
  Job* job = find(key);
  if (!job) {
    Job fresh;
    fresh.key = key;
    fresh.order = next_++;
    fresh.priority = priority;
    waiting_.push_back(std::move(fresh));
    job = &waiting_.back();
    for (Job& running : running_) {
      if (!running.listeners.empty()) continue;  // somebody waits for it too
      running.preempted = true;
      running.stop.request_stop();
    }
  }
  bool waits = running_.empty() || &running_.front() != job;
  if (waits) {
    job->problem = problem;
    job->settings = settings;
    job->priority = std::max(job->priority, priority);
  }
  job->listeners.emplace(ticket, Job::Asker{std::move(listener), settings});
  wake_.notify_one();
  return ticket;
}

bool Scheduler::cancel(std::uint64_t ticket) {
  Listener listener;
  {
    std::lock_guard lock(mutex_);
    Job* asked = nullptr;
    for (Jobs* jobs : {&running_, &waiting_})
      for (Job& job : *jobs)
        if (job.listeners.contains(ticket)) asked = &job;
    if (!asked) return false;
    bool runs = !running_.empty() && &running_.front() == asked;
    if (runs && asked->listeners.size() == 1 && !asked->background) {
      asked->stop.request_stop();  // and answered by work(), with what was found
      return true;
    }
    auto found = asked->listeners.find(ticket);
    listener = std::move(found->second.listener);
    asked->listeners.erase(found);
    if (!runs && asked->listeners.empty() && !asked->background)
      waiting_.remove_if([&](const Job& job) { return &job == asked; });
  }
  listener.done(fail(ErrorCode::kCancelled, "the tune was cancelled"));
  return true;
}

Scheduler::Jobs::iterator Scheduler::next() {
  return std::min_element(waiting_.begin(), waiting_.end(), [](const Job& a, const Job& b) {
    return std::pair(-a.priority, a.order) < std::pair(-b.priority, b.order);
  });
}

bool Scheduler::put_back(const Result<TuneOutcome>& outcome) {
  Job& job = running_.front();
  if (stopped_ || !job.preempted || !job.background || !outcome || !outcome->interrupted)
    return false;
  // Unless it waits again already: since it was interrupted, it could not be joined.
  bool waits = std::any_of(waiting_.begin(), waiting_.end(),
                           [&](const Job& other) { return other.key == job.key; });
  if (waits) return false;
  job.preempted = false;
  job.stop = std::stop_source();
  waiting_.splice(waiting_.begin(), running_);
  return true;
}

void Scheduler::remember_failure(const TuneKey& key) {
  auto now = std::chrono::steady_clock::now();
  if (failed_until_.size() >= kMaxFailed) {
    std::erase_if(failed_until_, [&](const auto& item) { return item.second <= now; });
    while (failed_until_.size() >= kMaxFailed) {
      failed_until_.erase(
          std::min_element(failed_until_.begin(), failed_until_.end(),
                           [](const auto& a, const auto& b) { return a.second < b.second; }));
    }
  }
  failed_until_[key] = now + options_.retry_after;
}

bool Scheduler::drop_known(std::unique_lock<std::mutex>& lock) {
  Job& job = running_.front();
  if (!options_.known || !job.background || !job.listeners.empty()) return false;
  const Problem problem = job.problem;
  lock.unlock();
  const bool known = options_.known(problem);
  lock.lock();
  if (!known || !job.listeners.empty()) return false;
  running_.clear();
  idle_.notify_all();
  return true;
}

void Scheduler::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return stopped_ || !waiting_.empty(); });
    if (stopped_) break;
    running_.splice(running_.end(), waiting_, next());
    if (drop_known(lock)) continue;
    Job& job = running_.front();
    Problem problem = job.problem;
    TuneSettings settings = job.settings;
    lock.unlock();

    auto progress = [&](const TuneStep& step) {
      std::lock_guard reporting(mutex_);
      for (auto& [ticket, asker] : job.listeners)
        if (asker.listener.progress) asker.listener.progress(step);
    };
    Result<TuneOutcome> outcome = run_(problem, settings, progress, job.stop.get_token());
    tuned_(job.key, problem, outcome);

    lock.lock();
    if (put_back(outcome)) continue;
    auto listeners = std::move(job.listeners);
    if (!outcome || outcome->failed) {
      ++counts_.failed;
      remember_failure(job.key);
    } else if (outcome->interrupted) {
      ++counts_.interrupted;
    } else {
      ++counts_.finished;
    }
    running_.clear();  // from here on, the same is another tune
    answering_ = true;
    lock.unlock();
    for (auto& [ticket, asker] : listeners) {
      auto answer = outcome;
      if (answer && asker.settings != settings) answer->joined = to_text(settings);
      asker.listener.done(answer);
    }
    lock.lock();
    answering_ = false;
    idle_.notify_all();
  }
}

void Scheduler::stop() {
  Jobs dropped;
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    dropped = std::exchange(waiting_, {});
    for (Job& job : running_) job.stop.request_stop();
    wake_.notify_all();
    idle_.notify_all();
  }
  for (Job& job : dropped) {
    for (auto& [ticket, asker] : job.listeners)
      asker.listener.done(fail(ErrorCode::kCancelled, "the daemon is stopping"));
  }
  if (thread_.joinable()) thread_.join();
}

bool Scheduler::drain(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  return idle_.wait_for(lock, limit,
                        [&] { return waiting_.empty() && running_.empty() && !answering_; });
}

SchedulerCounts Scheduler::counts() const {
  std::lock_guard lock(mutex_);
  SchedulerCounts counts = counts_;
  counts.waiting = waiting_.size();
  counts.running = running_.size();
  return counts;
}

}  // namespace tilewright::daemon
