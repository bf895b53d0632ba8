#include "jit/virtual_gpu/timing/summary.h"

#include <fmt/format.h>

namespace tilewright::vgpu {
namespace {

double ratio(double over, double under) { return under > 0 ? over / under : 0; }

}  // namespace

LaunchSummary summarize(const jit::DeviceDescription& device, const LaunchShape& shape,
                        const Counters& counters) {
  LaunchSummary out;
  out.time = model_launch(device, shape, counters);
  out.blocks = double(shape.blocks);
  out.blocks_executed = double(counters.blocks_executed);
  const double scale = ratio(out.blocks, out.blocks_executed);
  out.instructions = scale * double(counters.warp_instructions);
  out.fma = scale * double(counters.fma_warps);
  out.integer = scale * double(counters.integer_warps);
  out.special = scale * double(counters.special_warps);
  out.f64 = scale * double(counters.f64_warps);
  out.memory = scale * double(counters.memory_warps);
  out.tensor = scale * double(counters.tensor_warps);
  for (const std::uint64_t operations : counters.tensor_operations)
    out.tensor_operations += scale * double(operations);
  out.sectors_per_load = ratio(double(counters.global_load_sectors), double(counters.global_loads));
  out.sectors_per_store =
      ratio(double(counters.global_store_sectors), double(counters.global_stores));
  out.load_efficiency = std::min(
      1.0, ratio(double(counters.global_load_bytes), 32 * double(counters.global_load_sectors)));
  out.shared_wavefronts = scale * double(counters.shared_wavefronts);
  out.bank_conflicts = scale * double(counters.shared_conflicts);
  out.local_requests = scale * double(counters.local_requests);
  out.atomics = scale * double(counters.atomics);
  const double warps = out.blocks_executed * ((shape.block.threads + 31) / 32);
  out.barriers_per_warp = ratio(double(counters.barriers), warps);
  out.l2_bytes = out.time.l2_bytes;
  out.dram_bytes = out.time.dram_bytes;
  out.l2_hit_rate = std::max(0.0, 1 - ratio(out.dram_bytes, out.l2_bytes));
  if (out.l2_bytes <= 0) out.l2_hit_rate = 0;
  return out;
}

std::string text_of(const LaunchSummary& summary) {
  const LaunchTime& time = summary.time;
  std::string text = fmt::format(
      "{:.2f} us modelled, bound by {}\n"
      "{:.0f} blocks ({:.0f} executed), {} to an SM (limit: {}), {:.0f} wave{}\n"
      "warp instructions {:.0f}: fma {:.0f}, integer {:.0f}, special {:.0f}, f64 {:.0f}, memory "
      "{:.0f}, tensor {:.0f}\n"
      "global: {:.1f} sectors per load, {:.1f} per store, {:.0f} % of loaded sectors used\n"
      "shared: {:.0f} wavefronts, {:.0f} of them by bank conflicts\n"
      "L2 {:.0f} bytes, DRAM {:.0f} bytes (hit rate {:.2f}), {:.1f} barriers per warp\n",
      time.total_us, time.bound_by, summary.blocks, summary.blocks_executed,
      time.occupancy.blocks_per_sm, time.occupancy.limiter, time.waves, time.waves == 1 ? "" : "s",
      summary.instructions, summary.fma, summary.integer, summary.special, summary.f64,
      summary.memory, summary.tensor, summary.sectors_per_load, summary.sectors_per_store,
      100 * summary.load_efficiency, summary.shared_wavefronts, summary.bank_conflicts,
      summary.l2_bytes, summary.dram_bytes, summary.l2_hit_rate, summary.barriers_per_warp);
  if (summary.tensor_operations > 0)
    text += fmt::format("tensor operations {:.3g}\n", summary.tensor_operations);
  return text;
}

}  // namespace tilewright::vgpu
