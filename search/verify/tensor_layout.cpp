#include "search/verify/tensor_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "jit/tensor_rules.h"

namespace tilewright::search {
namespace {

using Wide = __int128;

}  // namespace

std::size_t TensorLayout::row_offset(std::int64_t row) const {
  std::int64_t offset = 0;
  for (std::size_t axis = shape.size() - 1; axis-- > 0;) {
    offset += row % shape[axis] * strides[axis];
    row /= shape[axis];
  }
  return begin + static_cast<std::size_t>(offset) * element_bytes;
}

jit::TensorArgument TensorLayout::argument(CUdeviceptr buffer) const {
  return {buffer + begin, shape, strides};
}

Result<TensorLayout> TensorLayout::of(const templates::Value& value, DType dtype,
                                      const std::vector<templates::Dim>& strides,
                                      const templates::Bindings& bindings,
                                      std::int64_t displacement, bool may_overlap) {
  TensorLayout layout{.name = value.name, .dtype = dtype};
  auto located = [&](Error error) {
    return fail(with_context(std::move(error), "'" + value.name + "'"));
  };
  auto shape = extents(value.shape, bindings);
  if (!shape) return located(std::move(shape.error()));
  layout.shape = std::move(*shape);
  layout.strides = jit::dense_strides(layout.shape);
  if (!strides.empty()) {
    auto given = sizes(strides, bindings);
    if (!given) return located(std::move(given.error()));
    layout.strides = std::move(*given);
  }
  layout.columns = layout.shape.back();
  layout.rows = std::accumulate(layout.shape.begin(), layout.shape.end() - 1, std::int64_t{1},
                                std::multiplies<>());
  layout.element_bytes = static_cast<std::size_t>(bits_of(dtype)) / 8;
  std::int64_t span = layout.rows * layout.columns > 0 ? 1 : 0;
  for (std::size_t axis = 0; axis < layout.shape.size() && span > 0; ++axis) {
    // Extents and strides are at most 2^48 each, their products have 128 bits.
    const Wide inner = axis + 1 < layout.shape.size()
                           ? Wide{layout.shape[axis + 1]} * layout.strides[axis + 1]
                           : 1;
    if (!may_overlap && layout.shape[axis] > 1 && layout.strides[axis] < inner) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("'{}' has stride {} on axis {}, expected at least {}", value.name,
                              layout.strides[axis], axis, inner));
    }
    const Wide last = span + Wide{layout.shape[axis] - 1} * layout.strides[axis];
    if (last > jit::kMaxElements) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("'{}' has stride {} on axis {}, with which it spans {} elements, "
                              "expected at most 2^48",
                              value.name, layout.strides[axis], axis, last));
    }
    span = static_cast<std::int64_t>(last);
  }
  if (displacement < 0 || displacement % static_cast<std::int64_t>(layout.element_bytes) != 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is displaced by {} bytes, expected a multiple of {}", value.name,
                            displacement, layout.element_bytes));
  }
  layout.begin = kRedzone + static_cast<std::size_t>(displacement);
  layout.bytes = layout.begin + static_cast<std::size_t>(span) * layout.element_bytes + kRedzone;
  return layout;
}

std::size_t first_unpoisoned(const std::byte* data, std::size_t begin, std::size_t end) {
  constexpr std::uint64_t kWord = ~std::uint64_t{0};
  std::size_t at = begin;
  for (; at + sizeof kWord <= end; at += sizeof kWord) {
    std::uint64_t word;
    std::memcpy(&word, data + at, sizeof word);
    if (word != kWord) break;
  }
  while (at < end && data[at] == std::byte{kPoison}) ++at;
  return at;
}

}  // namespace tilewright::search
