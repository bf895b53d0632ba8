// The conversions that kernels make in their inner loops. The others are in common/convert.cpp.
#include "jit/virtual_gpu/execute/handlers/float_math.h"

namespace tilewright::vgpu::VGPU_LEVEL {
namespace {

/// The low bytes of a register, as Narrow, extended to another register.
template <class Narrow, class To>
struct Extend {
  template <class From>
  VGPU_INLINE To op(From a) {
    return static_cast<To>(static_cast<Narrow>(a));
  }
};

template <class Narrow, class To>
Handler extend_from(int from_bytes) {
  switch (from_bytes) {
    case 2:
      return map1<Extend<Narrow, To>, To, uint16_t>;
    case 4:
      return map1<Extend<Narrow, To>, To, uint32_t>;
    case 8:
      return map1<Extend<Narrow, To>, To, uint64_t>;
    default:
      return nullptr;
  }
}
template <class Narrow>
Handler extend(const Form& form) {
  switch (form.register_bytes) {
    case 2:
      return extend_from<Narrow, uint16_t>(form.address_bytes);
    case 4:
      return extend_from<Narrow, uint32_t>(form.address_bytes);
    case 8:
      return extend_from<Narrow, uint64_t>(form.address_bytes);
    default:
      return nullptr;
  }
}
Handler integers(const Form& form) {
  switch (form.type) {
    case Type::kU8:
    case Type::kB8:
      return extend<uint8_t>(form);
    case Type::kS8:
      return extend<int8_t>(form);
    case Type::kU16:
    case Type::kB16:
      return extend<uint16_t>(form);
    case Type::kS16:
      return extend<int16_t>(form);
    case Type::kU32:
    case Type::kB32:
      return extend<uint32_t>(form);
    case Type::kS32:
      return extend<int32_t>(form);
    default:
      return extend<uint64_t>(form);
  }
}

template <bool kFtz>
struct FloatToBf16 {
  VGPU_INLINE uint16_t op(float a) { return to_bf16(kFtz ? flush(a) : a); }
};
template <bool kFtz>
struct FloatToF16 {
  VGPU_INLINE uint16_t op(float a) { return to_f16(kFtz ? flush(a) : a); }
};
struct Bf16ToFloat {
  VGPU_INLINE float op(uint16_t a) { return one_nan(from_bf16(a)); }
};
struct F16ToFloat {
  VGPU_INLINE float op(uint16_t a) { return one_nan(from_f16(a)); }
};
/// cvt.f16x2.f32 d, a, b: a goes to the upper half.
template <bool kBf16, bool kRelu>
struct FloatsToPair {
  VGPU_INLINE uint16_t one(float a) {
    if (kRelu) a = a < 0.0f ? 0.0f : a;
    return kBf16 ? to_bf16(a) : to_f16(a);
  }
  VGPU_INLINE uint32_t op(float a, float b) { return static_cast<uint32_t>(one(a)) << 16 | one(b); }
};

template <class From>
struct ToFloat {
  VGPU_INLINE float op(From a) { return static_cast<float>(a); }
};
struct FloatToDouble {
  VGPU_INLINE double op(float a) { return a != a ? bits<double>(kNan64) : static_cast<double>(a); }
};
struct DoubleToFloat {
  VGPU_INLINE float op(double a) { return one_nan(static_cast<float>(a)); }
};

/// To an integral value, as .rni .rzi .rmi .rpi say; the sign of zero is kept.
template <Round kRound>
VGPU_INLINE float integral(float a) {
  float magnitude = bits<float>(bits<uint32_t>(a) & 0x7fffffffu);
  // Adding 2^23 leaves no room for a fraction. Larger values are integral already.
  float nearest = (magnitude + 8388608.0f) - 8388608.0f;
  bool negative = (bits<uint32_t>(a) >> 31) != 0;
  float result = nearest;
  if (kRound == Round::kZero) result = nearest > magnitude ? nearest - 1.0f : nearest;
  if (kRound == Round::kDown || kRound == Round::kUp) {
    float down = nearest > magnitude ? nearest - 1.0f : nearest;
    float up = nearest < magnitude ? nearest + 1.0f : nearest;
    result = negative == (kRound == Round::kUp) ? down : up;
  }
  result = magnitude < 8388608.0f ? result : magnitude;
  return bits<float>(bits<uint32_t>(result) | (bits<uint32_t>(a) & 0x80000000u));
}

template <Round kRound, bool kFtz>
struct FloatIntegral {
  VGPU_INLINE float op(float a) { return one_nan(integral<kRound>(kFtz ? flush(a) : a)); }
};
template <Round kRound, bool kFtz>
struct FloatToS32 {
  VGPU_INLINE int32_t op(float a) {
    float f = integral<kRound>(kFtz ? flush(a) : a);
    float inside = f < 2147483648.0f ? f : 0.0f;
    inside = inside >= -2147483648.0f ? inside : -2147483648.0f;
    inside = a != a ? 0.0f : inside;
    auto i = static_cast<int32_t>(inside);
    return f >= 2147483648.0f ? 0x7fffffff : i;
  }
};
template <Round kRound, bool kFtz>
struct FloatToU32 {
  VGPU_INLINE uint32_t op(float a) {
    float f = integral<kRound>(kFtz ? flush(a) : a);
    float inside = f > 0.0f ? f : 0.0f;  // NaN, too
    inside = f < 4294967296.0f ? inside : 0.0f;
    bool high = inside >= 2147483648.0f;
    auto low = static_cast<uint32_t>(static_cast<int32_t>(high ? inside - 2147483648.0f : inside));
    return f >= 4294967296.0f ? 0xffffffffu : low + (high ? 0x80000000u : 0);
  }
};
struct Saturate {
  VGPU_INLINE float op(float a) { return saturate(a); }
};
struct SaturateFlush {
  VGPU_INLINE float op(float a) { return saturate(flush(a)); }
};
struct Flush {
  VGPU_INLINE float op(float a) { return one_nan(flush(a)); }
};
struct Canonical {
  VGPU_INLINE float op(float a) { return one_nan(a); }
};

template <template <Round, bool> class F, class To>
Handler rounded(const Form& form) {
  switch (form.round) {
    case Round::kNearest:
      return form.ftz ? map1<F<Round::kNearest, true>, To, float>
                      : map1<F<Round::kNearest, false>, To, float>;
    case Round::kZero:
      return form.ftz ? map1<F<Round::kZero, true>, To, float>
                      : map1<F<Round::kZero, false>, To, float>;
    case Round::kDown:
      return form.ftz ? map1<F<Round::kDown, true>, To, float>
                      : map1<F<Round::kDown, false>, To, float>;
    case Round::kUp:
      return form.ftz ? map1<F<Round::kUp, true>, To, float>
                      : map1<F<Round::kUp, false>, To, float>;
  }
  return nullptr;
}

Handler from_float(const Form& form) {
  bool nearest = form.round == Round::kNearest;
  switch (form.type) {
    case Type::kF32:
      if (form.integral) return form.saturate ? nullptr : rounded<FloatIntegral, float>(form);
      if (form.saturate)
        return form.ftz ? map1<SaturateFlush, float, float> : map1<Saturate, float, float>;
      return form.ftz ? map1<Flush, float, float> : map1<Canonical, float, float>;
    case Type::kS32:
      return form.register_bytes == 4 ? rounded<FloatToS32, int32_t>(form) : nullptr;
    case Type::kU32:
      return form.register_bytes == 4 ? rounded<FloatToU32, uint32_t>(form) : nullptr;
    case Type::kF16:
      if (!nearest || form.relu || form.saturate || form.absolute || form.register_bytes != 2)
        return nullptr;
      return form.ftz ? map1<FloatToF16<true>, uint16_t, float>
                      : map1<FloatToF16<false>, uint16_t, float>;
    case Type::kBF16:
      if (!nearest || form.relu || form.saturate || form.absolute || form.register_bytes != 2)
        return nullptr;
      return form.ftz ? map1<FloatToBf16<true>, uint16_t, float>
                      : map1<FloatToBf16<false>, uint16_t, float>;
    case Type::kF16x2:
      if (!nearest || form.saturate || form.ftz || form.absolute) return nullptr;
      return form.relu ? map2<FloatsToPair<false, true>, uint32_t, float, float>
                       : map2<FloatsToPair<false, false>, uint32_t, float, float>;
    case Type::kBF16x2:
      if (!nearest || form.saturate || form.ftz || form.absolute) return nullptr;
      return form.relu ? map2<FloatsToPair<true, true>, uint32_t, float, float>
                       : map2<FloatsToPair<true, false>, uint32_t, float, float>;
    case Type::kF64:
      return form.ftz || form.saturate ? nullptr : map1<FloatToDouble, double, float>;
    default:
      return nullptr;
  }
}

}  // namespace

Handler select_convert(const Form& form) {
  if (form.op != Op::kCvt) return nullptr;
  if (form.mode == 1) return integers(form);
  bool plain = !form.ftz && !form.saturate && !form.relu && !form.integral;
  switch (form.from) {
    case Type::kF32:
      return from_float(form);
    case Type::kF16:
      return plain && form.type == Type::kF32 && form.address_bytes == 2
                 ? map1<F16ToFloat, float, uint16_t>
                 : nullptr;
    case Type::kBF16:
      return plain && form.type == Type::kF32 && form.address_bytes == 2
                 ? map1<Bf16ToFloat, float, uint16_t>
                 : nullptr;
    case Type::kF64:
      return plain && form.type == Type::kF32 && form.round == Round::kNearest
                 ? map1<DoubleToFloat, float, double>
                 : nullptr;
    case Type::kS32:
      return plain && form.type == Type::kF32 && form.round == Round::kNearest &&
                     form.address_bytes == 4
                 ? map1<ToFloat<int32_t>, float, int32_t>
                 : nullptr;
    case Type::kU32:
      return plain && form.type == Type::kF32 && form.round == Round::kNearest &&
                     form.address_bytes == 4
                 ? map1<ToFloat<uint32_t>, float, uint32_t>
                 : nullptr;
    default:
      return nullptr;
  }
}

}  // namespace tilewright::vgpu::VGPU_LEVEL
