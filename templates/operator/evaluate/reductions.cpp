#include "templates/operator/evaluate/reductions.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

namespace tilewright::templates {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kSmallestNormal = 0x1p-126;

/// sum of f(x) with what its members may be off by.
struct Sum {
  Approx total;
  double size = 0;  ///< sum |f(x)|
  bool integral = true;
};

bool is_integral(double value) { return std::trunc(value) == value && std::abs(value) <= 0x1p24; }

Sum sum_of(const ApproxRow& x) {
  Sum sum;
  for (const Approx& item : x) {
    sum.total.value += item.value;
    sum.total.magnitude += item.magnitude;
    sum.total.rounding += item.rounding;
    sum.size += std::abs(item.value);
    sum.integral = sum.integral && item.error() == 0 && is_integral(item.value);
  }
  if (x.size() > 1) {
    sum.total.magnitude +=
        accumulation(sum.size, static_cast<std::int64_t>(x.size()), sum.integral);
  }
  return sum;
}

/// A mean of `count`: a division, or a product with the reciprocal.
Approx divided(Approx sum, double count) {
  bool exact = sum.error() == 0 && std::exp2(std::round(std::log2(count))) == count;
  Approx result{sum.value / count, sum.magnitude / count, sum.rounding / count};
  if (!exact) result.magnitude += own_magnitude(result.value, 3);
  return result;
}

Approx mean_of(const ApproxRow& x) {
  // The sum is f32: where it overflows, so does the mean.
  return divided(settled(sum_of(x).total), static_cast<double>(x.size()));
}

Approx maximum_of(const ApproxRow& x) {
  Approx result{-kInfinity};
  for (const Approx& item : x) {
    result.value = propagating_max(result.value, item.value);
    result.magnitude = std::max(result.magnitude, item.magnitude);
    result.rounding = std::max(result.rounding, item.rounding);
  }
  return result;
}

ApproxRow softmax(const ApproxRow& x) {
  double top = maximum_of(x).value;
  std::vector<double> weights(x.size());
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += weights[i] = std::exp(x[i].value - top);
  // Relative errors of the sum's members, weighted by their share: of the argument, of exp.
  Approx shared;
  double spread = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    double share = weights[i] / sum;
    if (!(share > 0)) continue;
    shared.magnitude += share * x[i].magnitude;
    shared.rounding += share * x[i].rounding;
    spread += share * std::abs(x[i].value - top);
  }
  double accumulated = accumulation(1, static_cast<std::int64_t>(x.size()), false);
  ApproxRow result(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    double value = weights[i] / sum, distance = std::abs(x[i].value - top);
    result[i].value = value;
    if (!(value > 0)) {
      result[i].rounding = std::isnan(value) ? 0 : kSmallestNormal;
      continue;
    }
    result[i].magnitude = value * (x[i].magnitude + shared.magnitude + accumulated) +
                          own_magnitude(value, 3 * (distance + spread) + 24);
    result[i].rounding = value * (x[i].rounding + shared.rounding) + kSmallestNormal;
  }
  return result;
}

/// 1 / sqrt(square + eps), and its relative error.
struct Scale {
  double value = 0;
  Approx relative;
};

Scale scale_of(const Approx& square, double eps) {
  double inner = square.value + eps;
  Scale scale{1 / std::sqrt(inner), {}};
  if (square.magnitude > 0) scale.relative.magnitude = 0.5 * square.magnitude / inner;
  if (square.rounding > 0) scale.relative.rounding = 0.5 * square.rounding / inner;
  return scale;
}

/// base * scale * gain, where `base` may be off by itself.
Approx scaled(const Approx& base, const Scale& scale, const Approx& gain) {
  double value = base.value * scale.value * gain.value;
  double to_base = std::abs(scale.value * gain.value), to_gain = std::abs(base.value * scale.value);
  double size = std::abs(value);
  Approx result{value};
  result.magnitude = to_base * base.magnitude + to_gain * gain.magnitude +
                     size * scale.relative.magnitude + own_magnitude(value, 10);
  result.rounding =
      to_base * base.rounding + to_gain * gain.rounding + size * scale.relative.rounding;
  return result;
}

ApproxRow rmsnorm(const ApproxRow& x, const ApproxRow& gain, double eps) {
  ApproxRow squares(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    double size = std::abs(x[i].value);
    squares[i] = {x[i].value * x[i].value, 2 * size * x[i].magnitude, 2 * size * x[i].rounding};
    if (x[i].error() > 0) squares[i].rounding += x[i].error() * x[i].error();
  }
  Scale scale = scale_of(mean_of(squares), eps);
  ApproxRow result(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) result[i] = settled(scaled(x[i], scale, gain[i]));
  return result;
}

ApproxRow layernorm(const ApproxRow& x, const ApproxRow& gain, const ApproxRow& bias, double eps) {
  Approx mean = mean_of(x);
  double off = mean.error();
  ApproxRow centred(x.size()), squares(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    double value = x[i].value - mean.value, size = std::abs(value);
    double own = own_magnitude(value, 1);
    centred[i] = {value, x[i].magnitude + mean.magnitude + own, x[i].rounding + mean.rounding};
    // An error of the mean cancels in the variance but for its square.
    squares[i] = {value * value, 2 * size * (x[i].magnitude + own),
                  2 * size * x[i].rounding + off * off};
    if (x[i].error() > 0) squares[i].rounding += x[i].error() * x[i].error();
  }
  Scale scale = scale_of(mean_of(squares), eps);
  ApproxRow result(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    Approx product = scaled(centred[i], scale, gain[i]);
    double value = product.value + bias[i].value;
    result[i] = settled({value, product.magnitude + bias[i].magnitude + own_magnitude(value, 1),
                         product.rounding + bias[i].rounding});
  }
  return result;
}

}  // namespace

double accumulation(double magnitude, std::int64_t count, bool integral) {
  constexpr double kExactBelow = 0x1p24;  // f32 holds every whole number up to it
  if (integral && magnitude <= kExactBelow) return 0;
  return std::sqrt(static_cast<double>(count)) * magnitude;
}

namespace {

ApproxRow sure_row(Op op, const Attributes& attributes, const ApproxRow& x, const ApproxRow& gain,
                   const ApproxRow& bias) {
  double eps = as_f32(attributes.eps);
  switch (op) {
    case Op::kReduceSum:
      return {settled(sum_of(x).total)};
    case Op::kReduceMean:
      return {settled(mean_of(x))};
    case Op::kReduceMax:
      return {settled(maximum_of(x))};
    case Op::kSoftmax:
      return softmax(x);
    case Op::kRmsNorm:
      return rmsnorm(x, gain, eps);
    case Op::kLayerNorm:
      return layernorm(x, gain, bias, eps);
    default:
      assert(!"no row reduction");
      return {};
  }
}

}  // namespace

ApproxRow reduce_row(Op op, const Attributes& attributes, const ApproxRow& x, const ApproxRow& gain,
                     const ApproxRow& bias) {
  ApproxRow result = sure_row(op, attributes, x, gain, bias);
  const bool all = std::any_of(x.begin(), x.end(), is_unsure);
  for (std::size_t i = 0; i < result.size(); ++i) {
    const bool own =
        (i < gain.size() && is_unsure(gain[i])) || (i < bias.size() && is_unsure(bias[i]));
    if (all || own) result[i] = unsure(result[i].value);
  }
  return result;
}

}  // namespace tilewright::templates
