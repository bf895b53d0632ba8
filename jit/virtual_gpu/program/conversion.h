/// A conversion as 32 bits, for handlers that look at it as they run.
#pragma once

#include <cstdint>

#include "jit/virtual_gpu/program/form.h"

namespace tilewright::vgpu {

struct Conversion {
  Type to = Type::kF32, from = Type::kF32;
  Round round = Round::kNearest;
  int to_bytes = 4, from_bytes = 4;  ///< of the registers
  bool integral = false, ftz = false, saturate = false, relu = false, satfinite = false;

  static Conversion of(const Form& form) {
    Conversion c;
    c.to = form.type;
    c.from = form.from;
    c.round = form.round;
    c.to_bytes = form.register_bytes;
    c.from_bytes = form.address_bytes;
    c.integral = form.integral;
    c.ftz = form.ftz;
    c.saturate = form.saturate;
    c.relu = form.relu;
    c.satfinite = form.absolute;
    return c;
  }
  std::uint32_t pack() const {
    return static_cast<std::uint32_t>(to) | static_cast<std::uint32_t>(from) << 5 |
           static_cast<std::uint32_t>(round) << 10 | static_cast<std::uint32_t>(to_bytes) << 12 |
           static_cast<std::uint32_t>(from_bytes) << 16 | (integral ? 1u << 20 : 0) |
           (ftz ? 1u << 21 : 0) | (saturate ? 1u << 22 : 0) | (relu ? 1u << 23 : 0) |
           (satfinite ? 1u << 24 : 0);
  }
  static Conversion unpack(std::uint32_t bits) {
    Conversion c;
    c.to = static_cast<Type>(bits & 31);
    c.from = static_cast<Type>(bits >> 5 & 31);
    c.round = static_cast<Round>(bits >> 10 & 3);
    c.to_bytes = static_cast<int>(bits >> 12 & 15);
    c.from_bytes = static_cast<int>(bits >> 16 & 15);
    c.integral = (bits >> 20 & 1) != 0;
    c.ftz = (bits >> 21 & 1) != 0;
    c.saturate = (bits >> 22 & 1) != 0;
    c.relu = (bits >> 23 & 1) != 0;
    c.satfinite = (bits >> 24 & 1) != 0;
    return c;
  }
};

}  // namespace tilewright::vgpu
