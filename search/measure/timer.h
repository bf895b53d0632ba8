/// Times launches of prepared plans on one device.
///
/// On a real device by events around each launch, after a warm-up. Before each timed launch a cold L2
/// is made by writing a buffer twice its size, a warm one by a launch that is not timed; both also
/// keep the device busy while the host enqueues. On the virtual device by its timing model: no
/// warm-up, and one launch, since a second one would say the same; the model assumes a cold L2.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "jit/launch.h"
#include "search/measure/trial.h"

namespace tilewright::search {

using Deadline = std::chrono::steady_clock::time_point;
Deadline deadline_in(double seconds);

/// What is timed: a plan prepared on its buffers.
struct TimedPlan {
  jit::PreparedLaunch launch;
  CUdeviceptr workspace = 0;
  MeasureSettings settings;
};

/// What is timed, when it is no plan: enqueues work on a stream, the same each time.
using Enqueue = std::function<Result<void>(const jit::Stream&)>;

/// One thread at a time; keep it no longer than `context`.
class Timer {
 public:
  static Result<Timer> create(const jit::Context& context);
  Timer(Timer&&) noexcept;
  Timer& operator=(Timer&&) noexcept;
  ~Timer();

  /// Warm-up, then launches until repeats, budget or cut-off says stop. Errors: kHang when
  /// `deadline` passes between launches; what a launch fails with.
  Result<Sample> time(const TimedPlan& plan, Deadline deadline);

  /// As time(), of a library's launches. On a real device only.
  Result<Sample> time_enqueued(const Enqueue& enqueue, const MeasureSettings& settings,
                               Deadline deadline);

  /// All in turns, `rounds` times. A plan that fails has its error; the others go on. The settings'
  /// repeats, budget and cut-off do not count.
  std::vector<Result<Sample>> time_in_turns(std::span<const TimedPlan> plans, int rounds,
                                            Deadline deadline);

 private:
  struct State;
  explicit Timer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tilewright::search
