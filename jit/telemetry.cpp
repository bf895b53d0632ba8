#include "jit/telemetry.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace tilewright::jit {
namespace {

// Signatures, structures and numbers of NVML's reference; the toolkit has no header of it.
using NvmlDevice = void*;
constexpr int kSuccess = 0, kNotSupported = 3, kNotFound = 6, kInsufficientSize = 7,
              kGpuIsLost = 15;
constexpr unsigned kSmClock = 1, kMemoryClock = 2, kGpuSensor = 0;

constexpr std::uint64_t kPowerCap = 0x4, kHardwareSlowdown = 0x8, kThermalSlowdown = 0x20,
                        kHardwareThermal = 0x40, kPowerBrake = 0x80;
constexpr std::pair<std::uint64_t, const char*> kReasons[] = {
    {0x1, "idle"},
    {0x2, "application clocks"},
    {kPowerCap, "power cap"},
    {kHardwareSlowdown, "hardware slowdown"},
    {0x10, "sync boost"},
    {kThermalSlowdown, "thermal slowdown"},
    {kHardwareThermal, "hardware thermal slowdown"},
    {kPowerBrake, "power brake"},
    {0x100, "display clocks"},
};

struct Utilisation {
  unsigned gpu, memory;
};
struct MemoryInfo {
  unsigned long long total, free, used;
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
constexpr unsigned long long kNotAvailable = ~0ull;
constexpr std::uint64_t kSamplePeriod_us = 1'000'000;

std::uint64_t now_us() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(now).count());
}

}  // namespace

struct Telemetry::Library {
  void* handle = nullptr;  ///< null: the driver's own
  bool initialised = false;

  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*error)(int) = nullptr;
  int (*by_uuid)(const char*, NvmlDevice*) = nullptr;
  int (*clock)(NvmlDevice, unsigned, unsigned*) = nullptr;
  int (*max_clock)(NvmlDevice, unsigned, unsigned*) = nullptr;
  int (*temperature)(NvmlDevice, unsigned, unsigned*) = nullptr;
  int (*power)(NvmlDevice, unsigned*) = nullptr;
  int (*reasons)(NvmlDevice, unsigned long long*) = nullptr;
  int (*energy)(NvmlDevice, unsigned long long*) = nullptr;
  int (*utilisation)(NvmlDevice, Utilisation*) = nullptr;
  int (*memory)(NvmlDevice, MemoryInfo*) = nullptr;
  int (*processes)(NvmlDevice, unsigned*, ProcessInfo*) = nullptr;

  /// Null where it is too old to have it.
  int (*process_utilisation)(NvmlDevice, ProcessUtilisation*, unsigned*,
                             unsigned long long) = nullptr;

  ~Library() {
    if (initialised) shutdown();
    if (handle) dlclose(handle);
  }

  Result<void> load(const Driver& driver) {
    const auto load_one = [&](auto& function, const char* name, const char* older = nullptr) {
      const auto find = [&](const char* symbol) {
        return handle ? dlsym(handle, symbol) : driver.symbol(symbol);
      };
      void* found = find(name);
      if (!found && older) found = find(older);
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
      return found ? Result<void>()
                   : fail(ErrorCode::kUnsupported, fmt::format("NVML has no function {}", name));
    };
    TILEWRIGHT_TRY(load_one(init, "nvmlInit_v2"));
    TILEWRIGHT_TRY(load_one(shutdown, "nvmlShutdown"));
    TILEWRIGHT_TRY(load_one(error, "nvmlErrorString"));
    TILEWRIGHT_TRY(load_one(by_uuid, "nvmlDeviceGetHandleByUUID"));
    TILEWRIGHT_TRY(load_one(clock, "nvmlDeviceGetClockInfo"));
    TILEWRIGHT_TRY(load_one(max_clock, "nvmlDeviceGetMaxClockInfo"));
    TILEWRIGHT_TRY(load_one(temperature, "nvmlDeviceGetTemperature"));
    TILEWRIGHT_TRY(load_one(power, "nvmlDeviceGetPowerUsage"));
    TILEWRIGHT_TRY(load_one(reasons, "nvmlDeviceGetCurrentClocksEventReasons",
                            "nvmlDeviceGetCurrentClocksThrottleReasons"));
    TILEWRIGHT_TRY(load_one(energy, "nvmlDeviceGetTotalEnergyConsumption"));
    TILEWRIGHT_TRY(load_one(utilisation, "nvmlDeviceGetUtilizationRates"));
    TILEWRIGHT_TRY(load_one(memory, "nvmlDeviceGetMemoryInfo"));
    (void)load_one(process_utilisation, "nvmlDeviceGetProcessUtilization");
    return load_one(processes, "nvmlDeviceGetComputeRunningProcesses_v3",
                    "nvmlDeviceGetComputeRunningProcesses_v2");
  }

  Result<void> check(int result, const char* call) const {
    if (result == kSuccess) return {};
    const ErrorCode code = result == kGpuIsLost      ? ErrorCode::kDeviceLost
                           : result == kNotSupported ? ErrorCode::kUnsupported
                                                     : ErrorCode::kInternal;
    return fail(code, fmt::format("{}: {}", call, error(result)));
  }

  /// A part of a GPU has not all of a whole one's figures: what it lacks stays 0.
  Result<void> check_optional(int result, const char* call) const {
    return result == kNotSupported ? Result<void>() : check(result, call);
  }
};

bool DeviceState::throttled() const {
  return (throttle_reasons &
          (kHardwareSlowdown | kThermalSlowdown | kHardwareThermal | kPowerBrake)) != 0;
}

std::string throttle_text(std::uint64_t reasons) {
  std::string text;
  for (const auto& [bit, name] : kReasons)
    if (reasons & bit) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

Telemetry::Telemetry() : library_(std::make_unique<Library>()) {}
Telemetry::Telemetry(Telemetry&&) noexcept = default;
Telemetry& Telemetry::operator=(Telemetry&&) noexcept = default;
Telemetry::~Telemetry() = default;

Result<Telemetry> Telemetry::open(const Driver& driver, int ordinal) {
  Telemetry telemetry;
  Library& library = *telemetry.library_;
  if (driver.kind() == DriverKind::kReal) {
    library.handle = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library.handle) return fail(ErrorCode::kNotFound, fmt::format("no NVML: {}", dlerror()));
  }
  TILEWRIGHT_TRY(library.load(driver));
  TILEWRIGHT_TRY(library.check(library.init(), "nvmlInit"));
  library.initialised = true;
  const std::string& uuid = driver.device(ordinal).uuid;
  if (const int result = library.by_uuid(uuid.c_str(), &telemetry.device_); result != kSuccess)
    return fail(ErrorCode::kNotFound,
                fmt::format("NVML does not know device {}: {}", uuid, library.error(result)));
  return telemetry;
}

Result<DeviceState> Telemetry::state() const {
  DeviceState state;
  unsigned milliwatts = 0;
  unsigned long long reasons = 0;
  const Library& nvml = *library_;
  TILEWRIGHT_TRY(nvml.check_optional(nvml.clock(device_, kSmClock, &state.sm_clock_mhz),
                                     "nvmlDeviceGetClockInfo"));
  TILEWRIGHT_TRY(nvml.check_optional(nvml.clock(device_, kMemoryClock, &state.memory_clock_mhz),
                                     "nvmlDeviceGetClockInfo"));
  TILEWRIGHT_TRY(nvml.check_optional(nvml.max_clock(device_, kSmClock, &state.max_sm_clock_mhz),
                                     "nvmlDeviceGetMaxClockInfo"));
  TILEWRIGHT_TRY(nvml.check_optional(nvml.temperature(device_, kGpuSensor, &state.temperature_c),
                                     "nvmlDeviceGetTemperature"));
  TILEWRIGHT_TRY(nvml.check_optional(nvml.power(device_, &milliwatts), "nvmlDeviceGetPowerUsage"));
  TILEWRIGHT_TRY(nvml.check_optional(nvml.reasons(device_, &reasons),
                                     "nvmlDeviceGetCurrentClocksEventReasons"));
  state.power_w = milliwatts / 1000.0;
  state.throttle_reasons = reasons;
  return state;
}

Result<DeviceUse> Telemetry::use() const {
  const Library& nvml = *library_;
  Utilisation utilisation{};
  MemoryInfo memory{};
  TILEWRIGHT_TRY(nvml.check_optional(nvml.utilisation(device_, &utilisation),
                                     "nvmlDeviceGetUtilizationRates"));
  TILEWRIGHT_TRY(nvml.check(nvml.memory(device_, &memory), "nvmlDeviceGetMemoryInfo"));
  DeviceUse use;
  use.busy_percent = utilisation.gpu;
  use.memory_used = memory.used;
  use.memory_total = memory.total;
  std::vector<ProcessInfo> processes(64);
  int result = kInsufficientSize;
  // Processes may begin between the call that counts them and the one that lists them.
  for (int attempt = 0; attempt < 4 && result == kInsufficientSize; ++attempt) {
    auto count = static_cast<unsigned>(processes.size());
    result = nvml.processes(device_, &count, processes.data());
    processes.resize(result == kInsufficientSize ? count + 16 : count);
  }
  if (result == kNotSupported) return use;
  TILEWRIGHT_TRY(nvml.check(result, "nvmlDeviceGetComputeRunningProcesses"));
  for (const ProcessInfo& process : processes)
    use.processes.push_back({process.pid, process.memory == kNotAvailable ? 0 : process.memory});
  return use;
}

Result<OthersUse> Telemetry::others(std::uint64_t since_us) const {
  TILEWRIGHT_ASSIGN_OR_RETURN(const DeviceUse use, this->use());
  const auto ours = static_cast<std::uint32_t>(::getpid());
  OthersUse others;
  bool any = false, listed = false;
  for (const DeviceUse::Process& process : use.processes) {
    if (process.pid == ours) {
      listed = true;
      continue;
    }
    any = true;
    others.pid = process.pid;
    others.memory_bytes += process.memory_bytes;
  }
  // In a container with process ids of its own, we are one of the list whose id is not ours.
  if (!listed) {
    others = {.exact = false};
    others.busy_percent = use.processes.size() == 1 ? 0 : use.busy_percent;
    return others;
  }
  if (since_us == 0) since_us = now_us() - kSamplePeriod_us;
  std::vector<ProcessUtilisation> samples(128);
  auto count = static_cast<unsigned>(samples.size());
  const auto call = library_->process_utilisation;
  const int result = call ? call(device_, samples.data(), &count, since_us) : kNotSupported;
  if (result == kNotFound) return others;  // nobody did anything
  if (result == kNotSupported || result == kInsufficientSize) {
    others.exact = false;
    others.busy_percent = any ? use.busy_percent : 0;
    return others;
  }
  TILEWRIGHT_TRY(library_->check(result, "nvmlDeviceGetProcessUtilization"));
  samples.resize(std::min<std::size_t>(count, samples.size()));
  unsigned most = 0;
  for (const ProcessUtilisation& sample : samples) {
    if (sample.pid == ours || sample.sm == 0) continue;
    others.busy_percent = std::min(others.busy_percent + sample.sm, 100u);
    if (sample.sm <= most) continue;
    most = sample.sm;
    others.pid = sample.pid;
  }
  return others;
}

Result<double> Telemetry::energy_mj() const {
  unsigned long long millijoules = 0;
  TILEWRIGHT_TRY(library_->check(library_->energy(device_, &millijoules),
                                 "nvmlDeviceGetTotalEnergyConsumption"));
  return static_cast<double>(millijoules);
}

}  // namespace tilewright::jit
