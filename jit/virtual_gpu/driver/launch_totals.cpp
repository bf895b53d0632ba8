#include "jit/virtual_gpu/driver/launch_totals.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "jit/virtual_gpu/driver/quoted.h"

namespace tilewright::vgpu {
namespace {

/// Pointers to the entries of a table, the longest first.
template <typename Table>
auto longest_first(const Table& table) {
  std::vector<const typename Table::value_type*> out;
  for (const auto& entry : table) out.push_back(&entry);
  std::stable_sort(out.begin(), out.end(), [](const auto* a, const auto* b) {
    return a->second.time_us > b->second.time_us;
  });
  return out;
}

}  // namespace

void LaunchTotals::read_environment() {
  if (const char* given = std::getenv("TILEWRIGHT_VGPU_SUMMARY")) file_ = given;
}

void LaunchTotals::add(const std::string& kernel, const jit::VirtualLaunch& launch) {
  if (file_.empty()) return;
  Total& total = kernels_[kernel];
  if (total.launches == 0) total.least_us = launch.modelled_us;
  // Counters are of the blocks that were executed.
  const double share =
      launch.blocks_executed == 0 ? 1 : double(launch.blocks) / double(launch.blocks_executed);
  auto of_grid = [&](std::uint64_t count) { return std::uint64_t(double(count) * share); };
  ++total.launches;
  total.blocks += launch.blocks;
  total.time_us += launch.modelled_us;
  total.least_us = std::min(total.least_us, launch.modelled_us);
  total.dram_bytes += launch.dram_bytes;
  total.l2_bytes += launch.l2_bytes;
  total.tensor_operations += of_grid(launch.tensor_operations);
  total.warp_instructions += of_grid(launch.warp_instructions);
  total.shared_conflicts += of_grid(launch.shared_conflicts);
  if (launch.modelled_us < total.most_us) return;
  total.most_us = launch.modelled_us;
  total.bound_by = launch.bound_by;
  total.occupancy_limiter = launch.occupancy_limiter;
  total.blocks_per_sm = launch.occupancy_blocks_per_sm;
}

void LaunchTotals::add_copy(const char* name, double bytes, double time_us) {
  if (file_.empty()) return;
  Copies& copies = copies_[name];
  ++copies.count;
  copies.bytes += bytes;
  copies.time_us += time_us;
}

void LaunchTotals::write(const std::string& device) const {
  if (file_.empty() || (kernels_.empty() && copies_.empty())) return;
  std::string text = "{\"device\": " + quoted(device) + ", \"kernels\": [";
  const char* between = "";
  for (const auto* entry : longest_first(kernels_)) {
    const auto& [name, total] = *entry;
    text += fmt::format(
        "{}{{\"kernel\": {}, \"launches\": {}, \"blocks\": {}, \"modelled_us\": {:.6g}, "
        "\"least_us\": {:.6g}, \"most_us\": {:.6g}, \"bound_by\": {}, \"blocks_per_sm\": {}, "
        "\"occupancy_limiter\": {}, \"dram_bytes\": {:.0f}, \"l2_bytes\": {:.0f}, "
        "\"tensor_operations\": {}, \"warp_instructions\": {}, \"shared_conflicts\": {}}}",
        between, quoted(name), total.launches, total.blocks, total.time_us, total.least_us,
        total.most_us, quoted(total.bound_by), total.blocks_per_sm, quoted(total.occupancy_limiter),
        total.dram_bytes, total.l2_bytes, total.tensor_operations, total.warp_instructions,
        total.shared_conflicts);
    between = ", ";
  }
  text += "], \"copies\": [";
  between = "";
  for (const auto* entry : longest_first(copies_)) {
    const auto& [name, copies] = *entry;
    text +=
        fmt::format("{}{{\"kind\": {}, \"count\": {}, \"bytes\": {:.0f}, \"modelled_us\": {:.6g}}}",
                    between, quoted(name), copies.count, copies.bytes, copies.time_us);
    between = ", ";
  }
  text += "]}\n";
  if (std::FILE* stream = std::fopen(file_.c_str(), "a")) {
    std::fwrite(text.data(), 1, text.size(), stream);
    std::fclose(stream);
  }
}

}  // namespace tilewright::vgpu
