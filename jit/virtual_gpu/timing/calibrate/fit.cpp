#include "jit/virtual_gpu/timing/calibrate/fit.h"

#include <algorithm>
#include <cmath>

#include "jit/virtual_gpu/timing/calibrate/agreement.h"

namespace tilewright::vgpu::calibrate {
namespace {

/// Which kernels a constant can change at all.
bool touches(const jit::TimingConstant& constant, Kernel kernel) {
  const std::string_view name = constant.name;
  if (name.starts_with("decode_")) return kernel == Kernel::kDecode;
  if (name.starts_with("prefill_")) return kernel == Kernel::kPrefill;
  if (name.starts_with("gemm_") || name.starts_with("tensor_") || name.starts_with("split_") ||
      name.starts_with("mma_") || name.starts_with("quantize_"))
    return kernel == Kernel::kGemm;
  return true;
}

}  // namespace

std::vector<Agreement> agreement(const jit::DeviceDescription& device, const Rows& rows,
                                 bool held) {
  std::vector<Agreement> out(rows.regimes.size());
  std::vector<std::vector<double>> times(out.size()), measured(out.size()), ratios(out.size());
  for (const Row& row : rows.rows) {
    if (row.held != held) continue;
    const auto regime = std::size_t(row.regime);
    times[regime].push_back(modelled(device, row).total_us);
    measured[regime].push_back(row.us);
    ratios[regime].push_back(times[regime].back() / row.us);
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i].regime = rows.regimes[i];
    out[i].rows = ratios[i].size();
    out[i].tau = kendall_tau(times[i], measured[i]);
    out[i].ratio = median(ratios[i]);
    std::vector<double> away;
    for (const double ratio : ratios[i]) away.push_back(std::abs(std::log(ratio / out[i].ratio)));
    out[i].spread = std::exp(median(away));
  }
  return out;
}

std::vector<const Row*> sample_of(const Rows& rows, std::size_t rows_of_regime) {
  std::vector<std::size_t> of_regime(rows.regimes.size());
  for (const Row& row : rows.rows) of_regime[std::size_t(row.regime)] += !row.held;
  // Evenly through each regime: files are sorted by shape.
  std::vector<double> position(rows.regimes.size());
  std::vector<const Row*> out;
  for (const Row& row : rows.rows) {
    if (row.held) continue;
    const auto regime = std::size_t(row.regime);
    const double step = std::min(1.0, double(rows_of_regime) / double(of_regime[regime]));
    const double before = std::floor(position[regime]);
    position[regime] += step;
    if (std::floor(position[regime]) > before) out.push_back(&row);
  }
  return out;
}

double misfit(const jit::DeviceDescription& device, const std::vector<const Row*>& rows,
              std::size_t regimes) {
  std::vector<double> sum(regimes);
  std::vector<double> count(regimes);
  for (const Row* row : rows) {
    sum[std::size_t(row->regime)] += std::abs(std::log(modelled(device, *row).total_us / row->us));
    ++count[std::size_t(row->regime)];
  }
  double total = 0;
  for (std::size_t i = 0; i < regimes; ++i)
    if (count[i] > 0) total += sum[i] / count[i];
  return total;
}

void fit(jit::DeviceDescription& device, const Rows& rows, std::size_t rows_of_regime, int rounds,
         const std::function<void(int round, double misfit)>& said) {
  const std::vector<const Row*> sample = sample_of(rows, rows_of_regime);
  const std::size_t regimes = rows.regimes.size();
  std::vector<double> steps(std::size(jit::kTimingConstants), 0.1);  // of the range
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const jit::TimingConstant& constant = jit::kTimingConstants[i];
      std::vector<const Row*> touched;
      for (const Row* row : sample)
        if (touches(constant, row->kernel)) touched.push_back(row);
      if (touched.empty()) continue;
      double& value = device.timing.*(constant.value);
      double best = misfit(device, touched, regimes);
      bool moved = false;
      for (const double sign : {1.0, -1.0}) {
        const double before = value;
        value = std::clamp(value + sign * steps[i] * (constant.high - constant.low), constant.low,
                           constant.high);
        const double now = value == before ? best : misfit(device, touched, regimes);
        if (now < best) {
          best = now;
          moved = true;
          break;
        }
        value = before;
      }
      steps[i] = moved ? std::min(0.25, steps[i] * 1.3) : steps[i] * 0.5;
    }
    said(round, misfit(device, sample, regimes) / double(regimes));
  }
}

std::vector<std::string> at_bounds(const jit::TimingConstants& timing) {
  std::vector<std::string> out;
  for (const jit::TimingConstant& constant : jit::kTimingConstants) {
    const double value = timing.*(constant.value);
    const double margin = 1e-3 * (constant.high - constant.low);
    if (value <= constant.low + margin || value >= constant.high - margin)
      out.emplace_back(constant.name);
  }
  return out;
}

}  // namespace tilewright::vgpu::calibrate
