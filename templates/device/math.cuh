/// Elementary functions in f32 of our own, and the operators' operations by their names.
///
/// Errors are of the f32 result, in units in its last place, over all finite arguments with a
/// normal result, beside 2^-126 where a factor has no normal number. The hardware's approximations
/// are taken at the errors that the PTX ISA documents; tests/templates/math_test.cpp measures ours.
///
///   exp 3    log 2    tanh 3    sigmoid 5    silu 5    gelu_tanh 6 + that of its argument
///   normal_cdf 6    gelu_erf 6    sqrt, div 0.5 (IEEE)    rsqrt 2
///
/// NaN in, NaN out, everywhere: max, min, relu and clamp propagate it too.
#pragma once
#include "device/fragment.cuh"

namespace scalar {

// PTX ISA, "max", "min": with .NaN the result is NaN if an operand is; sm_80 and newer. Of zeros,
// +0 is the larger one.
__device__ inline float max(float a, float b) {
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
__device__ inline float min(float a, float b) {
  float y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
__device__ inline float fma(float a, float b, float c) {
  float y;
  asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(y) : "f"(a), "f"(b), "f"(c));
  return y;
}
__device__ inline float abs(float x) { return bits_as<float>(bits_as<unsigned>(x) & 0x7fffffffu); }
/// |magnitude| with the sign of `sign`.
__device__ inline float copy_sign(float magnitude, float sign) {
  return bits_as<float>((bits_as<unsigned>(magnitude) & 0x7fffffffu) |
                        (bits_as<unsigned>(sign) & 0x80000000u));
}
__device__ inline float sqrt(float x) {
  float y;
  asm("sqrt.rn.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// PTX ISA, "ex2": relative error at most 2^-22; "rsqrt": 2^-22.9; "rcp.approx": 1 ulp.
__device__ inline float exp2_approx(float x) {
  float y;
  asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline float rsqrt(float x) {
  float y;
  asm("rsqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline float reciprocal_approx(float x) {
  float y;
  asm("rcp.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// e^x as 2^(x log2 e): the product is rounded to `t`, and what the rounding cost comes back as
/// the factor 1 + (x log2 e - t) ln 2.
__device__ inline float exp(float x) {
  x = min(max(x, -150.f), 130.f);  // beyond, the result is 0 or infinite; keeps `rest` finite
  constexpr float kLog2e = 1.44269502f, kLog2eRest = 1.92596299e-8f, kLn2 = 0.693147182f;
  float t = x * kLog2e;
  float rest = fma(x, kLog2eRest, fma(x, kLog2e, -t));
  return exp2_approx(t) * fma(rest, kLn2, 1.f);
}

/// log x = e log 2 + log(1 + f), x = 2^e (1 + f), 1 + f in [sqrt 1/2, sqrt 2); a polynomial of
/// our own fit, relative error 6e-9.
__device__ inline float log(float x) {
  bool subnormal = x < 1.17549435e-38f;
  float scaled = subnormal ? x * 8388608.f : x;
  int bits = bits_as<int>(scaled) - 0x3f3504f3;  // of sqrt 1/2
  int exponent = bits >> 23;
  float f = bits_as<float>(bits - (exponent << 23) + 0x3f3504f3) - 1.f;
  float e = float(exponent) - (subnormal ? 23.f : 0.f);
  float p = -0.0763422549f;
  p = fma(p, f, 0.127614677f);
  p = fma(p, f, -0.131602332f);
  p = fma(p, f, 0.142017767f);
  p = fma(p, f, -0.16623354f);
  p = fma(p, f, 0.200012267f);
  p = fma(p, f, -0.250008225f);
  p = fma(p, f, 0.333333313f);
  float square = f * f;
  // log 2 = 0.693145752 + 1.42860677e-6; the first term has 8 trailing zero bits.
  float tail = fma(square * f, p, fma(e, 1.42860677e-6f, -0.5f * square));
  float y = fma(e, 0.693145752f, f + tail);
  if (e == 0.f) y = f + tail;
  if (!(x > 0.f)) y = x == 0.f ? -bits_as<float>(0x7f800000) : bits_as<float>(0x7fffffff);
  if (x == bits_as<float>(0x7f800000)) y = x;
  return y;
}

__device__ inline float tanh(float x) {
  float magnitude = abs(x);
  // 1 - 2 / (e^2|x| + 1), where it is at least 1/2 and so loses nothing
  float y = fma(-2.f, reciprocal_approx(exp(2.f * magnitude) + 1.f), 1.f);
  float square = x * x;
  float p = -0.00589517178f;
  p = fma(p, square, 0.0207959842f);
  p = fma(p, square, -0.053783834f);
  p = fma(p, square, 0.133319244f);
  p = fma(p, square, -0.333332986f);
  if (magnitude < 0.6f) y = fma(magnitude * square, p, magnitude);
  return copy_sign(y, x);
}

/// 1 / (1 + e^-x), from e^-|x|, which does not overflow.
__device__ inline float sigmoid(float x) {
  float e = exp(-abs(x));
  float r = reciprocal_approx(1.f + e);
  return x < 0.f ? e * r : r;
}

/// The standard normal distribution function (1 + erf(x / sqrt 2)) / 2, without cancellation.
__device__ inline float normal_cdf(float x) {
  float t = abs(x) * 0.707106769f;
  // erf t = t P(t^2) up to 1/2
  float square = t * t;
  float p = 0.00471808529f;
  p = fma(p, square, -0.0267572384f);
  p = fma(p, square, 0.11282824f);
  p = fma(p, square, -0.376126081f);
  p = fma(p, square, 1.12837911f);
  float centre = fma(0.353553385f * x, p, 0.5f);
  // erfc t = e^-t^2 u Q(u), u = 1 / (1 + 0.4 t), beyond
  float u = reciprocal_approx(fma(t, 0.4f, 1.f));
  float q = 0.0603484325f;
  q = fma(q, u, -0.221287176f);
  q = fma(q, u, 0.229801133f);
  q = fma(q, u, -0.0573354438f);
  q = fma(q, u, 0.167162731f);
  q = fma(q, u, 0.160964757f);
  q = fma(q, u, 0.209119961f);
  q = fma(q, u, 0.225557745f);
  q = fma(q, u, 0.225679755f);
  // t^2 = half_square + rest; beyond 16 the tail is 0
  float bounded = min(abs(x), 16.f);
  float half_square = 0.5f * bounded * bounded, rest = fma(0.5f * bounded, bounded, -half_square);
  float tail = 0.5f * exp(-half_square) * fma(-rest, u * q, u * q);
  return t < 0.5f ? centre : x < 0.f ? tail : 1.f - tail;
}

}  // namespace scalar

/// The operations of operators, on fragments and floats, as the f64 evaluator defines them.
namespace op {

#define TILEWRIGHT_UNARY(name, expression)             \
  template <typename A>                                \
  __device__ auto name(const A& a) {                   \
    return map([](float x) { return expression; }, a); \
  }
TILEWRIGHT_UNARY(exp, scalar::exp(x))
TILEWRIGHT_UNARY(log, scalar::log(x))
TILEWRIGHT_UNARY(reciprocal, scalar::reciprocal_approx(x))
TILEWRIGHT_UNARY(sqrt, scalar::sqrt(x))
TILEWRIGHT_UNARY(rsqrt, scalar::rsqrt(x))
TILEWRIGHT_UNARY(tanh, scalar::tanh(x))
TILEWRIGHT_UNARY(sigmoid, scalar::sigmoid(x))
TILEWRIGHT_UNARY(relu, scalar::max(x, 0.f))
TILEWRIGHT_UNARY(silu, x* scalar::sigmoid(x))
TILEWRIGHT_UNARY(gelu_erf, x* scalar::normal_cdf(x))
// (1 + tanh u) / 2 = sigmoid 2u, u = sqrt(2 / pi) (x + 0.044715 x^3)
TILEWRIGHT_UNARY(gelu_tanh, x* scalar::sigmoid(1.59576912f * scalar::fma(0.044715f * x * x, x, x)))
#undef TILEWRIGHT_UNARY

template <typename A, typename B>
__device__ auto max(const A& a, const B& b) {
  return map([](float x, float y) { return scalar::max(x, y); }, a, b);
}
template <typename A, typename B>
__device__ auto min(const A& a, const B& b) {
  return map([](float x, float y) { return scalar::min(x, y); }, a, b);
}
template <typename A>
__device__ auto clamp(const A& a, float low, float high) {
  return min(max(a, low), high);
}
template <typename C, typename A, typename B>
__device__ auto select(const C& condition, const A& a, const B& b) {
  return map([](bool c, float x, float y) { return c ? x : y; }, condition, a, b);
}
/// The obligation to round to T.
template <typename T, typename A>
__device__ auto cast(const A& a) {
  return map([](float x) { return widen(narrow<T>(x)); }, a);
}

}  // namespace op
