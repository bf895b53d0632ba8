/// Rows of host tensors in their storage dtype, converted.
#pragma once

#include <span>
#include <vector>

#include "templates/operator/evaluate.h"

namespace tilewright::templates {

/// A tensor seen as rows: all axes but the last flattened, row-major.
class TensorRows {
 public:
  TensorRows() = default;
  /// The last stride is 1, or the last extent at most 1.
  explicit TensorRows(const HostTensor& tensor);

  std::int64_t columns() const { return columns_; }
  /// Columns [0, columns()) of a row.
  void load(std::int64_t row, float* out) const;
  void load(std::int64_t row, std::span<const std::int64_t> columns, float* out) const;

 private:
  const std::byte* address(std::int64_t row) const;

  DType dtype_ = DType::kF32;
  const std::byte* data_ = nullptr;
  std::int64_t columns_ = 0;
  std::vector<std::int64_t> shape_, strides_;  ///< of the leading axes
};

/// sum a b and sum |a b| over `count` elements, in f64.
struct Dot {
  double sum = 0, magnitude = 0;
};
Dot dot(const float* a, const float* b, std::int64_t count);

/// All values are whole numbers (and finite).
bool all_integral(const float* values, std::int64_t count);

}  // namespace tilewright::templates
