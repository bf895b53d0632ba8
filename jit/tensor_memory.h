/// Which memory a tensor takes, and whether two tensors share some of it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "jit/dtype.h"
#include "jit/result.h"

namespace tilewright::jit {

/// What a tensor takes: pieces of `width` bits, `stride` bits apart; never less than it touches.
struct TensorMemory {
  using Bits = unsigned __int128;
  Bits begin = 0;
  Bits width = 0;  ///< 0: nothing
  Bits stride = 0;
  Bits pieces = 1;

  Bits end() const { return begin + (pieces - 1) * stride + width; }

  /// Of strides that are 0 or more, in elements.
  static TensorMemory of(std::uint64_t address, DType dtype, std::span<const std::int64_t> shape,
                         std::span<const std::int64_t> strides);
};

/// Whether they share an element. Columns of one matrix, side by side, do not. Of pieces that are
/// at different distances in both, whether one's range reaches into the other's.
bool overlap(const TensorMemory& a, const TensorMemory& b);

/// That every element of a tensor has a place of its own. Errors: kInvalidArgument, naming `name`,
/// the stride and what it is at least.
Result<void> check_own_places(std::string_view name, std::span<const std::int64_t> shape,
                              std::span<const std::int64_t> strides);

}  // namespace tilewright::jit
