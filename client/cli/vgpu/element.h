/// Element types of buffers that a launch specification may name: more than operators have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "jit/result.h"

namespace tilewright::cli {

enum class Element : std::uint8_t {
  kF64,
  kF32,
  kF16,
  kBF16,
  kE4M3,
  kE5M2,
  kI64,
  kU64,
  kI32,
  kU32,
  kI16,
  kU16,
  kI8,
  kU8,
  kI4,  ///< two per byte, the lower half first
  kU4,
};

/// "f32", "e4m3", "u8", ...
std::string_view to_string(Element element);
/// Errors: kInvalidArgument lists the types.
Result<Element> parse_element(std::string_view name);

int bits_of(Element element);
std::size_t bytes_of(Element element, std::size_t count);
bool is_integer(Element element);

/// Exact, but for 64-bit integers beyond 2^53.
double read(Element element, const void* data, std::size_t index);
/// Rounds to nearest even; integers and e4m3 saturate. NaN becomes 0 in an integer.
void write(Element element, void* data, std::size_t index, double value);
/// What would be read after `value` was written.
double rounded(Element element, double value);

}  // namespace tilewright::cli
