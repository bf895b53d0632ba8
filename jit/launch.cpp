// Loading a plan, and launching what was prepared. Preparing is in launch_prepare.cpp.
#include "jit/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "jit/launch_state.h"

namespace tilewright::jit {

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
        const int number = int(launches.size());
        TensorRules& tensor = tensors[one.tensor];
        if (tensor.first_launch < 0) tensor.first_launch = number;
        tensor.last_launch = number;
        if (argument.apart) tensor.last_apart = number;
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

std::size_t PreparedLaunch::workspace_bytes() const { return state_->workspace_bytes; }
std::size_t PreparedLaunch::launches() const { return state_->kernels.size(); }

Result<void> PreparedLaunch::State::check_workspace(CUdeviceptr workspace) const {
  if (workspace_bytes > 0 && (workspace == 0 || workspace % kMostAlignment != 0))
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("workspace is at {:#x}, expected {} bytes aligned to {}", workspace,
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
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("launch {} of a plan with {}", index, state_->kernels.size()));
  TILEWRIGHT_TRY(state_->check_workspace(workspace));
  return state_->launch(state_->kernels[index], workspace, stream);
}

}  // namespace tilewright::jit
