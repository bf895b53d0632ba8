#include "templates/operator/evaluate/approx.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

namespace tilewright::templates {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Results below f32's normal numbers may be flushed to zero.
constexpr double kSmallestNormal = 0x1p-126;
constexpr double kSmallestNumber = 0x1p-149;

double sigmoid(double x) {
  double e = std::exp(-std::abs(x));
  return x < 0 ? e / (1 + e) : 1 / (1 + e);
}
double normal_cdf(double x) { return 0.5 * std::erfc(-x * 0.70710678118654752440); }
/// (1 + tanh u) / 2 = sigmoid 2u; this is 2u.
double gelu_tanh_argument(double x) {
  return 2 * 0.79788456080286535588 * (x + 0.044715 * x * x * x);
}

double evaluate_unary(Op op, double x) {
  switch (op) {
    case Op::kExp:
      return std::exp(x);
    case Op::kLog:
      return std::log(x);
    case Op::kSqrt:
      return std::sqrt(x);
    case Op::kRsqrt:
      return 1 / std::sqrt(x);
    case Op::kTanh:
      return std::tanh(x);
    case Op::kSigmoid:
      return sigmoid(x);
    case Op::kSilu:
      return x * sigmoid(x);
    case Op::kGeluErf:
      return x * normal_cdf(x);
    case Op::kGeluTanh:
      return x * sigmoid(gelu_tanh_argument(x));
    default:
      assert(!"no function of one operand");
      return x;
  }
}

/// How far f's result may move while its argument moves by x.error(), split as the argument's is.
template <typename Function>
Approx carried(const Approx& x, double value, const Function& f) {
  Approx result{value};
  double error = x.error();
  if (!(error > 0)) return result;
  double moved =
      std::max(std::abs(f(x.value + error) - value), std::abs(f(x.value - error) - value));
  if (std::isnan(moved)) moved = kInfinity;  // out of the function's domain
  if (std::isinf(error)) {
    result.rounding = moved;
    return result;
  }
  result.magnitude = moved * (x.magnitude / error);
  result.rounding = moved * (x.rounding / error);
  return result;
}

Approx sum(const Approx& a, const Approx& b, double sign) {
  double value = a.value + sign * b.value;
  return {value, a.magnitude + b.magnitude + (is_f32(value) ? 0 : own_magnitude(value, 1)),
          a.rounding + b.rounding};
}

Approx product(const Approx& a, const Approx& b) {
  double value = a.value * b.value;
  Approx result{value};
  double x = std::abs(a.value), y = std::abs(b.value);
  if (!is_f32(value)) {
    result.magnitude = own_magnitude(value, 1);
    if (std::abs(value) < kSmallestNormal) result.rounding = kSmallestNumber;
  }
  if (b.magnitude > 0) result.magnitude += x * b.magnitude;
  if (a.magnitude > 0) result.magnitude += y * a.magnitude;
  if (b.rounding > 0) result.rounding += x * b.rounding;
  if (a.rounding > 0) result.rounding += y * a.rounding;
  double both = a.error() * b.error();
  if (both > 0) result.rounding += both;
  return result;
}

Approx quotient(const Approx& a, const Approx& b) {
  double value = a.value / b.value;
  Approx result{value, own_magnitude(value, 4)};
  double divisor = std::abs(b.value) - b.error(), ratio = std::abs(value);
  if (b.error() > 0 && !(divisor > 0)) {
    result.rounding = kInfinity;
    return result;
  }
  if (a.magnitude > 0 || b.magnitude > 0) {
    result.magnitude += (a.magnitude + ratio * b.magnitude) / divisor;
  }
  if (a.rounding > 0 || b.rounding > 0) {
    result.rounding += (a.rounding + ratio * b.rounding) / divisor;
  }
  return result;
}

Approx larger(const Approx& a, const Approx& b, bool maximum) {
  Approx result{maximum ? propagating_max(a.value, b.value) : propagating_min(a.value, b.value)};
  // The operand that is surely not chosen does not count.
  double gap = (a.value - b.value) * (maximum ? 1 : -1), reach = a.error() + b.error();
  if (gap > reach) return {result.value, a.magnitude, a.rounding};
  if (gap < -reach) return {result.value, b.magnitude, b.rounding};
  result.magnitude = std::max(a.magnitude, b.magnitude);
  result.rounding = std::max(a.rounding, b.rounding);
  return result;
}

Approx compared(Op op, const Approx& a, const Approx& b) {
  bool holds = false;
  switch (op) {
    case Op::kLess:
      holds = a.value < b.value;
      break;
    case Op::kLessEqual:
      holds = a.value <= b.value;
      break;
    case Op::kGreater:
      holds = a.value > b.value;
      break;
    case Op::kGreaterEqual:
      holds = a.value >= b.value;
      break;
    case Op::kEqual:
      holds = a.value == b.value;
      break;
    default:
      holds = a.value != b.value;
      break;
  }
  double reach = a.error() + b.error();
  bool unsure = reach > 0 && !(std::abs(a.value - b.value) > reach);
  return {holds ? 1.0 : 0.0, 0, unsure ? 1.0 : 0.0};
}

Approx selected(const Approx& condition, const Approx& a, const Approx& b) {
  Approx result = condition.value != 0 ? a : b;
  if (condition.rounding == 0) return result;
  const Approx& other = condition.value != 0 ? b : a;
  double apart = result.value == other.value ? 0 : std::abs(result.value - other.value);
  result.rounding += std::isnan(apart) ? kInfinity : apart + other.error();
  return result;
}

/// Units u that a function's result may be off by itself; tests/templates/math_test.cpp measures
/// ours at less.
double own_units(Op op, Accuracy accuracy) {
  constexpr double kFastUnits = 0x1p13;  // 2^-11 of the result, as tanh.approx
  bool fast = accuracy == Accuracy::kFast;
  switch (op) {
    case Op::kSqrt:
      return 2;
    case Op::kRsqrt:
      return 4;
    case Op::kExp:
      return fast ? 64 : 8;
    case Op::kLog:
      return fast ? 64 : 8;
    case Op::kTanh:
      return fast ? kFastUnits : 8;
    case Op::kSigmoid:
    case Op::kSilu:
      return fast ? kFastUnits : 12;
    default:
      return fast ? kFastUnits : 16;
  }
}

}  // namespace

double own_magnitude(double value, double units) {
  double size = std::abs(value);
  return std::isfinite(size) ? units * size / kBoundFactor : 0;
}

double propagating_max(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::quiet_NaN();
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}

double propagating_min(double a, double b) { return -propagating_max(-a, -b); }

Approx settled(Approx x) {
  constexpr double kBeyond = 0x1.ffffffp127;  // rounds to infinity in f32
  if (std::abs(x.value) >= kBeyond) x.value = std::copysign(kInfinity, x.value);
  if (!std::isfinite(x.value)) return {x.value};
  if (std::isnan(x.magnitude)) x.magnitude = kInfinity;
  if (std::isnan(x.rounding)) x.rounding = kInfinity;
  return x;
}

bool is_unsure(const Approx& x) { return !std::isfinite(x.value) && std::isinf(x.rounding); }

bool is_unsure_product(const Approx& a, const Approx& b) {
  const auto may_be_zero = [](const Approx& x) {
    return x.error() > 0 && std::abs(x.value) <= x.error();
  };
  return is_unsure(a) || is_unsure(b) || (std::isinf(a.value) && may_be_zero(b)) ||
         (std::isinf(b.value) && may_be_zero(a));
}

Approx unsure(double value) {
  return {std::isfinite(value) ? std::numeric_limits<double>::quiet_NaN() : value, 0, kInfinity};
}

Approx rounded(DType dtype, const Approx& x) {
  if (dtype == DType::kF32) {
    Approx result = x;
    if (!is_f32(x.value)) result.magnitude += own_magnitude(x.value, 1);
    return result;
  }
  Approx result{round_to(dtype, x.value)};
  double error = x.error();
  if (!std::isfinite(result.value) || !(error > 0)) return result;
  // To the neighbours only if the error reaches over the point where rounding turns.
  double above = round_to(dtype, x.value + error) - result.value;
  double below = result.value - round_to(dtype, x.value - error);
  result.rounding = std::max(above, below);
  if (std::isnan(result.rounding)) result.rounding = kInfinity;
  return result;
}

Approx PointwiseRules::unary(Op op, const Approx& x) const {
  double value = evaluate_unary(op, x.value);
  Approx result = carried(x, value, [op](double at) { return evaluate_unary(op, at); });
  result.magnitude += own_magnitude(value, own_units(op, accuracy_));
  if (op == Op::kGeluTanh) {
    // The argument of the sigmoid is rounded three times; in its tail that counts by its size.
    double argument = gelu_tanh_argument(x.value);
    double tail = 1 - sigmoid(argument);
    if (tail > 0) result.magnitude += own_magnitude(value * argument * tail, 3);
  }
  result.rounding += kSmallestNormal;
  return result;
}

Approx PointwiseRules::apply(Op op, const Attributes& attributes, const Approx* operands) const {
  const Approx &x = operands[0], &y = operands[1];
  const Approx result = sure(op, attributes, operands);
  if (op == Op::kSelect) {
    const Approx& chosen = x.value != 0 ? y : operands[2];
    return is_unsure(chosen) || (x.rounding > 0 && !std::isfinite(result.rounding))
               ? unsure(result.value)
               : result;
  }
  if (is_comparison(op)) {
    return is_unsure(x) || is_unsure(y) ? Approx{result.value, 0, 1} : result;
  }
  bool any = false;
  for (int i = 0; i < arity(op); ++i) any = any || is_unsure(operands[i]);
  if (op == Op::kMul) any = is_unsure_product(x, y);
  if (op == Op::kDiv) {
    any = any || (!std::isfinite(result.value) && y.error() > 0 && std::abs(y.value) <= y.error());
  }
  return any ? unsure(result.value) : result;
}

/// As if there were no unsure operand.
Approx PointwiseRules::sure(Op op, const Attributes& attributes, const Approx* operands) const {
  const Approx &x = operands[0], &y = operands[1];
  switch (op) {
    case Op::kAdd:
      return settled(sum(x, y, 1));
    case Op::kSub:
      return settled(sum(x, y, -1));
    case Op::kMul:
      return settled(product(x, y));
    case Op::kDiv:
      return settled(quotient(x, y));
    case Op::kMax:
      return settled(larger(x, y, true));
    case Op::kMin:
      return settled(larger(x, y, false));
    case Op::kSelect:
      return settled(selected(x, y, operands[2]));
    case Op::kNeg:
      return {-x.value, x.magnitude, x.rounding};
    case Op::kRelu: {
      auto relu = [](double at) { return propagating_max(at, 0); };
      return settled(carried(x, relu(x.value), relu));
    }
    case Op::kClamp: {
      double low = as_f32(attributes.low), high = as_f32(attributes.high);
      auto clamp = [=](double at) { return propagating_min(propagating_max(at, low), high); };
      return settled(carried(x, clamp(x.value), clamp));
    }
    case Op::kCast:
      return settled(rounded(attributes.dtype, x));
    default:
      break;
  }
  return is_comparison(op) ? compared(op, x, y) : settled(unary(op, x));
}

}  // namespace tilewright::templates
