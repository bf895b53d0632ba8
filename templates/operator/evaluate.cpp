#include "templates/operator/evaluate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "templates/operator/evaluate/engine.h"

namespace tilewright::templates {
namespace {

std::int64_t product(const std::vector<std::int64_t>& extents) {
  return std::accumulate(extents.begin(), extents.end(), std::int64_t{1}, std::multiplies<>());
}

tl::unexpected<Error> invalid(std::string message) {
  return fail(ErrorCode::kInvalidArgument, std::move(message));
}

Result<void> check_tensor(const Value& value, const std::vector<std::int64_t>& wanted,
                          const HostTensor& tensor) {
  if (tensor.dtype != value.dtype) {
    return invalid(fmt::format("input '{}' is {}, expected {}", value.name, to_string(tensor.dtype),
                               to_string(value.dtype)));
  }
  if (tensor.shape != wanted) {
    return invalid(fmt::format("input '{}' has shape [{}], expected [{}]", value.name,
                               fmt::join(tensor.shape, ", "), fmt::join(wanted, ", ")));
  }
  if (tensor.strides.size() != wanted.size()) {
    return invalid(fmt::format("input '{}' has {} strides, expected {}", value.name,
                               tensor.strides.size(), wanted.size()));
  }
  if (tensor.strides.back() != 1 && wanted.back() > 1) {
    return invalid(fmt::format("input '{}' has the last stride {}, expected 1", value.name,
                               tensor.strides.back()));
  }
  if (tensor.data == nullptr && product(wanted) > 0) {
    return invalid(
        fmt::format("input '{}' has no data, expected {} elements", value.name, product(wanted)));
  }
  return {};
}

}  // namespace

struct Evaluator::State {
  Engine engine;

  ValueId id(std::size_t output) const { return engine.op().outputs[output].value; }
};

Evaluator::Evaluator(std::unique_ptr<State> state) : state_(std::move(state)) {}
Evaluator::Evaluator(Evaluator&&) noexcept = default;
Evaluator& Evaluator::operator=(Evaluator&&) noexcept = default;
Evaluator::~Evaluator() = default;

Result<Evaluator> Evaluator::create(const Operator& op, const Bindings& bindings,
                                    std::span<const HostTensor> inputs) {
  if (inputs.size() != op.inputs.size()) {
    return invalid(fmt::format("operator '{}' gets {} inputs, expected {}", op.name, inputs.size(),
                               op.inputs.size()));
  }
  std::vector<std::vector<std::int64_t>> shapes;
  for (const Value& value : op.values) {
    auto shape = extents(value.shape, bindings);
    if (!shape) {
      return fail(with_context(std::move(shape.error()), fmt::format("'{}'", value.name)));
    }
    shapes.push_back(std::move(*shape));
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    TILEWRIGHT_TRY(check_tensor(op.values[i], shapes[i], inputs[i]));
  }
  return Evaluator(std::make_unique<State>(State{Engine(op, std::move(shapes), inputs)}));
}

std::vector<std::int64_t> Evaluator::output_shape(std::size_t output) const {
  return state_->engine.extents(state_->id(output));
}

EvaluationCost Evaluator::cost(std::size_t output) const {
  return state_->engine.cost(state_->id(output));
}

Result<std::vector<Reference>> Evaluator::whole(std::size_t output) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(product(output_shape(output))));
  std::iota(all.begin(), all.end(), 0);
  return elements(output, all);
}

Result<std::vector<Reference>> Evaluator::elements(std::size_t output,
                                                   std::span<const std::int64_t> indices) {
  std::vector<std::int64_t> shape = output_shape(output);
  std::int64_t total = product(shape), width = shape.back();
  std::vector<std::size_t> order(indices.size());
  std::iota(order.begin(), order.end(), 0);
  if (!std::is_sorted(indices.begin(), indices.end())) {
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return indices[a] < indices[b]; });
  }
  std::vector<Reference> result(indices.size());
  std::vector<std::int64_t> columns;
  for (std::size_t begin = 0; begin < order.size();) {
    std::int64_t first = indices[order[begin]];
    if (first < 0 || first >= total) {
      return invalid(fmt::format("element {} of output '{}' is asked for, expected 0 to {}", first,
                                 state_->engine.op().value(state_->id(output)).name, total - 1));
    }
    std::int64_t row = first / width;
    std::size_t end = begin;
    columns.clear();
    for (; end < order.size() && indices[order[end]] / width == row; ++end) {
      columns.push_back(indices[order[end]] % width);
    }
    std::vector<Reference> values = state_->engine.row(state_->id(output), row, columns);
    for (std::size_t i = begin; i < end; ++i) result[order[i]] = values[i - begin];
    begin = end;
  }
  return result;
}

}  // namespace tilewright::templates
