/// What holds of every tensor, wherever its sizes come from: how large one may be, and what is
/// meant by its alignment. Sizes within these limits need no further care in 64 bits: elements,
/// bytes and bits of a tensor fit, and so do sums over tensors.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "jit/dtype.h"
#include "jit/result.h"

namespace tilewright::jit {

/// Of one tensor, empty axes counted as one: far beyond any memory.
inline constexpr std::int64_t kMaxElements = std::int64_t{1} << 48;
/// Alignments are counted up to this, and so is that of a workspace.
inline constexpr std::int64_t kMostAlignment = 256;

/// a * b; nullopt where that has no 64 bits.
inline std::optional<std::int64_t> multiply(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::nullopt : std::optional(product);
}

/// `name` is for the message. Errors: kInvalidArgument names axis, extent and limit.
Result<void> check_extents(std::string_view name, std::span<const std::int64_t> shape);

/// In elements, of a dense row-major tensor whose extents were checked.
std::vector<std::int64_t> dense_strides(std::span<const std::int64_t> shape);

/// The alignment of a tensor, `NAME.align` in the rules of plans: the largest power of two, at most
/// kMostAlignment, that divides its address and its strides in bytes, but for the last axis and for
/// axes along which nothing is ever stepped. kMostAlignment for an empty tensor.
std::int64_t alignment(std::uint64_t address, DType dtype, std::span<const std::int64_t> shape,
                       std::span<const std::int64_t> strides);

}  // namespace tilewright::jit
