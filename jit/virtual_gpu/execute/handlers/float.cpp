// f32 and f64 arithmetic, rounded to nearest. Other roundings are in common/rare_float.cpp.
#include "jit/virtual_gpu/execute/handlers/float_math.h"

namespace tilewright::vgpu::VGPU_LEVEL {
namespace {

/// Around a function of floats: .ftz on inputs and output, .sat, one NaN.
template <class F, bool kFtz, bool kSat>
struct Float {
  template <class... A>
  VGPU_INLINE float op(A... a) {
    float result = F::op((kFtz ? flush(a) : a)...);
    if (kFtz) result = flush(result);
    if (kSat) return saturate(result);
    return one_nan(result);
  }
};
template <class F>
struct Double {
  template <class... A>
  VGPU_INLINE double op(A... a) {
    double result = F::op(a...);
    return result != result ? bits<double>(kNan64) : result;
  }
};

struct Add {
  template <class T>
  VGPU_INLINE T op(T a, T b) {
    return a + b;
  }
};
struct Sub {
  template <class T>
  VGPU_INLINE T op(T a, T b) {
    return a - b;
  }
};
struct Mul {
  template <class T>
  VGPU_INLINE T op(T a, T b) {
    return a * b;
  }
};
struct Div {
  template <class T>
  VGPU_INLINE T op(T a, T b) {
    return a / b;
  }
};
struct Fma {
  VGPU_INLINE float op(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
  VGPU_INLINE double op(double a, double b, double c) { return __builtin_fma(a, b, c); }
};
struct Sqrt {
  VGPU_INLINE float op(float a) { return __builtin_sqrtf(a); }
  VGPU_INLINE double op(double a) { return __builtin_sqrt(a); }
};
struct Rcp {
  template <class T>
  VGPU_INLINE T op(T a) {
    return T{1} / a;
  }
};
struct Rsqrt {
  VGPU_INLINE float op(float a) { return 1.0f / __builtin_sqrtf(a); }
  VGPU_INLINE double op(double a) { return 1.0 / __builtin_sqrt(a); }
};

template <class F>
Handler float2(const Form& form) {
  if (form.type == Type::kF64) return map2<Double<F>, double, double, double>;
  if (form.saturate)
    return form.ftz ? map2<Float<F, true, true>, float, float, float>
                    : map2<Float<F, false, true>, float, float, float>;
  return form.ftz ? map2<Float<F, true, false>, float, float, float>
                  : map2<Float<F, false, false>, float, float, float>;
}
template <class F>
Handler float1(const Form& form) {
  if (form.type == Type::kF64) return map1<Double<F>, double, double>;
  return form.ftz ? map1<Float<F, true, false>, float, float>
                  : map1<Float<F, false, false>, float, float>;
}
Handler fma(const Form& form) {
  if (form.type == Type::kF64) return map3<Double<Fma>, double, double, double, double>;
  if (form.saturate)
    return form.ftz ? map3<Float<Fma, true, true>, float, float, float, float>
                    : map3<Float<Fma, false, true>, float, float, float, float>;
  return form.ftz ? map3<Float<Fma, true, false>, float, float, float, float>
                  : map3<Float<Fma, false, false>, float, float, float, float>;
}

/// -0 is less than +0; a NaN gives way to a number, unless kNan.
template <bool kMax, bool kNan, bool kFtz, bool kXorSign>
struct MinMax {
  VGPU_INLINE float op(float a, float b) {
    if (kFtz) {
      a = flush(a);
      b = flush(b);
    }
    uint32_t sign = (bits<uint32_t>(a) ^ bits<uint32_t>(b)) & 0x80000000u;
    if (kXorSign) {
      a = bits<float>(bits<uint32_t>(a) & 0x7fffffffu);
      b = bits<float>(bits<uint32_t>(b) & 0x7fffffffu);
    }
    float result = (kMax ? a > b : a < b) ? a : b;
    uint32_t both =
        kMax ? bits<uint32_t>(a) & bits<uint32_t>(b) : bits<uint32_t>(a) | bits<uint32_t>(b);
    result = a == b ? bits<float>(both) : result;
    result = b != b ? a : result;
    result = a != a ? b : result;
    if (kNan) result = (a != a) | (b != b) ? bits<float>(kNan32) : result;
    result = one_nan(result);
    if (kXorSign) {  // not of a NaN
      float with_sign = bits<float>((bits<uint32_t>(result) & 0x7fffffffu) | sign);
      result = result != result ? result : with_sign;
    }
    return result;
  }
};
template <bool kMax>
struct MinMax64 {
  VGPU_INLINE double op(double a, double b) {
    double result = (kMax ? a > b : a < b) ? a : b;
    uint64_t both =
        kMax ? bits<uint64_t>(a) & bits<uint64_t>(b) : bits<uint64_t>(a) | bits<uint64_t>(b);
    result = a == b ? bits<double>(both) : result;
    result = b != b ? a : result;
    result = a != a ? b : result;
    return result != result ? bits<double>(kNan64) : result;
  }
};

template <bool kMax>
Handler min_max(const Form& form) {
  if (form.type == Type::kF64) return map2<MinMax64<kMax>, double, double, double>;
  if (form.type != Type::kF32 || (form.mode == 1 && form.ftz)) return nullptr;
  if (form.mode == 1)
    return form.nan ? map2<MinMax<kMax, true, false, true>, float, float, float>
                    : map2<MinMax<kMax, false, false, true>, float, float, float>;
  if (form.nan)
    return form.ftz ? map2<MinMax<kMax, true, true, false>, float, float, float>
                    : map2<MinMax<kMax, true, false, false>, float, float, float>;
  return form.ftz ? map2<MinMax<kMax, false, true, false>, float, float, float>
                  : map2<MinMax<kMax, false, false, false>, float, float, float>;
}

template <bool kFtz>
struct Abs {
  VGPU_INLINE float op(float a) {
    return one_nan(bits<float>(bits<uint32_t>(kFtz ? flush(a) : a) & 0x7fffffffu));
  }
};
template <bool kFtz>
struct Neg {
  VGPU_INLINE float op(float a) {
    return one_nan(bits<float>(bits<uint32_t>(kFtz ? flush(a) : a) ^ 0x80000000u));
  }
};
struct Abs64 {
  VGPU_INLINE uint64_t op(uint64_t a) { return a & ~(uint64_t{1} << 63); }
};
struct Neg64 {
  VGPU_INLINE uint64_t op(uint64_t a) {
    return a ^ uint64_t { 1 } << 63;
  }
};
/// The sign is that of the first source, the magnitude that of the second.
struct CopySign {
  VGPU_INLINE uint32_t op(uint32_t a, uint32_t b) { return (a & 0x80000000u) | (b & 0x7fffffffu); }
  VGPU_INLINE uint64_t op(uint64_t a, uint64_t b) {
    return (a & uint64_t{1} << 63) | (b & ~(uint64_t{1} << 63));
  }
};

}  // namespace

Handler select_float(const Form& form) {
  bool f32 = form.type == Type::kF32, f64 = form.type == Type::kF64;
  if ((!f32 && !f64) || form.relu) return nullptr;
  if (form.round != Round::kNearest) return nullptr;
  switch (form.op) {
    case Op::kAdd:
      return float2<Add>(form);
    case Op::kSub:
      return float2<Sub>(form);
    case Op::kMul:
      return float2<Mul>(form);
    case Op::kDiv:
      return float2<Div>(form);
    case Op::kFma:
      return fma(form);
    case Op::kSqrt:
    case Op::kSqrtApprox:
      return float1<Sqrt>(form);
    case Op::kRcp:
      return float1<Rcp>(form);
    case Op::kRsqrt:
      return float1<Rsqrt>(form);
    case Op::kMin:
      return min_max<false>(form);
    case Op::kMax:
      return min_max<true>(form);
    case Op::kAbs:
      if (f64) return map1<Abs64, uint64_t, uint64_t>;
      return form.ftz ? map1<Abs<true>, float, float> : map1<Abs<false>, float, float>;
    case Op::kNeg:
      if (f64) return map1<Neg64, uint64_t, uint64_t>;
      return form.ftz ? map1<Neg<true>, float, float> : map1<Neg<false>, float, float>;
    case Op::kCopysign:
      return f64 ? map2<CopySign, uint64_t, uint64_t, uint64_t>
                 : map2<CopySign, uint32_t, uint32_t, uint32_t>;
    default:
      return nullptr;
  }
}

}  // namespace tilewright::vgpu::VGPU_LEVEL
