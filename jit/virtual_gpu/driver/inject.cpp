#include "jit/virtual_gpu/driver/inject.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace tilewright::vgpu {
namespace {

/// Bits of nvmlClocksEventReasons.
constexpr std::uint64_t kClocksSetByUser = 0x2, kThermalSlowdown = 0x20;

void tell_clocks(Gpu& gpu, const Faults::Decision& decision) {
  if (decision.clock_factor == 1 && gpu.telemetry.sm_clock_mhz == 0) return;
  gpu.telemetry.sm_clock_mhz =
      unsigned(max_sm_clock_mhz(*gpu.description) * decision.clock_factor + 0.5);
  gpu.telemetry.throttle_reasons = decision.throttled          ? kThermalSlowdown
                                   : decision.clock_factor < 1 ? kClocksSetByUser
                                                               : 0;
  gpu.telemetry.temperature_c = decision.throttled ? 88 : Telemetry{}.temperature_c;
}

}  // namespace

bool inject_before(Gpu& gpu, CUctx_st& context, const Faults::Decision& decision,
                   const std::string& kernel) {
  tell_clocks(gpu, decision);
  auto fails = [&](CUresult error, const char* what) {
    context.error = error;
    gpu.explain(fmt::format("kernel {}: {} on request, launch {}", kernel, what, decision.launch));
    return false;
  };
  switch (decision.action) {
    case FaultAction::kNone:
    case FaultAction::kCorrupt:
      return true;
    case FaultAction::kFault:
      return fails(CUDA_ERROR_ILLEGAL_ADDRESS, "illegal address");
    case FaultAction::kHang:
      if (gpu.deadline_s <= 0)
        while (true) std::this_thread::sleep_for(std::chrono::hours(1));
      std::this_thread::sleep_for(std::chrono::duration<double>(gpu.deadline_s));
      return fails(CUDA_ERROR_LAUNCH_TIMEOUT, "hang");
    case FaultAction::kOutOfMemory:
      gpu.refused = CUDA_ERROR_OUT_OF_MEMORY;
      gpu.explain(
          fmt::format("kernel {}: out of memory on request, launch {}", kernel, decision.launch));
      return false;
    case FaultAction::kCrash: {
      const rlimit no_core{0, 0};
      ::setrlimit(RLIMIT_CORE, &no_core);
      std::abort();
    }
    case FaultAction::kLost:
      gpu.lost = gpu.telemetry.lost = true;
      return fails(CUDA_ERROR_DEVICE_UNAVAILABLE, "device lost");
  }
  return true;
}

OutputDamage::OutputDamage(CUctx_st& context, const std::vector<Range>& ranges) {
  for (const Range& range : ranges) {
    const auto* data =
        static_cast<const std::byte*>(context.memory->view(range.begin, range.bytes));
    if (data) before_.emplace_back(range.begin, std::vector<std::byte>(data, data + range.bytes));
  }
}

bool OutputDamage::apply(CUctx_st& context, std::uint64_t random) {
  auto each = [&](auto&& found) {
    for (const auto& [base, old] : before_) {
      const auto* now = static_cast<const std::byte*>(context.memory->view(base, old.size()));
      for (std::size_t i = 0; now && i < old.size(); ++i)
        if (now[i] != old[i] && found(base + i)) return;
    }
  };
  std::uint64_t count = 0;
  each([&](CUdeviceptr) { return ++count == 0; });
  if (count == 0) return false;
  std::uint64_t chosen = random % count;
  each([&](CUdeviceptr address) {
    if (chosen-- > 0) return false;
    *static_cast<std::byte*>(context.memory->at(address, 1)) ^= std::byte{0x40};
    return true;
  });
  return true;
}

}  // namespace tilewright::vgpu
