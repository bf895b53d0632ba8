// min and max with what handlers/float.cpp and handlers/half.cpp lack: three sources, .xorsign.abs
// of halves and together with .ftz. PTX ISA, "min" and "max".
#include "jit/virtual_gpu/execute/common/families.h"
#include "jit/virtual_gpu/execute/common/half_scalar.h"
#include "jit/virtual_gpu/execute/common/per_lane.h"

namespace tilewright::vgpu {
namespace {

/// As lower_arithmetic.cpp packs them.
struct Flags {
  explicit Flags(std::int32_t bits)
      : nan((bits & 1) != 0),
        ftz((bits & 2) != 0),
        abs((bits & 4) != 0),
        xorsign((bits & 8) != 0) {}
  bool nan, ftz, abs, xorsign;
};

struct Single {
  using Bits = std::uint32_t;
  static constexpr Bits kSign = 0x80000000u, kExponent = 0x7f800000u, kNan = 0x7fffffffu;
  static float widen(Bits a) { return std::bit_cast<float>(a); }
};
template <bool kBf16>
struct Half {
  using Bits = std::uint16_t;
  static constexpr Bits kSign = 0x8000u, kExponent = kBf16 ? 0x7f80u : 0x7c00u, kNan = 0x7fffu;
  static float widen(Bits a) { return scalar::widen<kBf16>(a); }
};

template <class V, bool kMax>
struct MinMax {
  using Bits = typename V::Bits;
  static bool is_nan(Bits a) { return V::widen(a) != V::widen(a); }
  static Bits two(Bits a, Bits b, const Flags& flags) {
    if (is_nan(a) || is_nan(b)) {
      if (flags.nan || (is_nan(a) && is_nan(b))) return V::kNan;
      return is_nan(a) ? b : a;
    }
    float x = V::widen(a), y = V::widen(b);
    if (x == y) return static_cast<Bits>(kMax ? a & b : a | b);  // -0 is below +0
    return (kMax ? x > y : x < y) ? a : b;
  }
  static Bits prepared(Bits a, const Flags& flags) {
    if (flags.ftz && (a & V::kExponent) == 0) a &= V::kSign;
    return static_cast<Bits>(flags.abs ? a & ~V::kSign : a);
  }
  static Bits op(Bits a, Bits b, const Flags& flags) {
    Bits result = two(prepared(a, flags), prepared(b, flags), flags);
    if (!flags.xorsign || is_nan(result)) return result;
    return static_cast<Bits>(result | ((a ^ b) & V::kSign));
  }
};

template <class V, bool kMax>
const Step* min_max2(const Step* s, std::byte* r, Warp& w) {
  using Bits = typename V::Bits;
  const Flags flags(s->immediate);
  auto* d = lanes<Bits>(r, s->d);
  const auto *a = lanes<Bits>(r, s->a), *b = lanes<Bits>(r, s->b);
  for_lanes(w.mask, [&](int i) { d[i] = MinMax<V, kMax>::op(a[i], b[i], flags); });
  return s + 1;
}
template <class V, bool kMax>
const Step* min_max_pair(const Step* s, std::byte* r, Warp& w) {
  const Flags flags(s->immediate);
  auto* d = lanes<std::uint32_t>(r, s->d);
  const auto *a = lanes<std::uint32_t>(r, s->a), *b = lanes<std::uint32_t>(r, s->b);
  for_lanes(w.mask, [&](int i) {
    auto half = [&](int shift) {
      return std::uint32_t{MinMax<V, kMax>::op(static_cast<std::uint16_t>(a[i] >> shift),
                                               static_cast<std::uint16_t>(b[i] >> shift), flags)};
    };
    d[i] = half(16) << 16 | half(0);
  });
  return s + 1;
}
template <bool kMax>
const Step* min_max3(const Step* s, std::byte* r, Warp& w) {
  using F = MinMax<Single, kMax>;
  const Flags flags(s->immediate);
  auto* d = lanes<std::uint32_t>(r, s->d);
  const auto *a = lanes<std::uint32_t>(r, s->a), *b = lanes<std::uint32_t>(r, s->b),
             *c = lanes<std::uint32_t>(r, s->c);
  for_lanes(w.mask, [&](int i) {
    d[i] = F::two(F::two(F::prepared(a[i], flags), F::prepared(b[i], flags), flags),
                  F::prepared(c[i], flags), flags);
  });
  return s + 1;
}

template <bool kMax>
Handler of_two(const Form& form) {
  switch (form.type) {
    case Type::kF32:
      return min_max2<Single, kMax>;
    case Type::kF16:
      return min_max2<Half<false>, kMax>;
    case Type::kBF16:
      return form.ftz ? nullptr : min_max2<Half<true>, kMax>;
    case Type::kF16x2:
      return min_max_pair<Half<false>, kMax>;
    case Type::kBF16x2:
      return form.ftz ? nullptr : min_max_pair<Half<true>, kMax>;
    default:
      return nullptr;
  }
}

}  // namespace

Handler select_rare_minmax(const Form& form) {
  if (form.saturate || form.relu) return nullptr;
  switch (form.op) {
    case Op::kMin:
      return of_two<false>(form);
    case Op::kMax:
      return of_two<true>(form);
    case Op::kMin3:
      return form.type == Type::kF32 ? min_max3<false> : nullptr;
    case Op::kMax3:
      return form.type == Type::kF32 ? min_max3<true> : nullptr;
    default:
      return nullptr;
  }
}

}  // namespace tilewright::vgpu
