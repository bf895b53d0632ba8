/// Scalar pieces of floating-point handlers: branchless, so that loops of them become vector code,
/// and made of exactly rounded operations only, so that every level computes the same bits.
#pragma once

#include "jit/virtual_gpu/execute/handlers/lanes.h"

namespace tilewright::vgpu::VGPU_LEVEL {

/// The NaN that GPUs make. PTX ISA, "Floating-Point Comparisons" and cvt.
inline constexpr uint32_t kNan32 = 0x7fffffffu;
inline constexpr uint64_t kNan64 = 0xfff8000000000000u;
inline constexpr uint16_t kNan16 = 0x7fffu;

VGPU_INLINE float one_nan(float a) { return a != a ? bits<float>(kNan32) : a; }

/// .ftz: subnormals become zeros of the same sign.
VGPU_INLINE float flush(float a) {
  uint32_t u = bits<uint32_t>(a);
  return bits<float>((u & 0x7f800000u) == 0 ? u & 0x80000000u : u);
}

/// .sat: to [0, 1], NaN to +0.
VGPU_INLINE float saturate(float a) {
  float result = a > 0.0f ? a : 0.0f;
  return result < 1.0f ? result : 1.0f;
}

// f16 and bf16 are held as their bits.
VGPU_INLINE float from_bf16(uint16_t h) { return bits<float>(static_cast<uint32_t>(h) << 16); }

VGPU_INLINE uint16_t to_bf16(float f) {
  uint32_t u = bits<uint32_t>(f);
  uint32_t rounded = (u + 0x7fffu + (u >> 16 & 1)) >> 16;
  return static_cast<uint16_t>(f != f ? kNan16 : rounded);
}

VGPU_INLINE float from_f16(uint16_t h) {
  uint32_t magnitude = h & 0x7fffu;
  // Scaling by 2^112 rebiases the exponent, and makes subnormals right as well.
  float scaled = bits<float>(magnitude << 13) * bits<float>(0x77800000u);
  uint32_t u = bits<uint32_t>(scaled);
  u = magnitude >= 0x7c00u ? u | 0x7f800000u : u;
  return bits<float>(u | static_cast<uint32_t>(h & 0x8000u) << 16);
}

VGPU_INLINE uint16_t to_f16(float f) {
  uint32_t u = bits<uint32_t>(f);
  uint32_t sign = u >> 16 & 0x8000u;
  uint32_t magnitude = u & 0x7fffffffu;
  // Normal results: round the 13 low bits away, to even; the carry may go up to infinity.
  uint32_t normal = (magnitude + 0xfffu + (magnitude >> 13 & 1) - 0x38000000u) >> 13;
  // Subnormal results: adding 1/2 aligns their last place with that of the sum.
  uint32_t tiny = bits<uint32_t>(bits<float>(magnitude) + 0.5f) - 0x3f000000u;
  uint32_t result = magnitude < 0x38800000u ? tiny : normal;
  result = magnitude >= 0x47800000u ? 0x7c00u : result;
  result = magnitude > 0x7f800000u ? kNan16 : result;
  sign = magnitude > 0x7f800000u ? 0 : sign;
  return static_cast<uint16_t>(sign | result);
}

/// To float, the last bit set if anything was lost: rounding it again, to fewer bits, then gives
/// what rounding `a + error` once would. `error`: what is to be added to a, less than its last bit.
VGPU_INLINE float to_odd(double a, double error) {
  // Exact sum in double, rounded to odd.
  int64_t u = bits<int64_t>(a);
  bool toward_zero = (error < 0) != (a < 0);
  u = error != 0.0 && (u & 1) == 0 ? (toward_zero ? u - 1 : u + 1) : u;
  double odd = bits<double>(u);
  auto f = static_cast<float>(odd);
  auto back = static_cast<double>(f);
  uint32_t v = bits<uint32_t>(f);
  double magnitude = odd < 0 ? -odd : odd, rounded = back < 0 ? -back : back;
  uint32_t adjusted = rounded > magnitude ? v - 1 : v;
  return back == odd || odd != odd ? f : bits<float>(adjusted | 1u);
}

/// a * b + c, to be rounded to fewer bits than 24 afterwards.
VGPU_INLINE float fma_to_odd(float a, float b, float c) {
  double product = static_cast<double>(a) * static_cast<double>(b);  // exact
  double addend = c;
  double sum = product + addend;
  // Knuth's TwoSum: the rounding error of the sum, exactly.
  double part = sum - product;
  double error = (product - (sum - part)) + (addend - part);
  error = sum - sum != 0.0 ? 0.0 : error;  // infinities and NaN
  return to_odd(sum, error);
}

/// 2^a within 1 ulp; exact for integers.
VGPU_INLINE float exp2_approx(float a) {
  float x = a > 129.0f ? 129.0f : a;
  x = x < -152.0f ? -152.0f : x;
  x = a != a ? 0.0f : x;
  float n = (x + 12582912.0f) - 12582912.0f;  // nearest integer
  float f = x - n;
  // Taylor series of exp(f ln 2), |f| <= 1/2: the rest is below 6e-9.
  float p = 1.5252734e-5f;
  p = __builtin_fmaf(p, f, 1.5403530e-4f);
  p = __builtin_fmaf(p, f, 1.3333558e-3f);
  p = __builtin_fmaf(p, f, 9.6181291e-3f);
  p = __builtin_fmaf(p, f, 5.5504109e-2f);
  p = __builtin_fmaf(p, f, 2.4022651e-1f);
  p = __builtin_fmaf(p, f, 6.9314718e-1f);
  p = __builtin_fmaf(p, f, 1.0f);
  // In two steps, since 2^n alone may be beyond the range of normal numbers.
  auto e = static_cast<int32_t>(n);
  int32_t half = e >> 1;
  float low = bits<float>(static_cast<uint32_t>(half + 127) << 23);
  float high = bits<float>(static_cast<uint32_t>(e - half + 127) << 23);
  float result = p * low * high;
  return a != a ? bits<float>(kNan32) : result;
}

VGPU_INLINE float log2_approx(float a) {
  bool subnormal = a < bits<float>(0x00800000u);
  float x = subnormal ? a * 16777216.0f : a;
  uint32_t u = bits<uint32_t>(x);
  // The exponent that leaves a mantissa in [sqrt(1/2), sqrt(2)).
  auto e = static_cast<int32_t>(u - 0x3f3504f3u) >> 23;
  float m = bits<float>(u - (static_cast<uint32_t>(e) << 23));
  float t = (m - 1.0f) / (m + 1.0f);
  float q = t * t;
  // atanh series: ln m = 2 (t + t^3/3 + ...), |t| < 0.172.
  float p = 9.0909091e-2f;
  p = __builtin_fmaf(p, q, 1.1111111e-1f);
  p = __builtin_fmaf(p, q, 1.4285715e-1f);
  p = __builtin_fmaf(p, q, 2.0e-1f);
  p = __builtin_fmaf(p, q, 3.3333334e-1f);
  p = __builtin_fmaf(p, q, 1.0f);
  float exponent = static_cast<float>(e) - (subnormal ? 24.0f : 0.0f);
  float result = __builtin_fmaf(2.8853901f * t, p, exponent);
  result = a == 0.0f ? -__builtin_inff() : result;
  result = a == __builtin_inff() ? a : result;
  return a < 0.0f || a != a ? bits<float>(kNan32) : result;
}

VGPU_INLINE float tanh_approx(float a) {
  float x = bits<float>(bits<uint32_t>(a) & 0x7fffffffu);
  float q = x * x;
  float p = 2.1869489e-2f;
  p = __builtin_fmaf(p, q, -5.3968254e-2f);
  p = __builtin_fmaf(p, q, 1.3333333e-1f);
  p = __builtin_fmaf(p, q, -3.3333334e-1f);
  float small = __builtin_fmaf(p * q, x, x);
  float e = exp2_approx(2.8853901f * (x > 12.0f ? 12.0f : x));
  float large = 1.0f - 2.0f / (e + 1.0f);
  float result = x < 0.25f ? small : large;
  result = bits<float>(bits<uint32_t>(result) | (bits<uint32_t>(a) & 0x80000000u));
  return a != a ? bits<float>(kNan32) : result;
}

}  // namespace tilewright::vgpu::VGPU_LEVEL
