/// What NVML tells of a device: clocks, temperature, power, why it runs slower than it could, and who
/// else uses it. NVML is opened at run time; the virtual GPU brings its own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "jit/driver.h"

namespace tilewright::jit {

/// The state of a device at one moment. What it does not tell is 0.
struct DeviceState {
  unsigned sm_clock_mhz = 0, max_sm_clock_mhz = 0, memory_clock_mhz = 0;
  unsigned temperature_c = 0;
  double power_w = 0;
  std::uint64_t throttle_reasons = 0;  ///< bits of nvmlClocksEventReasons

  /// Slowed down by heat, a power brake or a hardware protection: no state to measure in. A power
  /// cap is none of these: it is where heavy kernels run.
  bool throttled() const;
};

/// "thermal slowdown, power cap"; "" for none.
std::string throttle_text(std::uint64_t reasons);

/// How busy a device is, and with whom.
struct DeviceUse {
  unsigned busy_percent = 0;  ///< of NVML's last sample period
  std::uint64_t memory_used = 0, memory_total = 0;
  struct Process {
    std::uint32_t pid = 0;
    std::uint64_t memory_bytes = 0;  ///< 0 where it is not told
  };
  std::vector<Process> processes;  ///< that have a compute context
};

/// What other processes than this one do with a device.
struct OthersUse {
  /// Of the time, their work had the device: the sum of theirs.
  unsigned busy_percent = 0;
  std::uint32_t pid = 0;           ///< whose share is the greatest; 0: nobody's
  std::uint64_t memory_bytes = 0;  ///< of all of them, where it is told
  /// False: the share is everybody's, ours too, since the device does not tell them apart (a part of
  /// a GPU), or we do not know which is ours (in a container with process ids of its own).
  bool exact = true;
};

/// Keep it no longer than the driver. One thread at a time.
class Telemetry {
 public:
  /// Errors: kNotFound (no NVML, or it does not know the device), kUnsupported (too old).
  static Result<Telemetry> open(const Driver& driver, int ordinal);
  Telemetry(Telemetry&&) noexcept;
  Telemetry& operator=(Telemetry&&) noexcept;
  ~Telemetry();

  /// Errors: kDeviceLost; kInternal names the call. Takes tens of microseconds on hardware.
  Result<DeviceState> state() const;
  /// Errors as of state().
  Result<DeviceUse> use() const;
  /// Since a moment (microseconds since 1970), at most the last second or so; 0: that. For a process
  /// that has a context. Errors as of state().
  Result<OthersUse> others(std::uint64_t since_us = 0) const;
  /// Millijoules since the driver was loaded. Errors: kUnsupported.
  Result<double> energy_mj() const;

 private:
  struct Library;
  Telemetry();
  std::unique_ptr<Library> library_;
  void* device_ = nullptr;
};

}  // namespace tilewright::jit
