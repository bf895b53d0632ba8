#include "jit/virtual_gpu/occupancy.h"

#include <algorithm>

namespace tilewright::vgpu {
namespace {

// CUDA C++ Programming Guide, "Compute Capabilities", and the rules that cuda_occupancy.h documents:
// the same for 8.0 to 12.0.
constexpr int kWarp = 32;
constexpr int kRegisterGranularity = 256;  // per warp
constexpr int kPartitions = 4;             // of an SM, each with its own register file
constexpr std::size_t kSharedGranularity = 128;
constexpr int kMaxRegistersPerThread = 256;

template <typename T>
T round_up(T value, T multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

int registers_per_warp(int registers) { return round_up(registers * kWarp, kRegisterGranularity); }
int warps_of(int threads) { return (threads + kWarp - 1) / kWarp; }

}  // namespace

bool registers_fit(const jit::DeviceInfo& device, int threads, int registers) {
  return registers <= kMaxRegistersPerThread &&
         registers_per_warp(registers) * round_up(warps_of(threads), kPartitions) <=
             device.registers_per_sm;
}

Occupancy occupancy(const jit::DeviceInfo& device, const BlockDemand& demand) {
  const int warps = warps_of(std::max(demand.threads, 1));
  const int by_threads = device.max_threads_per_sm / kWarp / warps;

  int by_registers = device.max_blocks_per_sm;
  if (!registers_fit(device, demand.threads, demand.registers)) {
    by_registers = 0;
  } else if (demand.registers > 0) {
    const int per_partition =
        device.registers_per_sm / kPartitions / registers_per_warp(demand.registers);
    by_registers = per_partition * kPartitions / warps;
  }

  const std::size_t shared =
      round_up(demand.shared_bytes + kReservedSharedBytes, kSharedGranularity);
  const int by_shared =
      demand.shared_bytes > device.shared_per_block_optin ? 0 : int(device.shared_per_sm / shared);

  const std::pair<int, const char*> limits[] = {{device.max_blocks_per_sm, "blocks"},
                                                {by_threads, "threads"},
                                                {by_registers, "registers"},
                                                {by_shared, "shared"}};
  const auto least = std::min_element(std::begin(limits), std::end(limits),
                                      [](auto& a, auto& b) { return a.first < b.first; });
  return Occupancy{least->first, least->second};
}

}  // namespace tilewright::vgpu
