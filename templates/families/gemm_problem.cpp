#include "templates/families/gemm_problem.h"

#include <fmt/format.h>

#include <algorithm>

namespace tilewright::templates {
namespace {

/// `id` as an operand of a matmul whose product has `shape`.
MatrixOperand matrix_operand(const Operator& group, ValueId id, bool is_a, bool transposed,
                             const Shape& shape, const Facts& facts) {
  const Value& value = group.value(id);
  const Input& input = group.inputs[static_cast<std::size_t>(id)];
  const std::vector<Extent> strides = strides_of(value.shape, input.strides);
  const std::size_t batches = shape.size() - 2, own = value.shape.size() - 2;
  MatrixOperand operand;
  operand.access = {.value = id,
                    .name = value.name,
                    .dtype = value.dtype,
                    .strides = std::vector<Extent>(batches + 1, Extent(0)),
                    .align = alignment_of(group, id, false, facts)};
  for (std::size_t axis = 0; axis < own; ++axis) {
    if (value.shape[axis].value == 1) continue;  // stretched, or of extent 1
    operand.access.strides[batches - own + axis] = strides[axis];
  }
  if (is_a) operand.access.strides.back() = transposed ? Extent(1) : strides[own];
  operand.stride = strides[own];
  operand.depth_inner = is_a != transposed;
  return operand;
}

}  // namespace

Extent GemmProblem::batches() const {
  Extent product(1);
  for (std::size_t i = 0; i + 1 < space.axes.size(); ++i) product = product * space.axes[i];
  return product;
}

Result<GemmProblem> gemm_problem(const Operator& group, const Facts& facts) {
  std::vector<const Statement*> matmuls;
  for (const Statement& statement : group.statements) {
    if (is_pointwise(statement.op)) continue;
    const std::string text = print(group, statement);
    if (statement.op != Op::kMatmul) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{} is neither a matmul nor pointwise", text));
    }
    for (ValueId operand : statement.operands) {
      if (group.is_input(operand)) continue;
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{}: operand {} is computed in the group, expected an input", text,
                              group.value(operand).name));
    }
    if (!matmuls.empty()) {
      const Statement& first = *matmuls.front();
      const auto &a = first.attributes, &b = statement.attributes;
      if (matmuls.size() == 2) {
        return fail(ErrorCode::kUnsupported,
                    fmt::format("{} is a third matmul, expected at most two", text));
      }
      if (first.operands[0] != statement.operands[0] || a.transpose_a != b.transpose_a) {
        return fail(
            ErrorCode::kUnsupported,
            fmt::format("{} does not share its first operand with {}", text, print(group, first)));
      }
      if (a.transpose_b != b.transpose_b ||
          !(group.value(first.operands[1]).shape == group.value(statement.operands[1]).shape) ||
          group.value(first.operands[1]).dtype != group.value(statement.operands[1]).dtype) {
        return fail(ErrorCode::kUnsupported,
                    fmt::format("{}: {} differs from {} in shape, dtype or transposition", text,
                                group.value(statement.operands[1]).name,
                                group.value(first.operands[1]).name));
      }
    }
    matmuls.push_back(&statement);
  }
  if (matmuls.empty()) return fail(ErrorCode::kUnsupported, "no statement is a matmul");

  const Statement& first = *matmuls.front();
  const Shape& shape = group.value(first.result).shape;
  GemmProblem problem;
  TILEWRIGHT_ASSIGN_OR_RETURN(problem.space,
                              row_space(group, shape, facts, matmuls.front(), matmuls.back()));
  for (const Access& tensor : problem.space.tensors) {
    if (!tensor.output || tensor.along_columns) continue;
    return fail(ErrorCode::kUnsupported,
                fmt::format("output {} has shape {}, expected the product's {}", tensor.name,
                            to_string(group.value(tensor.value).shape), to_string(shape)));
  }
  const Attributes& attributes = first.attributes;
  problem.a = matrix_operand(group, first.operands[0], true, attributes.transpose_a, shape, facts);
  for (const Statement* matmul : matmuls) {
    problem.b.push_back(
        matrix_operand(group, matmul->operands[1], false, attributes.transpose_b, shape, facts));
  }
  const Shape& a = group.value(first.operands[0]).shape;
  problem.depth = Extent(attributes.transpose_a ? a[a.size() - 2] : a.back());
  std::vector<Access*> others = {&problem.a.access};
  for (MatrixOperand& b : problem.b) others.push_back(&b.access);
  problem.space.merge_axes(others);
  return problem;
}

}  // namespace tilewright::templates
