/// A measuring worker as its owner sees it: a child process that has opened a device. Private to
/// search/measure.
#pragma once

#include <unordered_set>

#include "jit/child_process.h"
#include "jit/device.h"
#include "search/measure/measurer.h"
#include "search/measure/wire.h"

namespace tilewright::search {

/// Move-only; the process dies with it.
class WorkerProcess {
 public:
  /// Starts the worker and has it open the device. Errors: kNotFound (no such program), kCrash or
  /// kHang when it did not get as far as answering; what it says of the device.
  static Result<WorkerProcess> start(const MeasureProcessOptions& options);

  const jit::DeviceInfo& device() const { return device_; }
  bool running() const { return child_.running(); }

  /// Sends a request and waits for its reply. After an error the process is gone. Errors: kHang
  /// when the deadline passed and it was killed, kCrash when it died by itself, with how.
  Result<wire::FrameT> ask(const wire::FrameT& request, double deadline_s);

  /// Has it make what the trials of this one's problem share, unless it just did, in its own time.
  /// Errors: as ask(), and what goes wrong there.
  Result<void> prepare(const Trial& trial);

  /// Images that it holds. Cleared by whoever has it forget them.
  std::unordered_set<Digest>& images() { return images_; }

 private:
  explicit WorkerProcess(jit::ChildProcess child) : child_(std::move(child)) {}

  jit::ChildProcess child_;
  jit::DeviceInfo device_;
  std::unordered_set<Digest> images_;
  Digest problem_;  ///< what it is prepared for
};

}  // namespace tilewright::search
