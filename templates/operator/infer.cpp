#include "templates/operator/infer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tilewright::templates {
namespace {

bool is_one(const Dim& dim) { return dim.value == 1; }

tl::unexpected<Error> invalid(std::string message) {
  return fail(ErrorCode::kInvalidArgument, std::move(message));
}

Result<Shape> broadcast_all(Op op, std::span<const Value* const> operands) {
  Shape shape = operands[0]->shape;
  for (const Value* operand : operands.subspan(1)) {
    auto wider = broadcast(shape, operand->shape);
    if (!wider) {
      return fail(with_context(std::move(wider.error()),
                               fmt::format("operands of {} do not broadcast", to_string(op))));
    }
    shape = std::move(*wider);
  }
  return shape;
}

Result<Shape> infer_matmul(const Attributes& attributes, const Value& a, const Value& b) {
  for (const Value* operand : {&a, &b}) {
    if (operand->shape.size() < 2) {
      return invalid(fmt::format("operand '{}' of matmul has shape {}, expected at least two axes",
                                 operand->name, to_string(operand->shape)));
    }
  }
  std::size_t rank_a = a.shape.size(), rank_b = b.shape.size();
  const Dim& m = a.shape[rank_a - (attributes.transpose_a ? 1 : 2)];
  const Dim& k_a = a.shape[rank_a - (attributes.transpose_a ? 2 : 1)];
  const Dim& k_b = b.shape[rank_b - (attributes.transpose_b ? 1 : 2)];
  const Dim& n = b.shape[rank_b - (attributes.transpose_b ? 2 : 1)];
  if (k_a != k_b) {
    return invalid(fmt::format(
        "matmul contracts {} of '{}' {}{} with {} of '{}' {}{}, expected equal extents", k_a.text(),
        a.name, to_string(a.shape), attributes.transpose_a ? " (transposed)" : "", k_b.text(),
        b.name, to_string(b.shape), attributes.transpose_b ? " (transposed)" : ""));
  }
  Shape batch_a(a.shape.begin(), a.shape.end() - 2), batch_b(b.shape.begin(), b.shape.end() - 2);
  auto shape = broadcast(batch_a, batch_b);
  if (!shape) return fail(with_context(std::move(shape.error()), "batches of matmul differ"));
  shape->push_back(m);
  shape->push_back(n);
  return shape;
}

/// Gains and biases of norms: they may stretch to x, but must not stretch it.
Result<void> check_norm_operand(Op op, const Value& x, const Value& operand) {
  auto shape = broadcast(x.shape, operand.shape);
  bool last_agrees = !operand.shape.empty() && operand.shape.back() == x.shape.back();
  if (shape && *shape == x.shape && last_agrees) return {};
  return invalid(fmt::format("operand '{}' of {} has shape {}, expected [{}]", operand.name,
                             to_string(op), to_string(operand.shape), x.shape.back().text()));
}

Result<void> check_attributes(Op op, const Attributes& attributes) {
  if (op == Op::kClamp && !(attributes.low <= attributes.high)) {
    return invalid(fmt::format("clamp has low={} and high={}, expected low <= high", attributes.low,
                               attributes.high));
  }
  bool is_norm = op == Op::kRmsNorm || op == Op::kLayerNorm;
  if (is_norm && !(attributes.eps >= 0 && std::isfinite(attributes.eps))) {
    return invalid(fmt::format("{} has eps={}, expected a finite number of at least 0",
                               to_string(op), attributes.eps));
  }
  if (op == Op::kCast && !is_storage_dtype(attributes.dtype)) {
    return fail(ErrorCode::kUnsupported, fmt::format("cast has dtype={}, expected f32, f16 or bf16",
                                                     to_string(attributes.dtype)));
  }
  return {};
}

Result<void> check_operands(Op op, std::span<const Value* const> operands) {
  if (static_cast<int>(operands.size()) != arity(op)) {
    return invalid(
        fmt::format("{} has {} operands, expected {}", to_string(op), operands.size(), arity(op)));
  }
  for (std::size_t i = 0; i < operands.size(); ++i) {
    bool is_bool = operands[i]->dtype == DType::kBool;
    bool is_condition = op == Op::kSelect && i == 0;
    if (is_condition && !is_bool) {
      return invalid(
          fmt::format("condition '{}' of select is {}, expected the bool of a comparison",
                      operands[i]->name, to_string(operands[i]->dtype)));
    }
    if (is_bool && !is_condition && op != Op::kCast) {
      return invalid(fmt::format("operand '{}' of {} is bool, expected a number", operands[i]->name,
                                 to_string(op)));
    }
  }
  return {};
}

}  // namespace

bool is_storage_dtype(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

Result<Shape> broadcast(const Shape& a, const Shape& b) {
  const Shape& longer = a.size() >= b.size() ? a : b;
  const Shape& shorter = a.size() >= b.size() ? b : a;
  Shape shape = longer;
  std::size_t offset = longer.size() - shorter.size();
  for (std::size_t i = 0; i < shorter.size(); ++i) {
    Dim& dim = shape[offset + i];
    if (dim == shorter[i] || is_one(shorter[i])) continue;
    if (!is_one(dim)) {
      return invalid(fmt::format("{} and {} differ on axis {}: {} and {}, expected equal or 1",
                                 to_string(a), to_string(b), offset + i,
                                 (&longer == &a ? dim : shorter[i]).text(),
                                 (&longer == &a ? shorter[i] : dim).text()));
    }
    dim = shorter[i];
  }
  return shape;
}

Result<ResultType> infer(Op op, const Attributes& attributes,
                         std::span<const Value* const> operands) {
  TILEWRIGHT_TRY(check_operands(op, operands));
  TILEWRIGHT_TRY(check_attributes(op, attributes));
  ResultType result;
  if (op == Op::kConstant) return result;
  if (op == Op::kMatmul) {
    TILEWRIGHT_ASSIGN_OR_RETURN(result.shape, infer_matmul(attributes, *operands[0], *operands[1]));
    return result;
  }
  if (is_row_reduction(op)) {
    const Value& x = *operands[0];
    if (x.shape.empty()) {
      return invalid(fmt::format("operand '{}' of {} has shape [], expected at least one axis",
                                 x.name, to_string(op)));
    }
    for (const Value* operand : operands.subspan(1)) {
      TILEWRIGHT_TRY(check_norm_operand(op, x, *operand));
    }
    result.shape = x.shape;
    bool reduces = op == Op::kReduceSum || op == Op::kReduceMax || op == Op::kReduceMean;
    if (reduces) result.shape.back() = Dim{.value = 1, .symbol = {}};
    return result;
  }
  TILEWRIGHT_ASSIGN_OR_RETURN(result.shape, broadcast_all(op, operands));
  if (is_comparison(op)) result.dtype = DType::kBool;
  if (op == Op::kCast) result.dtype = attributes.dtype;
  return result;
}

}  // namespace tilewright::templates
