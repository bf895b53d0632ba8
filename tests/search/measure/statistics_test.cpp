#include "search/measure/statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>

namespace tilewright::search {
namespace {

using testing::DoubleNear;

// Launch times as a GPU gives them: lognormal noise, drift that both plans share, 1 % outliers.
class Noise {
 public:
  explicit Noise(std::uint64_t seed) : engine_(seed) {}

  double time_us(double truth_us) {
    drift_ = 0.95 * drift_ + 0.004 * normal_(engine_);
    double time = truth_us * std::exp(0.02 * normal_(engine_) + drift_);
    if (uniform_(engine_) < 0.01) time *= 1.5;
    return time;
  }

 private:
  std::mt19937_64 engine_;
  std::normal_distribution<double> normal_;
  std::uniform_real_distribution<double> uniform_;
  double drift_ = 0;
};

PairedComparison compare_under_noise(double candidate_us, double baseline_us, int rounds,
                                     std::uint64_t seed) {
  Noise noise(seed);
  std::vector<double> candidate, baseline;
  for (int round = 0; round < rounds; ++round) {
    candidate.push_back(noise.time_us(candidate_us));
    baseline.push_back(noise.time_us(baseline_us));
  }
  return compare_paired(candidate, baseline);
}

TEST(Statistics, QuantilesInterpolateBetweenSamples) {
  const std::vector<double> samples{4, 1, 3, 2};
  EXPECT_EQ(median(samples), 2.5);
  EXPECT_EQ(quantile(samples, 0), 1);
  EXPECT_EQ(quantile(samples, 1), 4);
  EXPECT_EQ(quantile(samples, 0.25), 1.75);
  EXPECT_EQ(half_iqr(samples), 0.75);
  EXPECT_EQ(median(std::vector<double>{7}), 7);
  EXPECT_EQ(half_iqr(std::vector<double>{7}), 0);
  EXPECT_EQ(median({}), 0);
}

TEST(Statistics, SummaryIgnoresOneOutlier) {
  Sample sample;
  sample.times_us = {10, 10.2, 9.9, 10.1, 500, 10, 10.1};
  summarise(sample);
  EXPECT_EQ(sample.count, 7);
  EXPECT_EQ(sample.time_us, 10.1);
  EXPECT_LT(sample.spread_us, 0.2);
}

TEST(Statistics, MedianIntervalIsTheTabulatedPairOfOrderStatistics) {
  // Ranks of the 95 % interval of the median, from tables of the sign test.
  struct Case {
    int count, low_rank;
  };
  for (const auto& [count, low_rank] : {Case{6, 1},
                                        {8, 1},
                                        {9, 2},
                                        {10, 2},
                                        {12, 3},
                                        {15, 4},
                                        {20, 6},
                                        {25, 8},
                                        {30, 10},
                                        {50, 18}}) {
    std::vector<double> samples;
    for (int i = count; i >= 1; --i) samples.push_back(i);
    const Interval interval = median_interval(samples, 0.95);
    EXPECT_EQ(interval.low, low_rank) << count;
    EXPECT_EQ(interval.high, count + 1 - low_rank) << count;
  }
  EXPECT_EQ(median_interval(std::vector<double>{1, 2, 3, 4, 5}, 0.95).high,
            std::numeric_limits<double>::infinity());
}

TEST(Statistics, MedianIntervalCoversTheTruthAsOftenAsItSays) {
  int covered = 0;
  constexpr int kRuns = 1000;
  std::mt19937_64 engine(5);
  std::lognormal_distribution<double> distribution(std::log(40.0), 0.1);
  for (int run = 0; run < kRuns; ++run) {
    std::vector<double> samples;
    for (int i = 0; i < 21; ++i) samples.push_back(distribution(engine));
    const Interval interval = median_interval(samples, 0.95);
    covered += interval.low <= 40 && 40 <= interval.high;
  }
  EXPECT_GE(covered, 940);
}

TEST(Statistics, CutOffNeedsEvidenceNotOneSlowLaunch) {
  EXPECT_FALSE(surely_above(std::vector<double>{500}, 10));
  EXPECT_TRUE(surely_above(std::vector<double>{21, 22}, 10));
  EXPECT_FALSE(surely_above(std::vector<double>{19, 22}, 10));
  EXPECT_FALSE(surely_above(std::vector<double>(6, 11.0), 10));
  EXPECT_TRUE(surely_above(std::vector<double>(7, 11.0), 10));
  EXPECT_FALSE(surely_above(std::vector<double>{11, 11, 11, 11, 11, 11, 9}, 10));
  EXPECT_FALSE(surely_above({}, 10));
}

TEST(Statistics, SignedRankProbabilitiesAreExact) {
  // n pairs that all favour the candidate: 2^-n.
  for (int n : {3, 5, 7, 12}) {
    std::vector<double> candidate, baseline;
    for (int i = 0; i < n; ++i) {
      candidate.push_back(100);
      baseline.push_back(101 + i);
    }
    const PairedComparison comparison = compare_paired(candidate, baseline);
    EXPECT_THAT(comparison.p_value, DoubleNear(std::pow(0.5, n), 1e-12)) << n;
    EXPECT_EQ(comparison.better, n >= 7) << n;
  }
  // Signed ranks +1 +2 -3: P(T+ >= 3) = 5/8 by counting the eight sign patterns.
  const PairedComparison mixed =
      compare_paired(std::vector<double>{100, 100, 104}, std::vector<double>{101, 102, 100});
  EXPECT_THAT(mixed.p_value, DoubleNear(5.0 / 8, 1e-12));
  // Ties share a mid-rank: +1.5 -1.5: P(T+ >= 1.5) = 3/4.
  const PairedComparison tied =
      compare_paired(std::vector<double>{100, 110}, std::vector<double>{110, 100});
  EXPECT_THAT(tied.p_value, DoubleNear(3.0 / 4, 1e-12));
}

TEST(Statistics, TheNormalApproximationMeetsTheExactLaw) {
  // 64 pairs are exact, 65 approximate; the same data but for one pair must agree closely.
  std::mt19937_64 engine(3);
  std::normal_distribution<double> normal(0.004, 0.02);
  std::vector<double> candidate(65, 100.0), baseline;
  for (int i = 0; i < 65; ++i) baseline.push_back(100 * std::exp(normal(engine)));
  const double exact = compare_paired(std::span(candidate).first(64), baseline).p_value;
  const double approximate = compare_paired(candidate, baseline).p_value;
  EXPECT_THAT(approximate, DoubleNear(exact, 0.3 * exact + 1e-3));
}

TEST(Statistics, TheGainComesWithItsInterval) {
  const PairedComparison comparison = compare_under_noise(97, 100, 40, 11);
  EXPECT_THAT(comparison.gain, DoubleNear(0.03, 0.02));
  EXPECT_LT(comparison.gain_interval.low, comparison.gain);
  EXPECT_GT(comparison.gain_interval.high, comparison.gain);
  EXPECT_GT(comparison.gain_interval.high - comparison.gain_interval.low, 0.002);
}

TEST(Statistics, EqualPlansSeldomDeclareAWinner) {
  int winners = 0;
  for (std::uint64_t run = 0; run < 400; ++run)
    winners += compare_under_noise(100, 100, 20, run).better;
  EXPECT_LE(winners, 12);
}

TEST(Statistics, ATrueGainOfThreePercentIsFound) {
  int found = 0;
  for (std::uint64_t run = 0; run < 400; ++run)
    found += compare_under_noise(97, 100, 20, 1000 + run).better;
  EXPECT_GE(found, 360);
}

TEST(Statistics, TheGainsIntervalCoversTheTruth) {
  int covered = 0;
  for (std::uint64_t run = 0; run < 400; ++run) {
    const Interval interval = compare_under_noise(97, 100, 20, 5000 + run).gain_interval;
    covered += interval.low <= 0.03 && 0.03 <= interval.high;
  }
  EXPECT_GE(covered, 380);
}

TEST(Statistics, ModelledTimesWithoutSpreadAreComparedAsTheyAre) {
  Sample fast{.time_us = 9, .count = 1, .times_us = {9}, .modelled = true};
  Sample slow{.time_us = 10, .count = 1, .times_us = {10}, .modelled = true};
  EXPECT_TRUE(compare(fast, slow).better);
  EXPECT_THAT(compare(fast, slow).gain, DoubleNear(0.1, 1e-12));
  EXPECT_FALSE(compare(slow, fast).better);
  EXPECT_FALSE(compare(fast, fast).better);
  // One measured launch each proves nothing.
  fast.modelled = slow.modelled = false;
  EXPECT_FALSE(compare(fast, slow).better);
}

TEST(Statistics, NoPairsProveNothing) {
  const PairedComparison comparison = compare_paired({}, {});
  EXPECT_EQ(comparison.pairs, 0);
  EXPECT_FALSE(comparison.better);
  EXPECT_FALSE(compare(Sample{}, Sample{}).better);
}

}  // namespace
}  // namespace tilewright::search
