/// One operator at one set of sizes, and the versions of its plan that this process has used.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "client/module_cache.h"
#include "client/plan_source.h"
#include "client/plan_table.h"

namespace tilewright::client {

class PlanHandle;

/// An operator that was loaded, and how it is asked about.
struct OperatorHandle {
  templates::Operator op;
  std::string text;                  ///< as printed: without parameters
  Digest digest;                     ///< of the text
  std::vector<std::string> tensors;  ///< names: inputs, then outputs
};

/// What was taken into use at once: the wide plan, its narrow twin, what the daemon said of them.
struct PlanVersion {
  protocol::Plan answer;  ///< its packed plans are dropped once they are loaded
  std::shared_ptr<const jit::LoadedPlan> wide, narrow;  ///< narrow may be null
  std::uint64_t workspace_bytes = 0;  ///< the larger of both, at the handle's sizes
};

/// A launch that was prepared, with what keeps it launchable.
struct PreparedPlan {
  std::shared_ptr<const jit::Context> context;
  std::shared_ptr<const PlanVersion> version;
  jit::PreparedLaunch launch;
};

/// Thread-safe.
class PlanHandle {
 public:
  /// `wishes`: what its plans are to be best under.
  PlanHandle(const OperatorHandle& op, std::vector<std::int64_t> sizes, const jit::Wishes& wishes,
             PlanSource& source, ModuleCache& modules, std::shared_ptr<const jit::Context> context);

  const PlanKey& key() const { return key_; }
  /// Asks for the plan and takes it into use. Before anything else; not again once it succeeded.
  Result<void> open();

  const PlanVersion& current() const { return *current_.load(std::memory_order_acquire); }
  Result<bool> poll();
  Result<void> adopt(std::uint64_t workspace_limit);
  void forget_old();

  Result<std::unique_ptr<PreparedPlan>> prepare(std::span<const jit::TensorArgument> tensors) const;

 private:
  class Watch;
  Request request() const;
  Result<std::shared_ptr<const PlanVersion>> fetch();
  Result<std::shared_ptr<const PlanVersion>> load(
      PlanSource::Answer answer, std::span<const std::shared_ptr<const jit::Image>> held);
  std::shared_ptr<const PlanVersion> shared_current() const;

  const OperatorHandle& op_;
  const PlanKey key_;
  const jit::Wishes wishes_;
  PlanSource& source_;
  ModuleCache& modules_;
  const std::shared_ptr<const jit::Context> context_;
  const std::shared_ptr<Watch> watch_;
  std::atomic<const PlanVersion*> current_{nullptr};
  mutable std::mutex mutex_;                                  ///< guards versions_
  std::vector<std::shared_ptr<const PlanVersion>> versions_;  ///< the last one is current
  std::mutex adopting_;
};

}  // namespace tilewright::client
