// What measuring says on a virtual GPU whose times are as noisy as a real one's. The process sets the
// noise before it opens the driver.
#include <gtest/gtest.h>

#include <cstdlib>

#include "search/measure/statistics.h"
#include "search/measure/timer.h"
#include "tests/search/measure/planted.h"

namespace tilewright::search {
namespace {

// Every launch of the slow kernel takes 3 % longer than it would. Clocks step twice; a tenth of a
// period of 400 launches is throttled.
constexpr const char* kNoise =
    "noise 0.02; drift 0.9 0.005; outliers 0.01 3; clock 3000 0.85; clock 9000 1;"
    "throttle 400 0.1 0.6; seed 11; launch *slower* slow 1.03";
constexpr int kRuns = 400;

class NoiseTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { ::setenv("TILEWRIGHT_VGPU_FAULTS", kNoise, 1); }
  static void TearDownTestSuite() { ::unsetenv("TILEWRIGHT_VGPU_FAULTS"); }

  void SetUp() override {
    auto driver = jit::Driver::open({.kind = jit::DriverKind::kVirtual});
    ASSERT_TRUE(driver) << driver.error().message;
    auto context = jit::Context::create(*driver, 0);
    ASSERT_TRUE(context) << context.error().message;
    context_ = std::make_unique<jit::Context>(std::move(*context));
    timer_.emplace(Timer::create(*context_).value());
    base_ = prepare(planted::Kind::kRight);
    slower_ = prepare(planted::Kind::kSlower);
  }
  void TearDown() override {
    base_ = slower_ = {};
    buffers_.clear();
    timer_.reset();
    context_.reset();
  }

  TimedPlan prepare(planted::Kind kind) {
    const Trial trial = planted::trial(kind, "timed", 100'000);
    auto loaded = jit::LoadedPlan::load(*context_, trial.plan,
                                        [&](const Digest&) { return *trial.images[0]; });
    EXPECT_TRUE(loaded) << loaded.error().message;
    std::vector<jit::TensorArgument> arguments;
    for (int i = 0; i < 3; ++i) {
      buffers_.push_back(jit::DeviceBuffer::allocate(*context_, 400'000).value());
      EXPECT_TRUE(buffers_.back().fill(0, 400'000));
      arguments.push_back({buffers_.back().address(), {100'000}, {}});
    }
    return {{{loaded->prepare(arguments).value(), 0}}, {}};
  }

  // How often of kRuns comparisons, after as many rounds as usual, the candidate is better.
  int winners(const TimedPlan& candidate, const TimedPlan& baseline) {
    int better = 0;
    const std::vector<TimedPlan> plans{candidate, baseline};
    for (int run = 0; run < kRuns; ++run) {
      const auto samples = timer_->time_in_turns(plans, MeasureSettings{}.rounds, deadline_in(20));
      EXPECT_TRUE(samples[0] && samples[1]) << samples[0].error().message;
      if (!samples[0] || !samples[1]) return -1;
      better += compare(*samples[0], *samples[1]).better;
    }
    return better;
  }

  std::unique_ptr<jit::Context> context_;
  std::optional<Timer> timer_;
  std::vector<jit::DeviceBuffer> buffers_;
  TimedPlan base_, slower_;
};

TEST_F(NoiseTest, EqualPlansHaveNoWinner) {
  const int better = winners(base_, base_);
  RecordProperty("winners", better);
  EXPECT_LE(better, 20);
  EXPECT_GE(better, 0);
}

TEST_F(NoiseTest, ATrueGainOfThreePercentIsFound) {
  const int better = winners(base_, slower_);
  RecordProperty("winners", better);
  EXPECT_GE(better, 360);
}

TEST_F(NoiseTest, TheIntervalOfTheMedianCoversTheTruth) {
  // The truth: what a long series says.
  base_.settings.repeats = 20'000;
  base_.settings.budget_ms = 1e6;
  base_.settings.precision = 0;
  const auto longest = timer_->time(base_, deadline_in(60));
  ASSERT_TRUE(longest) << longest.error().message;
  ASSERT_EQ(longest->count, 20'000);
  EXPECT_GT(longest->rejected, 1000);
  base_.settings = {};
  base_.settings.precision = 0.01;
  int covered = 0;
  double launches = 0;
  for (int run = 0; run < kRuns; ++run) {
    const auto sample = timer_->time(base_, deadline_in(20));
    ASSERT_TRUE(sample) << sample.error().message;
    covered += sample->low_us <= longest->time_us && longest->time_us <= sample->high_us;
    launches += sample->count;
  }
  RecordProperty("covered", covered);
  RecordProperty("launches", static_cast<int>(launches / kRuns));
  EXPECT_GE(covered, kRuns * 93 / 100);
}

}  // namespace
}  // namespace tilewright::search
