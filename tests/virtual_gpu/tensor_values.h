/// Elements of matrices as the tests see them: bits and values of every type that tensor cores take,
/// written down apart from the implementation.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>

namespace tilewright::vgpu {

inline int element_bits(const std::string& type) {
  if (type == "f64") return 64;
  if (type == "tf32" || type == "f32" || type == "s32") return 32;
  if (type == "f16" || type == "bf16") return 16;
  if (type == "s4" || type == "u4") return 4;
  return 8;
}

/// sign, exponent, mantissa from the top of `bits`. `special`: the largest exponent is for infinity
/// and NaN.
inline double decode_float(std::uint64_t bits, int exponent_bits, int mantissa_bits, bool special) {
  int bias = (1 << (exponent_bits - 1)) - 1;
  std::uint64_t mantissa = bits & ((std::uint64_t{1} << mantissa_bits) - 1);
  auto exponent = static_cast<int>(bits >> mantissa_bits & ((1u << exponent_bits) - 1));
  double sign = (bits >> (mantissa_bits + exponent_bits) & 1) != 0 ? -1.0 : 1.0;
  auto fraction = static_cast<double>(mantissa);
  if (special && exponent == (1 << exponent_bits) - 1)
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - mantissa_bits);
  return sign *
         std::ldexp(std::ldexp(1.0, mantissa_bits) + fraction, exponent - bias - mantissa_bits);
}

/// The value of an element in its container (8 bits for types of 4 and 6 of .kind::f8f6f4).
inline double element_value(const std::string& type, std::uint64_t bits) {
  if (type == "f16") return decode_float(bits, 5, 10, true);
  if (type == "bf16") return decode_float(bits, 8, 7, true);
  if (type == "tf32") return decode_float(bits >> 13, 8, 10, true);
  if (type == "f32") return decode_float(bits, 8, 23, true);
  if (type == "f64") return decode_float(bits, 11, 52, true);
  if (type == "e5m2") return decode_float(bits, 5, 2, true);
  if (type == "e4m3")
    return (bits & 0x7f) == 0x7f ? std::numeric_limits<double>::quiet_NaN()
                                 : decode_float(bits, 4, 3, false);
  if (type == "e3m2") return decode_float(bits & 0x3f, 3, 2, false);
  if (type == "e2m3") return decode_float(bits & 0x3f, 2, 3, false);
  if (type == "e2m1") return decode_float(bits >> 2 & 0xf, 2, 1, false);
  if (type == "u8" || type == "u4") return static_cast<double>(bits);
  if (type == "s8") return static_cast<std::int8_t>(bits);
  if (type == "s4") return static_cast<double>(static_cast<std::int64_t>(bits << 60) >> 60);
  if (type == "s32") return static_cast<std::int32_t>(bits);
  throw std::invalid_argument(type);
}

/// `wild`: any bits, so that infinities, NaN and subnormals are among them. Else values of about 1,
/// with zeros of both signs and a few subnormals.
inline std::uint64_t random_element(const std::string& type, bool wild, std::mt19937_64& engine) {
  int bits = element_bits(type);
  std::uint64_t mask = bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1;
  std::uint64_t any = engine() & mask;
  if (wild || bits <= 8) {
    if (!wild && type == "e4m3" && (any & 0x7f) == 0x7f) return any & 0x80;
    if (!wild && type == "e5m2" && (any & 0x7c) == 0x7c) return any & 0x83;
    return any;
  }
  if (type == "s32") return any >> 8;
  int exponent = type == "f16" ? 5 : type == "f64" ? 11 : 8;
  int mantissa = bits - 1 - exponent;
  std::uint64_t middle = (std::uint64_t{1} << (exponent - 1)) - 1;
  std::uint64_t field = engine() % 16 == 0 ? 0 : middle - 3 + engine() % 5;
  std::uint64_t exponents = ((std::uint64_t{1} << exponent) - 1) << mantissa;
  return (any & ~exponents) | field << mantissa;
}

}  // namespace tilewright::vgpu
