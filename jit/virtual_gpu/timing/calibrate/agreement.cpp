#include "jit/virtual_gpu/timing/calibrate/agreement.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

namespace tilewright::vgpu::calibrate {
namespace {

/// Pairs of equal neighbours in a sorted list, as `equal` sees it.
template <class Equal>
double tied_pairs(std::size_t size, Equal equal) {
  double pairs = 0;
  for (std::size_t begin = 0, i = 1; i <= size; ++i)
    if (i == size || !equal(begin, i)) {
      const double run = double(i - begin);
      pairs += run * (run - 1) / 2;
      begin = i;
    }
  return pairs;
}

/// Sorts, and counts the exchanges that a bubble sort would need.
double sort_counting(std::vector<double>& values, std::vector<double>& scratch, std::size_t begin,
                     std::size_t end) {
  if (end - begin < 2) return 0;
  const std::size_t middle = begin + (end - begin) / 2;
  double exchanges =
      sort_counting(values, scratch, begin, middle) + sort_counting(values, scratch, middle, end);
  std::size_t left = begin, right = middle, out = begin;
  while (left < middle || right < end) {
    if (right == end || (left < middle && values[left] <= values[right])) {
      scratch[out++] = values[left++];
    } else {
      exchanges += double(middle - left);
      scratch[out++] = values[right++];
    }
  }
  std::copy(scratch.begin() + std::ptrdiff_t(begin), scratch.begin() + std::ptrdiff_t(end),
            values.begin() + std::ptrdiff_t(begin));
  return exchanges;
}

}  // namespace

// Knight, "A Computer Method for Calculating Kendall's Tau with Ungrouped Data", 1966.
double kendall_tau(std::span<const double> a, std::span<const double> b) {
  const std::size_t size = a.size();
  std::vector<std::size_t> order(size);
  std::iota(order.begin(), order.end(), std::size_t(0));
  std::sort(order.begin(), order.end(),
            [&](std::size_t i, std::size_t j) { return a[i] != a[j] ? a[i] < a[j] : b[i] < b[j]; });
  std::vector<double> second(size), scratch(size);
  for (std::size_t i = 0; i < size; ++i) second[i] = b[order[i]];
  const double tied_a =
      tied_pairs(size, [&](std::size_t i, std::size_t j) { return a[order[i]] == a[order[j]]; });
  const double tied_both = tied_pairs(size, [&](std::size_t i, std::size_t j) {
    return a[order[i]] == a[order[j]] && second[i] == second[j];
  });
  const double exchanges = sort_counting(second, scratch, 0, size);
  const double tied_b =
      tied_pairs(size, [&](std::size_t i, std::size_t j) { return second[i] == second[j]; });
  const double pairs = double(size) * (double(size) - 1) / 2;
  const double norm = std::sqrt((pairs - tied_a) * (pairs - tied_b));
  return norm > 0 ? (pairs - tied_a - tied_b + tied_both - 2 * exchanges) / norm : 0;
}

double median(std::span<const double> values) {
  if (values.empty()) return 0;
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const std::size_t middle = sorted.size() / 2;
  return sorted.size() % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

}  // namespace tilewright::vgpu::calibrate
