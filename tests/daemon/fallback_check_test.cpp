#include "daemon/fallback_check.h"

#include <gtest/gtest.h>

#include <thread>

#include "templates/operator/parse.h"
#include "tests/cache/samples.h"

namespace tilewright::daemon {
namespace {

using namespace std::chrono_literals;
using cache::testing::value_of;

/// Writes down what it is asked to run.
class FakeMeasurer : public search::Measurer {
 public:
  const jit::DeviceInfo& device() const override { return device_; }
  Result<search::TrialResult> run(const search::Trial& trial) override {
    trials.push_back(trial);
    std::this_thread::sleep_for(takes);
    if (gone) return fail(ErrorCode::kDeviceLost, "no device");
    search::TrialResult result;
    result.failure = failure;
    return result;
  }
  Result<std::vector<search::TrialResult>> run_interleaved(std::span<const search::Trial>,
                                                           int) override {
    return fail(ErrorCode::kInternal, "not asked for");
  }

  std::vector<search::Trial> trials;
  std::chrono::milliseconds takes{0};
  std::optional<Error> failure;
  bool gone = false;

 private:
  jit::DeviceInfo device_ = cache::testing::sample_device();
};

class FallbackCheckTest : public ::testing::Test {
 protected:
  FallbackCheckTest()
      : op_(std::make_shared<const templates::Operator>(
            value_of(templates::parse_operator("operator: add_up\n"
                                               "dimensions: [M]\n"
                                               "inputs:\n"
                                               "  x: {dtype: f32, shape: [M, 64]}\n"
                                               "  b: {dtype: f16, shape: [64]}\n"
                                               "body:\n"
                                               "  - y = add(x, b)\n"
                                               "outputs:\n"
                                               "  y: {dtype: f32}\n",
                                               "add_up.yaml")))) {
    wide_.plan.tensors = templates::plan_tensors(*op_);
    narrow_ = wide_;
    narrow_.plan.workspace_bytes = "1";
  }
  Result<bool> check(double deadline_s = 10, std::size_t max_bytes = 1 << 20,
                     std::int64_t rows = 4) {
    FallbackCheck check(measurer_, op_, {{"M", rows}}, deadline_s, max_bytes);
    auto result = check.check(wide_, narrow_);
    broken_ = check.broken();
    return result;
  }

  std::shared_ptr<const templates::Operator> op_;
  search::Composition wide_, narrow_;
  FakeMeasurer measurer_;
  bool broken_ = false;
};

TEST_F(FallbackCheckTest, TheNarrowPlanIsRunOnDisplacedTensors) {
  EXPECT_TRUE(value_of(check()));
  ASSERT_EQ(measurer_.trials.size(), 2u);
  EXPECT_TRUE(measurer_.trials[0].displacement.empty());
  EXPECT_EQ(measurer_.trials[1].displacement,
            (std::map<std::string, std::int64_t>{{"x", 4}, {"b", 2}, {"y", 4}}));
  EXPECT_EQ(measurer_.trials[1].plan, narrow_.plan);
}

TEST_F(FallbackCheckTest, APlanForAnyAlignmentIsRunOnceOnDisplacedTensors) {
  narrow_ = wide_;
  EXPECT_TRUE(value_of(check()));
  ASSERT_EQ(measurer_.trials.size(), 1u);
  EXPECT_EQ(measurer_.trials[0].displacement.size(), 3u);
}

TEST_F(FallbackCheckTest, DataAndRunsShareTheDeadline) {
  measurer_.takes = 200ms;
  EXPECT_TRUE(value_of(check(1)));
  ASSERT_EQ(measurer_.trials.size(), 2u);
  for (const auto& trial : measurer_.trials)
    EXPECT_LE(trial.measure.deadline_s + trial.measure.prepare_deadline_s, 1.0);
  EXPECT_LE(measurer_.trials[1].measure.deadline_s + measurer_.trials[1].measure.prepare_deadline_s,
            0.8);
  measurer_.trials.clear();
  EXPECT_FALSE(value_of(check(0.1)));  // no time is left for the narrow one
  EXPECT_EQ(measurer_.trials.size(), 1u);
}

TEST_F(FallbackCheckTest, DataThatIsTooLargeIsNotMade) {
  EXPECT_EQ(tensor_bytes(*op_, {{"M", 4}}), 4u * 64 * 4 * 2 + 64 * 2);
  EXPECT_EQ(tensor_bytes(*op_, {{"M", std::int64_t{1} << 60}}), SIZE_MAX);
  EXPECT_FALSE(value_of(check(10, 2175)));
  EXPECT_TRUE(measurer_.trials.empty());
  EXPECT_TRUE(value_of(check(10, 2176)));
}

TEST_F(FallbackCheckTest, WhatIsNotKnownIsNotVerifiedAndWhatIsWrongIsAnError) {
  for (const ErrorCode code :
       {ErrorCode::kHang, ErrorCode::kOutOfMemory, ErrorCode::kDeviceMemory, ErrorCode::kBusy}) {
    measurer_.failure = Error{code, "not now", {}};
    EXPECT_FALSE(value_of(check())) << to_string(code);
    EXPECT_FALSE(broken_);
  }
  measurer_.failure = Error{ErrorCode::kWrongResult, "y[0] is 1, expected 2", {}};
  auto wrong = check();
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().message, "y[0] is 1, expected 2");
  measurer_.gone = true;
  EXPECT_FALSE(value_of(check()));
  EXPECT_TRUE(broken_);
}

}  // namespace
}  // namespace tilewright::daemon
