/// Inside of launch.h: a plan with its rules bound to a table of values, and what preparing makes of
/// it. For launch.cpp and launch_prepare.cpp only.
#pragma once

#include <array>
#include <optional>

#include "jit/launch.h"
#include "jit/tensor_rules.h"

namespace tilewright::jit {

/// Of every launch: the values of its arguments are copied to the stack.
inline constexpr std::size_t kMostArguments = 64;

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
  // Launches that have it as an argument: the first, the last, and the last that wants it apart.
  int first_launch = -1, last_launch = -1, last_apart = -1;
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
  Result<void> check_outputs(std::span<const TensorArgument> arguments) const;
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

}  // namespace tilewright::jit
