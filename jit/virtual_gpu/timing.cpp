#include "jit/virtual_gpu/timing.h"

#include <algorithm>
#include <cmath>

namespace tilewright::vgpu {
namespace {

// Assumptions, in one place: nothing measured is at hand that would tell them.
constexpr double kSectorBytes = 32;
constexpr double kMaxLoadsInFlight = 8;       // per warp
constexpr double kIssueIntervalClocks = 1.5;  // of one warp: 4 if dependent, most are not
constexpr double kSharedLatencyClocks = 8;    // of a shared request, 30, what is not overlapped
constexpr double kBarrierClocks = 30;
constexpr double kLocalSectors = 4;      // per local request
constexpr double kBusGbps = 25;          // PCIe 4.0 x16 less its overhead
constexpr double kGraphNodeShare = 0.4;  // of the cost of a launch

/// Bytes that DRAM moves. What the executed blocks touched is extrapolated, but not beyond what
/// there is to touch: weights that every block reads are read once, as long as they stay in the L2.
double dram_bytes(const jit::DeviceDescription& device, const LaunchShape& shape,
                  const Counters& counters) {
  const double executed = double(counters.blocks_executed);
  const double scale = double(shape.blocks) / executed;
  const double most = shape.reachable_bytes ? double(shape.reachable_bytes) : 1e30;
  auto footprint = [&](std::uint64_t distinct_sectors) {
    const double seen = double(distinct_sectors) * kSectorBytes;
    return std::max(seen, std::min(seen * scale, most));
  };
  const double loads = footprint(counters.distinct_load_sectors);
  const double stores = footprint(counters.distinct_store_sectors);
  const double resident =
      double(std::max(occupancy(device.info, shape.block).blocks_per_sm, 1)) * device.info.sm_count;
  const double waves = std::ceil(double(shape.blocks) / resident);
  const double per_block = double(counters.distinct_load_sectors) * kSectorBytes / executed;
  const double asked = double(counters.global_load_sectors) * kSectorBytes * scale;
  const double wanted = std::min(asked, std::min(loads, per_block * resident) * waves);
  return loads + read_again(device, loads, wanted) + stores;
}

}  // namespace

Work work_of(const jit::DeviceDescription& device, const LaunchShape& shape,
             const Counters& counters) {
  Work work;
  work.block = shape.block;
  work.launch_us = shape.launch_us;
  if (counters.blocks_executed == 0 || shape.blocks == 0) return work;
  work.blocks = double(shape.blocks);

  const double executed = double(counters.blocks_executed);
  auto of_block = [&](std::uint64_t count) { return double(count) / executed; };
  work.instructions = of_block(counters.warp_instructions);
  work.fma = of_block(counters.fma_warps);
  work.integer = of_block(counters.integer_warps);
  work.special = of_block(counters.special_warps);
  work.f64 = of_block(counters.f64_warps);
  for (std::size_t i = 0; i < kTensorTypes; ++i)
    work.tensor_ops[i] = of_block(counters.tensor_operations[i]);
  work.shared_wavefronts = of_block(counters.shared_wavefronts);
  const double spilled = of_block(counters.local_requests) * kLocalSectors;
  const double sectors = of_block(counters.global_load_sectors + counters.global_store_sectors);
  work.l1_requests = of_block(counters.global_loads + counters.global_stores);
  work.l1_sectors = sectors + spilled;
  work.l2_bytes = sectors * kSectorBytes;
  work.dram_bytes = dram_bytes(device, shape, counters);

  // A warp's loads between two barriers are independent, up to what it can have in flight.
  const double warps = std::ceil(shape.block.threads / 32.0);
  const double loads = of_block(counters.global_loads) / warps;
  const double barriers = of_block(counters.barriers) / warps;
  const double in_flight = std::clamp(loads / (barriers + 1), 1.0, kMaxLoadsInFlight);
  work.loaded_bytes = of_block(counters.global_load_sectors) * kSectorBytes;
  work.bytes_in_flight = std::max(1.0, loads > 0 ? work.loaded_bytes / loads * in_flight : 0.0);
  work.chain_clocks = work.instructions / warps * kIssueIntervalClocks +
                      of_block(counters.shared_requests) / warps * kSharedLatencyClocks +
                      barriers * kBarrierClocks;
  return work;
}

LaunchTime model_launch(const jit::DeviceDescription& device, const LaunchShape& shape,
                        const Counters& counters) {
  return model(device, work_of(device, shape, counters));
}

double model_device_bytes(const jit::DeviceDescription& device, double bytes) {
  return device.launch_us + bytes / (device.dram_gbps * device.timing.dram_efficiency * 1e3);
}

double model_bus_copy(const jit::DeviceDescription& device, double bytes) {
  return device.launch_us + bytes / (kBusGbps * 1e3);
}

double graph_node_us(const jit::DeviceDescription& device) {
  return device.launch_us * kGraphNodeShare;
}

}  // namespace tilewright::vgpu
