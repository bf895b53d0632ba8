/// A group seen as a matrix product with an epilogue, and the writer of its source and plan.
#pragma once

#include <string>
#include <vector>

#include "templates/families/visitor.h"

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

class GemmWriter {
 public:
  GemmWriter(const Operator& group, GemmProblem problem, const Config& config,
             std::string initializer);

  Result<Generated> generate(std::string_view family, std::string_view header);

 private:
  std::int64_t tunable(const char* name) const { return config_.at(name); }
  int products() const { return static_cast<int>(problem_.b.size()); }
  int vector_of(const MatrixOperand& operand) const;
  bool asynchronous() const;
  bool whole(const Extent& extent, const char* tile) const;
  int threads() const;
  int shared_bytes() const;

  std::string source(std::string_view family, std::string_view header);
  void write_operands(Code& code) const;
  std::string operand_base(const MatrixOperand& operand, const std::string& name,
                           const std::vector<std::string>& batch) const;
  std::vector<std::string> matrix_parameters() const;
  std::vector<jit::PlanArgument> matrix_arguments() const;

  Result<jit::Plan> plan();
  std::array<std::string, 4> tile() const;

  const Operator& group_;
  GemmProblem problem_;
  const Config& config_;
  std::string initializer_;
  GroupCode code_;
  std::vector<std::string> matrix_names_;  ///< of A, then of each B, in code
  std::string kernel_, finish_kernel_;
};

}  // namespace tilewright::templates
