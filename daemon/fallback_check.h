/// Runs a fallback's plans on the device before they are served, as far as there is time: whoever asked
/// waits for it.
#pragma once

#include <chrono>
#include <memory>

#include "search/compose.h"
#include "search/measure/measurer.h"

namespace tilewright::daemon {

class FallbackCheck {
 public:
  /// `deadline_s`: for all plans together, their data included. `max_bytes`: of all tensors; data of
  /// more is not made.
  FallbackCheck(search::Measurer& measurer, std::shared_ptr<const templates::Operator> op,
                const templates::Bindings& bindings, double deadline_s, std::size_t max_bytes);

  /// Each is run, the narrow one on tensors that lie one element off: what it is there for. True: both
  /// are right. False: that could not be found out: too large, too late, nothing to measure with.
  /// Errors: what is wrong with a plan.
  Result<bool> check(const search::Composition& wide, const search::Composition& narrow);
  /// The measurer is of no use any more.
  bool broken() const { return broken_; }

 private:
  using Clock = std::chrono::steady_clock;
  Result<bool> run(const search::Composition& plan, bool displaced);

  search::Measurer& measurer_;
  const std::shared_ptr<const templates::Operator> op_;
  const templates::Bindings bindings_;
  const Clock::time_point deadline_;
  const std::size_t max_bytes_;
  bool broken_ = false;
};

/// Of inputs and outputs at the sizes; SIZE_MAX: more than can be counted.
std::size_t tensor_bytes(const templates::Operator& op, const templates::Bindings& bindings);

}  // namespace tilewright::daemon
