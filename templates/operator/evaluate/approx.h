/// A value with what a right f32 kernel may be off by, and the ops on one element.
#pragma once

#include "templates/operator/evaluate.h"

namespace tilewright::templates {

using Approx = Reference;

/// Own rounding errors, in units u of the result; kBoundFactor is not applied to them.
/// Transcendental functions are allowed what docs/numerics.md says of the accuracy class.
class PointwiseRules {
 public:
  explicit PointwiseRules(Accuracy accuracy) : accuracy_(accuracy) {}

  /// Pointwise ops but constants; `operands` are three, of which arity(op) count. A bool is 0 or 1, and off by 1
  /// where rounding may decide the comparison otherwise.
  Approx apply(Op op, const Attributes& attributes, const Approx* operands) const;

 private:
  Approx sure(Op op, const Attributes& attributes, const Approx* operands) const;
  Approx unary(Op op, const Approx& x) const;

  Accuracy accuracy_;
};

/// `x` rounded to `dtype`, as a cast or a store does it.
Approx rounded(DType dtype, const Approx& x);

/// Values beyond f32's range are infinite; what is not finite is not off.
Approx settled(Approx x);

/// Not finite, or not known to be: an infinity met what may be 0, so it may be NaN as well.
bool is_unsure(const Approx& x);
/// Whether the product of the two is such.
bool is_unsure_product(const Approx& a, const Approx& b);
Approx unsure(double value);

/// `units` roundings of `value`, as magnitude.
double own_magnitude(double value, double units);

/// Constants and attributes are f32, too.
inline double as_f32(double value) { return static_cast<double>(static_cast<float>(value)); }
/// Whether f32 holds the value.
inline bool is_f32(double value) { return as_f32(value) == value; }

/// max and min as the language has them: NaN if an operand is, +0 above -0.
double propagating_max(double a, double b);
double propagating_min(double a, double b);

}  // namespace tilewright::templates
