// cvt to and from fp8, two at a time, and to tf32. PTX ISA, "cvt" and "Alternate Floating-Point Data
// Formats".
#include <algorithm>
#include <cmath>

#include "jit/virtual_gpu/execute/common/families.h"
#include "jit/virtual_gpu/execute/common/half_scalar.h"
#include "jit/virtual_gpu/execute/common/per_lane.h"
#include "jit/virtual_gpu/program/narrow_conversion.h"

namespace tilewright::vgpu {
namespace {

using Kind = NarrowConversion::Kind;

struct Format {
  int mantissa, bias;
  double largest;
};
constexpr Format kE4M3{3, 7, 448}, kE5M2{2, 15, 57344};
constexpr std::uint32_t kFp8Nan = 0x7f;

/// To the nearest, ties to even; what is too large becomes the largest (.satfinite, which is
/// mandatory).
std::uint32_t to_fp8(double a, const Format& f, bool relu) {
  if (a != a) return kFp8Nan;
  if (relu && std::signbit(a)) return 0;
  const std::uint32_t sign = std::signbit(a) ? 0x80 : 0;
  a = std::fabs(a);
  if (a >= f.largest) return sign | static_cast<std::uint32_t>(f.bias == 7 ? 0x7e : 0x7b);
  const int lowest = 1 - f.bias;
  const int exponent = a == 0 ? lowest : std::max(std::ilogb(a), lowest);
  // In units of the last place, the implicit bit included: it carries into the exponent by itself.
  const auto units =
      static_cast<std::uint32_t>(std::nearbyint(std::ldexp(a, f.mantissa - exponent)));
  const auto base = static_cast<std::uint32_t>(exponent - lowest) << f.mantissa;
  return sign | (base + units);
}

std::uint32_t to_half(std::uint32_t byte, bool e5m2, bool relu) {
  constexpr std::uint32_t kHalfNan = 0x7fff;
  const std::uint32_t magnitude = byte & 0x7f;
  if (e5m2 ? magnitude > 0x7c : magnitude == 0x7f) return kHalfNan;
  if (relu && (byte & 0x80) != 0) return 0;
  if (e5m2) return byte << 8;
  const int exponent = static_cast<int>(magnitude >> 3), mantissa = static_cast<int>(magnitude & 7);
  const float value = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                    : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return scalar::to_f16((byte & 0x80) != 0 ? -value : value);
}

std::uint32_t to_tf32(std::uint32_t bits, const NarrowConversion& c) {
  constexpr std::uint32_t kInfinity = 0x7f800000, kNan = 0x7fffffff, kLargest = 0x7f7fe000;
  const std::uint32_t sign = bits & 0x80000000u;
  std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > kInfinity) return kNan;
  if (c.relu && sign != 0) return 0;
  if (magnitude < kInfinity) {
    using Rounding = NarrowConversion::Rounding;
    if (c.rounding == Rounding::kNearestAway) magnitude += 0x1000;
    if (c.rounding == Rounding::kNearestEven) magnitude += 0xfff + (magnitude >> 13 & 1);
    magnitude &= ~0x1fffu;
  }
  if (c.satfinite && magnitude >= kInfinity) magnitude = kLargest;
  return sign | magnitude;
}

const Step* convert_narrow(const Step* s, std::byte* r, Warp& w) {
  const auto c = NarrowConversion::unpack(static_cast<std::uint32_t>(s->immediate));
  const Format& f = c.e5m2 ? kE5M2 : kE4M3;
  switch (c.kind) {
    case Kind::kPairToFp8: {
      auto* d = lanes<std::uint16_t>(r, s->d);
      const auto *a = lanes<float>(r, s->a), *b = lanes<float>(r, s->b);
      for_lanes(w.mask, [&](int i) {
        d[i] = static_cast<std::uint16_t>(to_fp8(a[i], f, c.relu) << 8 | to_fp8(b[i], f, c.relu));
      });
      break;
    }
    case Kind::kHalfToFp8: {
      auto* d = lanes<std::uint16_t>(r, s->d);
      const auto* a = lanes<std::uint32_t>(r, s->a);
      for_lanes(w.mask, [&](int i) {
        auto one = [&](std::uint32_t half) {
          return to_fp8(scalar::from_f16(static_cast<std::uint16_t>(half)), f, c.relu);
        };
        d[i] = static_cast<std::uint16_t>(one(a[i] >> 16) << 8 | one(a[i] & 0xffff));
      });
      break;
    }
    case Kind::kFp8ToHalf: {
      auto* d = lanes<std::uint32_t>(r, s->d);
      const auto* a = lanes<std::uint16_t>(r, s->a);
      for_lanes(w.mask, [&](int i) {
        d[i] = to_half(a[i] >> 8, c.e5m2, c.relu) << 16 | to_half(a[i] & 0xff, c.e5m2, c.relu);
      });
      break;
    }
    case Kind::kTf32: {
      auto* d = lanes<std::uint32_t>(r, s->d);
      const auto* a = lanes<std::uint32_t>(r, s->a);
      for_lanes(w.mask, [&](int i) { d[i] = to_tf32(a[i], c); });
      break;
    }
  }
  return s + 1;
}

}  // namespace

Handler select_narrow_convert(const Form& form) {
  return form.op == Op::kCvt && form.mode == kNarrowConversion ? convert_narrow : nullptr;
}

}  // namespace tilewright::vgpu
