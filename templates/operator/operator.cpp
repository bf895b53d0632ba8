#include "templates/operator/operator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "jit/tensor_rules.h"

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

Result<std::vector<std::int64_t>> sizes(const std::vector<Dim>& dims, const Bindings& bindings) {
  std::vector<std::int64_t> result;
  result.reserve(dims.size());
  for (const Dim& dim : dims) {
    if (dim.value) {
      result.push_back(*dim.value);
      continue;
    }
    auto bound = bindings.find(dim.symbol);
    if (bound == bindings.end()) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("dimension {} has no value, expected one for every dimension of {}",
                              dim.symbol, to_string(dims)));
    }
    if (bound->second < 0) {
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("dimension {} is {}, expected at least 0", dim.symbol, bound->second));
    }
    if (bound->second > jit::kMaxElements) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("dimension {} is {}, expected at most 2^48 = {}", dim.symbol,
                              bound->second, jit::kMaxElements));
    }
    result.push_back(bound->second);
  }
  return result;
}

Result<std::vector<std::int64_t>> extents(const Shape& shape, const Bindings& bindings) {
  TILEWRIGHT_ASSIGN_OR_RETURN(std::vector<std::int64_t> result, sizes(shape, bindings));
  // Static axes first: they fit, and a dimension is to blame for the rest.
  std::int64_t elements = 1;
  for (const bool dynamic : {false, true}) {
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
      if (shape[axis].is_static() == dynamic) continue;
      const std::int64_t most = jit::kMaxElements / elements;
      if (result[axis] > most) {
        return fail(ErrorCode::kInvalidArgument,
                    fmt::format("dimension {} is {}, expected at most {}: a tensor of shape {} has "
                                "at most 2^48 elements",
                                shape[axis].text(), result[axis], most, to_string(shape)));
      }
      elements *= std::max<std::int64_t>(result[axis], 1);
    }
  }
  return result;
}

Bindings bindings_of(const Operator& op, const Bindings& whole) {
  Bindings bindings;
  for (const std::string& dimension : op.dimensions) bindings[dimension] = whole.at(dimension);
  return bindings;
}

Result<void> check_sizes(const Operator& op, const Bindings& bindings) {
  const auto known = [&](const std::vector<Dim>& dims) {
    return std::all_of(dims.begin(), dims.end(), [&](const Dim& dim) {
      return dim.is_static() || bindings.count(dim.symbol) > 0;
    });
  };
  for (const Value& value : op.values) {
    if (known(value.shape)) TILEWRIGHT_TRY(extents(value.shape, bindings));
  }
  for (const Input& input : op.inputs) {
    if (known(input.strides)) TILEWRIGHT_TRY(sizes(input.strides, bindings));
  }
  for (const Output& output : op.outputs) {
    if (known(output.strides)) TILEWRIGHT_TRY(sizes(output.strides, bindings));
  }
  return {};
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
