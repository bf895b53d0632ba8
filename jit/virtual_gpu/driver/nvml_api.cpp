// A virtual NVML, exported by the same library: opened as libnvidia-ml.so.1 through a link, it is the
// object that is loaded as libcuda.so.1, and tells of the same device.
//
// The toolkit has no nvml.h: signatures, structures and numbers are those of NVML's reference, "NVML
// API Reference Guide".
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "jit/virtual_gpu/driver/state.h"
#include "jit/virtual_gpu/driver/telemetry.h"

#define VGPU_NVML extern "C" __attribute__((visibility("default"))) nvmlReturn_t

using namespace tilewright;

namespace {

enum nvmlReturn_t : int {
  NVML_SUCCESS = 0,
  NVML_ERROR_UNINITIALIZED = 1,
  NVML_ERROR_INVALID_ARGUMENT = 2,
  NVML_ERROR_NOT_SUPPORTED = 3,
  NVML_ERROR_NO_PERMISSION = 4,
  NVML_ERROR_NOT_FOUND = 6,
  NVML_ERROR_INSUFFICIENT_SIZE = 7,
  NVML_ERROR_DRIVER_NOT_LOADED = 9,
  NVML_ERROR_TIMEOUT = 10,
  NVML_ERROR_GPU_IS_LOST = 15,
  NVML_ERROR_UNKNOWN = 999,
};

using nvmlDevice_t = struct nvmlDevice_st*;
enum Clock : unsigned { kGraphics = 0, kSm = 1, kMemory = 2, kVideo = 3 };

struct Utilisation {
  unsigned gpu, memory;
};

struct MemoryInfo {
  unsigned long long total, free, used;
};

struct MemoryInfoV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};

struct ProcessInfo {
  unsigned pid;
  unsigned long long memory;
  unsigned gpu_instance, compute_instance;
};

struct ProcessUtilisation {
  unsigned pid;
  unsigned long long time_us;
  unsigned sm, memory, encoder, decoder;  ///< percent
};

constexpr unsigned kVersion2OfMemoryInfo = sizeof(MemoryInfoV2) | 2u << 24;
constexpr const char* kDriverText = "580.0 (virtual)";

/// NVML counts its initialisations; guarded by the lock of the driver.
int& initialisations() {
  static int count = 0;
  return count;
}

/// There is one device: any address tells it from null.
nvmlDevice_t handle_of(vgpu::Gpu& gpu) { return reinterpret_cast<nvmlDevice_t>(&gpu); }

template <typename Body>
nvmlReturn_t with_nvml(Body&& body) noexcept {
  try {
    if (vgpu::Gpu::gone) return NVML_ERROR_UNINITIALIZED;
    vgpu::Gpu& gpu = vgpu::Gpu::instance();
    std::lock_guard lock(gpu.mutex);
    if (initialisations() == 0) return NVML_ERROR_UNINITIALIZED;
    if (gpu.telemetry.lost) return NVML_ERROR_GPU_IS_LOST;
    return body(gpu);
  } catch (...) {
    return NVML_ERROR_UNKNOWN;
  }
}

/// `out` of a device, where both are there.
template <typename Out, typename Body>
nvmlReturn_t tell(nvmlDevice_t device, Out* out, Body&& body) noexcept {
  return with_nvml([&](vgpu::Gpu& gpu) {
    if (!out || device != handle_of(gpu)) return NVML_ERROR_INVALID_ARGUMENT;
    return body(gpu);
  });
}

nvmlReturn_t give_text(const std::string& text, char* out, unsigned length) {
  if (!out) return NVML_ERROR_INVALID_ARGUMENT;
  if (text.size() + 1 > length) return NVML_ERROR_INSUFFICIENT_SIZE;
  std::memcpy(out, text.c_str(), text.size() + 1);
  return NVML_SUCCESS;
}

/// Those that have the device; this one alone where it is not shared.
std::vector<vgpu::Board::Process> processes_of(vgpu::Gpu& gpu, double window_us) {
  if (gpu.board) return gpu.board->processes(window_us);
  return {{std::uint32_t(::getpid()), gpu.memory->used(), 0, true}};
}

unsigned percent(double share) { return unsigned(std::min(share, 1.0) * 100 + 0.5); }

/// "GPU-" and the driver's UUID.
std::string uuid_text(const vgpu::Gpu& gpu) {
  std::string text = "GPU-";
  int position = 0;
  for (const unsigned char byte : vgpu::uuid_of(gpu)) {
    if (position == 4 || position == 6 || position == 8 || position == 10) text += '-';
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", unsigned(byte));
    text += digits;
    ++position;
  }
  return text;
}

nvmlReturn_t clock_of(const vgpu::Gpu& gpu, unsigned type, bool now, unsigned* out) {
  if (type > kVideo) return NVML_ERROR_INVALID_ARGUMENT;
  const bool memory = type == kMemory;
  *out = memory ? vgpu::max_memory_clock_mhz(*gpu.description)
                : vgpu::max_sm_clock_mhz(*gpu.description);
  const unsigned set = memory ? gpu.telemetry.memory_clock_mhz : gpu.telemetry.sm_clock_mhz;
  if (now && set != 0) *out = set;
  return NVML_SUCCESS;
}

}  // namespace

VGPU_NVML nvmlInitWithFlags(unsigned) {
  try {
    vgpu::Gpu& gpu = vgpu::Gpu::instance();
    std::lock_guard lock(gpu.mutex);
    if (gpu.initialise() != CUDA_SUCCESS) return NVML_ERROR_DRIVER_NOT_LOADED;
    ++initialisations();
    return NVML_SUCCESS;
  } catch (...) {
    return NVML_ERROR_UNKNOWN;
  }
}

VGPU_NVML nvmlInit_v2() { return nvmlInitWithFlags(0); }
VGPU_NVML nvmlInit() { return nvmlInitWithFlags(0); }

VGPU_NVML nvmlShutdown() {
  if (vgpu::Gpu::gone) return NVML_ERROR_UNINITIALIZED;
  vgpu::Gpu& gpu = vgpu::Gpu::instance();
  std::lock_guard lock(gpu.mutex);
  if (initialisations() == 0) return NVML_ERROR_UNINITIALIZED;
  --initialisations();
  return NVML_SUCCESS;
}

extern "C" __attribute__((visibility("default"))) const char* nvmlErrorString(nvmlReturn_t result) {
  switch (result) {
    case NVML_SUCCESS:
      return "Success";
    case NVML_ERROR_UNINITIALIZED:
      return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT:
      return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED:
      return "Not Supported";
    case NVML_ERROR_NO_PERMISSION:
      return "Insufficient Permissions";
    case NVML_ERROR_NOT_FOUND:
      return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE:
      return "Insufficient Size";
    case NVML_ERROR_DRIVER_NOT_LOADED:
      return "Driver Not Loaded";
    case NVML_ERROR_TIMEOUT:
      return "Timeout";
    case NVML_ERROR_GPU_IS_LOST:
      return "GPU is lost";
    default:
      return "Unknown Error";
  }
}

VGPU_NVML nvmlSystemGetDriverVersion(char* text, unsigned length) {
  return with_nvml([&](vgpu::Gpu&) { return give_text(kDriverText, text, length); });
}

VGPU_NVML nvmlSystemGetNVMLVersion(char* text, unsigned length) {
  return with_nvml([&](vgpu::Gpu&) { return give_text("13.580.0", text, length); });
}

VGPU_NVML nvmlSystemGetCudaDriverVersion_v2(int* version) {
  return with_nvml([&](vgpu::Gpu&) {
    return cuDriverGetVersion(version) == CUDA_SUCCESS ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
  });
}

VGPU_NVML nvmlSystemGetCudaDriverVersion(int* version) {
  return nvmlSystemGetCudaDriverVersion_v2(version);
}

VGPU_NVML nvmlDeviceGetCount_v2(unsigned* count) {
  return with_nvml([&](vgpu::Gpu&) {
    if (!count) return NVML_ERROR_INVALID_ARGUMENT;
    *count = 1;
    return NVML_SUCCESS;
  });
}

VGPU_NVML nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t* out) {
  return with_nvml([&](vgpu::Gpu& gpu) {
    if (!out || index != 0) return NVML_ERROR_INVALID_ARGUMENT;
    *out = handle_of(gpu);
    return NVML_SUCCESS;
  });
}

VGPU_NVML nvmlDeviceGetHandleByUUID(const char* text, nvmlDevice_t* out) {
  return with_nvml([&](vgpu::Gpu& gpu) {
    if (!text || !out) return NVML_ERROR_INVALID_ARGUMENT;
    if (uuid_text(gpu) != text) return NVML_ERROR_NOT_FOUND;
    *out = handle_of(gpu);
    return NVML_SUCCESS;
  });
}

VGPU_NVML nvmlDeviceGetName(nvmlDevice_t device, char* text, unsigned length) {
  return tell(device, text, [&](vgpu::Gpu& gpu) {
    return give_text(gpu.description->info.name + " (virtual)", text, length);
  });
}

VGPU_NVML nvmlDeviceGetUUID(nvmlDevice_t device, char* text, unsigned length) {
  return tell(device, text,
              [&](vgpu::Gpu& gpu) { return give_text(uuid_text(gpu), text, length); });
}

VGPU_NVML nvmlDeviceGetIndex(nvmlDevice_t device, unsigned* index) {
  return tell(device, index, [&](vgpu::Gpu&) {
    *index = 0;
    return NVML_SUCCESS;
  });
}

VGPU_NVML nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int* major, int* minor) {
  return tell(device, major, [&](vgpu::Gpu& gpu) {
    if (!minor) return NVML_ERROR_INVALID_ARGUMENT;
    *major = gpu.description->info.compute_major;
    *minor = gpu.description->info.compute_minor;
    return NVML_SUCCESS;
  });
}

VGPU_NVML nvmlDeviceGetClockInfo(nvmlDevice_t device, unsigned type, unsigned* mhz) {
  return tell(device, mhz, [&](vgpu::Gpu& gpu) { return clock_of(gpu, type, true, mhz); });
}

VGPU_NVML nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, unsigned type, unsigned* mhz) {
  return tell(device, mhz, [&](vgpu::Gpu& gpu) { return clock_of(gpu, type, false, mhz); });
}

VGPU_NVML nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned sensor, unsigned* celsius) {
  return tell(device, celsius, [&](vgpu::Gpu& gpu) {
    if (sensor != 0) return NVML_ERROR_INVALID_ARGUMENT;
    *celsius = gpu.telemetry.temperature_c;
    return NVML_SUCCESS;
  });
}

VGPU_NVML nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned* milliwatts) {
  return tell(device, milliwatts, [&](vgpu::Gpu& gpu) {
    *milliwatts = gpu.telemetry.power_mw;
    return NVML_SUCCESS;
  });
}

VGPU_NVML nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned* milliwatts) {
  return tell(device, milliwatts, [&](vgpu::Gpu& gpu) {
    *milliwatts = gpu.telemetry.power_limit_mw;
    return NVML_SUCCESS;
  });
}

VGPU_NVML nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned* milliwatts) {
  return nvmlDeviceGetEnforcedPowerLimit(device, milliwatts);
}

/// The power that is told, over the modelled time for which the device was at work.
VGPU_NVML nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device,
                                              unsigned long long* millijoules) {
  return tell(device, millijoules, [&](vgpu::Gpu& gpu) {
    double busy_us = gpu.past_us + gpu.context.device_us;
    for (const auto& [handle, context] : gpu.contexts) busy_us += context->device_us;
    *millijoules = static_cast<unsigned long long>(busy_us * 1e-6 * double(gpu.telemetry.power_mw));
    return NVML_SUCCESS;
  });
}

VGPU_NVML nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long* reasons) {
  return tell(device, reasons, [&](vgpu::Gpu& gpu) {
    *reasons = gpu.telemetry.throttle_reasons;
    return NVML_SUCCESS;
  });
}

VGPU_NVML nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device,
                                                    unsigned long long* reasons) {
  return nvmlDeviceGetCurrentClocksEventReasons(device, reasons);
}

VGPU_NVML nvmlDeviceGetSupportedClocksEventReasons(nvmlDevice_t device,
                                                   unsigned long long* reasons) {
  return tell(device, reasons, [&](vgpu::Gpu&) {
    *reasons = 0x1ff;
    return NVML_SUCCESS;
  });
}

VGPU_NVML nvmlDeviceGetSupportedClocksThrottleReasons(nvmlDevice_t device,
                                                      unsigned long long* reasons) {
  return nvmlDeviceGetSupportedClocksEventReasons(device, reasons);
}

VGPU_NVML nvmlDeviceGetUtilizationRates(nvmlDevice_t device, Utilisation* out) {
  return tell(device, out, [&](vgpu::Gpu& gpu) {
    double busy = 0;
    for (const auto& process : processes_of(gpu, vgpu::Board::kMostWindow_us)) busy += process.busy;
    *out = {std::max(gpu.telemetry.gpu_percent, percent(busy)), gpu.telemetry.memory_percent};
    return NVML_SUCCESS;
  });
}

/// Of the processes whose work occupied the device since `since_us`, and within the last second.
VGPU_NVML nvmlDeviceGetProcessUtilization(nvmlDevice_t device, ProcessUtilisation* out,
                                          unsigned* count, unsigned long long since_us) {
  return tell(device, count, [&](vgpu::Gpu& gpu) {
    using std::chrono::system_clock;
    const auto now = std::chrono::duration_cast<std::chrono::microseconds>(
                         system_clock::now().time_since_epoch())
                         .count();
    const double window_us = double(now) - double(since_us);
    std::vector<ProcessUtilisation> samples;
    for (const auto& process : processes_of(gpu, window_us))
      if (process.busy > 0)
        samples.push_back({process.pid, static_cast<unsigned long long>(now),
                           std::max(percent(process.busy), 1u), 0, 0, 0});
    const unsigned room = std::exchange(*count, unsigned(samples.size()));
    if (samples.empty()) return NVML_ERROR_NOT_FOUND;
    if (!out || room < samples.size()) return NVML_ERROR_INSUFFICIENT_SIZE;
    std::copy(samples.begin(), samples.end(), out);
    return NVML_SUCCESS;
  });
}

VGPU_NVML nvmlDeviceGetMemoryInfo(nvmlDevice_t device, MemoryInfo* out) {
  return tell(device, out, [&](vgpu::Gpu& gpu) {
    const unsigned long long total = gpu.memory->capacity(), used = gpu.memory_used();
    *out = {total, total - used, used};
    return NVML_SUCCESS;
  });
}

VGPU_NVML nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, MemoryInfoV2* out) {
  return tell(device, out, [&](vgpu::Gpu& gpu) {
    if (out->version != kVersion2OfMemoryInfo) return NVML_ERROR_INVALID_ARGUMENT;
    const unsigned long long total = gpu.memory->capacity(), used = gpu.memory_used();
    *out = {out->version, total, 0, total - used, used};
    return NVML_SUCCESS;
  });
}

VGPU_NVML nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned* count,
                                                  ProcessInfo* infos) {
  return tell(device, count, [&](vgpu::Gpu& gpu) {
    const auto processes = processes_of(gpu, vgpu::Board::kMostWindow_us);
    const unsigned room = std::exchange(*count, unsigned(processes.size()));
    if (room < processes.size()) return NVML_ERROR_INSUFFICIENT_SIZE;
    if (!infos) return NVML_ERROR_INVALID_ARGUMENT;
    for (const auto& process : processes) *infos++ = {process.pid, process.used, ~0u, ~0u};
    return NVML_SUCCESS;
  });
}

VGPU_NVML nvmlDeviceGetPerformanceState(nvmlDevice_t device, int* state) {
  return tell(device, state, [&](vgpu::Gpu&) {
    *state = 0;
    return NVML_SUCCESS;
  });
}

VGPU_NVML nvmlDeviceGetPersistenceMode(nvmlDevice_t device, int* mode) {
  return tell(device, mode, [&](vgpu::Gpu&) {
    *mode = 1;
    return NVML_SUCCESS;
  });
}

extern "C" __attribute__((visibility("default"))) int tilewrightVgpuSetTelemetry(
    const vgpu::Telemetry* telemetry) {
  vgpu::Gpu& gpu = vgpu::Gpu::instance();
  std::lock_guard lock(gpu.mutex);
  gpu.telemetry = telemetry ? *telemetry : vgpu::Telemetry{};
  return CUDA_SUCCESS;
}

extern "C" __attribute__((visibility("default"))) int tilewrightVgpuGetTelemetry(
    vgpu::Telemetry* out) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  vgpu::Gpu& gpu = vgpu::Gpu::instance();
  std::lock_guard lock(gpu.mutex);
  *out = gpu.telemetry;
  return CUDA_SUCCESS;
}
