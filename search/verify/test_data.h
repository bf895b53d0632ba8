/// Input data to verify and to time kernels with: a function of operator, extents, kind and seed,
/// the same on every machine, computed row by row. docs/numerics.md says why it is as it is.
///
/// Integers: small whole numbers, made so that sums stay small (nothing saturates, bf16 holds
/// them) and yet every term of a sum counts:
///   - where two inputs meet in a matmul, the contracted axis is paired at random. A pair has equal
///     values in the left operand and opposite ones in the right, so that dense products cancel;
///     sparse extra terms in the right one are what is left. A dropped or doubled term shows.
///   - rows that are reduced (norms, sums) are dense in one half of the rows; in the other half
///     few columns count, those at both ends among them, so that each weighs much; some rows are
///     0. Under layernorm the columns are paired, too, so that the mean is exactly 1.
///   - rows under softmax and max have few high values above a low ground; the highest is one, at an
///     end in half of the rows. Some rows are all negative.
/// Normal: N(0, 1), scaled where a matmul contracts so that products are about N(0, 1).
/// Adversarial: the integers, with special values among them (adversarial.h).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "search/verify.h"
#include "templates/operator/operator.h"

namespace tilewright::search {

/// Of one input, how its data is made. For tests and for people.
struct DataRole {
  enum class Kind {
    kPlain,  ///< independent of each other
    kLeft,   ///< of a matmul with another input
    kRight,
    kSparse,   ///< of a matmul otherwise: few values are not 0
    kReduced,  ///< summed or normalised along its rows
    kCentred,  ///< the same under layernorm
    kPeaked,   ///< under softmax or max along its rows
  } kind = Kind::kPlain;
  bool along_rows = true;  ///< kLeft, kRight, kSparse: the contracted axis is the last one
  std::int64_t depth = 0;  ///< its extent
  double scale = 1;        ///< of normal data
  bool positive = false;   ///< of the argument of log, sqrt, rsqrt or a divisor
};
std::vector<DataRole> data_roles(const templates::Operator& op,
                                 const std::vector<std::vector<std::int64_t>>& input_extents);

class SpecialValues;

class TestData {
 public:
  /// `extents`: of every input.
  TestData(const templates::Operator& op, std::vector<std::vector<std::int64_t>> extents,
           DataKind kind, std::uint64_t seed);

  /// All columns of a row (all axes but the last, flattened), in the input's dtype.
  void row(std::size_t input, std::int64_t row, void* out) const;
  /// The same of columns [begin, end); begin: a multiple of 4.
  void part(std::size_t input, std::int64_t row, std::int64_t begin, std::int64_t end,
            void* out) const;

 private:
  struct Columns {
    std::int64_t begin, end;
  };
  struct Tensor {
    DType dtype = DType::kF32;
    std::int64_t rows = 0, columns = 0, matrix_rows = 1;
    DataRole role;
    std::uint64_t seed = 0;
    std::vector<std::uint16_t> codes;  ///< of integers -128 to 127, or of 2^16 normal quantiles
    std::vector<float> quantiles;      ///< of f32: 2^16 + 1, between which it interpolates
  };

  void integers(const Tensor& tensor, std::int64_t row, Columns part, std::int8_t* out) const;
  void paired(const Tensor& tensor, std::int64_t row, Columns part, std::int8_t* out) const;
  void reduced(const Tensor& tensor, std::int64_t row, Columns part, std::int8_t* out) const;
  void centred(const Tensor& tensor, std::int64_t row, Columns part, std::int8_t* out) const;
  void peaked(const Tensor& tensor, std::int64_t row, Columns part, std::int8_t* out) const;
  void make_pairs(std::int64_t depth, std::uint64_t seed);
  void normals(const Tensor& tensor, std::int64_t row, Columns part, void* out) const;

  DataKind kind_;
  std::vector<Tensor> tensors_;
  std::shared_ptr<const SpecialValues> special_;  ///< of adversarial data
  /// By depth: for each k, 2 * pair + (1 for the second of the pair).
  std::map<std::int64_t, std::vector<std::uint32_t>> pairs_;
};

}  // namespace tilewright::search
