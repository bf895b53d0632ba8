/// A measuring worker as its owner sees it: a child process that has opened a device. Private to
/// search/measure.
#pragma once

#include <unordered_set>

#include "jit/child_process.h"
#include "jit/device.h"
#include "search/measure/measurer.h"
#include "search/measure/wire.h"

namespace tilewright::search {

/// Of what trials share their data by.
Digest problem_of(const Trial& trial);

/// Move-only; the process dies with it.
class WorkerProcess {
 public:
  /// Starts the worker and has it open the device. Errors: kNotFound (no such program), kCrash or
  /// kHang when it did not get as far as answering; what it says of the device. `stop`: as watch().
  static Result<WorkerProcess> start(const MeasureProcessOptions& options, int stop = -1);

  const jit::DeviceInfo& device() const { return device_; }
  /// Whether other processes can have the device: then whoever measures needs its lease.
  bool shared() const { return shared_; }
  bool running() const { return child_.running(); }

  /// While `stop` is readable, whatever is asked kills it and is kCancelled. -1: none.
  void watch(int stop) { stop_ = stop; }

  /// Sends a request and waits for its reply. After an error the process is gone. Errors: kHang
  /// when the deadline passed and it was killed, kCrash when it died by itself, with how.
  Result<wire::FrameT> ask(const wire::FrameT& request, double deadline_s);

  /// What other processes do with the device. Errors: as ask(), and NVML's.
  Result<jit::OthersUse> look();

  /// Has it make what the trials of this one's problem share, unless it just did, in its own time.
  /// Errors: as ask(), and what goes wrong there.
  Result<void> prepare(const Trial& trial);

  /// Images that it holds. Cleared by whoever has it forget them.
  std::unordered_set<Digest>& images() { return images_; }

 private:
  WorkerProcess(jit::ChildProcess child, std::size_t memory_bytes)
      : child_(std::move(child)), memory_bytes_(memory_bytes) {}
  std::size_t memory_limit() const;

  jit::ChildProcess child_;
  std::size_t memory_bytes_ = 0;
  int stop_ = -1;
  jit::DeviceInfo device_;
  bool shared_ = false;
  std::unordered_set<Digest> images_;
  Digest problem_;  ///< what it is prepared for
};

}  // namespace tilewright::search
