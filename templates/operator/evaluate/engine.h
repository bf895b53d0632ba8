/// Lazy evaluation of an operator by rows: a row of a value is computed when a row of a result
/// needs it, whole or at chosen columns.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "templates/operator/evaluate/approx.h"
#include "templates/operator/evaluate/reductions.h"
#include "templates/operator/evaluate/tensor_rows.h"

namespace tilewright::templates {

class Engine {
 public:
  /// All checks are done: see Evaluator::create.
  Engine(Operator op, std::vector<std::vector<std::int64_t>> extents,
         std::span<const HostTensor> inputs);

  using Columns = std::span<const std::int64_t>;

  /// Of a statement's result: `row` counts all axes but the last, row-major.
  ApproxRow row(ValueId id, std::int64_t row, Columns columns);

  const Operator& op() const { return op_; }
  const std::vector<std::int64_t>& extents(ValueId id) const {
    return extents_[static_cast<std::size_t>(id)];
  }
  EvaluationCost cost(ValueId id) const;

 private:
  using SharedRow = std::shared_ptr<const ApproxRow>;
  /// A set of columns that rows are wanted at, with what is known there.
  struct Frame {
    Columns columns;
    bool whole = false;  ///< all columns of any value; `columns` is not looked at
    std::map<std::pair<ValueId, std::int64_t>, SharedRow> rows = {};
  };
  /// Converted values along the contracted axis: of an input, exact floats.
  struct Vector {
    std::vector<float> exact;
    bool integral = false;
    std::vector<Approx> approximate;  ///< else
  };
  using SharedVector = std::shared_ptr<const Vector>;

  std::int64_t width(ValueId id) const;
  double row_cost(ValueId id) const;  ///< of a whole row
  std::size_t count(ValueId id, const Frame& frame) const;
  std::int64_t operand_row(ValueId operand, ValueId result, std::int64_t row) const;

  SharedRow value(ValueId id, std::int64_t row, Frame& frame);
  ApproxRow compute(const Statement& statement, std::int64_t row, Frame& frame);
  ApproxRow pointwise(const Statement& statement, std::int64_t row, Frame& frame);
  ApproxRow reduction(const Statement& statement, std::int64_t row, Frame& frame);
  ApproxRow matmul(const Statement& statement, std::int64_t row, Frame& frame);
  SharedRow whole(ValueId id, std::int64_t row);
  SharedRow spread(ValueId id, ValueId like, std::int64_t row);

  /// Along axis -1 of the matrix (a row of it), or along axis -2 at one column.
  SharedVector row_vector(ValueId id, std::int64_t row);
  std::vector<SharedVector> column_vectors(ValueId id, std::int64_t batch, Columns columns);
  Approx product(const Vector& a, const Vector& b) const;

  Operator op_;
  std::vector<std::vector<std::int64_t>> extents_;  ///< by value
  std::vector<TensorRows> inputs_;
  PointwiseRules rules_;

  // Whole rows, and converted rows of inputs, until they are too many.
  std::map<std::pair<ValueId, std::int64_t>, SharedRow> whole_rows_;
  std::map<std::pair<ValueId, std::int64_t>, SharedVector> vectors_;
  std::size_t whole_bytes_ = 0, vector_bytes_ = 0;
};

}  // namespace tilewright::templates
