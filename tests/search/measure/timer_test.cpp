// The loop that times launches on a real device, with a virtual one under it.
#include "search/measure/timer.h"

#include <gtest/gtest.h>

#include "tests/search/measure/planted.h"

namespace tilewright::search {
namespace {

class TimerTest : public testing::Test {
 protected:
  void SetUp() override {
    auto driver = jit::Driver::open({.kind = jit::DriverKind::kVirtual});
    ASSERT_TRUE(driver) << driver.error().message;
    auto context = jit::Context::create(*driver, 0);
    ASSERT_TRUE(context) << context.error().message;
    context_ = std::make_unique<jit::Context>(std::move(*context));
    auto timer = Timer::create(*context_);
    ASSERT_TRUE(timer) << timer.error().message;
    timer_.emplace(std::move(*timer));
    fast_ = prepare(planted::Kind::kRight);
    slow_ = prepare(planted::Kind::kSlow);
  }
  void TearDown() override {
    fast_.reset();
    slow_.reset();
    buffers_.clear();
    timer_.reset();
    context_.reset();
  }

  std::optional<jit::PreparedLaunch> prepare(planted::Kind kind) {
    const Trial trial = planted::trial(kind, "timed");
    auto loaded = jit::LoadedPlan::load(*context_, trial.plan,
                                        [&](const Digest&) { return *trial.images[0]; });
    EXPECT_TRUE(loaded) << loaded.error().message;
    std::vector<jit::TensorArgument> arguments;
    for (int i = 0; i < 3; ++i) {
      buffers_.push_back(jit::DeviceBuffer::allocate(*context_, 4000).value());
      arguments.push_back({buffers_.back().address(), {1000}, {}});
    }
    auto prepared = loaded->prepare(arguments);
    EXPECT_TRUE(prepared) << prepared.error().message;
    return std::move(*prepared);
  }

  // Counts how often it is enqueued; fails from the `fails_at`-th time on.
  Enqueue counted(int fails_at = 1'000'000) {
    return [this, fails_at](const jit::Stream& stream) -> Result<void> {
      if (++enqueued_ >= fails_at) return fail(ErrorCode::kFault, "planted");
      return fast_->launch(0, stream);
    };
  }

  std::unique_ptr<jit::Context> context_;
  std::optional<Timer> timer_;
  std::vector<jit::DeviceBuffer> buffers_;
  std::optional<jit::PreparedLaunch> fast_, slow_;
  int enqueued_ = 0;
};

constexpr int kWarmUp = 11;  // one, then two batches of five

TEST_F(TimerTest, RepeatsAsOftenAsAskedAfterAWarmUp) {
  MeasureSettings settings;
  settings.repeats = 8;
  const auto sample = timer_->time_enqueued(counted(), settings, deadline_in(20));
  ASSERT_TRUE(sample) << sample.error().message;
  EXPECT_EQ(sample->count, 8);
  EXPECT_EQ(enqueued_, kWarmUp + 8);
  EXPECT_GT(sample->time_us, 0);
  EXPECT_EQ(sample->spread_us, 0);  // the model's times do not vary
  EXPECT_FALSE(sample->cut_off);
}

TEST_F(TimerTest, StopsWhenTheBudgetIsSpent) {
  MeasureSettings settings;
  settings.repeats = 1000;
  const double one_us = timer_->time_enqueued(counted(), {.repeats = 1}, deadline_in(20))->time_us;
  settings.budget_ms = 5.5 * one_us / 1000;
  const auto sample = timer_->time_enqueued(counted(), settings, deadline_in(20));
  ASSERT_TRUE(sample);
  EXPECT_EQ(sample->count, 6);  // one, then a batch of five
}

TEST_F(TimerTest, ASlowPlanIsCutOff) {
  const double one_us = timer_->time_enqueued(counted(), {.repeats = 1}, deadline_in(20))->time_us;
  MeasureSettings settings;
  settings.repeats = 100;
  settings.cut_off_us = one_us / 3;
  const auto slow = timer_->time_enqueued(counted(), settings, deadline_in(20));
  ASSERT_TRUE(slow);
  EXPECT_TRUE(slow->cut_off);
  EXPECT_EQ(slow->count, 6);
  settings.cut_off_us = one_us * 1.01;
  const auto fast = timer_->time_enqueued(counted(), settings, deadline_in(20));
  ASSERT_TRUE(fast);
  EXPECT_FALSE(fast->cut_off);
  EXPECT_EQ(fast->count, 21);  // one and four batches: times that do not vary
}

TEST_F(TimerTest, AGraphIsCapturedOnceAndReplayed) {
  MeasureSettings settings;
  settings.repeats = 4;
  settings.graph = true;
  const auto sample = timer_->time_enqueued(counted(), settings, deadline_in(20));
  ASSERT_TRUE(sample) << sample.error().message;
  EXPECT_EQ(sample->count, 4);
  EXPECT_TRUE(sample->graph);
  EXPECT_EQ(enqueued_, 1);
}

TEST_F(TimerTest, ALaunchThatFailsEndsTheTiming) {
  for (const bool graph : {false, true}) {
    enqueued_ = 0;
    MeasureSettings settings;
    settings.graph = graph;
    const auto sample = timer_->time_enqueued(counted(graph ? 1 : 5), settings, deadline_in(20));
    ASSERT_FALSE(sample);
    EXPECT_EQ(sample.error().code, ErrorCode::kFault);
    // And the stream is as good as before, a capture ended.
    EXPECT_TRUE(timer_->time({{{*fast_, 0}}, {}}, deadline_in(20)));
  }
}

TEST_F(TimerTest, ADeadlineThatHasPassedIsAHang) {
  const auto sample = timer_->time_enqueued(counted(), {}, deadline_in(0));
  ASSERT_FALSE(sample);
  EXPECT_EQ(sample.error().code, ErrorCode::kHang);
}

TEST_F(TimerTest, TheSlowerPlanTakesLonger) {
  const std::vector<TimedPlan> plans{{{{*fast_, 0}}, {}}, {{{*slow_, 0}}, {}}};
  const auto samples = timer_->time_in_turns(plans, 3, deadline_in(20));
  ASSERT_TRUE(samples[0] && samples[1]);
  EXPECT_LT(samples[0]->time_us, samples[1]->time_us);
  EXPECT_TRUE(samples[0]->modelled);
  EXPECT_EQ(samples[0]->count, 1);
}

}  // namespace
}  // namespace tilewright::search
