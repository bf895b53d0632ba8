#include "jit/tensor_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace tilewright::jit {

TensorMemory TensorMemory::of(std::uint64_t address, DType dtype,
                              std::span<const std::int64_t> shape,
                              std::span<const std::int64_t> strides) {
  TensorMemory memory;
  memory.begin = Bits(address) * 8;
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return memory;
  const Bits element = Bits(bits_of(dtype));
  memory.width = element;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    const Bits extent = Bits(shape[axis]), step = Bits(strides[axis]) * element;
    if (extent <= 1 || step == 0) continue;
    if (memory.pieces > 1 && step == memory.pieces * memory.stride) {
      memory.pieces *= extent;
      continue;
    }
    // What there is so far becomes one piece.
    memory.width += (memory.pieces - 1) * memory.stride;
    memory.pieces = 1;
    if (step > memory.width) {
      memory.pieces = extent;
      memory.stride = step;
    } else {
      memory.width += (extent - 1) * step;  // dense, or pieces that overlap
    }
  }
  return memory;
}

bool overlap(const TensorMemory& a, const TensorMemory& b) {
  if (a.width == 0 || b.width == 0) return false;
  if (a.end() <= b.begin || b.end() <= a.begin) return false;
  if (a.pieces == 1 && b.pieces == 1) return true;
  if (a.pieces > 1 && b.pieces > 1 && a.stride != b.stride) return true;
  const TensorMemory::Bits stride = a.pieces > 1 ? a.stride : b.stride;
  // Where b's pieces begin between those of a.
  const TensorMemory::Bits begin = b.begin >= a.begin
                                       ? (b.begin - a.begin) % stride
                                       : (stride - (a.begin - b.begin) % stride) % stride;
  return begin < a.width || begin + b.width > stride;
}

Result<void> check_own_places(std::string_view name, std::span<const std::int64_t> shape,
                              std::span<const std::int64_t> strides) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return {};
  // Inner axes first, whichever those are.
  std::vector<std::size_t> axes(shape.size());
  std::iota(axes.rbegin(), axes.rend(), std::size_t{0});
  std::stable_sort(axes.begin(), axes.end(),
                   [&](std::size_t a, std::size_t b) { return strides[a] < strides[b]; });
  __int128 reach = 1;  // elements that what is inside of the axis spans
  for (const std::size_t axis : axes) {
    if (shape[axis] <= 1) continue;
    if (strides[axis] < reach)
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("{} stride {} is {}, expected at least {}: elements of an output have "
                      "places of their own",
                      name, axis, strides[axis], reach));
    reach += __int128{shape[axis] - 1} * strides[axis];
  }
  return {};
}

}  // namespace tilewright::jit
