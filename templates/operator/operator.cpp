#include "templates/operator/operator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace tilewright::templates {
namespace {

std::vector<std::string> texts(const std::vector<Dim>& dims) {
  std::vector<std::string> result;
  result.reserve(dims.size());
  for (const Dim& dim : dims) result.push_back(dim.text());
  return result;
}

}  // namespace

const Statement* Operator::producer(ValueId id) const {
  // Values are numbered: inputs, then the statements in order.
  std::size_t index = static_cast<std::size_t>(id) - inputs.size();
  return is_input(id) || index >= statements.size() ? nullptr : &statements[index];
}

const Output* Operator::output(ValueId id) const {
  auto found = std::find_if(outputs.begin(), outputs.end(),
                            [&](const Output& output) { return output.value == id; });
  return found == outputs.end() ? nullptr : &*found;
}

std::vector<const Statement*> Operator::consumers(ValueId id) const {
  std::vector<const Statement*> result;
  for (const Statement& statement : statements) {
    if (std::count(statement.operands.begin(), statement.operands.end(), id) > 0) {
      result.push_back(&statement);
    }
  }
  return result;
}

std::optional<ValueId> Operator::find(std::string_view name) const {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i].name == name) return static_cast<ValueId>(i);
  }
  return std::nullopt;
}

std::string to_string(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(texts(shape), ", "));
}

Result<std::vector<std::int64_t>> extents(const Shape& shape, const Bindings& bindings) {
  std::vector<std::int64_t> result;
  result.reserve(shape.size());
  for (const Dim& dim : shape) {
    if (dim.value) {
      result.push_back(*dim.value);
      continue;
    }
    auto bound = bindings.find(dim.symbol);
    if (bound == bindings.end()) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("dimension {} has no value, expected one for every dimension of {}",
                              dim.symbol, to_string(shape)));
    }
    if (bound->second < 0) {
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("dimension {} is {}, expected at least 0", dim.symbol, bound->second));
    }
    result.push_back(bound->second);
  }
  return result;
}

std::vector<jit::PlanTensor> plan_tensors(const Operator& op) {
  std::vector<jit::PlanTensor> tensors;
  tensors.reserve(op.inputs.size() + op.outputs.size());
  auto add = [&](ValueId id, DType dtype, const std::vector<Dim>& strides, jit::TensorRole role) {
    const Value& value = op.value(id);
    tensors.push_back({.name = value.name,
                       .dtype = dtype,
                       .role = role,
                       .shape = texts(value.shape),
                       .strides = texts(strides),
                       .workspace_offset = {}});
  };
  for (const Input& input : op.inputs) {
    add(input.value, op.value(input.value).dtype, input.strides, jit::TensorRole::kInput);
  }
  for (const Output& output : op.outputs) {
    add(output.value, output.dtype, output.strides, jit::TensorRole::kOutput);
  }
  return tensors;
}

}  // namespace tilewright::templates
