/// One trial after the other in this process: loaded, verified, timed. What trials of the same
/// problem share (input data, references, buffers) is kept from one to the next.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "jit/driver.h"
#include "jit/telemetry.h"
#include "search/measure/trial.h"

namespace tilewright::search {

/// One thread at a time.
class TrialRunner {
 public:
  /// `memory_bytes`: of the host, that trials may take; 0: VerifyJob::memory_bytes says.
  /// `device_memory_bytes`: of the device; 0: what it has free, less a reserve.
  explicit TrialRunner(std::shared_ptr<jit::Context> context, std::size_t memory_bytes = 0,
                       std::size_t device_memory_bytes = 0);
  ~TrialRunner();

  /// Makes what `trial` shares with others of its problem, if it is not there: seconds for weights.
  /// run() does it as well, before its deadline begins.
  Result<void> prepare(const Trial& trial);
  /// What goes wrong is in TrialResult::failure. A real kernel that never ends never returns.
  TrialResult run(const Trial& trial);
  /// As Measurer::run_interleaved.
  std::vector<TrialResult> run_interleaved(std::span<const Trial> trials, int rounds);

  /// What other processes do with the device: since a moment (microseconds since 1970), at most for
  /// the last second. Without NVML nobody tells: nothing. Errors: of jit::Telemetry.
  Result<jit::OthersUse> others(std::uint64_t since_us = 0);

  /// A kernel faulted, or the device has gone: the context is of no further use.
  bool lost() const;
  const jit::DeviceInfo& device() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tilewright::search
