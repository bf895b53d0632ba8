#include "jit/tensor_rules.h"

#include <fmt/format.h>

#include <algorithm>

namespace tilewright::jit {
namespace {

std::uint64_t power_of_two_in(std::uint64_t value, std::uint64_t most) {
  return value == 0 ? most : std::min(most, value & (~value + 1));
}

}  // namespace

Result<void> check_extents(std::string_view name, std::span<const std::int64_t> shape) {
  std::int64_t elements = 1;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] < 0)
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{} axis {} is {}, expected 0 or more", name, axis, shape[axis]));
    if (shape[axis] > kMaxElements / elements)
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{} axis {} is {}, expected at most {}: a tensor has at most 2^48 "
                              "elements",
                              name, axis, shape[axis], kMaxElements / elements));
    elements *= std::max<std::int64_t>(shape[axis], 1);
  }
  return {};
}

std::vector<std::int64_t> dense_strides(std::span<const std::int64_t> shape) {
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t stride = 1;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    strides[axis] = stride;
    stride *= shape[axis];
  }
  return strides;
}

std::int64_t alignment(std::uint64_t address, DType dtype, std::span<const std::int64_t> shape,
                       std::span<const std::int64_t> strides) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return kMostAlignment;
  std::uint64_t align = power_of_two_in(address, kMostAlignment);
  for (std::size_t axis = 0; axis + 1 < shape.size(); ++axis) {
    if (shape[axis] <= 1) continue;
    // Of the stride in bits, without the stride in bits, which may be too large a number.
    const std::uint64_t bits = power_of_two_in(std::uint64_t(strides[axis]), 8 * kMostAlignment) *
                               power_of_two_in(std::uint64_t(bits_of(dtype)), 64);
    align = std::min(align, std::max<std::uint64_t>(bits / 8, 1));
  }
  return std::int64_t(align);
}

}  // namespace tilewright::jit
