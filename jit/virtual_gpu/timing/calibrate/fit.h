/// Fits the constants of the timing model to measured rows.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "jit/virtual_gpu/timing/calibrate/rows.h"

namespace tilewright::vgpu::calibrate {

struct Agreement {
  std::string regime;
  std::size_t rows = 0;
  double tau = 0;     ///< Kendall's tau-b
  double ratio = 0;   ///< median of modelled / measured
  double spread = 0;  ///< of which half of the rows lie within a factor, around the median
};

/// Of each regime, over its held or its fitted rows.
std::vector<Agreement> agreement(const jit::DeviceDescription& device, const Rows& rows, bool held);

/// The mean over regimes of the mean |log(modelled / measured)| of fitted rows, at most
/// `rows_of_regime` of each (the first by hash).
double misfit(const jit::DeviceDescription& device, const std::vector<const Row*>& rows,
              std::size_t regimes);
std::vector<const Row*> sample_of(const Rows& rows, std::size_t rows_of_regime);

/// Cyclic coordinate search within the bounds of kTimingConstants: deterministic, no derivatives.
/// `said` hears of each round.
void fit(jit::DeviceDescription& device, const Rows& rows, std::size_t rows_of_regime, int rounds,
         const std::function<void(int round, double misfit)>& said);

/// Names of the constants that lie at a bound.
std::vector<std::string> at_bounds(const jit::TimingConstants& timing);

}  // namespace tilewright::vgpu::calibrate
