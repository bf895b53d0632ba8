/// Where adversarial data has its special values: NaN, infinities, zeros of both signs, subnormal
/// and largest numbers, rows of zeros and rows that are masked in part and in full. The rest of it
/// is the integer data, so that what special values do not reach still has to have equal bits.
/// docs/numerics.md says what each op makes of them.
#pragma once

#include <cstdint>
#include <vector>

#include "search/verify/test_data.h"
#include "templates/operator/operator.h"

namespace tilewright::search {

/// What one element of an input may reach of the outputs: beside its own place, all columns of a
/// row, and all rows of a column.
struct Spread {
  bool over_columns = false, over_rows = false;
  bool operator==(const Spread&) const = default;
};
/// Of every input, over all outputs.
std::vector<Spread> spreads(const templates::Operator& op);

class SpecialValues {
 public:
  SpecialValues() = default;
  SpecialValues(const templates::Operator& op, const std::vector<DataRole>& roles,
                const std::vector<std::vector<std::int64_t>>& extents, std::uint64_t seed);

  /// Plants them among elements [begin, end) of a row; `elements`: in the input's dtype.
  void plant(std::size_t input, std::int64_t row, std::int64_t begin, std::int64_t end,
             void* elements) const;

 private:
  struct Tensor {
    DType dtype = DType::kF32;
    std::int64_t rows = 1, columns = 1, matrix_rows = 1;
    Spread spread;
    DataRole role;
    std::uint64_t seed = 0;
  };
  void plant_elements(std::size_t input, std::int64_t row, std::int64_t begin, std::int64_t end,
                      void* elements) const;
  void plant_lines(const Tensor& tensor, std::size_t input, std::int64_t row, std::int64_t begin,
                   std::int64_t end, void* elements) const;

  std::vector<Tensor> tensors_;
  std::uint64_t seed_ = 0;
  bool fuses_ = false;  ///< a product may be fused with a sum
};

}  // namespace tilewright::search
