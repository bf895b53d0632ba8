// What a tune spends: evaluations, seconds, time on what is hopeless; what it says of it meanwhile.
#include <gmock/gmock.h>

#include <cmath>
#include <set>
#include <thread>

#include "tuner_fixture.h"

namespace tilewright::search {
namespace {

using namespace std::chrono_literals;

class TunerBudget : public Tuner {
 protected:
  std::vector<TuneProgress> steps_;
  TuneHooks hooks_ = watching();

  TuneHooks watching() {
    TuneHooks hooks;
    hooks.progress = [this](const TuneProgress& progress) { steps_.push_back(progress); };
    return hooks;
  }
};

TEST_F(TunerBudget, FailuresConsumeItSoThatATuneOfNothingButFailuresEnds) {
  request_.budget.evaluations = 50;
  measurer_.failure = [](const Trial&, const std::vector<fakes::Kernel>&) {
    return std::optional(Error{ErrorCode::kHang, "no end after 20 s", ""});
  };
  const TuneReport report = tuned();
  EXPECT_EQ(report.tried, 50);
  EXPECT_EQ(measurer_.ids.size(), 50u) << "no failure is tried again";
  EXPECT_EQ(report.failed, (std::map<std::string, int>{{"hang", 50}}));
  EXPECT_EQ(report.choice, -1);
}

TEST_F(TunerBudget, EndsWhenTheSecondsAreUsedUpWhateverTheEvaluationsAre) {
  request_.budget = {1'000'000, 0.4};
  request_.strategy = "exhaustive";
  std::string text = "tunables:\n";
  for (const char* name : {"width", "depth"}) {
    text += "  " + std::string(name) + ": [1";
    for (int i = 2; i <= 64; ++i) text += ", " + std::to_string(i);
    text += "]\n";
  }
  for (const templates::Family* family : fakes::families())
    write_space(std::string(family->name()), text);
  measurer_.after_each = [] { std::this_thread::sleep_for(10ms); };
  const TuneReport report = tuned();
  EXPECT_LE(report.tried, 40) << "each takes ten milliseconds at least";
  EXPECT_FALSE(report.interrupted);
  EXPECT_GE(report.choice, 0);
  EXPECT_TRUE(report.choice_verified) << "some of the time was left for whole plans";
}

TEST_F(TunerBudget, WhatIsTwiceAsSlowAsTheBestSoFarIsCutOff) {
  request_.budget.evaluations = 60;
  tuned();
  // In the order in which they ran: the limit of a group is twice the best that ran before it.
  std::map<std::string, double> best;
  int limited = 0;
  for (std::size_t i = 0; i < 60; ++i) {
    const Trial& trial = measurer_.trials[i];
    const fakes::Kernel kernel = fakes::Kernel::of(*trial.images.front());
    const std::string arm = kernel.family + templates::canonical_text(*trial.op);
    const double time_us = measurer_.time(kernel);
    if (best.contains(arm)) {
      EXPECT_EQ(trial.measure.cut_off_us, 2 * best[arm]) << i;
      ++limited;
    } else {
      EXPECT_EQ(trial.measure.cut_off_us, 0) << i << ": nothing to compare with yet";
      best[arm] = time_us;
    }
    best[arm] = std::min(best[arm], time_us);
  }
  EXPECT_GT(limited, 30);
}

TEST_F(TunerBudget, ACutOffOfTimesIsNoneOfEnergies) {
  request_.budget.evaluations = 20;
  request_.measure.objective = Objective::kEnergy;
  ASSERT_TRUE(tune(request_, pool_, measurer_));
  for (const Trial& trial : measurer_.trials) EXPECT_EQ(trial.measure.cut_off_us, 0);
}

TEST_F(TunerBudget, ProgressCountsEveryCandidateAndEndsAtTheTotal) {
  request_.budget.evaluations = 12;
  tuned(hooks_);
  ASSERT_FALSE(steps_.empty());
  EXPECT_EQ(steps_.back().done, 12);
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    EXPECT_EQ(steps_[i].total, 12);
    if (i == 0) continue;
    EXPECT_GE(steps_[i].done, steps_[i - 1].done);
    EXPECT_LE(steps_[i].done, steps_[i - 1].done + 1);
    EXPECT_GE(steps_[i].seconds, steps_[i - 1].seconds);
  }
}

TEST_F(TunerBudget, TheEstimateIsNotLessThanWhatTheRestTakes) {
  constexpr double kTrial_s = 0.005;
  request_.budget.evaluations = 20;
  measurer_.after_each = [] { std::this_thread::sleep_for(5ms); };
  tuned(hooks_);
  int estimates = 0;
  for (const TuneProgress& step : steps_) {
    const int left = step.total - step.done;
    EXPECT_TRUE(std::isfinite(step.eta_seconds));
    if (step.done == 0) continue;
    EXPECT_GE(step.eta_seconds, 0.99 * kTrial_s * left) << step.done;
    EXPECT_LE(step.eta_seconds, 1.01 * step.seconds / step.done * left) << step.done;
    ++estimates;
  }
  EXPECT_GT(estimates, 20);
  EXPECT_EQ(steps_.back().eta_seconds, 0);
}

TEST_F(TunerBudget, TheEstimateOfATuneThatGoesOnIsOfTrialsThatRan) {
  // Of 20, the first 10 are known.
  constexpr double kTrial_s = 0.005;
  request_.budget.evaluations = 10;
  std::map<std::string, CandidateReport> known;
  TuneHooks first;
  const auto name = [](const Digest& group, const std::string& family,
                       const templates::Config& config) {
    return group.hex() + family + templates::to_string(config);
  };
  first.journal = [&](const CandidateReport& report) -> Result<void> {
    known[name(report.group, report.family, report.config)] = report;
    return {};
  };
  request_.strategy = "exhaustive";
  tuned(first);
  ASSERT_EQ(known.size(), 10u);
  request_.budget.evaluations = 20;
  measurer_.after_each = [] { std::this_thread::sleep_for(5ms); };
  hooks_.recall = [&](const Digest& group, const std::string& family,
                      const templates::Config& config) -> std::optional<CandidateReport> {
    const auto found = known.find(name(group, family, config));
    if (found == known.end()) return std::nullopt;
    return found->second;
  };
  const TuneReport report = tuned(hooks_);
  int recalled = 0, ran = 0;
  for (const CandidateReport& candidate : report.candidates) recalled += candidate.recalled;
  EXPECT_GT(recalled, 5);
  for (const TuneProgress& step : steps_) {
    if (step.seconds < kTrial_s || step.done >= step.total) continue;
    EXPECT_GE(step.eta_seconds, 0.99 * kTrial_s * (step.total - step.done))
        << step.done << ": what was recalled took no time and says nothing of the rest";
    ++ran;
  }
  EXPECT_GT(ran, 3);
}

TEST_F(TunerBudget, EverythingIsMeasuredInTheModeThatIsAskedFor) {
  request_.bindings = {{"M", 12}};  // with probes of both ends
  request_.measure.graph = true;
  request_.measure.cold_l2 = false;
  request_.measure.objective = Objective::kThroughput;
  const TuneReport report = tuned();
  ASSERT_GE(report.choice, 0);
  std::set<std::string> kinds;  // candidates, whole plans, other sizes
  for (const Trial& trial : measurer_.trials) {
    EXPECT_TRUE(trial.measure.graph) << trial.id;
    EXPECT_FALSE(trial.measure.cold_l2) << trial.id;
    EXPECT_EQ(trial.measure.objective, Objective::kThroughput) << trial.id;
    kinds.insert(!trial.id.starts_with("whole")               ? "candidate"
                 : trial.id.find(" at ") == std::string::npos ? "whole"
                                                              : "probe");
  }
  EXPECT_EQ(kinds, (std::set<std::string>{"candidate", "whole", "probe"}));
}

}  // namespace
}  // namespace tilewright::search
