/// Runs plans on poisoned outputs and workspace, those blocks that are to be judged.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "search/verify/coverage.h"
#include "search/verify/inputs.h"

namespace tilewright::search {

/// Blocks of the virtual GPU as they were chosen before, at the end of a scope.
class BlockChoice {
 public:
  BlockChoice(const jit::VirtualApi* api, std::uint64_t sample_blocks, std::uint64_t seed);
  ~BlockChoice();
  BlockChoice(const BlockChoice&) = delete;
  BlockChoice& operator=(const BlockChoice&) = delete;

  void choose(const Coverage::Launch& launch) const;

 private:
  const jit::VirtualApi* api_;
  std::uint64_t sample_blocks_, seed_;
};

/// What the blocks of a virtual device write takes host memory, until it is poisoned again.
class HeldMemory {
 public:
  HeldMemory(HostBudget& budget, std::size_t bytes) : budget_(&budget), bytes_(bytes) {}
  HeldMemory(HeldMemory&& other) noexcept
      : budget_(other.budget_), bytes_(std::exchange(other.bytes_, 0)) {}
  HeldMemory& operator=(HeldMemory&&) = delete;
  ~HeldMemory() { budget_->give_back(bytes_); }

 private:
  HostBudget* budget_;
  std::size_t bytes_;
};

/// What was run, and what it had to write.
struct PlanRun {
  std::vector<LaunchFacts> launches;  ///< of the plan, which has to outlive them
  Coverage coverage;
  std::size_t workspace_bytes = 0;
  HeldMemory held;

  /// What had to be written of an output.
  const std::vector<Rect>& written(const std::string& output) const;
};

/// Outputs and workspace on the device, and the launches that use them.
class PlanRunner {
 public:
  /// All are kept by reference. `job`: op, bindings and seed.
  PlanRunner(const jit::Context& context, const VerifyJob& job, const Tensors& tensors,
             Memory memory, jit::Stream stream)
      : context_(context),
        job_(job),
        tensors_(tensors),
        memory_(memory),
        stream_(std::move(stream)) {}

  /// Errors: kOutOfMemory, with inputs and outputs, before it is taken.
  Result<void> allocate_outputs();
  Result<Buffers> more_outputs() const;

  Buffers& outputs() { return outputs_; }
  /// Of the launch; 0 without bytes. Outputs and workspace of later calls are the same.
  Result<CUdeviceptr> workspace(std::size_t bytes);

  Result<jit::PreparedLaunch> prepare(const jit::LoadedPlan& plan, const Buffers& inputs,
                                      const Buffers& outputs) const;

  /// `poison`: of outputs and workspace; what is judged is poisoned with kPoison. `wanted`: as of
  /// choose_coverage().
  Result<PlanRun> run(const jit::LoadedPlan& plan, Inputs& inputs, DataKind kind,
                      std::uint64_t sample_blocks, const BlockChoice& choice,
                      std::uint8_t poison = kPoison,
                      const std::map<std::string, std::vector<Rect>>& wanted = {});

  /// What lies in an output where blocks had to write `written`, and around it: looked_at().
  Result<jit::FilledBytes> download(std::size_t output, const std::vector<Rect>& written);

  /// That nothing was written around the workspace. Errors: kWrongResult.
  Result<void> check_workspace(std::size_t bytes, DataKind kind);

 private:
  std::map<std::string, jit::TensorArgument> arguments(const Buffers& inputs,
                                                       const Buffers& outputs) const;
  Result<std::map<std::string, Rect>> extents_of(const jit::Plan& plan) const;
  Result<HeldMemory> hold_written(const Coverage& coverage,
                                  const std::map<std::string, Rect>& extents);

  const jit::Context& context_;
  const VerifyJob& job_;
  const Tensors& tensors_;
  Memory memory_;
  jit::Stream stream_;
  Buffers outputs_;
  CountedBuffer workspace_;
};

}  // namespace tilewright::search
