#include "jit/virtual_gpu/timing/model.h"

#include <cmath>

namespace tilewright::vgpu {
namespace {

constexpr double kSchedulers = 4;         // of an SM, one warp instruction per clock each
constexpr double kL1SectorsPerClock = 4;  // 128 bytes
constexpr double kL2LatencyShare = 0.4;   // of the latency of DRAM

/// f64 lanes per SM and clock. CUDA C++ Programming Guide, "Arithmetic Instructions".
double f64_lanes(const jit::DeviceInfo& info) {
  if (info.compute_major == 8) return info.compute_minor == 0 ? 32 : 2;
  return info.compute_major == 9 || (info.compute_major == 10 && info.compute_minor == 0) ? 64 : 2;
}

/// Integer lanes per SM and clock, 8.0 to 10.0; twice as many where they are those of f32 (NVIDIA RTX
/// Blackwell GPU Architecture whitepaper).
double integer_lanes(const jit::DeviceInfo& info) { return info.compute_major >= 12 ? 128 : 64; }

double tensor_efficiency(const jit::TimingConstants& timing, TensorType type) {
  switch (type) {
    case TensorType::kFp8:
      return timing.tensor_efficiency_8;
    case TensorType::kInt8:
    case TensorType::kInt4:
      return timing.tensor_efficiency_i8;
    default:
      return timing.tensor_efficiency_16;
  }
}

/// Tensor time of a block that has an SM to itself.
double tensor_us(const jit::DeviceDescription& device, const Work& work) {
  double us = 0;
  for (std::size_t i = 0; i < kTensorTypes; ++i) {
    if (work.tensor_ops[i] <= 0) continue;
    const auto type = TensorType(i);
    double rate = tensor_rate(device, type) / device.info.sm_count;
    // A device without the unit: on the lanes of f32, which is what its compiler would emit.
    if (rate <= 0) rate = device.fp32_tflops * 1e12 / device.info.sm_count;
    const double efficiency = work.tensor_efficiency > 0 ? work.tensor_efficiency
                                                         : tensor_efficiency(device.timing, type);
    us += work.tensor_ops[i] / (rate * efficiency) * 1e6;
  }
  return us;
}

}  // namespace

double tensor_rate(const jit::DeviceDescription& device, TensorType type) {
  static constexpr const char* kNames[kTensorTypes] = {"f16", "bf16", "tf32", "e4m3",
                                                       "i8",  "i4",   "f64"};
  const auto at = device.tensor_tflops.find(kNames[std::size_t(type)]);
  return at == device.tensor_tflops.end() ? 0 : at->second * 1e12;
}

LaunchTime model(const jit::DeviceDescription& device, const Work& work) {
  const jit::DeviceInfo& info = device.info;
  const jit::TimingConstants& timing = device.timing;
  LaunchTime time;
  time.launch_us = work.launch_us;
  time.fixed_us = work.fixed_us;
  time.occupancy = occupancy(info, work.block);
  time.total_us = work.launch_us + work.fixed_us;
  if (work.blocks <= 0) return time;

  const double sms = info.sm_count;
  const double resident = std::max(time.occupancy.blocks_per_sm, 1);
  const double share = work.blocks / sms;
  // The SM with the most blocks is the last to finish.
  const double busiest = work.balanced ? std::max(share, work.longest_block) : std::ceil(share);
  const double in_waves = work.balanced ? std::max(share / resident, work.longest_block)
                                        : std::ceil(work.blocks / (resident * sms));
  time.waves = std::ceil(work.blocks / (resident * sms));
  const double clocks_per_us = device.clock_ghz * 1e3;
  auto sm_us = [&](double clocks_of_block) { return clocks_of_block * busiest / clocks_per_us; };

  const double fma_lanes =
      device.fp32_tflops * 1e12 / (2.0 * info.sm_count * device.clock_ghz * 1e9);
  time.tensor_us = tensor_us(device, work) * busiest;
  time.issue_us = sm_us(work.instructions / kSchedulers);
  time.fma_us = sm_us(work.fma * 32 / fma_lanes + work.f64 * 32 / f64_lanes(info));
  time.integer_us = sm_us(work.integer * 32 / integer_lanes(info));
  time.special_us = sm_us(work.special * 32 / device.special_per_clock_per_sm);
  time.shared_us = sm_us(work.shared_wavefronts * 128 / device.shared_bytes_per_clock_per_sm +
                         std::max(work.l1_requests, work.l1_sectors / kL1SectorsPerClock));
  time.l2_bytes = work.l2_bytes * work.blocks + work.l2_more_bytes;
  time.l2_us = std::max(
      time.l2_bytes / (device.l2_gbps * timing.l2_efficiency * 1e3),
      sm_us(std::max(work.l2_bytes, work.loaded_bytes) / timing.l2_bytes_per_clock_per_sm));
  time.dram_bytes = work.dram_bytes;
  const double dram_efficiency =
      work.dram_efficiency > 0 ? work.dram_efficiency : timing.dram_efficiency;
  time.dram_us = work.dram_bytes / (device.dram_gbps * dram_efficiency * 1e3);

  // Little's law: blocks that are resident wait side by side, waves one after another.
  const double from_dram = time.l2_bytes > 0 ? std::min(1.0, work.dram_bytes / time.l2_bytes) : 0.0;
  const double latency_us = device.dram_latency_ns * 1e-3 * timing.latency_factor *
                            (kL2LatencyShare + (1 - kL2LatencyShare) * from_dram);
  time.latency_us = in_waves * (work.loaded_bytes / work.bytes_in_flight * latency_us +
                                work.chain_clocks / clocks_per_us);
  time.block_us = in_waves * work.block_us;

  const std::pair<double, const char*> resources[] = {
      {time.dram_us, "dram"},     {time.l2_us, "l2"},           {time.tensor_us, "tensor"},
      {time.fma_us, "fma"},       {time.integer_us, "integer"}, {time.issue_us, "issue"},
      {time.shared_us, "shared"}, {time.special_us, "special"}, {time.latency_us, "latency"},
  };
  double longest = 0;
  for (const auto& [us, name] : resources)
    if (us > longest) {
      longest = us;
      time.bound_by = name;
    }
  if (longest < time.launch_us + time.fixed_us + time.block_us) time.bound_by = "launch";
  // Resources overlap, but not perfectly: a norm that lies a little above the maximum.
  double sum = 0;
  if (longest > 0)
    for (const auto& resource : resources)
      if (resource.first > 0) sum += std::pow(resource.first / longest, timing.overlap_exponent);
  time.total_us += time.block_us + longest * std::pow(sum, 1 / timing.overlap_exponent);
  return time;
}

}  // namespace tilewright::vgpu
