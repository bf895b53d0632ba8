/// The type rules of the operator language: what a statement's result is, given its operands.
#pragma once

#include <span>

#include "templates/operator/operator.h"

namespace tilewright::templates {

struct ResultType {
  Shape shape;
  DType dtype = DType::kF32;  ///< before an output's storage dtype takes its place
};

/// Errors: kInvalidArgument (number, types and shapes of operands, attributes), kUnsupported (a
/// dtype that no kernel computes in yet). Messages carry no location.
Result<ResultType> infer(Op op, const Attributes& attributes,
                         std::span<const Value* const> operands);

/// f32, f16, bf16: what tensors may be stored in so far.
bool is_storage_dtype(DType dtype);

/// The shape that both stretch to, as numpy's rule has it; only a static 1 stretches.
/// Errors: kInvalidArgument with the axis counted in the longer shape.
Result<Shape> broadcast(const Shape& a, const Shape& b);

}  // namespace tilewright::templates
