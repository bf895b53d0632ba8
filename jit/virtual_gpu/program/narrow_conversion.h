/// A conversion to or from the formats that only tensor cores compute with, as 32 bits.
#pragma once

#include <cstdint>

namespace tilewright::vgpu {

/// Of Form::mode, for cvt.
inline constexpr std::uint8_t kNarrowConversion = 2;

struct NarrowConversion {
  enum class Kind : std::uint8_t {
    kPairToFp8,  ///< d = fp8x2 of f32 a (upper) and b (lower)
    kHalfToFp8,  ///< d = fp8x2 of f16x2 a
    kFp8ToHalf,  ///< d = f16x2 of fp8x2 a
    kTf32,       ///< d = a rounded to tf32, as f32
  };
  enum class Rounding : std::uint8_t { kNearestEven, kNearestAway, kZero };

  Kind kind = Kind::kTf32;
  Rounding rounding = Rounding::kNearestEven;
  bool e5m2 = false, relu = false, satfinite = false;

  std::uint32_t pack() const {
    return static_cast<std::uint32_t>(kind) | static_cast<std::uint32_t>(rounding) << 4 |
           (e5m2 ? 1u << 8 : 0) | (relu ? 1u << 9 : 0) | (satfinite ? 1u << 10 : 0);
  }
  static NarrowConversion unpack(std::uint32_t bits) {
    NarrowConversion c;
    c.kind = static_cast<Kind>(bits & 15);
    c.rounding = static_cast<Rounding>(bits >> 4 & 15);
    c.e5m2 = (bits >> 8 & 1) != 0;
    c.relu = (bits >> 9 & 1) != 0;
    c.satfinite = (bits >> 10 & 1) != 0;
    return c;
  }
};

}  // namespace tilewright::vgpu
