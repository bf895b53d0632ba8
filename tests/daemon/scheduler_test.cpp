#include "daemon/scheduler.h"

#include <gtest/gtest.h>

#include <atomic>

#include "tests/cache/samples.h"

namespace tilewright::daemon {
namespace {

using namespace std::chrono_literals;
using cache::testing::sample_digest;

/// Runs are written down as "key(evaluations)"; the gate holds the one that runs.
class Schedule : public ::testing::Test {
 protected:
  Schedule() : scheduler_({4, 300ms}, run(), tuned()) {}
  ~Schedule() override { open(); }

  Scheduler::Run run() {
    return [this](const Problem& problem, const TuneSettings& settings,
                  const std::function<void(const TuneStep&)>& progress,
                  std::stop_token stop) -> Result<TuneOutcome> {
      std::unique_lock lock(mutex_);
      ran_ += problem.key.operator_text + "(" + std::to_string(settings.evaluations) + ") ";
      started_.notify_all();
      while (!open_ && !stop.stop_requested()) {
        lock.unlock();
        progress({1, 2});
        std::this_thread::sleep_for(1ms);
        lock.lock();
      }
      if (problem.key.operator_text == "bad") return fail(ErrorCode::kInternal, "no such thing");
      TuneOutcome outcome;
      outcome.interrupted = stop.stop_requested();
      outcome.report = problem.key.operator_text;
      return outcome;
    };
  }
  Scheduler::Tuned tuned() {
    return [this](const TuneKey&, const Problem& problem, const Result<TuneOutcome>&) {
      std::lock_guard lock(mutex_);
      tuned_ += problem.key.operator_text + " ";
    };
  }

  static Problem problem(const std::string& name) {
    Problem problem;
    problem.key.operator_text = name;
    return problem;
  }
  static TuneKey key(const std::string& name) { return digest_of(name); }
  bool background(const std::string& name, int evaluations = 1) {
    return scheduler_.background(key(name), problem(name), {evaluations});
  }
  /// Answers are written to answers_ as "name:report".
  std::uint64_t request(const std::string& name, int priority = 0, int evaluations = 2) {
    Scheduler::Listener listener;
    listener.progress = [this](const TuneStep&) { ++steps_; };
    listener.done = [this, name](const Result<TuneOutcome>& outcome) {
      std::lock_guard lock(mutex_);
      answers_ += name + ":" +
                  (!outcome               ? outcome.error().message
                   : outcome->interrupted ? "interrupted"
                                          : outcome->report) +
                  " ";
    };
    return scheduler_.request(key(name), problem(name), {evaluations}, priority, listener);
  }
  void wait_until_runs(const std::string& name) {
    std::unique_lock lock(mutex_);
    started_.wait(lock, [&] { return ran_.find(name + "(") != std::string::npos; });
  }
  void open() {
    std::lock_guard lock(mutex_);
    open_ = true;
  }
  std::string ran() {
    std::lock_guard lock(mutex_);
    return ran_;
  }
  std::string answers() {
    std::lock_guard lock(mutex_);
    return answers_;
  }
  bool drain() { return scheduler_.drain(5s); }

  std::mutex mutex_;
  std::condition_variable started_;
  bool open_ = false;
  std::string ran_, tuned_, answers_;
  std::atomic<int> steps_{0};
  Scheduler scheduler_;
};

TEST_F(Schedule, RunsOneAtATimeByPriorityThenByOrder) {
  request("first");
  wait_until_runs("first");
  background("b1");
  background("b2");
  request("low", 0);
  request("high", 5);
  EXPECT_EQ(scheduler_.counts().waiting, 4u);
  EXPECT_EQ(scheduler_.counts().running, 1u);
  open();
  ASSERT_TRUE(drain());
  EXPECT_EQ(ran(), "first(2) high(2) low(2) b1(1) b2(1) ");
  EXPECT_EQ(tuned_, "first high low b1 b2 ");
  EXPECT_EQ(scheduler_.counts().finished, 5u);
}

TEST_F(Schedule, JoinsEqualTunes) {
  request("a");
  wait_until_runs("a");
  request("a");
  background("a");
  background("b");
  background("b");
  request("b", 0, 7);  // takes over the settings of what only waited
  open();
  ASSERT_TRUE(drain());
  EXPECT_EQ(ran(), "a(2) b(7) ");
  EXPECT_EQ(answers(), "a:a a:a b:b ");
  EXPECT_GT(steps_, 0);
}

TEST_F(Schedule, WhoJoinsATuneOfOtherSettingsIsToldOfThem) {
  request("a");
  wait_until_runs("a");
  auto ask = [&](int evaluations, const std::string& name) {
    Scheduler::Listener listener;
    listener.done = [this, name](const Result<TuneOutcome>& outcome) {
      std::lock_guard lock(mutex_);
      answers_ += name + ":" + outcome->joined + " ";
    };
    scheduler_.request(key("a"), problem("a"), {evaluations}, 0, listener);
  };
  ask(2, "same");
  ask(9, "other");
  open();
  ASSERT_TRUE(drain());
  EXPECT_EQ(answers(), "a:a same: other:2 evaluations, seed 1, random ");
}

TEST(FailedTunes, AreRememberedInABoundedNumber) {
  constexpr int kAll = int(Scheduler::kMaxFailed) + 1;
  Scheduler scheduler(
      {std::size_t(kAll), 1h},
      [](auto&&...) -> Result<TuneOutcome> {
        TuneOutcome outcome;
        outcome.failed = true;
        return outcome;
      },
      [](auto&&...) {});
  auto key = [](int i) { return digest_of(std::to_string(i)); };
  for (int i = 0; i < kAll; ++i) ASSERT_TRUE(scheduler.background(key(i), {}, {}));
  ASSERT_TRUE(scheduler.drain(10s));
  EXPECT_EQ(scheduler.counts().failed, std::size_t(kAll));
  EXPECT_FALSE(scheduler.background(key(kAll - 1), {}, {}));
  EXPECT_FALSE(scheduler.background(key(1), {}, {}));
  EXPECT_TRUE(scheduler.background(key(0), {}, {}));  // the oldest is forgotten
}

TEST_F(Schedule, RefusesWhatIsBeyondTheQueue) {
  request("running");
  wait_until_runs("running");
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(background("b" + std::to_string(i)));
  EXPECT_FALSE(background("b4"));
  EXPECT_TRUE(background("b3"));  // joins
  EXPECT_EQ(scheduler_.counts().refused, 1u);
  request("asked");  // somebody waits: never refused
  EXPECT_EQ(scheduler_.counts().waiting, 5u);
  open();
  ASSERT_TRUE(drain());
}

TEST_F(Schedule, ABackgroundTuneMakesWayAndIsBegunAgain) {
  background("b");
  wait_until_runs("b");
  request("a");
  wait_until_runs("a");
  EXPECT_EQ(scheduler_.counts().waiting, 1u);
  request("c");  // the one that runs is waited for, and stays
  open();
  ASSERT_TRUE(drain());
  EXPECT_EQ(ran(), "b(1) a(2) c(2) b(1) ");
  EXPECT_EQ(answers(), "a:a c:c ");
  EXPECT_EQ(scheduler_.counts().finished, 3u);
  EXPECT_EQ(scheduler_.counts().interrupted, 0u);
}

TEST_F(Schedule, AFailureIsLeftAloneForAWhile) {
  open();
  EXPECT_TRUE(background("bad"));
  ASSERT_TRUE(drain());
  EXPECT_FALSE(background("bad"));
  request("bad");
  ASSERT_TRUE(drain());
  std::this_thread::sleep_for(350ms);
  EXPECT_TRUE(background("bad"));
  ASSERT_TRUE(drain());
  EXPECT_EQ(ran(), "bad(1) bad(2) bad(1) ");
  EXPECT_EQ(answers(), "bad:no such thing ");
  EXPECT_EQ(scheduler_.counts().failed, 3u);
}

TEST_F(Schedule, CancellingInterruptsWhatNobodyElseWaitsFor) {
  auto first = request("a");
  wait_until_runs("a");
  auto second = request("a");
  auto waiting = request("w");
  EXPECT_TRUE(scheduler_.cancel(second));  // somebody else waits for it: it goes on
  EXPECT_TRUE(scheduler_.cancel(waiting));
  EXPECT_EQ(answers(), "a:the tune was cancelled w:the tune was cancelled ");
  EXPECT_EQ(scheduler_.counts().waiting, 0u);
  EXPECT_TRUE(scheduler_.cancel(first));
  ASSERT_TRUE(drain());
  EXPECT_EQ(answers(), "a:the tune was cancelled w:the tune was cancelled a:interrupted ");
  EXPECT_FALSE(scheduler_.cancel(first));
  EXPECT_EQ(scheduler_.counts().interrupted, 1u);
}

TEST_F(Schedule, ABackgroundTuneGoesOnWhenWhoJoinedItLeaves) {
  background("a");
  wait_until_runs("a");
  auto ticket = request("a");
  EXPECT_TRUE(scheduler_.cancel(ticket));
  open();
  ASSERT_TRUE(drain());
  EXPECT_EQ(answers(), "a:the tune was cancelled ");
  EXPECT_EQ(scheduler_.counts().finished, 1u);
}

TEST_F(Schedule, StoppingAnswersEverybody) {
  request("a");
  wait_until_runs("a");
  request("w");
  background("b");
  scheduler_.stop();
  EXPECT_EQ(answers(), "w:the daemon is stopping a:interrupted ");
  EXPECT_EQ(ran(), "a(2) ");
  EXPECT_FALSE(background("c"));
  request("d");
  EXPECT_EQ(answers(), "w:the daemon is stopping a:interrupted d:the daemon is stopping ");
}

}  // namespace
}  // namespace tilewright::daemon
