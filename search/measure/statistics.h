/// What samples say: medians, their confidence intervals, and whether one plan is faster than
/// another beyond the noise. Distribution-free throughout, since launch times are skewed and have
/// outliers. Pure functions.
#pragma once

#include <span>

#include "search/measure/trial.h"

namespace tilewright::search {

/// Of an empty list: 0. Between two samples it interpolates linearly.
double quantile(std::span<const double> samples, double q);
double median(std::span<const double> samples);
/// Half the interquartile range: the spread of a Sample.
double half_iqr(std::span<const double> samples);

struct Interval {
  double low = 0, high = 0;
};

/// Covers the median of the distribution with at least `confidence`, whatever the distribution: a
/// pair of order statistics, by the binomial law. With too few samples for that: infinite ends.
Interval median_interval(std::span<const double> samples, double confidence);

/// As median_interval, of samples in the order in which they were taken, each of which may be like
/// those just before it: as if there were fewer of them. Drift that is slower than the whole series
/// cannot be seen in it.
Interval series_median_interval(std::span<const double> samples, double confidence);

/// Of a quantile, from order statistics of independent samples; infinite ends as median_interval.
Interval quantile_interval(std::span<const double> samples, double q, double confidence);

/// True once the samples show that their median is above `limit_us`: the order-statistics bound at
/// 99 %, or two samples that are both more than twice the limit.
bool surely_above(std::span<const double> samples, double limit_us);

/// Two plans that were measured in turns; pairs by index.
struct PairedComparison {
  int pairs = 0;
  double gain = 0;         ///< (baseline - candidate) / baseline; > 0: the candidate is faster
  Interval gain_interval;  ///< of level 1 - 2 * significance
  double p_value = 1;      ///< one-sided: such pairs, were the candidate no faster
  bool better = false;     ///< p_value <= significance
};

/// Wilcoxon signed-rank test on log(baseline / candidate), exact up to 64 pairs, also with ties; the
/// gain is its Hodges-Lehmann estimate. Five pairs are the fewest that can reach 5 %, seven 1 %.
PairedComparison compare_paired(std::span<const double> candidate_us,
                                std::span<const double> baseline_us, double significance = 0.01);

/// Of the 99th percentiles: by resampling rounds. The p-value is the share of resamples in which
/// the candidate is no faster; a deterministic choice of them.
PairedComparison compare_tails(std::span<const double> candidate_us,
                               std::span<const double> baseline_us, double significance = 0.01);

/// What the objective of both compares, and the rule for times without noise: modelled samples that do not vary are
/// compared as they are, since no number of repeats would add to them.
PairedComparison compare(const Sample& candidate, const Sample& baseline,
                         double significance = 0.01);

/// Of the virtual GPU, without noise: another launch would take the same time.
bool is_exact(const Sample& sample);

/// time_us, spread_us, interval, p99_us, energy_uj and count, from the lists of the sample.
void summarise(Sample& sample);

}  // namespace tilewright::search
