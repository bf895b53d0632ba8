/// Where trials run. In this process for tests and bundles; in a process of its own for everything
/// else, so that a kernel that faults or hangs costs one candidate.
#pragma once

#include <memory>

#include "jit/driver.h"
#include "search/measure/trial.h"

namespace tilewright::search {

/// One trial at a time.
class Measurer {
 public:
  virtual ~Measurer() = default;
  virtual const jit::DeviceInfo& device() const = 0;
  /// An Error means that nothing can be measured any more (no device, no worker program); what goes
  /// wrong with the trial is in TrialResult::failure.
  virtual Result<TrialResult> run(const Trial& trial) = 0;
};

/// Runs trials on `context` in this process.
std::unique_ptr<Measurer> measure_here(std::shared_ptr<jit::Context> context);

struct MeasureProcessOptions {
  jit::DriverOptions driver;
  int ordinal = 0;
  std::string worker_path;  ///< empty: `tilewright-measure-worker` next to this executable
};

/// Starts the worker, and starts it again after each crash, hang or sticky error. Holds the lease
/// of the device (a lock file with the owner's pid) meanwhile; errors: kBusy names the holder.
Result<std::unique_ptr<Measurer>> measure_in_process(MeasureProcessOptions options);

}  // namespace tilewright::search
