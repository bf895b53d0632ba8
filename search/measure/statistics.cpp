#include "search/measure/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace tilewright::search {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Above it the normal approximation of the signed-rank law is good to three digits.
constexpr std::size_t kExactPairs = 64;

std::vector<double> sorted(std::span<const double> samples) {
  std::vector<double> values(samples.begin(), samples.end());
  std::sort(values.begin(), values.end());
  return values;
}

double quantile_of_sorted(std::span<const double> values, double q) {
  if (values.empty()) return 0;
  const double position = std::clamp(q, 0.0, 1.0) * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return std::lerp(values[below], values[above], position - static_cast<double>(below));
}

double normal_upper_tail(double z) { return 0.5 * std::erfc(z / std::sqrt(2.0)); }

// Ranks of |value|, doubled so that the mid-ranks of ties are whole numbers.
std::vector<int> doubled_ranks(std::span<const double> values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::abs(values[a]) < std::abs(values[b]);
  });
  std::vector<int> ranks(values.size());
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin + 1;
    while (end < order.size() && std::abs(values[order[end]]) == std::abs(values[order[begin]]))
      ++end;
    // Ranks begin+1 ... end; their mean, doubled.
    for (std::size_t i = begin; i < end; ++i) ranks[order[i]] = static_cast<int>(begin + 1 + end);
    begin = end;
  }
  return ranks;
}

// The law of the sum of doubled ranks with random signs: tail[s] = P(sum >= s).
std::vector<double> signed_rank_tail(std::span<const int> ranks) {
  const int total = std::accumulate(ranks.begin(), ranks.end(), 0);
  std::vector<double> law(static_cast<std::size_t>(total) + 1, 0.0);
  law[0] = 1;
  int reached = 0;
  for (int rank : ranks) {
    reached += rank;
    for (int sum = reached; sum >= 0; --sum) {
      const double with = sum >= rank ? law[static_cast<std::size_t>(sum - rank)] : 0;
      law[static_cast<std::size_t>(sum)] = 0.5 * (law[static_cast<std::size_t>(sum)] + with);
    }
  }
  for (std::size_t sum = law.size() - 1; sum-- > 0;) law[sum] += law[sum + 1];
  return law;
}

double signed_rank_p(std::span<const double> differences) {
  const std::vector<int> ranks = doubled_ranks(differences);
  double positive = 0, squares = 0, total = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (differences[i] > 0) positive += ranks[i];
    total += ranks[i];
    squares += static_cast<double>(ranks[i]) * ranks[i];
  }
  if (ranks.size() <= kExactPairs)
    return signed_rank_tail(ranks)[static_cast<std::size_t>(positive)];
  // Continuity correction: half a step, and the sum of doubled ranks goes in steps of 2.
  return normal_upper_tail((positive - total / 2 - 1) / (std::sqrt(squares) / 2));
}

std::vector<double> walsh_averages(std::span<const double> values) {
  std::vector<double> averages;
  averages.reserve(values.size() * (values.size() + 1) / 2);
  for (std::size_t i = 0; i < values.size(); ++i)
    for (std::size_t j = i; j < values.size(); ++j) averages.push_back((values[i] + values[j]) / 2);
  std::sort(averages.begin(), averages.end());
  return averages;
}

// How many Walsh averages to leave out at each end for a confidence of 1 - 2 * significance: the
// largest k with P(T <= k - 1) <= significance; 0 when there are too few pairs.
std::size_t walsh_cut(std::size_t pairs, double significance) {
  const double n = static_cast<double>(pairs);
  if (pairs > kExactPairs) {
    const double mean = n * (n + 1) / 4, deviation = std::sqrt(n * (n + 1) * (2 * n + 1) / 24);
    std::size_t cut = 0;
    while (normal_upper_tail((mean - static_cast<double>(cut) - 0.5) / deviation) <= significance)
      ++cut;
    return cut;
  }
  std::vector<int> ranks(pairs);
  std::iota(ranks.begin(), ranks.end(), 1);
  const std::vector<double> tail = signed_rank_tail(ranks);
  // By symmetry P(T <= k - 1) = P(T >= total - k + 1).
  std::size_t cut = 0;
  while (cut + 1 < tail.size() && tail[tail.size() - 1 - cut] <= significance) ++cut;
  return cut;
}

// The z with P(Z <= z) = p, by bisection: a few times per sample.
double normal_quantile(double p) {
  double low = -10, high = 10;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (1 - normal_upper_tail(middle) < p ? low : high) = middle;
  }
  return low;
}

// Samples that say as much about the median as one independent one: 1 + 2 (sum of the
// autocorrelations of "above the median"), summed in pairs while they are positive and fall (Geyer's
// initial monotone sequence).
double correlation_length(std::span<const double> samples) {
  const std::size_t n = samples.size();
  const double middle = median(samples);
  std::vector<double> above(n);
  double mean = 0;
  for (std::size_t i = 0; i < n; ++i) {
    above[i] = samples[i] > middle;
    mean += above[i] / static_cast<double>(n);
  }
  for (double& value : above) value -= mean;
  const auto covariance = [&](std::size_t lag) {
    double sum = 0;
    for (std::size_t i = lag; i < n; ++i) sum += above[i] * above[i - lag];
    return sum;
  };
  const double variance = covariance(0);
  if (variance <= 0) return 1;
  double length = -1, last = kInfinity;
  for (std::size_t lag = 0; lag + 1 < std::min<std::size_t>(n / 2, 200); lag += 2) {
    const double pair = std::min(last, (covariance(lag) + covariance(lag + 1)) / variance);
    if (pair <= 0) break;
    length += 2 * pair;
    last = pair;
  }
  return std::max(length, 1.0);
}

// Correlations of a short series are estimated too low, and a series that ends when it looks precise
// ends early where they are lowest. Found by simulation, of drift with a memory of 10 to 20 launches.
constexpr double kCautious = 2.5;

// Of log(baseline / candidate), the gain (baseline - candidate) / baseline.
double gain_of_log_ratio(double log_ratio) { return -std::expm1(-log_ratio); }

}  // namespace

double quantile(std::span<const double> samples, double q) {
  return quantile_of_sorted(sorted(samples), q);
}

double median(std::span<const double> samples) { return quantile(samples, 0.5); }

double half_iqr(std::span<const double> samples) {
  const std::vector<double> values = sorted(samples);
  return (quantile_of_sorted(values, 0.75) - quantile_of_sorted(values, 0.25)) / 2;
}

Interval median_interval(std::span<const double> samples, double confidence) {
  const std::vector<double> values = sorted(samples);
  const std::size_t n = values.size();
  // Largest k with P(Binomial(n, 1/2) < k) <= (1 - confidence) / 2; then the k-th smallest and the
  // k-th largest enclose the median.
  double below = 0, log_choose = 0;
  std::size_t k = 0;
  while (k < n) {
    below += std::exp(log_choose - static_cast<double>(n) * std::log(2.0));
    if (below > (1 - confidence) / 2) break;
    log_choose += std::log(static_cast<double>(n - k)) - std::log(static_cast<double>(k + 1));
    ++k;
  }
  if (k == 0) return {-kInfinity, kInfinity};
  return {values[k - 1], values[n - k]};
}

Interval quantile_interval(std::span<const double> samples, double q, double confidence) {
  const std::vector<double> values = sorted(samples);
  const auto n = static_cast<double>(values.size());
  // The binomial law of how many lie below the quantile, by its normal approximation.
  const double reach = normal_quantile(0.5 + confidence / 2) * std::sqrt(n * q * (1 - q));
  const double low = std::floor(n * q - reach), high = std::ceil(n * q + reach) + 1;
  return {low >= 1 ? values[static_cast<std::size_t>(low) - 1] : -kInfinity,
          high <= n ? values[static_cast<std::size_t>(high) - 1] : kInfinity};
}

Interval series_median_interval(std::span<const double> samples, double confidence) {
  const std::vector<double> values = sorted(samples);
  const auto n = static_cast<double>(values.size());
  if (values.size() < 2 || values.front() == values.back())
    return values.size() < 2 ? Interval{-kInfinity, kInfinity}
                             : Interval{values.front(), values.front()};
  const double length = kCautious * correlation_length(samples);
  const double reach = normal_quantile(0.5 + confidence / 2) * std::sqrt(n * length) / 2;
  const double low = std::floor(n / 2 - reach), high = std::ceil(n / 2 + reach);
  return {low >= 1 ? values[static_cast<std::size_t>(low) - 1] : -kInfinity,
          high <= n ? values[static_cast<std::size_t>(high) - 1] : kInfinity};
}

bool surely_above(std::span<const double> samples, double limit_us) {
  if (samples.size() >= 2 && *std::min_element(samples.begin(), samples.end()) > 2 * limit_us)
    return true;
  return median_interval(samples, 0.98).low > limit_us;
}

PairedComparison compare_paired(std::span<const double> candidate_us,
                                std::span<const double> baseline_us, double significance) {
  PairedComparison comparison;
  const std::size_t pairs = std::min(candidate_us.size(), baseline_us.size());
  comparison.pairs = static_cast<int>(pairs);
  comparison.gain_interval = {-kInfinity, 1};
  std::vector<double> differences, nonzero;
  for (std::size_t i = 0; i < pairs; ++i) {
    if (candidate_us[i] <= 0 || baseline_us[i] <= 0) continue;
    // A difference of logarithms, so that swapped pairs give exactly opposite values.
    differences.push_back(std::log(baseline_us[i]) - std::log(candidate_us[i]));
    if (differences.back() != 0) nonzero.push_back(differences.back());
  }
  if (differences.empty()) return comparison;
  const std::vector<double> averages = walsh_averages(differences);
  comparison.gain = gain_of_log_ratio(quantile_of_sorted(averages, 0.5));
  if (const std::size_t cut = walsh_cut(differences.size(), significance); cut > 0)
    comparison.gain_interval = {gain_of_log_ratio(averages[cut - 1]),
                                gain_of_log_ratio(averages[averages.size() - cut])};
  if (!nonzero.empty()) comparison.p_value = signed_rank_p(nonzero);
  comparison.better = comparison.p_value <= significance;
  return comparison;
}

PairedComparison compare_tails(std::span<const double> candidate_us,
                               std::span<const double> baseline_us, double significance) {
  constexpr int kResamples = 2000;
  constexpr double kTail = 0.99;
  PairedComparison comparison;
  const std::size_t pairs = std::min(candidate_us.size(), baseline_us.size());
  comparison.pairs = static_cast<int>(pairs);
  comparison.gain_interval = {-kInfinity, 1};
  if (pairs == 0) return comparison;
  const auto gain = [](double candidate, double baseline) { return 1 - candidate / baseline; };
  comparison.gain =
      gain(quantile(candidate_us.first(pairs), kTail), quantile(baseline_us.first(pairs), kTail));
  std::mt19937_64 engine(pairs);
  std::vector<double> gains, candidate(pairs), baseline(pairs);
  int no_faster = 0;
  for (int resample = 0; resample < kResamples; ++resample) {
    for (std::size_t i = 0; i < pairs; ++i) {
      const std::size_t round = engine() % pairs;
      candidate[i] = candidate_us[round];
      baseline[i] = baseline_us[round];
    }
    gains.push_back(gain(quantile(candidate, kTail), quantile(baseline, kTail)));
    no_faster += gains.back() <= 0;
  }
  comparison.gain_interval = {quantile(gains, significance), quantile(gains, 1 - significance)};
  comparison.p_value = (no_faster + 1.0) / (kResamples + 1.0);
  comparison.better = comparison.p_value <= significance;
  return comparison;
}

PairedComparison compare(const Sample& candidate, const Sample& baseline, double significance) {
  const bool exact = is_exact(candidate) && is_exact(baseline);
  if (!exact && candidate.objective == Objective::kTail)
    return compare_tails(candidate.times_us, baseline.times_us, significance);
  if (!exact && candidate.objective == Objective::kEnergy)
    return compare_paired(candidate.energies_uj, baseline.energies_uj, significance);
  if (!exact) return compare_paired(candidate.times_us, baseline.times_us, significance);
  PairedComparison comparison;
  comparison.pairs = std::min(candidate.count, baseline.count);
  if (comparison.pairs == 0 || baseline.cost() <= 0) return comparison;
  comparison.gain = (baseline.cost() - candidate.cost()) / baseline.cost();
  comparison.gain_interval = {comparison.gain, comparison.gain};
  comparison.better = comparison.gain > 0;
  comparison.p_value = comparison.better ? 0 : 1;
  return comparison;
}

bool is_exact(const Sample& sample) { return sample.modelled && sample.spread_us == 0; }

void summarise(Sample& sample) {
  sample.count = static_cast<int>(sample.times_us.size());
  sample.time_us = median(sample.times_us);
  sample.spread_us = half_iqr(sample.times_us);
  sample.p99_us = quantile(sample.times_us, 0.99);
  sample.energy_uj = median(sample.energies_uj);
  const Interval interval = series_median_interval(sample.times_us, 0.95);
  sample.low_us = interval.low;
  sample.high_us = interval.high;
}

}  // namespace tilewright::search
