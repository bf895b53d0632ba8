/// Times launches of prepared plans on one device, by events, as protocol.h says.
///
/// On a real device a cold L2 is made by writing a buffer twice its size before each timed launch, a
/// warm one by a launch that is not timed; both also keep the device busy while the host enqueues.
/// Launches back to back take other buffers each time instead. On the virtual device times are its
/// timing model's, whose L2 is cold: one launch says all, unless faults on request make times vary.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "jit/launch.h"
#include "search/measure/device_bench.h"

namespace tilewright::search {

/// What is timed: a plan prepared on buffers; more than one set of them where each launch back to
/// back should find L2 without its tensors.
struct TimedPlan {
  struct Set {
    jit::PreparedLaunch launch;
    CUdeviceptr workspace = 0;
  };
  std::vector<Set> sets;
  MeasureSettings settings;
};

/// One thread at a time; keep it no longer than `context`.
class Timer {
 public:
  /// `memory`: what the timer's own buffer is counted in; null: not counted.
  static Result<Timer> create(const jit::Context& context,
                              std::shared_ptr<DeviceBudget> memory = nullptr);
  Timer(Timer&&) noexcept;
  Timer& operator=(Timer&&) noexcept;
  ~Timer();

  /// Allocates what timing with these settings will take of device memory. Errors: kOutOfMemory.
  Result<void> take_memory(const MeasureSettings& settings);

  /// Errors: those of measure() in protocol.h; kUnsupported for energy on a virtual device.
  Result<Sample> time(const TimedPlan& plan, Deadline deadline);

  /// As time(), of a library's launches. On a real device only.
  Result<Sample> time_enqueued(const Enqueue& enqueue, const MeasureSettings& settings,
                               Deadline deadline);

  /// As measure_in_turns() in protocol.h.
  std::vector<Result<Sample>> time_in_turns(std::span<const TimedPlan> plans, int rounds,
                                            Deadline deadline);

 private:
  struct State;
  explicit Timer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Sets of buffers that a plan with these settings is best timed on, where one takes `bytes`.
std::size_t buffer_sets(const MeasureSettings& settings, const jit::DeviceInfo& device,
                        std::size_t bytes);

}  // namespace tilewright::search
