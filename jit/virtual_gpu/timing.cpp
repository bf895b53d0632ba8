#include "jit/virtual_gpu/timing.h"

#include <algorithm>
#include <cmath>

namespace tilewright::vgpu {
namespace {

// Assumptions of the model, in one place, until they are fitted to measured times.
constexpr double kSectorBytes = 32;
constexpr double kSchedulers = 4;         // of an SM, one warp instruction per clock each
constexpr double kIntegerLanes = 64;      // per SM and clock, 8.0 to 9.0
constexpr double kL1SectorsPerClock = 4;  // 128 bytes
constexpr double kL2BytesPerClockPerSm = 64;
constexpr double kL2LatencyShare = 0.4;       // of the latency of DRAM
constexpr double kMaxLoadsInFlight = 8;       // per warp
constexpr double kIssueIntervalClocks = 1.5;  // of one warp: 4 if dependent, most are not
constexpr double kSharedLatencyClocks = 8;    // of a shared request, 30, what is not overlapped
constexpr double kBarrierClocks = 30;
constexpr double kLocalSectors = 4;      // per local request
constexpr double kOverlapExponent = 8;   // infinite: perfect overlap, the maximum
constexpr double kBusGbps = 25;          // PCIe 4.0 x16 less its overhead
constexpr double kGraphNodeShare = 0.4;  // of the cost of a launch

/// f64 lanes per SM and clock. CUDA C++ Programming Guide, "Arithmetic Instructions".
double f64_lanes(const jit::DeviceInfo& info) {
  if (info.compute_major == 8) return info.compute_minor == 0 ? 32 : 2;
  return info.compute_major == 9 || info.compute_minor == 0 ? 64 : 2;
}

/// Bytes that DRAM moves. What the executed blocks touched is extrapolated, but not beyond what
/// there is to touch: weights that every block reads are read once, as long as they stay in the L2.
struct DramBytes {
  double loads = 0, stores = 0;
};
DramBytes dram_bytes(const jit::DeviceDescription& device, const LaunchShape& shape,
                     const Counters& counters, double scale, double resident_blocks, double waves) {
  const double most = shape.reachable_bytes ? double(shape.reachable_bytes) : 1e30;
  auto footprint = [&](std::uint64_t distinct_sectors) {
    const double seen = double(distinct_sectors) * kSectorBytes;
    return std::max(seen, std::min(seen * scale, most));
  };
  const double loads = footprint(counters.distinct_load_sectors);
  const double stores = footprint(counters.distinct_store_sectors);
  double again = 0;
  const double l2 = double(device.info.l2_bytes);
  if (loads > l2) {
    const double per_block = double(counters.distinct_load_sectors) * kSectorBytes /
                             double(std::max<std::uint64_t>(counters.blocks_executed, 1));
    const double per_wave = std::min(loads, per_block * resident_blocks);
    const double asked = double(counters.global_load_sectors) * kSectorBytes * scale;
    const double wanted = std::min(asked, per_wave * waves);
    again = std::max(0.0, wanted - loads) * (1 - l2 / loads);
  }
  return {loads + again, stores};
}

}  // namespace

LaunchTime model_launch(const jit::DeviceDescription& device, const LaunchShape& shape,
                        const Counters& counters) {
  const jit::DeviceInfo& info = device.info;
  LaunchTime time;
  time.launch_us = shape.launch_us;
  time.total_us = shape.launch_us;
  time.occupancy = occupancy(info, shape.block);
  if (counters.blocks_executed == 0 || shape.blocks == 0) return time;

  const double executed = double(counters.blocks_executed);
  const double scale = double(shape.blocks) / executed;
  const double resident = double(std::max(time.occupancy.blocks_per_sm, 1)) * info.sm_count;
  time.waves = std::ceil(double(shape.blocks) / resident);
  // The SM with the most blocks is the last to finish.
  const double blocks_of_busiest_sm = std::ceil(double(shape.blocks) / info.sm_count);
  const double clocks_per_us = device.clock_ghz * 1e3;
  auto sm_us = [&](double clocks_of_executed) {
    return clocks_of_executed / executed * blocks_of_busiest_sm / clocks_per_us;
  };

  const double fma_lanes =
      device.fp32_tflops * 1e12 / (2.0 * info.sm_count * device.clock_ghz * 1e9);
  const double sectors = double(counters.global_load_sectors + counters.global_store_sectors);
  const double requests = double(counters.global_loads + counters.global_stores);
  time.issue_us = sm_us(double(counters.warp_instructions) / kSchedulers);
  time.fma_us = sm_us(double(counters.fma_warps) * 32 / fma_lanes +
                      double(counters.f64_warps) * 32 / f64_lanes(info));
  time.integer_us = sm_us(double(counters.integer_warps) * 32 / kIntegerLanes);
  time.special_us = sm_us(double(counters.special_warps) * 32 / device.special_per_clock_per_sm);
  time.shared_us =
      sm_us(double(counters.shared_wavefronts) * 128 / device.shared_bytes_per_clock_per_sm +
            std::max(requests, sectors / kL1SectorsPerClock) +
            double(counters.local_requests) * kLocalSectors / kL1SectorsPerClock);

  time.l2_bytes = sectors * kSectorBytes * scale;
  time.l2_us = std::max(time.l2_bytes / (device.l2_gbps * 1e3),
                        sm_us(sectors * kSectorBytes / kL2BytesPerClockPerSm));
  const DramBytes dram = dram_bytes(device, shape, counters, scale, resident, time.waves);
  time.dram_bytes = dram.loads + dram.stores;
  time.dram_us = time.dram_bytes / (device.dram_gbps * 1e3);

  // Little's law, by warps: those that are resident wait side by side, waves one after another.
  const double warps = executed * std::ceil(shape.block.threads / 32.0);
  const double loads = double(counters.global_loads) / warps;
  const double barriers = double(counters.barriers) / warps;
  const double in_flight = std::clamp(loads / (barriers + 1), 1.0, kMaxLoadsInFlight);
  const double from_dram = time.l2_bytes > 0 ? std::min(1.0, time.dram_bytes / time.l2_bytes) : 0.0;
  const double latency_us =
      device.dram_latency_ns * 1e-3 * (kL2LatencyShare + (1 - kL2LatencyShare) * from_dram);
  const double path_clocks = double(counters.warp_instructions) / warps * kIssueIntervalClocks +
                             double(counters.shared_requests) / warps * kSharedLatencyClocks +
                             barriers * kBarrierClocks;
  time.latency_us = time.waves * (loads / in_flight * latency_us + path_clocks / clocks_per_us);

  const std::pair<double, const char*> resources[] = {
      {time.dram_us, "dram"},       {time.l2_us, "l2"},           {time.fma_us, "fma"},
      {time.integer_us, "integer"}, {time.issue_us, "issue"},     {time.shared_us, "shared"},
      {time.special_us, "special"}, {time.latency_us, "latency"},
  };
  double longest = 0;
  for (const auto& [us, name] : resources)
    if (us > longest) {
      longest = us;
      time.bound_by = name;
    }
  if (longest < time.launch_us) time.bound_by = "launch";
  // Resources overlap, but not perfectly: a norm that lies a little above the maximum.
  double sum = 0;
  if (longest > 0)
    for (const auto& resource : resources)
      sum += std::pow(resource.first / longest, kOverlapExponent);
  time.total_us += longest * std::pow(sum, 1 / kOverlapExponent);
  return time;
}

double model_device_bytes(const jit::DeviceDescription& device, double bytes) {
  return device.launch_us + bytes / (device.dram_gbps * 1e3);
}

double model_bus_copy(const jit::DeviceDescription& device, double bytes) {
  return device.launch_us + bytes / (kBusGbps * 1e3);
}

double graph_node_us(const jit::DeviceDescription& device) {
  return device.launch_us * kGraphNodeShare;
}

}  // namespace tilewright::vgpu
