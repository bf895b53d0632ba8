/// How well modelled times agree with measured ones.
#pragma once

#include <span>

namespace tilewright::vgpu::calibrate {

/// Kendall's tau-b of two lists of equal length, in [-1, 1]: pairs in the same order less pairs in
/// the opposite one, ties of either list discounted. O(n log n). 0 where one of them is constant.
double kendall_tau(std::span<const double> a, std::span<const double> b);

/// Of a copy. 0 of nothing.
double median(std::span<const double> values);

}  // namespace tilewright::vgpu::calibrate
