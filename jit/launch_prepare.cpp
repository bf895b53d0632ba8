// From the tensors of a call to grids and arguments: dimensions inferred, everything checked.
#include <fmt/format.h>

#include <algorithm>

#include "jit/launch_state.h"
#include "jit/tensor_memory.h"

namespace tilewright::jit {
namespace {

// CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
constexpr std::int64_t kMostBlocks[3] = {0x7fffffff, 65535, 65535};

/// In elements: far beyond any memory.
constexpr std::int64_t kMostStride = std::int64_t{1} << 48;

tl::unexpected<Error> wrong(std::string message) {
  return fail(ErrorCode::kInvalidArgument, std::move(message));
}

/// Whether each element of one lies where the other's of the same coordinates does.
bool same_places(const PlanTensor& a, const TensorArgument& at, const PlanTensor& b,
                 const TensorArgument& bt) {
  if (a.dtype != b.dtype || at.address != bt.address || at.shape != bt.shape) return false;
  if (at.strides == bt.strides) return true;
  const auto strides = [](const TensorArgument& t) {
    return t.strides.empty() ? dense_strides(t.shape) : t.strides;
  };
  const std::vector<std::int64_t> one = strides(at), other = strides(bt);
  for (std::size_t axis = 0; axis < at.shape.size(); ++axis)
    if (at.shape[axis] > 1 && one[axis] != other[axis]) return false;
  return true;
}

}  // namespace

Result<std::int64_t> LoadedPlan::State::evaluate(const Rule& rule, const Values& values) const {
  std::vector<std::int64_t> bound;
  for (int slot : rule.slots) bound.push_back(values[std::size_t(slot)]);
  return rule.expression.evaluate(bound);
}

/// The slot of the dimension that `rule` is nothing but; -1 where it is something else.
int LoadedPlan::State::dimension_slot(const Rule& rule) const {
  const auto& variables = rule.expression.variables();
  if (variables.size() != 1 || rule.expression.text() != variables[0]) return -1;
  return std::size_t(rule.slots[0]) < plan.dimensions.size() ? rule.slots[0] : -1;
}

/// "M = 16, x.align = 4": the variables of a rule, for messages.
std::string LoadedPlan::State::rendered(const Rule& rule, const Values& values) const {
  std::string text;
  for (int slot : rule.slots)
    text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", slots[std::size_t(slot)],
                        values[std::size_t(slot)]);
  return text.empty() ? "it is constant" : text;
}

/// Dimensions from the axes, and then from the strides, that are named by one alone.
Result<void> LoadedPlan::State::infer(std::span<const TensorArgument> given, Values& values) const {
  std::vector<std::string> found(plan.dimensions.size());
  auto take = [&](const Rule& rule, std::int64_t value, std::string where) -> Result<void> {
    const int slot = dimension_slot(rule);
    if (slot < 0) return {};
    std::string& first = found[std::size_t(slot)];
    std::int64_t& known = values[std::size_t(slot)];
    if (first.empty()) {
      known = value;
      first = std::move(where);
    } else if (known != value) {
      return wrong(fmt::format("{} is {}, expected {} = {} as {} is", where, value,
                               plan.dimensions[std::size_t(slot)], known, first));
    }
    return {};
  };
  for (std::size_t i = 0; i < given.size(); ++i) {
    const PlanTensor& tensor = plan.tensors[arguments[i]];
    if (given[i].shape.size() != tensor.shape.size())
      return wrong(fmt::format("{} has {} axes, expected {}", tensor.name, given[i].shape.size(),
                               tensor.shape.size()));
    if (!given[i].strides.empty() && given[i].strides.size() != tensor.shape.size())
      return wrong(fmt::format("{} has {} strides, expected {} or none", tensor.name,
                               given[i].strides.size(), tensor.shape.size()));
    TILEWRIGHT_TRY(check_extents(tensor.name, given[i].shape));
    for (std::size_t axis = 0; axis < tensor.shape.size(); ++axis) {
      TILEWRIGHT_TRY(take(tensors[arguments[i]].shape[axis], given[i].shape[axis],
                          fmt::format("{} axis {}", tensor.name, axis)));
    }
  }
  // A stride that is never stepped along tells a dimension only where no other does.
  for (const bool stepped : {true, false}) {
    for (std::size_t i = 0; i < given.size(); ++i) {
      const PlanTensor& tensor = plan.tensors[arguments[i]];
      const auto strides =
          given[i].strides.empty() ? dense_strides(given[i].shape) : given[i].strides;
      for (std::size_t axis = 0; axis < tensor.strides.size(); ++axis) {
        const Rule& rule = tensors[arguments[i]].strides[axis];
        const int slot = dimension_slot(rule);
        if (slot < 0 || (given[i].shape[axis] > 1) != stepped) continue;
        if (!stepped && !found[std::size_t(slot)].empty()) continue;
        TILEWRIGHT_TRY(take(rule, strides[axis], fmt::format("{} stride {}", tensor.name, axis)));
      }
    }
  }
  for (std::size_t i = 0; i < found.size(); ++i)
    if (found[i].empty())
      return wrong(
          fmt::format("dimension {} is not known, expected an axis of an input or output "
                      "that is {} and nothing else",
                      plan.dimensions[i], plan.dimensions[i]));
  return {};
}

Result<void> LoadedPlan::State::check_argument(std::size_t index, const TensorArgument& argument,
                                               Values& values) const {
  const PlanTensor& tensor = plan.tensors[index];
  const TensorRules& rules = tensors[index];
  const std::size_t rank = tensor.shape.size();
  bool empty = false;
  for (std::size_t axis = 0; axis < rank; ++axis) {
    TILEWRIGHT_ASSIGN_OR_RETURN(const auto wanted, evaluate(rules.shape[axis], values));
    if (argument.shape[axis] != wanted)
      return wrong(fmt::format("{} axis {} is {}, expected {} = {}", tensor.name, axis,
                               argument.shape[axis], tensor.shape[axis], wanted));
    empty = empty || wanted == 0;
  }
  const auto dense = dense_strides(argument.shape);
  const auto& strides = argument.strides.empty() ? dense : argument.strides;
  // What a plan says of strides holds of the dimensions; its other rules may use the strides.
  for (std::size_t axis = 0; axis < rank; ++axis)
    values[std::size_t(rules.stride_slots[axis])] = strides[axis];
  for (std::size_t axis = 0; axis < rank && !empty; ++axis) {
    if (argument.shape[axis] <= 1) continue;
    std::int64_t wanted = dense[axis];
    if (!rules.strides.empty()) {
      TILEWRIGHT_ASSIGN_OR_RETURN(wanted, evaluate(rules.strides[axis], values));
    }
    if (strides[axis] != wanted)
      return wrong(
          fmt::format("{} stride {} is {}, expected {}", tensor.name, axis, strides[axis], wanted));
  }
  if (!empty && argument.address == 0)
    return wrong(fmt::format("{} has the address 0, expected one of device memory", tensor.name));
  const std::uint64_t element_bytes = std::uint64_t(std::max(bits_of(tensor.dtype) / 8, 1));
  if (!empty && argument.address % element_bytes != 0)
    return wrong(fmt::format("{} has the address {:#x}, expected a multiple of {}", tensor.name,
                             argument.address, element_bytes));
  for (std::size_t axis = 0; axis < rank && !empty; ++axis) {
    if (argument.shape[axis] > 1 && (strides[axis] < 0 || strides[axis] > kMostStride))
      return wrong(
          fmt::format("{} stride {} is {}, expected 0 to 2^48", tensor.name, axis, strides[axis]));
  }
  values[std::size_t(rules.align_slot)] =
      alignment(argument.address, tensor.dtype, argument.shape, strides);
  return {};
}

/// Its offset in the workspace, which is aligned as much as alignments are counted.
Result<std::int64_t> LoadedPlan::State::place_intermediate(std::size_t index,
                                                           Values& values) const {
  const TensorRules& rules = tensors[index];
  std::vector<std::int64_t> shape;
  for (const Rule& rule : rules.shape) {
    TILEWRIGHT_ASSIGN_OR_RETURN(const auto extent, evaluate(rule, values));
    shape.push_back(extent);
  }
  TILEWRIGHT_TRY(check_extents(plan.tensors[index].name, shape));
  std::vector<std::int64_t> strides = dense_strides(shape);
  for (std::size_t axis = 0; axis < rules.strides.size(); ++axis) {
    TILEWRIGHT_ASSIGN_OR_RETURN(strides[axis], evaluate(rules.strides[axis], values));
  }
  for (std::size_t axis = 0; axis < shape.size(); ++axis)
    values[std::size_t(rules.stride_slots[axis])] = strides[axis];
  TILEWRIGHT_ASSIGN_OR_RETURN(const auto offset, evaluate(*rules.offset, values));
  if (offset < 0)
    return fail(ErrorCode::kUnsupported,
                fmt::format("{} lies at {} = {} of the workspace, expected 0 or more",
                            plan.tensors[index].name, rules.offset->expression.text(), offset));
  values[std::size_t(rules.align_slot)] =
      alignment(std::uint64_t(offset), plan.tensors[index].dtype, shape, strides);
  return offset;
}

Result<void> LoadedPlan::State::check_legal(const Values& values) const {
  for (const Rule& rule : legal) {
    TILEWRIGHT_ASSIGN_OR_RETURN(const auto holds, evaluate(rule, values));
    if (holds == 0)
      return fail(ErrorCode::kUnsupported,
                  fmt::format("the plan needs {}, which does not hold: {}", rule.expression.text(),
                              rendered(rule, values)));
  }
  return {};
}

/// That no output lies where another tensor does, but for an input element on element, which nothing
/// reads once the output is written.
Result<void> LoadedPlan::State::check_outputs(std::span<const TensorArgument> given) const {
  std::vector<TensorMemory> memory;
  memory.reserve(given.size());
  for (std::size_t i = 0; i < given.size(); ++i) {
    const auto& strides = given[i].strides;
    const PlanTensor& tensor = plan.tensors[arguments[i]];
    if (tensor.role == TensorRole::kOutput && !strides.empty())
      TILEWRIGHT_TRY(check_own_places(tensor.name, given[i].shape, strides));
    memory.push_back(
        strides.empty()
            ? TensorMemory::of(given[i].address, tensor.dtype, given[i].shape,
                               dense_strides(given[i].shape))
            : TensorMemory::of(given[i].address, tensor.dtype, given[i].shape, strides));
  }
  for (std::size_t i = 0; i < given.size(); ++i) {
    const PlanTensor& output = plan.tensors[arguments[i]];
    if (output.role != TensorRole::kOutput) continue;
    for (std::size_t j = 0; j < given.size(); ++j) {
      const PlanTensor& other = plan.tensors[arguments[j]];
      const bool input = other.role == TensorRole::kInput;
      if (j == i || (!input && j < i) || !overlap(memory[i], memory[j])) continue;
      if (!input || !same_places(output, given[i], other, given[j]))
        return wrong(fmt::format("{} and {} overlap in memory, expected {} in memory of its own{}",
                                 output.name, other.name, output.name,
                                 input ? " or exactly that of an input of its dtype" : ""));
      const TensorRules &written = tensors[arguments[i]], &read = tensors[arguments[j]];
      if (read.last_launch > written.first_launch || read.last_apart >= written.first_launch)
        return wrong(fmt::format(
            "{} lies in the memory of {}, expected memory of its own: kernel {} reads {} where it "
            "has been overwritten",
            output.name, other.name,
            plan.launches[std::size_t(std::max(read.last_launch, read.last_apart))].kernel,
            other.name));
    }
  }
  return {};
}

Result<PreparedLaunch> LoadedPlan::prepare(std::span<const TensorArgument> arguments) const {
  const State& loaded = *state_;
  if (arguments.size() != loaded.arguments.size())
    return wrong(fmt::format("{} tensors, expected {}: the plan's inputs, then its outputs",
                             arguments.size(), loaded.arguments.size()));
  Values values(loaded.slots.size());
  TILEWRIGHT_TRY(loaded.infer(arguments, values));
  std::vector<std::uint64_t> addresses(loaded.plan.tensors.size());
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    TILEWRIGHT_TRY(loaded.check_argument(loaded.arguments[i], arguments[i], values));
    addresses[loaded.arguments[i]] = arguments[i].address;
  }
  for (std::size_t i = 0; i < loaded.tensors.size(); ++i) {
    if (!loaded.tensors[i].offset) continue;
    TILEWRIGHT_ASSIGN_OR_RETURN(const auto offset, loaded.place_intermediate(i, values));
    addresses[i] = std::uint64_t(offset);
  }
  TILEWRIGHT_TRY(loaded.check_legal(values));
  TILEWRIGHT_TRY(loaded.check_outputs(arguments));

  auto state = std::make_shared<PreparedLaunch::State>();
  state->loaded = state_;
  state->driver = loaded.driver.get();
  TILEWRIGHT_ASSIGN_OR_RETURN(const auto workspace, loaded.evaluate(loaded.workspace, values));
  if (workspace < 0)
    return fail(ErrorCode::kUnsupported,
                fmt::format("the workspace has {} = {} bytes, expected 0 or more",
                            loaded.plan.workspace_bytes, workspace));
  state->workspace_bytes = std::size_t(workspace);
  for (std::size_t i = 0; i < loaded.launches.size(); ++i) {
    const LaunchRules& rules = loaded.launches[i];
    PreparedLaunch::State::Kernel kernel;
    kernel.function = rules.function;
    kernel.plan = &loaded.plan.launches[i];
    bool nothing = false;
    for (std::size_t axis = 0; axis < 3; ++axis) {
      TILEWRIGHT_ASSIGN_OR_RETURN(const auto blocks, loaded.evaluate(rules.grid[axis], values));
      if (blocks < 0 || blocks > kMostBlocks[axis])
        return fail(
            ErrorCode::kUnsupported,
            fmt::format("grid.{} of kernel {} is {} = {}, expected 0 to {}", "xyz"[axis],
                        kernel.plan->kernel, kernel.plan->grid[axis], blocks, kMostBlocks[axis]));
      kernel.grid[axis] = unsigned(blocks);
      nothing = nothing || blocks == 0;
    }
    if (nothing) continue;
    for (std::size_t j = 0; j < rules.arguments.size(); ++j) {
      const ArgumentRules& argument = rules.arguments[j];
      std::uint64_t value = 0;
      bool in_workspace = argument.kind == ArgumentKind::kWorkspace;
      if (argument.kind == ArgumentKind::kTensor) {
        value = addresses[argument.tensor];
        in_workspace = loaded.tensors[argument.tensor].offset.has_value();
      } else {
        TILEWRIGHT_ASSIGN_OR_RETURN(const auto number, loaded.evaluate(*argument.rule, values));
        if (argument.kind == ArgumentKind::kInt32 && number != std::int32_t(number))
          return fail(
              ErrorCode::kUnsupported,
              fmt::format("argument {} of kernel {} is {} = {}, expected 32 bits", j,
                          kernel.plan->kernel, kernel.plan->arguments[j].expression, number));
        value = std::uint64_t(number);
      }
      kernel.values.push_back(value);
      kernel.in_workspace.push_back(in_workspace);
    }
    state->kernels.push_back(std::move(kernel));
  }
  PreparedLaunch prepared;
  prepared.state_ = std::move(state);
  return prepared;
}

}  // namespace tilewright::jit
