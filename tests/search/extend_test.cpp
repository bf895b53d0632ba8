#include "search/extend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "search/measure/measurer.h"

namespace tilewright::search {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Answers with what a test says of a trial; its times vary by 1 % where the device is real.
class ScriptedMeasurer : public Measurer {
 public:
  ScriptedMeasurer() { device_.virtual_gpu = true; }
  const jit::DeviceInfo& device() const override { return device_; }

  Result<TrialResult> run(const Trial& trial) override {
    alone.push_back(trial);
    TrialResult result;
    result.failure = failure ? failure(trial) : std::nullopt;
    result.verification.verified = !result.failure;
    return result;
  }
  Result<std::vector<TrialResult>> run_interleaved(std::span<const Trial> trials,
                                                   int rounds) override {
    if (broken) return fail(*broken);
    turns.emplace_back(trials.begin(), trials.end());
    std::vector<TrialResult> results;
    for (const Trial& trial : trials) {
      TrialResult& result = results.emplace_back();
      result.failure = failure ? failure(trial) : std::nullopt;
      if (result.failure) continue;
      result.verification.verified = true;
      result.sample.modelled = device_.virtual_gpu;
      for (int i = 0; i < rounds; ++i)
        result.sample.times_us.push_back(time(trial) *
                                         (device_.virtual_gpu ? 1 : 0.99 + 0.005 * (i % 5)));
      summarise(result.sample);
    }
    if (after) after();
    return results;
  }

  jit::DeviceInfo device_;
  std::function<double(const Trial&)> time;
  std::function<std::optional<Error>(const Trial&)> failure;
  std::function<void()> after;
  std::optional<Error> broken;
  std::vector<std::vector<Trial>> turns;
  std::vector<Trial> alone;
};

class Ends : public ::testing::Test {
 protected:
  /// "M=9 holds", "M=16 another plan takes 2.00 us".
  std::vector<std::string> probed(templates::Bindings sizes, double budget_seconds = 0) {
    sizes_ = std::move(sizes);
    contest_.trials.clear();
    for (const char* id : {"choice", "rival", "baseline"}) {
      Trial trial;
      trial.id = id;
      trial.bindings = sizes_;
      contest_.trials.push_back(trial);
    }
    contest_.baseline = 2;
    probes_ = probe_ends(contest_, budget_seconds, measurer_, clock_, stop_.get_token());
    std::vector<std::string> texts;
    for (const ProbeReport& probe : probes_) {
      std::string text;
      for (const auto& [name, size] : probe.sizes) text += name + "=" + std::to_string(size) + " ";
      EXPECT_EQ(probe.held, probe.reason.empty());
      texts.push_back(text + (probe.held ? "holds" : probe.reason));
    }
    return texts;
  }
  /// "M=9..12".
  std::string range() const {
    std::string text;
    for (const auto& [name, range] : range_of(sizes_, probes_))
      text += (text.empty() ? "" : " ") + name + "=" + std::to_string(range.low) + ".." +
              std::to_string(range.high);
    return text;
  }

  /// The choice takes 10 us, what else there is 12; but at M = `lost_at` another takes `better`.
  void rival_wins_at(std::int64_t lost_at, double better) {
    measurer_.time = [=](const Trial& trial) {
      if (trial.id.starts_with("choice")) return 10.;
      return trial.id.starts_with("rival") && trial.bindings.at("M") == lost_at ? better : 12.;
    };
  }

  Ends() { rival_wins_at(-1, 0); }

  ScriptedMeasurer measurer_;
  TuneHooks hooks_;
  TuneClock clock_{hooks_, 1};
  std::stop_source stop_;
  Contest contest_;
  templates::Bindings sizes_;
  std::vector<ProbeReport> probes_;
};

TEST(Bucket, IsAPowerOfTwoAndWhatIsAboveTheOneBefore) {
  struct Case {
    std::int64_t size, low, high;
  };
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  for (const Case& c : {Case{0, 0, 0},
                        {1, 1, 1},
                        {2, 2, 2},
                        {3, 3, 4},
                        {4, 3, 4},
                        {5, 5, 8},
                        {9, 9, 16},
                        {16, 9, 16},
                        {17, 17, 32},
                        {4096, 2049, 4096},
                        {kMost, (std::int64_t{1} << 62) + 1, kMost}})
    EXPECT_EQ(bucket_of(c.size), (jit::DimensionRange{c.low, c.high})) << c.size;
}

TEST_F(Ends, BothHoldWhereNothingIsBetter) {
  EXPECT_THAT(probed({{"M", 12}}), ElementsAre("M=9 holds", "M=16 holds"));
  EXPECT_EQ(range(), "M=9..16");
  EXPECT_EQ(probes_[0].sample.time_us, 10);
  EXPECT_EQ(probes_[0].baseline_us, 12);
  for (const auto& turn : measurer_.turns) {
    ASSERT_EQ(turn.size(), 3u);
    EXPECT_TRUE(turn[0].verify.integer && turn[0].verify.normal);
    EXPECT_FALSE(turn[1].verify.integer || turn[1].verify.normal) << "a rival is only timed";
  }
}

TEST_F(Ends, EachReachesToItsOwnSide) {
  rival_wins_at(16, 8);
  EXPECT_THAT(probed({{"M", 12}}), ElementsAre("M=9 holds", "M=16 another plan takes 8.00 us"));
  EXPECT_EQ(range(), "M=9..12");
  rival_wins_at(9, 8);
  EXPECT_THAT(probed({{"M", 12}}), ElementsAre("M=9 another plan takes 8.00 us", "M=16 holds"));
  EXPECT_EQ(range(), "M=12..16");
}

TEST_F(Ends, AnEndThatWasTunedIsNotProbed) {
  EXPECT_THAT(probed({{"M", 16}}), ElementsAre("M=9 holds"));
  EXPECT_THAT(probed({{"M", 9}}), ElementsAre("M=16 holds"));
  EXPECT_EQ(range(), "M=9..16");
  for (std::int64_t size : {0, 1, 2}) EXPECT_THAT(probed({{"M", size}}), IsEmpty());
  EXPECT_EQ(range(), "M=2..2");
  EXPECT_THAT(probed({}), IsEmpty());
  EXPECT_EQ(range(), "");
}

TEST_F(Ends, OfSeveralDimensionsAreCornersOfABox) {
  EXPECT_THAT(probed({{"M", 12}, {"N", 1}, {"P", 100}}),
              ElementsAre("M=9 N=1 P=65 holds", "M=16 N=1 P=128 holds"));
  EXPECT_EQ(range(), "M=9..16 N=1..1 P=65..128");
  rival_wins_at(9, 8);
  EXPECT_THAT(probed({{"M", 12}, {"P", 100}}),
              ElementsAre("M=9 P=65 another plan takes 8.00 us", "M=16 P=128 holds"));
  EXPECT_EQ(range(), "M=12..16 P=100..128");
}

TEST_F(Ends, AModelledGainOfTwoPercentIsNoReasonToTuneAgain) {
  rival_wins_at(16, 9.81);
  EXPECT_THAT(probed({{"M", 16}, {"P", 3}}), ElementsAre("M=9 P=3 holds", "M=16 P=4 holds"));
  rival_wins_at(16, 9.79);
  EXPECT_THAT(probed({{"M", 16}, {"P", 3}}),
              ElementsAre("M=9 P=3 holds", "M=16 P=4 another plan takes 9.79 us"));
}

TEST_F(Ends, SayWhatTheBestPlanTakesThere) {
  rival_wins_at(16, 8);
  probed({{"M", 12}});
  ASSERT_EQ(probes_.size(), 2u);
  EXPECT_EQ(probes_[0].best, 10) << "the choice's own";
  EXPECT_EQ(regret(probes_[0]), 0.0);
  EXPECT_EQ(probes_[1].best, 8);
  EXPECT_EQ(regret(probes_[1]), 0.25);
  // One that is wrong is no better, however fast.
  measurer_.failure = [](const Trial& trial) -> std::optional<Error> {
    if (!trial.id.starts_with("rival")) return std::nullopt;
    return Error{ErrorCode::kWrongResult, "", ""};
  };
  probed({{"M", 12}});
  EXPECT_EQ(probes_[1].best, 10);
}

TEST_F(Ends, AMeasuredGainCountsBeyondTheNoise) {
  measurer_.device_.virtual_gpu = false;
  rival_wins_at(16, 9.7);
  EXPECT_THAT(probed({{"M", 12}}), ElementsAre("M=9 holds", "M=16 another plan takes 9.70 us"));
  rival_wins_at(16, 10);
  EXPECT_THAT(probed({{"M", 12}}), ElementsAre("M=9 holds", "M=16 holds"));
  EXPECT_EQ(measurer_.turns.back().size(), 3u);
}

TEST_F(Ends, AChoiceThatIsWrongThereDoesNotHoldAndARivalThatIsDoesNotCount) {
  rival_wins_at(16, 8);
  std::string wrong = "choice";
  measurer_.failure = [&](const Trial& trial) -> std::optional<Error> {
    if (!trial.id.starts_with(wrong) || trial.bindings.at("M") != 16) return std::nullopt;
    return Error{ErrorCode::kWrongResult, "y[3] is 4, expected 5\nlog", ""};
  };
  EXPECT_THAT(probed({{"M", 12}}),
              ElementsAre("M=9 holds", "M=16 wrong_result: y[3] is 4, expected 5"));
  wrong = "rival";
  EXPECT_THAT(probed({{"M", 12}}), ElementsAre("M=9 holds", "M=16 holds"));
  wrong = "baseline";
  rival_wins_at(-1, 0);
  EXPECT_THAT(probed({{"M", 12}}), ElementsAre("M=9 holds", "M=16 holds"));
  EXPECT_EQ(probes_[1].baseline_us, 0);
}

TEST_F(Ends, WhereTheChoiceIsNotLegalAtTheLowEndTheHighOneIsNotAsked) {
  measurer_.failure = [&](const Trial& trial) -> std::optional<Error> {
    if (trial.bindings.at("M") % 2 == 0) return std::nullopt;
    return Error{ErrorCode::kUnsupported, "x.align >= 16 does not hold", ""};
  };
  EXPECT_THAT(probed({{"M", 12}}), ElementsAre("M=9 unsupported: x.align >= 16 does not hold",
                                               "M=16 skipped: not legal at the low end"));
  EXPECT_EQ(range(), "M=12..12");
  EXPECT_EQ(measurer_.turns.size(), 1u);
}

TEST_F(Ends, ThePlanForUnalignedTensorsIsVerifiedOnTheDataAtHand) {
  Trial narrow;
  narrow.id = "narrow";
  narrow.displacement = {{"x", 2}};
  contest_.narrow = narrow;
  EXPECT_THAT(probed({{"M", 12}}), ElementsAre("M=9 holds", "M=16 holds"));
  ASSERT_EQ(measurer_.alone.size(), 2u);
  EXPECT_FALSE(measurer_.alone[0].timed);
  EXPECT_THAT(measurer_.alone[0].displacement, IsEmpty());
  EXPECT_EQ(measurer_.alone[0].bindings, (templates::Bindings{{"M", 9}}));
  measurer_.failure = [&](const Trial& trial) -> std::optional<Error> {
    if (!trial.id.starts_with("narrow")) return std::nullopt;
    return Error{ErrorCode::kFault, "misaligned address", ""};
  };
  EXPECT_THAT(probed({{"M", 16}}), ElementsAre("M=9 unaligned tensors: fault: misaligned address"));
  EXPECT_TRUE(probes_[0].measured);
}

TEST_F(Ends, AStopSkipsWhatHasNotBegun) {
  measurer_.after = [&] { stop_.request_stop(); };
  EXPECT_THAT(probed({{"M", 12}}), ElementsAre("M=9 holds", "M=16 skipped: the tune was stopped"));
  EXPECT_EQ(range(), "M=9..12");
  EXPECT_FALSE(probes_[1].measured);
  EXPECT_THAT(probed({{"M", 12}}), ElementsAre("M=9 skipped: the tune was stopped",
                                               "M=16 skipped: the tune was stopped"));
  EXPECT_EQ(measurer_.turns.size(), 1u);
}

TEST_F(Ends, WhatTheSecondsDoNotAllowIsSkipped) {
  contest_.seconds = 100;
  EXPECT_THAT(probed({{"M", 12}}, 50),
              ElementsAre("M=9 skipped: no time was left", "M=16 skipped: no time was left"));
  EXPECT_EQ(range(), "M=12..12");
  EXPECT_THAT(probed({{"M", 12}}, 200), ElementsAre("M=9 holds", "M=16 holds"));
  // No trial may take longer than what is left.
  EXPECT_THAT(probed({{"M", 12}}, 101), ElementsAre("M=9 holds", "M=16 holds"));
  contest_.seconds = 0;
  EXPECT_THAT(probed({{"M", 12}}, 5), ElementsAre("M=9 holds", "M=16 holds"));
  EXPECT_LE(measurer_.turns.back().front().measure.deadline_s, 5);
}

TEST_F(Ends, AMeasurerThatFailsLeavesTheRangeAsItWas) {
  measurer_.broken = Error{ErrorCode::kDeviceLost, "the worker does not start", ""};
  EXPECT_THAT(probed({{"M", 12}}),
              ElementsAre("M=9 skipped: device_lost: the worker does not start",
                          "M=16 skipped: the low end was not measured"));
  EXPECT_EQ(range(), "M=12..12");
}

}  // namespace
}  // namespace tilewright::search
