/// One worker process: started, spoken to, killed. Private to search/measure.
#pragma once

#include <sys/types.h>

#include <string>
#include <unordered_set>

#include "jit/device.h"
#include "search/measure/channel.h"
#include "search/measure/measurer.h"
#include "search/measure/wire.h"

namespace tilewright::search {

/// What became of a process, for people: "was killed by SIGSEGV (Segmentation fault)".
std::string describe_exit(int wait_status);

/// Move-only; the process dies with it.
class WorkerProcess {
 public:
  /// Starts the worker and has it open the device. Errors: kNotFound (no such program), kCrash or
  /// kHang when it did not get as far as answering; what it says of the device.
  static Result<WorkerProcess> start(const MeasureProcessOptions& options);
  WorkerProcess(WorkerProcess&& other) noexcept;
  WorkerProcess& operator=(WorkerProcess&& other) noexcept;
  ~WorkerProcess();

  pid_t pid() const { return pid_; }
  const jit::DeviceInfo& device() const { return device_; }

  /// Sends a request and waits for its reply. After an error the process is gone. Errors: kHang
  /// when the deadline passed and it was killed, kCrash when it died by itself, with how.
  Result<wire::FrameT> ask(const wire::FrameT& request, Deadline deadline);

  /// Images that it holds. Cleared by whoever has it forget them.
  std::unordered_set<Digest>& images() { return images_; }

 private:
  WorkerProcess(pid_t pid, Channel channel) : pid_(pid), channel_(std::move(channel)) {}
  // Kills it if it is still there; returns what became of it.
  std::string end();

  pid_t pid_ = -1;
  Channel channel_;
  jit::DeviceInfo device_;
  std::unordered_set<Digest> images_;
};

}  // namespace tilewright::search
