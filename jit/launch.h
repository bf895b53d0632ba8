/// A plan made ready in a context: modules loaded, expressions bound. Launching it on a stream
/// neither allocates nor synchronises.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "jit/driver.h"
#include "jit/plan.h"

namespace tilewright::jit {

/// One tensor as the caller passes it, in the order of the plan's inputs then outputs.
struct TensorArgument {
  CUdeviceptr address = 0;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;  ///< in elements; empty: dense row-major
};

/// Whatever depends on shapes and addresses, worked out once: dimensions inferred and checked
/// against the plan's shapes, legality checked, grids and arguments packed. Valid for as long as
/// addresses and shapes stay the same; launch() on it is the hot path.
class PreparedLaunch {
 public:
  std::size_t workspace_bytes() const;
  /// `workspace`: workspace_bytes() bytes aligned to 256; may be 0 when none are needed.
  /// The plan's context must be current on this thread (Context::activate). No allocation, no
  /// synchronisation; can be captured; several threads may launch at once.
  Result<void> launch(CUdeviceptr workspace, const Stream& stream) const;
  /// Of the launches that have something to do: how many.
  std::size_t launches() const;
  /// The `index`-th of launches() alone, as launch() would: to see what each of them costs.
  Result<void> launch_one(std::size_t index, CUdeviceptr workspace, const Stream& stream) const;

 private:
  friend class LoadedPlan;
  struct State;
  std::shared_ptr<const State> state_;
};

class LoadedPlan {
 public:
  using ImageSource = std::function<Result<Image>(const Digest&)>;

  static Result<LoadedPlan> load(const Context& context, Plan plan, const ImageSource& images);

  const Plan& plan() const;
  /// Inputs, then outputs, in the plan's order.
  std::vector<const PlanTensor*> arguments() const;
  /// Errors: kInvalidArgument names the tensor, the axis, the value seen and the value wanted;
  /// kUnsupported when a predicate of plan().legal does not hold, with its text and values.
  Result<PreparedLaunch> prepare(std::span<const TensorArgument> arguments) const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace tilewright::jit
