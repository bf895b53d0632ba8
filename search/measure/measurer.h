/// Where trials run. In this process for tests and bundles; in a process of its own for everything
/// else, so that a kernel that faults or hangs costs one candidate.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <stop_token>
#include <vector>

#include "jit/driver.h"
#include "search/measure/busy_policy.h"
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
  /// Leaders against the baseline: each is verified, then all are timed in turns (A B C, A B C, ...)
  /// `rounds` times, so that drift of clocks and temperature meets all of them alike. times_us of the
  /// samples are pairs by index. One that fails drops out; the others go on. The deadlines of the
  /// trials add up. Results come in the order of `trials`, which are of one problem.
  virtual Result<std::vector<TrialResult>> run_interleaved(std::span<const Trial> trials,
                                                           int rounds) = 0;
  /// Until the next call: what runs when a stop is requested, or is asked for after it, ends at once
  /// with kCancelled, as far as this measurer can end it. It says nothing of the trial.
  virtual void watch(std::stop_token) {}
  /// From the next call on. A measurer in this process knows none: it measures whatever others do.
  virtual void set_policy(BusyPolicy) {}
};

/// Runs trials on `context` in this process. A fault loses the context: after one, every further
/// trial fails with kDeviceLost. A hang is noticed on the virtual GPU only.
std::unique_ptr<Measurer> measure_here(std::shared_ptr<jit::Context> context);

struct MeasureProcessOptions {
  jit::DriverOptions driver;
  int ordinal = 0;
  std::string worker_path;  ///< empty: `tilewright-measure-worker` next to this executable
  /// Put before the worker's own arguments: for a program that is its own worker.
  std::vector<std::string> worker_arguments;
  std::filesystem::path runtime_folder;  ///< of leases; empty: jit::runtime_folder()
  /// JSON lines (journal.h): the id of each trial before it starts, and that it ended. What was
  /// started and never ended when the process or the host went down is the culprit. Empty: none.
  std::filesystem::path journal;
  double start_deadline_s = 60;  ///< until the worker has opened the device
  /// Host memory that trials may take; 0: half of what the host has free. A trial whose data would
  /// not fit is refused, and a worker that takes far more is killed: either is kOutOfMemory.
  std::size_t memory_bytes = 0;
  /// Device memory that trials may take, all of it, so that an engine can live beside them; 0: what
  /// the device has free, less a reserve. More is refused before it is taken: kOutOfMemory.
  std::size_t device_memory_bytes = 0;
  /// Errors of a trial beside its own: kBusy, when others did not leave the device idle.
  BusyPolicy busy;
  /// A trial that fails in a way that says little of it (a crash, a device that is lost or was
  /// throttled, device memory that the driver had not got) is run so often, each time in a new worker.
  int attempts = 2;
};

/// Errors besides: kBusy, when the policy says never.
/// Starts the worker, and starts it again after each crash, hang or sticky error. Holds the lease
/// (lease.h) of a real device, or of a virtual one that processes share, meanwhile; errors: kBusy
/// names the holder. A virtual device that is private to its process needs no lease.
Result<std::unique_ptr<Measurer>> measure_in_process(MeasureProcessOptions options);

}  // namespace tilewright::search
