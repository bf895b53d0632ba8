/// What special registers hold.
#pragma once

#include "jit/virtual_gpu/execute/cluster.h"
#include "jit/virtual_gpu/execute/worker.h"

namespace tilewright::vgpu {

/// Whether it differs between the clusters of a launch.
bool changes_by_cluster(Special special);
/// Writes it to its place in the warp's register file.
void set_special(const SpecialPlace& place, const LaunchContext& context, const Cluster& cluster,
                 const Block& block, Warp& warp);
/// The same value for 32 lanes; `bytes` 0: a predicate, `value` its mask.
void fill_place(std::byte* registers, std::uint32_t offset, std::uint32_t bytes,
                std::uint64_t value);

}  // namespace tilewright::vgpu
