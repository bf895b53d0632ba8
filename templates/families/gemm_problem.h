/// A group seen as a matrix product, or two that share A, with an epilogue.
#pragma once

#include <string>
#include <vector>

#include "templates/families/space.h"

namespace tilewright::templates {

/// An operand: a matrix per place of the batch axes.
struct MatrixOperand {
  Access access;            ///< strides per row axis of the space; the last one: along m (A), 0 (B)
  Extent stride;            ///< between outer rows in memory, in elements
  bool depth_inner = true;  ///< k is the inner axis in memory
};

struct GemmProblem {
  RowSpace space;  ///< of the product; the last row axis is m, those before it are batches
  Extent depth;
  MatrixOperand a;
  std::vector<MatrixOperand> b;  ///< one or two

  Extent rows() const { return space.axes.empty() ? Extent(1) : space.axes.back(); }
  Extent batches() const;
};

/// Errors: kUnsupported says which statement is in the way.
Result<GemmProblem> gemm_problem(const Operator& group, const Facts& facts);

}  // namespace tilewright::templates
