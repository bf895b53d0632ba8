#include "search/cost_model.h"

#include <algorithm>

namespace tilewright::search {
namespace {

using templates::Op;

Result<std::int64_t> elements_of(const templates::Shape& shape,
                                 const templates::Bindings& bindings) {
  TILEWRIGHT_ASSIGN_OR_RETURN(const std::vector<std::int64_t> sizes,
                              templates::extents(shape, bindings));
  std::int64_t elements = 1;  // extents() sees to it that there are not too many
  for (const std::int64_t size : sizes) elements *= size;
  return elements;
}

Result<std::int64_t> bytes_of(const templates::Shape& shape, DType dtype,
                              const templates::Bindings& bindings) {
  TILEWRIGHT_ASSIGN_OR_RETURN(const std::int64_t elements, elements_of(shape, bindings));
  return static_cast<std::int64_t>(bytes_for(dtype, static_cast<std::size_t>(elements)));
}

/// Operations of one element: a weight for ranking, not a count of instructions.
double weight_of(Op op) {
  switch (op) {
    case Op::kConstant:
    case Op::kCast:
      return 0;
    case Op::kExp:
    case Op::kLog:
    case Op::kDiv:
    case Op::kSqrt:
    case Op::kRsqrt:
      return 4;
    case Op::kTanh:
    case Op::kSigmoid:
    case Op::kSilu:
    case Op::kGeluErf:
    case Op::kGeluTanh:
      return 10;
    case Op::kSoftmax:
    case Op::kRmsNorm:
    case Op::kLayerNorm:
      return 8;
    default:
      return 1;
  }
}

}  // namespace

Result<Work> work_of(const templates::Operator& op, const templates::Bindings& bindings) {
  Work work;
  for (const templates::Input& input : op.inputs) {
    const templates::Value& value = op.value(input.value);
    TILEWRIGHT_ASSIGN_OR_RETURN(const std::int64_t bytes,
                                bytes_of(value.shape, value.dtype, bindings));
    work.bytes += bytes;
  }
  for (const templates::Output& output : op.outputs) {
    TILEWRIGHT_ASSIGN_OR_RETURN(const std::int64_t bytes,
                                bytes_of(op.value(output.value).shape, output.dtype, bindings));
    work.bytes += bytes;
  }
  for (const templates::Statement& statement : op.statements) {
    const templates::Shape& result = op.value(statement.result).shape;
    TILEWRIGHT_ASSIGN_OR_RETURN(std::int64_t elements, elements_of(result, bindings));
    if (statement.op == Op::kMatmul) {
      const templates::Shape& a = op.value(statement.operands[0]).shape;
      const templates::Dim& depth = a[a.size() - (statement.attributes.transpose_a ? 2 : 1)];
      TILEWRIGHT_ASSIGN_OR_RETURN(const std::int64_t k, elements_of({depth}, bindings));
      work.matmul_flops += 2. * static_cast<double>(elements) * static_cast<double>(k);
      continue;
    }
    if (templates::is_row_reduction(statement.op)) {
      TILEWRIGHT_ASSIGN_OR_RETURN(elements,
                                  elements_of(op.value(statement.operands[0]).shape, bindings));
    }
    work.other_flops += weight_of(statement.op) * static_cast<double>(elements);
  }
  return work;
}

Floor CostModel::floor(const Work& work) const {
  Floor floor;
  floor.launch_us = device_.launch_us;
  floor.memory_us = static_cast<double>(work.bytes) / (device_.dram_gbps * 1e3);
  floor.arithmetic_us = (work.matmul_flops + work.other_flops) / (device_.fp32_tflops * 1e6);
  floor.time_us = floor.launch_us + std::max(floor.memory_us, floor.arithmetic_us);
  floor.bound_by = floor.memory_us >= floor.arithmetic_us ? "dram" : "fma";
  if (std::max(floor.memory_us, floor.arithmetic_us) < floor.launch_us) floor.bound_by = "launch";
  return floor;
}

}  // namespace tilewright::search
