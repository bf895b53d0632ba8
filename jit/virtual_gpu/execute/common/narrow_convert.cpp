// cvt to and from formats of 8, 6 and 4 bits, two at a time, and to tf32. PTX ISA, "cvt" and
// "Alternate Floating-Point Data Formats".
#include <algorithm>
#include <cmath>

#include "jit/virtual_gpu/execute/common/families.h"
#include "jit/virtual_gpu/execute/common/half_scalar.h"
#include "jit/virtual_gpu/execute/common/per_lane.h"
#include "jit/virtual_gpu/program/narrow_conversion.h"

namespace tilewright::vgpu {
namespace {

using Kind = NarrowConversion::Kind;
using Format = NarrowConversion::Format;
using Rounding = NarrowConversion::Rounding;
using U32 = std::uint32_t;

constexpr U32 kHalfNan = 0x7fff;

/// A format with a sign. The codes of infinity and NaN are beyond that of the largest.
struct Layout {
  int mantissa, bias;
  int bits;  ///< sign included
  double largest;
  U32 largest_code;
  U32 nan;       ///< what a NaN becomes: the largest, where there is none
  U32 infinity;  ///< 0: there is none
};
constexpr Layout kE4M3{3, 7, 8, 448, 0x7e, 0x7f, 0}, kE5M2{2, 15, 8, 57344, 0x7b, 0x7f, 0x7c},
    kE2M3{3, 1, 6, 7.5, 0x1f, 0x1f, 0}, kE3M2{2, 3, 6, 28, 0x1f, 0x1f, 0},
    kE2M1{1, 1, 4, 6, 0x7, 0x7, 0};

const Layout& layout_of(Format format) {
  switch (format) {
    case Format::kE4M3:
      return kE4M3;
    case Format::kE5M2:
      return kE5M2;
    case Format::kE2M3:
      return kE2M3;
    case Format::kE3M2:
      return kE3M2;
    default:
      return kE2M1;
  }
}

/// To the nearest, ties to even; what is too large becomes the largest (.satfinite, which is
/// mandatory).
U32 to_code(double a, const Layout& f, bool relu) {
  if (a != a) return f.nan;
  if (relu && std::signbit(a)) return 0;
  const U32 sign = std::signbit(a) ? 1u << (f.bits - 1) : 0;
  a = std::fabs(a);
  if (a >= f.largest) return sign | f.largest_code;
  const int lowest = 1 - f.bias;
  const int exponent = a == 0 ? lowest : std::max(std::ilogb(a), lowest);
  // In units of the last place, the implicit bit included: it carries into the exponent by itself.
  const auto units = static_cast<U32>(std::nearbyint(std::ldexp(a, f.mantissa - exponent)));
  const auto base = static_cast<U32>(exponent - lowest) << f.mantissa;
  return sign | (base + units);
}

/// Exact: every code is an f16.
U32 to_half(U32 code, const Layout& f, bool relu) {
  const U32 sign = 1u << (f.bits - 1), magnitude = code & (sign - 1);
  const bool negative = (code & sign) != 0;
  if (magnitude > f.largest_code && magnitude != f.infinity) return kHalfNan;
  if (relu && negative) return 0;
  if (magnitude > f.largest_code) return negative ? 0xfc00 : 0x7c00;
  const int exponent = static_cast<int>(magnitude >> f.mantissa), one = 1 << f.mantissa;
  const int mantissa = static_cast<int>(magnitude) & (one - 1);
  const float value =
      exponent == 0
          ? std::ldexp(static_cast<float>(mantissa), 1 - f.bias - f.mantissa)
          : std::ldexp(static_cast<float>(one + mantissa), exponent - f.bias - f.mantissa);
  return scalar::to_f16(negative ? -value : value);
}

/// The exponent of |a|, up where it is no power of two and the rounding says so.
U32 to_ue8m0(float a, const NarrowConversion& c) {
  const U32 bits = std::bit_cast<U32>(a) & 0x7fffffffu, mantissa = bits & 0x7fffffu;
  constexpr U32 kInfinity = 0x7f800000, kLeast = 0x00400000;  // 2^-127, a subnormal
  U32 code = bits >> 23;
  if (c.rounding == Rounding::kUp && mantissa != 0 && bits > kLeast && bits < kInfinity) ++code;
  if (c.satfinite && bits <= kInfinity && code == 0xff) --code;
  return code;
}
U32 from_ue8m0(U32 code) { return code == 0xff ? kHalfNan : code == 0 ? 0x0040 : code << 7; }

U32 to_tf32(U32 bits, const NarrowConversion& c) {
  constexpr U32 kInfinity = 0x7f800000, kNan = 0x7fffffff, kLargest = 0x7f7fe000;
  const U32 sign = bits & 0x80000000u;
  U32 magnitude = bits & 0x7fffffffu;
  if (magnitude > kInfinity) return kNan;
  if (c.relu && sign != 0) return 0;
  if (magnitude < kInfinity) {
    if (c.rounding == Rounding::kNearestAway) magnitude += 0x1000;
    if (c.rounding == Rounding::kNearestEven) magnitude += 0xfff + (magnitude >> 13 & 1);
    magnitude &= ~0x1fffu;
  }
  if (c.satfinite && magnitude >= kInfinity) magnitude = kLargest;
  return sign | magnitude;
}

const Step* convert_narrow(const Step* s, std::byte* r, Warp& w) {
  const auto c = NarrowConversion::unpack(static_cast<U32>(s->immediate));
  const Layout& f = layout_of(c.format);
  const bool scale = c.format == Format::kUE8M0;
  // Pairs lie in bytes, of 4 bits in one.
  const int shift = c.format == Format::kE2M1 ? 4 : 8;
  const U32 low_mask = (1u << shift) - 1;
  auto code = [&](float a) { return scale ? to_ue8m0(a, c) : to_code(a, f, c.relu); };
  auto paired = [&](U32 high, U32 low) { return static_cast<std::uint16_t>(high << shift | low); };
  auto *narrow = lanes<std::uint16_t>(r, s->d), *pair = lanes<std::uint16_t>(r, s->a);
  auto *wide = lanes<U32>(r, s->d), *words = lanes<U32>(r, s->a);
  switch (c.kind) {
    case Kind::kFromFloats: {
      const auto *a = lanes<float>(r, s->a), *b = lanes<float>(r, s->b);
      for_lanes(w.mask, [&](int i) { narrow[i] = paired(code(a[i]), code(b[i])); });
      break;
    }
    case Kind::kFromHalves:
      for_lanes(w.mask, [&](int i) {
        auto one = [&](U32 half) {
          return code(scalar::from_f16(static_cast<std::uint16_t>(half)));
        };
        narrow[i] = paired(one(words[i] >> 16), one(words[i] & 0xffff));
      });
      break;
    case Kind::kFromBf16:
      for_lanes(w.mask, [&](int i) {
        auto one = [&](U32 half) {
          return code(scalar::from_bf16(static_cast<std::uint16_t>(half)));
        };
        narrow[i] = paired(one(words[i] >> 16), one(words[i] & 0xffff));
      });
      break;
    case Kind::kToHalves:
      for_lanes(w.mask, [&](int i) {
        U32 codes = pair[i];
        wide[i] = to_half(codes >> shift & low_mask, f, c.relu) << 16 |
                  to_half(codes & low_mask, f, c.relu);
      });
      break;
    case Kind::kToBf16:
      for_lanes(w.mask, [&](int i) {
        U32 codes = pair[i];
        wide[i] = from_ue8m0(codes >> 8) << 16 | from_ue8m0(codes & 0xff);
      });
      break;
    case Kind::kTf32:
      for_lanes(w.mask, [&](int i) { wide[i] = to_tf32(words[i], c); });
      break;
  }
  return s + 1;
}

/// cvt.pack.sat: a and b, of `bits` each, below what c has in its lower bits; PTX ISA, "cvt.pack".
const Step* convert_pack(const Step* s, std::byte* r, Warp& w) {
  const int bits = s->immediate & 0xff;
  const bool is_signed = (s->immediate & 0x100) != 0;
  const std::int64_t span = std::int64_t{1} << bits;
  const std::int64_t low = is_signed ? -span / 2 : 0, high = is_signed ? span / 2 - 1 : span - 1;
  auto* d = lanes<U32>(r, s->d);
  const auto *a = lanes<std::int32_t>(r, s->a), *b = lanes<std::int32_t>(r, s->b);
  const auto* c = lanes<U32>(r, s->c);
  auto part = [&](std::int32_t value) {
    return static_cast<U32>(std::clamp<std::int64_t>(value, low, high)) &
           static_cast<U32>(span - 1);
  };
  for_lanes(w.mask, [&](int i) {
    U32 above = bits == 16 ? 0 : c[i] << (2 * bits);
    d[i] = above | part(a[i]) << bits | part(b[i]);
  });
  return s + 1;
}

}  // namespace

Handler select_narrow_convert(const Form& form) {
  if (form.op == Op::kCvtPack) return convert_pack;
  return form.op == Op::kCvt && form.mode == kNarrowConversion ? convert_narrow : nullptr;
}

}  // namespace tilewright::vgpu
