#include "jit/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace tilewright::jit {
namespace {

constexpr std::int64_t kMostAlignment = 256;
constexpr std::size_t kMostArguments = 64;
// CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
constexpr std::int64_t kMostBlocks[3] = {0x7fffffff, 65535, 65535};

/// A rule with its variables resolved to slots of a table of values.
struct Rule {
  Expression expression;
  std::vector<int> slots;
};

struct TensorRules {
  std::vector<Rule> shape, strides;  ///< strides empty: dense
  std::optional<Rule> offset;        ///< of intermediates
  int align_slot = -1;
  std::vector<int> stride_slots;
};

struct ArgumentRules {
  ArgumentKind kind = ArgumentKind::kInt64;
  std::size_t tensor = 0;  ///< kTensor
  std::optional<Rule> rule;
};

struct LaunchRules {
  CUfunction function = nullptr;
  std::array<Rule, 3> grid;
  std::vector<ArgumentRules> arguments;
};

/// What the variables of a plan are worth in one call.
using Values = std::vector<std::int64_t>;

std::int64_t power_of_two_in(std::int64_t value) {
  return value == 0 ? kMostAlignment : std::min(kMostAlignment, value & -value);
}

/// Largest power of two, at most 256, that divides address and strides in bytes, but for the last
/// axis and for axes along which nothing is ever stepped.
std::int64_t alignment(std::uint64_t address, DType dtype, std::span<const std::int64_t> shape,
                       std::span<const std::int64_t> strides) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return kMostAlignment;
  std::int64_t align = power_of_two_in(std::int64_t(address));
  for (std::size_t axis = 0; axis + 1 < shape.size(); ++axis) {
    if (shape[axis] <= 1) continue;
    const std::int64_t bits = strides[axis] * bits_of(dtype);
    align = std::min(align, bits % 8 != 0 ? 1 : power_of_two_in(bits / 8));
  }
  return align;
}

std::vector<std::int64_t> dense_strides(std::span<const std::int64_t> shape) {
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t stride = 1;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    strides[axis] = stride;
    stride *= shape[axis];
  }
  return strides;
}

tl::unexpected<Error> wrong(std::string message) {
  return fail(ErrorCode::kInvalidArgument, std::move(message));
}

}  // namespace

struct LoadedPlan::State {
  std::shared_ptr<Driver> driver;
  Plan plan;
  std::vector<std::shared_ptr<Module>> modules;
  std::vector<std::size_t> arguments;  ///< indices of tensors: inputs, then outputs
  std::vector<std::string> slots;      ///< names of variables
  std::vector<TensorRules> tensors;    ///< by index, as plan.tensors
  std::vector<LaunchRules> launches;
  std::vector<Rule> legal;
  Rule workspace;

  // Loading.
  int slot(const std::string& name);
  Result<Rule> bind(const std::string& text);
  Result<void> bind_all(const Context& context, const ImageSource& images);

  // Preparing.
  Result<std::int64_t> evaluate(const Rule& rule, const Values& values) const;
  int dimension_slot(const Rule& rule) const;
  std::string rendered(const Rule& rule, const Values& values) const;
  Result<void> infer(std::span<const TensorArgument> arguments, Values& values) const;
  Result<void> check_argument(std::size_t tensor, const TensorArgument& argument,
                              Values& values) const;
  Result<std::int64_t> place_intermediate(std::size_t tensor, Values& values) const;
  Result<void> check_legal(const Values& values) const;
};

struct PreparedLaunch::State {
  struct Kernel {
    CUfunction function = nullptr;
    const PlanLaunch* plan = nullptr;
    std::array<unsigned, 3> grid{};
    std::vector<std::uint64_t> values;  ///< one per argument; offsets where of the workspace
    std::vector<bool> in_workspace;
  };
  std::shared_ptr<const void> loaded;  ///< the plan, which keeps modules and driver alive
  const Driver* driver = nullptr;
  std::vector<Kernel> kernels;
  std::size_t workspace_bytes = 0;

  Result<void> launch(const Kernel& kernel, CUdeviceptr workspace, const Stream& stream) const;
  Result<void> check_workspace(CUdeviceptr workspace) const;
};

int LoadedPlan::State::slot(const std::string& name) {
  const auto at = std::find(slots.begin(), slots.end(), name);
  if (at != slots.end()) return int(at - slots.begin());
  slots.push_back(name);
  return int(slots.size()) - 1;
}

Result<Rule> LoadedPlan::State::bind(const std::string& text) {
  TILEWRIGHT_ASSIGN_OR_RETURN(auto expression, Expression::parse(text));
  Rule rule{std::move(expression), {}};
  for (const std::string& variable : rule.expression.variables())
    rule.slots.push_back(slot(variable));
  return rule;
}

Result<void> LoadedPlan::State::bind_all(const Context& context, const ImageSource& images) {
  for (const std::string& dimension : plan.dimensions) slot(dimension);
  for (const PlanTensor& tensor : plan.tensors) {
    TensorRules rules;
    rules.align_slot = slot(tensor.name + ".align");
    for (std::size_t axis = 0; axis < tensor.shape.size(); ++axis) {
      rules.stride_slots.push_back(slot(fmt::format("{}.stride{}", tensor.name, axis)));
      TILEWRIGHT_ASSIGN_OR_RETURN(Rule extent, bind(tensor.shape[axis]));
      rules.shape.push_back(std::move(extent));
    }
    for (const std::string& text : tensor.strides) {
      TILEWRIGHT_ASSIGN_OR_RETURN(Rule stride, bind(text));
      rules.strides.push_back(std::move(stride));
    }
    if (tensor.role == TensorRole::kIntermediate) {
      TILEWRIGHT_ASSIGN_OR_RETURN(Rule offset, bind(tensor.workspace_offset));
      rules.offset = std::move(offset);
    }
    tensors.push_back(std::move(rules));
  }
  for (TensorRole role : {TensorRole::kInput, TensorRole::kOutput})
    for (std::size_t i = 0; i < plan.tensors.size(); ++i)
      if (plan.tensors[i].role == role) arguments.push_back(i);

  std::map<Digest, std::shared_ptr<Module>> loaded;
  for (const PlanLaunch& launch : plan.launches) {
    auto& module = loaded[launch.image];
    if (!module) {
      TILEWRIGHT_ASSIGN_OR_RETURN(const Image image, images(launch.image));
      TILEWRIGHT_ASSIGN_OR_RETURN(module, Module::load(context, image));
      modules.push_back(module);
    }
    LaunchRules rules;
    TILEWRIGHT_ASSIGN_OR_RETURN(rules.function,
                                module->function(launch.kernel, launch.dynamic_shared_bytes));
    for (int axis = 0; axis < 3; ++axis) {
      TILEWRIGHT_ASSIGN_OR_RETURN(rules.grid[std::size_t(axis)],
                                  bind(launch.grid[std::size_t(axis)]));
    }
    if (launch.arguments.size() > kMostArguments)
      return fail(ErrorCode::kUnsupported,
                  fmt::format("kernel {} has {} arguments, expected at most {}", launch.kernel,
                              launch.arguments.size(), kMostArguments));
    for (const PlanArgument& argument : launch.arguments) {
      ArgumentRules one{argument.kind, 0, {}};
      if (argument.kind == ArgumentKind::kTensor) {
        one.tensor = std::size_t(plan.find(argument.name) - plan.tensors.data());
      } else {
        TILEWRIGHT_ASSIGN_OR_RETURN(Rule rule, bind(argument.expression));
        one.rule = std::move(rule);
      }
      rules.arguments.push_back(std::move(one));
    }
    launches.push_back(std::move(rules));
  }
  for (const std::string& text : plan.legal) {
    TILEWRIGHT_ASSIGN_OR_RETURN(Rule rule, bind(text));
    legal.push_back(std::move(rule));
  }
  TILEWRIGHT_ASSIGN_OR_RETURN(workspace, bind(plan.workspace_bytes));
  return {};
}

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
    for (std::size_t axis = 0; axis < tensor.shape.size(); ++axis) {
      if (given[i].shape[axis] < 0)
        return wrong(fmt::format("{} axis {} is {}, expected 0 or more", tensor.name, axis,
                                 given[i].shape[axis]));
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
  // Before strides are compared, since an expected one may be `x.stride0`, whatever that is.
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
  std::vector<std::int64_t> strides = dense_strides(shape);
  for (std::size_t axis = 0; axis < rules.strides.size(); ++axis) {
    TILEWRIGHT_ASSIGN_OR_RETURN(strides[axis], evaluate(rules.strides[axis], values));
  }
  for (std::size_t axis = 0; axis < shape.size(); ++axis)
    values[std::size_t(rules.stride_slots[axis])] = strides[axis];
  TILEWRIGHT_ASSIGN_OR_RETURN(const auto offset, evaluate(*rules.offset, values));
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

Result<LoadedPlan> LoadedPlan::load(const Context& context, Plan plan, const ImageSource& images) {
  TILEWRIGHT_TRY(check(plan));
  auto state = std::make_shared<State>();
  state->driver = context.shared_driver();
  state->plan = std::move(plan);
  TILEWRIGHT_TRY(state->bind_all(context, images));
  LoadedPlan loaded;
  loaded.state_ = std::move(state);
  return loaded;
}

const Plan& LoadedPlan::plan() const { return state_->plan; }

std::vector<const PlanTensor*> LoadedPlan::arguments() const {
  std::vector<const PlanTensor*> tensors;
  for (std::size_t index : state_->arguments) tensors.push_back(&state_->plan.tensors[index]);
  return tensors;
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

  auto state = std::make_shared<PreparedLaunch::State>();
  state->loaded = state_;
  state->driver = loaded.driver.get();
  TILEWRIGHT_ASSIGN_OR_RETURN(const auto workspace, loaded.evaluate(loaded.workspace, values));
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

std::size_t PreparedLaunch::workspace_bytes() const { return state_->workspace_bytes; }
std::size_t PreparedLaunch::launches() const { return state_->kernels.size(); }

Result<void> PreparedLaunch::State::check_workspace(CUdeviceptr workspace) const {
  if (workspace_bytes > 0 && (workspace == 0 || workspace % kMostAlignment != 0))
    return wrong(fmt::format("workspace is at {:#x}, expected {} bytes aligned to {}", workspace,
                             workspace_bytes, kMostAlignment));
  return {};
}

Result<void> PreparedLaunch::State::launch(const Kernel& kernel, CUdeviceptr workspace,
                                           const Stream& stream) const {
  // On the stack: several threads may launch at once, and the driver reads the values at once.
  std::uint64_t values[kMostArguments];
  void* pointers[kMostArguments];
  for (std::size_t i = 0; i < kernel.values.size(); ++i) {
    values[i] = kernel.values[i] + (kernel.in_workspace[i] ? workspace : 0);
    pointers[i] = &values[i];  // an int32 is its low half
  }
  const auto& [block_x, block_y, block_z] = kernel.plan->block;
  const CUresult result = driver->api().cuLaunchKernel(
      kernel.function, kernel.grid[0], kernel.grid[1], kernel.grid[2], unsigned(block_x),
      unsigned(block_y), unsigned(block_z), unsigned(kernel.plan->dynamic_shared_bytes),
      stream.handle(), pointers, nullptr);
  if (result == CUDA_SUCCESS) return {};
  return driver->check(result, fmt::format("cuLaunchKernel({})", kernel.plan->kernel));
}

Result<void> PreparedLaunch::launch(CUdeviceptr workspace, const Stream& stream) const {
  TILEWRIGHT_TRY(state_->check_workspace(workspace));
  for (const State::Kernel& kernel : state_->kernels)
    TILEWRIGHT_TRY(state_->launch(kernel, workspace, stream));
  return {};
}

Result<void> PreparedLaunch::launch_one(std::size_t index, CUdeviceptr workspace,
                                        const Stream& stream) const {
  if (index >= state_->kernels.size())
    return wrong(fmt::format("launch {} of a plan with {}", index, state_->kernels.size()));
  TILEWRIGHT_TRY(state_->check_workspace(workspace));
  return state_->launch(state_->kernels[index], workspace, stream);
}

}  // namespace tilewright::jit
