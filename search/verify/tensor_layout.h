/// Where the elements of one tensor lie in a buffer that is more than the tensor: redzones before
/// and after it, and the gaps between rows of a strided one. All of that is poison (0xFF bytes: a
/// NaN in every floating type), before a run and, if the kernels are right, after it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "jit/launch.h"
#include "templates/operator/operator.h"

namespace tilewright::search {

inline constexpr std::uint8_t kPoison = 0xff;
inline constexpr std::size_t kRedzone = 512;  ///< bytes; keeps the 256-byte alignment

struct TensorLayout {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape, strides;  ///< strides in elements
  std::int64_t rows = 0, columns = 0;        ///< all axes but the last, flattened; the last
  std::size_t element_bytes = 0;
  std::size_t begin = 0;  ///< of element [0, ...]
  std::size_t bytes = 0;  ///< of the buffer

  /// Bytes from the buffer's start to a row's first element.
  std::size_t row_offset(std::int64_t row) const;
  jit::TensorArgument argument(CUdeviceptr buffer) const;

  /// `displacement`: of the base from a 256-byte boundary; a multiple of the element's size.
  /// `may_overlap`: rows may lie on each other, as those of a broadcast input do; an element then
  /// is what was last written there.
  /// Errors: kInvalidArgument (a dimension without a value, overlapping rows, a wrong displacement).
  static Result<TensorLayout> of(const templates::Value& value, DType dtype,
                                 const std::vector<templates::Dim>& strides,
                                 const templates::Bindings& bindings, std::int64_t displacement,
                                 bool may_overlap = false);
};

/// Offset of the first byte in [begin, end) that is not poison; `end` if all are.
std::size_t first_unpoisoned(const std::byte* data, std::size_t begin, std::size_t end);

/// Whether the `bytes` of an element are as they were poisoned: it was never written.
inline bool is_poison(const std::byte* element, std::size_t bytes) {
  return first_unpoisoned(element, 0, bytes) == bytes;
}

}  // namespace tilewright::search
