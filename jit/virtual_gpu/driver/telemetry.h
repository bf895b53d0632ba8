/// What the virtual NVML tells of the device's state. A part of the driver's state; whoever injects
/// faults sets it.
#pragma once

#include <cstdint>

#include "jit/device.h"

namespace tilewright::vgpu {

/// Zero clocks: those of the description.
struct Telemetry {
  unsigned sm_clock_mhz = 0, memory_clock_mhz = 0;
  unsigned temperature_c = 45;
  unsigned power_mw = 350'000, power_limit_mw = 700'000;
  unsigned gpu_percent = 0, memory_percent = 0;  ///< utilisation
  std::uint64_t throttle_reasons = 0;            ///< NVML's nvmlClocksEventReason bits
  bool lost = false;                             ///< every call then says that the GPU is lost
};

inline unsigned max_sm_clock_mhz(const jit::DeviceDescription& device) {
  return unsigned(device.clock_ghz * 1000 + 0.5);
}

/// Lanes of device memory, and two transfers per clock and lane: their product is dram_gbps.
inline constexpr int kMemoryBusBits = 4096;
inline unsigned max_memory_clock_mhz(const jit::DeviceDescription& device) {
  return unsigned(device.dram_gbps * 1000 / (2.0 * kMemoryBusBits / 8) + 0.5);
}

}  // namespace tilewright::vgpu

extern "C" {
/// What NVML tells from here on; null: what it told at first.
int tilewrightVgpuSetTelemetry(const tilewright::vgpu::Telemetry* telemetry);
int tilewrightVgpuGetTelemetry(tilewright::vgpu::Telemetry* out);
}
