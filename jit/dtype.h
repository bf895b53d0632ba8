/// Element types of tensors, and their conversions on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "jit/result.h"

namespace tilewright {

/// The values travel in frames and records, so they are never renumbered.
enum class DType : std::uint8_t {
  kF32 = 1,
  kF16 = 2,
  kBF16 = 3,
  kI32 = 4,
  kI8 = 5,
  kI4 = 6,    ///< two per byte
  kE4M3 = 7,  ///< fp8 with 4 exponent bits, no infinity
  kE5M2 = 8,  ///< fp8 with 5 exponent bits
  kBool = 9,  ///< the result of a comparison inside an operator; never stored
};

/// "f32", "f16", "bf16", "i32", "i8", "i4", "e4m3", "e5m2", "bool".
std::string_view to_string(DType dtype);
Result<DType> parse_dtype(std::string_view name);

/// Storage size; i4 is 4, bool has none (0).
int bits_of(DType dtype);
inline std::size_t bytes_for(DType dtype, std::size_t elements) {
  return (elements * static_cast<std::size_t>(bits_of(dtype)) + 7) / 8;
}

// Round to nearest even; NaN stays NaN.
std::uint16_t f16_from_double(double value);
std::uint16_t bf16_from_double(double value);
float float_from_f16(std::uint16_t bits);
float float_from_bf16(std::uint16_t bits);

/// The value nearest to `value` that `dtype` can hold, as a double: f32, f16 and bf16; e4m3, e5m2,
/// i32 and i8 round to nearest even and saturate (e5m2 has infinity).
double round_to(DType dtype, double value);

/// Element `index` of an array of `dtype` (f32, f16, bf16, e4m3, e5m2, i32, i8).
double read_element(DType dtype, const void* data, std::size_t index);
void write_element(DType dtype, void* data, std::size_t index, double value);

}  // namespace tilewright
