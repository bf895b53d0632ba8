/// Storage types, their conversions, and the integers that offsets are made of. Arithmetic is f32;
/// rounding happens in `narrow` only.
#pragma once

/// Offsets of rows, batches and pages are 64-bit; offsets inside a row are int.
using index = long long;

struct bf16 {
  unsigned short bits;
};
struct f16 {
  unsigned short bits;
};

template <typename A, typename B>
inline constexpr bool kIsSame = false;
template <typename A>
inline constexpr bool kIsSame<A, A> = true;

template <typename To, typename From>
__device__ inline To bits_as(From x) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, x);
}

__device__ inline float widen(float x) { return x; }
__device__ inline float widen(bf16 x) { return bits_as<float>(unsigned(x.bits) << 16); }
__device__ inline float widen(f16 x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}

// PTX ISA, "cvt": .rn rounds to nearest even; NaN stays NaN, what is too large becomes infinite.
template <typename T>
__device__ inline T narrow(float x);
template <>
__device__ inline float narrow<float>(float x) {
  return x;
}
template <>
__device__ inline bf16 narrow<bf16>(float x) {
  bf16 y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}
template <>
__device__ inline f16 narrow<f16>(float x) {
  f16 y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}

/// Two elements of a 16-bit type in one register, the first one in the low half.
template <typename T>
__device__ inline unsigned narrow_pair(float low, float high);
template <>
__device__ inline unsigned narrow_pair<bf16>(float low, float high) {
  unsigned pair;
  asm("cvt.rn.bf16x2.f32 %0, %2, %1;" : "=r"(pair) : "f"(low), "f"(high));
  return pair;
}
template <>
__device__ inline unsigned narrow_pair<f16>(float low, float high) {
  unsigned pair;
  asm("cvt.rn.f16x2.f32 %0, %2, %1;" : "=r"(pair) : "f"(low), "f"(high));
  return pair;
}

/// Half 0 or 1 of such a register, in f32.
template <typename T, int kHalf>
__device__ inline float widen_half(unsigned pair) {
  if constexpr (kIsSame<T, bf16>) {
    return bits_as<float>(kHalf == 0 ? pair << 16 : pair & 0xffff0000u);
  } else {
    return widen(f16{static_cast<unsigned short>(kHalf == 0 ? pair : pair >> 16)});
  }
}

__device__ constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
__device__ constexpr int smaller(int a, int b) { return a < b ? a : b; }
__device__ constexpr int larger(int a, int b) { return a > b ? a : b; }
