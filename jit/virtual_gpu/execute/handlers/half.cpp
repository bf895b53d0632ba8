// f16, bf16 and their pairs. Sums and products go through f32: its 24 bits are enough that rounding
// twice is rounding once. fma is not so lucky and goes through round-to-odd.
#include "jit/virtual_gpu/execute/handlers/float_math.h"

namespace tilewright::vgpu::VGPU_LEVEL {
namespace {

template <bool kBf16>
VGPU_INLINE float widen(uint16_t a) {
  return kBf16 ? from_bf16(a) : from_f16(a);
}
template <bool kBf16>
VGPU_INLINE uint16_t narrow(float a) {
  return kBf16 ? to_bf16(a) : to_f16(a);
}
/// .ftz of f16: subnormals are those of f16.
template <bool kFtz>
VGPU_INLINE uint16_t flush16(uint16_t a) {
  return kFtz && (a & 0x7c00u) == 0 ? a & 0x8000u : a;
}

struct Add {
  VGPU_INLINE float op(float a, float b) { return a + b; }
};
struct Sub {
  VGPU_INLINE float op(float a, float b) { return a - b; }
};
struct Mul {
  /// Exact in double; an f32 product could be subnormal and lose bits.
  VGPU_INLINE float op(float a, float b) {
    return to_odd(static_cast<double>(a) * static_cast<double>(b), 0.0);
  }
};
struct Fma {
  VGPU_INLINE float op(float a, float b, float c) { return fma_to_odd(a, b, c); }
};

template <class F, bool kBf16, bool kFtz, bool kSat, bool kRelu>
struct Half {
  template <class... A>
  VGPU_INLINE uint16_t one(A... a) {
    float result = F::op(widen<kBf16>(flush16<kFtz>(a))...);
    if (kSat) result = saturate(result);
    if (kRelu) result = result < 0.0f ? 0.0f : result;
    return flush16<kFtz>(narrow<kBf16>(result));
  }
  VGPU_INLINE uint16_t op(uint16_t a, uint16_t b) { return one(a, b); }
  VGPU_INLINE uint16_t op(uint16_t a, uint16_t b, uint16_t c) { return one(a, b, c); }
  template <class... A>
  VGPU_INLINE uint32_t two(A... a) {
    return static_cast<uint32_t>(one(static_cast<uint16_t>(a >> 16)...)) << 16 |
           one(static_cast<uint16_t>(a)...);
  }
  VGPU_INLINE uint32_t op(uint32_t a, uint32_t b) { return two(a, b); }
  VGPU_INLINE uint32_t op(uint32_t a, uint32_t b, uint32_t c) { return two(a, b, c); }
};

template <class F>
Handler sources2(bool pair) {
  return pair ? map2<F, uint32_t, uint32_t, uint32_t> : map2<F, uint16_t, uint16_t, uint16_t>;
}
template <class F>
Handler sources3(bool pair) {
  return pair ? map3<F, uint32_t, uint32_t, uint32_t, uint32_t>
              : map3<F, uint16_t, uint16_t, uint16_t, uint16_t>;
}

template <class F>
Handler binary(const Form& form, bool bf16, bool pair) {
  if (form.relu) return nullptr;
  if (bf16)
    return form.saturate || form.ftz ? nullptr : sources2<Half<F, true, false, false, false>>(pair);
  if (form.saturate)
    return form.ftz ? sources2<Half<F, false, true, true, false>>(pair)
                    : sources2<Half<F, false, false, true, false>>(pair);
  return form.ftz ? sources2<Half<F, false, true, false, false>>(pair)
                  : sources2<Half<F, false, false, false, false>>(pair);
}
Handler fma(const Form& form, bool bf16, bool pair) {
  if (bf16) {
    if (form.saturate || form.ftz) return nullptr;
    return form.relu ? sources3<Half<Fma, true, false, false, true>>(pair)
                     : sources3<Half<Fma, true, false, false, false>>(pair);
  }
  if (form.saturate)
    return form.ftz ? sources3<Half<Fma, false, true, true, false>>(pair)
                    : sources3<Half<Fma, false, false, true, false>>(pair);
  if (form.relu)
    return form.ftz ? sources3<Half<Fma, false, true, false, true>>(pair)
                    : sources3<Half<Fma, false, false, false, true>>(pair);
  return form.ftz ? sources3<Half<Fma, false, true, false, false>>(pair)
                  : sources3<Half<Fma, false, false, false, false>>(pair);
}

template <bool kMax, bool kNan, bool kBf16, bool kFtz>
struct MinMax {
  VGPU_INLINE uint16_t op(uint16_t x, uint16_t y) {
    x = flush16 < kFtz && !kBf16 > (x);
    y = flush16 < kFtz && !kBf16 > (y);
    float a = widen<kBf16>(x), b = widen<kBf16>(y);
    bool x_nan = a != a, y_nan = b != b;
    uint16_t result = (kMax ? a > b : a < b) ? x : y;
    result = a == b ? static_cast<uint16_t>(kMax ? x & y : x | y) : result;
    result = y_nan ? x : result;
    result = x_nan ? y : result;
    return (kNan ? x_nan | y_nan : x_nan & y_nan) ? kNan16 : result;
  }
  VGPU_INLINE uint32_t op(uint32_t a, uint32_t b) {
    return static_cast<uint32_t>(op(static_cast<uint16_t>(a >> 16), static_cast<uint16_t>(b >> 16)))
               << 16 |
           op(static_cast<uint16_t>(a), static_cast<uint16_t>(b));
  }
};
template <bool kMax>
Handler min_max(const Form& form, bool bf16, bool pair) {
  if (form.mode != 0) return nullptr;
  if (bf16)
    return form.nan ? sources2<MinMax<kMax, true, true, false>>(pair)
                    : sources2<MinMax<kMax, false, true, false>>(pair);
  if (form.ftz)
    return form.nan ? sources2<MinMax<kMax, true, false, true>>(pair)
                    : sources2<MinMax<kMax, false, false, true>>(pair);
  return form.nan ? sources2<MinMax<kMax, true, false, false>>(pair)
                  : sources2<MinMax<kMax, false, false, false>>(pair);
}

template <bool kNegate, bool kBf16, bool kFtz = false>
struct Sign {
  VGPU_INLINE uint16_t op(uint16_t a) {
    a = flush16<kFtz>(a);
    float f = widen<kBf16>(a);
    auto result = static_cast<uint16_t>(kNegate ? a ^ 0x8000u : a & 0x7fffu);
    return f != f ? kNan16 : result;
  }
  VGPU_INLINE uint32_t op(uint32_t a) {
    return static_cast<uint32_t>(op(static_cast<uint16_t>(a >> 16))) << 16 |
           op(static_cast<uint16_t>(a));
  }
};
template <bool kNegate>
Handler sign(const Form& form, bool bf16, bool pair) {
  if (form.ftz) {
    if (bf16) return nullptr;
    return pair ? map1<Sign<kNegate, false, true>, uint32_t, uint32_t>
                : map1<Sign<kNegate, false, true>, uint16_t, uint16_t>;
  }
  if (bf16)
    return pair ? map1<Sign<kNegate, true>, uint32_t, uint32_t>
                : map1<Sign<kNegate, true>, uint16_t, uint16_t>;
  return pair ? map1<Sign<kNegate, false>, uint32_t, uint32_t>
              : map1<Sign<kNegate, false>, uint16_t, uint16_t>;
}

}  // namespace

Handler select_half(const Form& form) {
  bool bf16 = form.type == Type::kBF16 || form.type == Type::kBF16x2;
  bool pair = form.type == Type::kF16x2 || form.type == Type::kBF16x2;
  if (!bf16 && !pair && form.type != Type::kF16) return nullptr;
  if (form.round != Round::kNearest) return nullptr;
  switch (form.op) {
    case Op::kAdd:
      return binary<Add>(form, bf16, pair);
    case Op::kSub:
      return binary<Sub>(form, bf16, pair);
    case Op::kMul:
      return binary<Mul>(form, bf16, pair);
    case Op::kFma:
      return fma(form, bf16, pair);
    case Op::kMin:
      return min_max<false>(form, bf16, pair);
    case Op::kMax:
      return min_max<true>(form, bf16, pair);
    case Op::kNeg:
      return sign<true>(form, bf16, pair);
    case Op::kAbs:
      return sign<false>(form, bf16, pair);
    default:
      return nullptr;
  }
}

}  // namespace tilewright::vgpu::VGPU_LEVEL
