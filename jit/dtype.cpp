#include "jit/dtype.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>

namespace tilewright {
namespace {

struct Named {
  DType dtype;
  std::string_view name;
  int bits;
};

constexpr Named kNames[] = {
    {DType::kF32, "f32", 32},  {DType::kF16, "f16", 16},  {DType::kBF16, "bf16", 16},
    {DType::kI32, "i32", 32},  {DType::kI8, "i8", 8},     {DType::kI4, "i4", 4},
    {DType::kE4M3, "e4m3", 8}, {DType::kE5M2, "e5m2", 8}, {DType::kBool, "bool", 0},
};

const Named* find(DType dtype) {
  auto at = std::find_if(std::begin(kNames), std::end(kNames),
                         [&](const Named& named) { return named.dtype == dtype; });
  return at == std::end(kNames) ? nullptr : at;
}

/// IEEE-like format with one rounding, to nearest even: through f32 it would be rounded twice.
template <int kExponentBits, int kMantissaBits>
std::uint16_t encode(double value) {
  constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  constexpr std::uint64_t kInfinity = ((std::uint64_t{1} << kExponentBits) - 1) << kMantissaBits;
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const std::uint64_t sign = (bits >> 63) << (kExponentBits + kMantissaBits);
  const int biased = static_cast<int>((bits >> 52) & 0x7ff);
  const std::uint64_t fraction = bits & ((std::uint64_t{1} << 52) - 1);
  if (biased == 0x7ff && fraction != 0)
    return static_cast<std::uint16_t>(sign | kInfinity | (std::uint64_t{1} << (kMantissaBits - 1)));
  const int exponent = biased - 1023;
  if (biased == 0) return static_cast<std::uint16_t>(sign);  // below every subnormal of the target
  if (exponent > kBias) return static_cast<std::uint16_t>(sign | kInfinity);

  constexpr int kMinExponent = 1 - kBias;
  const int shift = 52 - kMantissaBits + std::max(0, kMinExponent - exponent);
  if (shift > 53) return static_cast<std::uint16_t>(sign);
  const std::uint64_t whole = fraction | (std::uint64_t{1} << 52);
  const std::uint64_t rest = whole & ((std::uint64_t{1} << shift) - 1);
  const std::uint64_t half = std::uint64_t{1} << (shift - 1);
  std::uint64_t rounded = whole >> shift;
  if (rest > half || (rest == half && (rounded & 1))) ++rounded;
  // A carry out of the mantissa moves into the exponent, up to infinity, as it should.
  const std::uint64_t base =
      static_cast<std::uint64_t>(std::max(exponent, kMinExponent) + kBias - 1) << kMantissaBits;
  return static_cast<std::uint16_t>(sign | std::min(base + rounded, kInfinity));
}

/// OCP "8-bit Floating Point Specification (OFP8)": e4m3 has one NaN and no infinity.
double decode8(DType dtype, unsigned bits) {
  const bool e4m3 = dtype == DType::kE4M3;
  const int mantissa_bits = e4m3 ? 3 : 2, bias = e4m3 ? 7 : 15;
  const unsigned magnitude = bits & 0x7f;
  const unsigned exponent = magnitude >> mantissa_bits;
  const unsigned mantissa = magnitude & ((1u << mantissa_bits) - 1);
  const double sign = bits & 0x80 ? -1 : 1;
  if (e4m3 && magnitude == 0x7f) return std::numeric_limits<double>::quiet_NaN();
  if (!e4m3 && exponent == 31)
    return mantissa ? std::numeric_limits<double>::quiet_NaN()
                    : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1u << mantissa_bits), int(exponent) - bias - mantissa_bits);
}

/// The magnitudes ascend with their bits: the neighbours of a value are found by bisection.
std::uint8_t encode8(DType dtype, double value) {
  const unsigned sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) return std::uint8_t(sign | 0x7f);
  const unsigned largest = dtype == DType::kE4M3 ? 0x7e : 0x7b;
  value = std::fabs(value);
  unsigned low = 0, high = largest;
  if (value >= decode8(dtype, largest)) {
    const bool infinite = dtype == DType::kE5M2 && value >= 61440;  // half a unit beyond
    return std::uint8_t(sign | (infinite ? 0x7c : largest));
  }
  while (high - low > 1) {
    const unsigned middle = (low + high) / 2;
    (decode8(dtype, middle) <= value ? low : high) = middle;
  }
  const double below = value - decode8(dtype, low), above = decode8(dtype, high) - value;
  const bool up = above < below || (above == below && (high & 1) == 0);
  return std::uint8_t(sign | (up ? high : low));
}

template <typename Integer>
Integer saturate(double value) {
  if (std::isnan(value)) return 0;
  const double rounded = std::nearbyint(value);
  return static_cast<Integer>(std::clamp(rounded,
                                         static_cast<double>(std::numeric_limits<Integer>::min()),
                                         static_cast<double>(std::numeric_limits<Integer>::max())));
}

template <typename T>
T load(const void* data, std::size_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + index * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void store(void* data, std::size_t index, T value) {
  std::memcpy(static_cast<char*>(data) + index * sizeof(T), &value, sizeof(T));
}

}  // namespace

std::string_view to_string(DType dtype) {
  const Named* named = find(dtype);
  return named ? named->name : "unknown";
}

Result<DType> parse_dtype(std::string_view name) {
  for (const Named& named : kNames)
    if (named.name == name) return named.dtype;
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("dtype is '{}', expected f32, f16, bf16, i32, i8, i4, e4m3, e5m2 or bool", name));
}

int bits_of(DType dtype) {
  const Named* named = find(dtype);
  return named ? named->bits : 0;
}

std::uint16_t f16_from_double(double value) { return encode<5, 10>(value); }
std::uint16_t bf16_from_double(double value) { return encode<8, 7>(value); }

float float_from_f16(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1f;
  const std::uint32_t fraction = bits & 0x3ff;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  const std::uint32_t widened = exponent == 31 ? 255 : exponent - 15 + 127;
  return std::bit_cast<float>(sign | (widened << 23) | (fraction << 13));
}

float float_from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

double round_to(DType dtype, double value) {
  switch (dtype) {
    case DType::kF32:
      return static_cast<float>(value);
    case DType::kF16:
      return float_from_f16(f16_from_double(value));
    case DType::kBF16:
      return float_from_bf16(bf16_from_double(value));
    case DType::kE4M3:
    case DType::kE5M2:
      return decode8(dtype, encode8(dtype, value));
    case DType::kI32:
      return saturate<std::int32_t>(value);
    case DType::kI8:
      return saturate<std::int8_t>(value);
    default:
      assert(!"round_to: dtype has no host conversion");
      return value;
  }
}

double read_element(DType dtype, const void* data, std::size_t index) {
  switch (dtype) {
    case DType::kF32:
      return load<float>(data, index);
    case DType::kF16:
      return float_from_f16(load<std::uint16_t>(data, index));
    case DType::kBF16:
      return float_from_bf16(load<std::uint16_t>(data, index));
    case DType::kE4M3:
    case DType::kE5M2:
      return decode8(dtype, load<std::uint8_t>(data, index));
    case DType::kI32:
      return load<std::int32_t>(data, index);
    case DType::kI8:
      return load<std::int8_t>(data, index);
    default:
      assert(!"read_element: dtype has no host conversion");
      return 0;
  }
}

void write_element(DType dtype, void* data, std::size_t index, double value) {
  switch (dtype) {
    case DType::kF32:
      return store(data, index, static_cast<float>(value));
    case DType::kF16:
      return store(data, index, f16_from_double(value));
    case DType::kBF16:
      return store(data, index, bf16_from_double(value));
    case DType::kE4M3:
    case DType::kE5M2:
      return store(data, index, encode8(dtype, value));
    case DType::kI32:
      return store(data, index, saturate<std::int32_t>(value));
    case DType::kI8:
      return store(data, index, saturate<std::int8_t>(value));
    default:
      assert(!"write_element: dtype has no host conversion");
  }
}

}  // namespace tilewright
