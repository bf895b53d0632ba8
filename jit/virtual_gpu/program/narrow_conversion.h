/// A conversion to or from the formats that only tensor cores compute with, as 32 bits.
#pragma once

#include <cstdint>

namespace tilewright::vgpu {

/// Of Form::mode, for cvt.
inline constexpr std::uint8_t kNarrowConversion = 2;

struct NarrowConversion {
  enum class Kind : std::uint8_t {
    kFromFloats,  ///< d = a pair of f32 a (upper) and b (lower)
    kFromHalves,  ///< d = a pair of f16x2 a
    kToHalves,    ///< d = f16x2 of a pair a
    kFromBf16,    ///< d = a pair of bf16x2 a
    kToBf16,      ///< d = bf16x2 of a pair a
    kTf32,        ///< d = a rounded to tf32, as f32
  };
  enum class Format : std::uint8_t { kE4M3, kE5M2, kE2M3, kE3M2, kE2M1, kUE8M0 };
  enum class Rounding : std::uint8_t { kNearestEven, kNearestAway, kZero, kUp };

  Kind kind = Kind::kTf32;
  Format format = Format::kE4M3;
  Rounding rounding = Rounding::kNearestEven;
  bool relu = false, satfinite = false;

  std::uint32_t pack() const {
    return static_cast<std::uint32_t>(kind) | static_cast<std::uint32_t>(rounding) << 4 |
           static_cast<std::uint32_t>(format) << 8 | (relu ? 1u << 12 : 0) |
           (satfinite ? 1u << 13 : 0);
  }
  static NarrowConversion unpack(std::uint32_t bits) {
    NarrowConversion c;
    c.kind = static_cast<Kind>(bits & 15);
    c.rounding = static_cast<Rounding>(bits >> 4 & 15);
    c.format = static_cast<Format>(bits >> 8 & 15);
    c.relu = (bits >> 12 & 1) != 0;
    c.satfinite = (bits >> 13 & 1) != 0;
    return c;
  }
};

}  // namespace tilewright::vgpu
