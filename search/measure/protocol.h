/// How a plan is launched to know its time: until it is steady, until its median is known well
/// enough, and only while the device runs as it should. Knows no device: what launches is a Bench,
/// and in tests noise. docs/measuring.md says why.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <vector>

#include "jit/telemetry.h"
#include "search/measure/trial.h"

namespace tilewright::search {

using Deadline = std::chrono::steady_clock::time_point;
Deadline deadline_in(double seconds);
bool is_over(Deadline deadline);
Error deadline_passed();

/// One plan, ready to be launched as its caller will launch it.
class Bench {
 public:
  virtual ~Bench() = default;
  /// The times of `count` launches, in their order, in microseconds; of an objective that launches
  /// back to back, of `count` runs of them, each per launch.
  virtual Result<std::vector<double>> launch(int count) = 0;
  /// Empty where nobody tells.
  virtual Result<std::optional<jit::DeviceState>> state() { return std::nullopt; }
  /// Since some moment, in microjoules.
  virtual Result<double> energy_uj() {
    return fail(ErrorCode::kUnsupported, "this device does not tell its energy");
  }
  /// Launches behind one of the times.
  virtual int launches_per_time() const { return 1; }
  /// Lets the device cool down.
  virtual void rest(double seconds) = 0;
};

/// Errors: kHang (the deadline passed between launches), kThrottled (as long as it was
/// patient), and what a launch fails with. `sample`: what is known of the conditions; the rest is
/// filled in.
Result<void> measure(Bench& bench, const MeasureSettings& settings, Deadline deadline,
                     Sample& sample);

/// All in turns, `rounds` times, with the order changing from round to round; a round during which
/// the device was throttled or changed its clock is repeated. One that fails has its error; the
/// others go on. Index r of all times is round r. Of the settings, the objective counts.
struct Turn {
  Bench* bench = nullptr;
  MeasureSettings settings;
  Result<Sample> sample;
};
void measure_in_turns(std::span<Turn> turns, int rounds, Deadline deadline);

}  // namespace tilewright::search
