#include "jit/virtual_gpu/execute/special.h"

#include <cstring>

namespace tilewright::vgpu {
namespace {

/// Special::kTidX + i and the like.
unsigned axis(Special special, Special first) {
  return static_cast<unsigned>(special) - static_cast<unsigned>(first);
}

std::uint64_t value_of(Special special, const LaunchContext& context, const Cluster& cluster,
                       const Block& block, const Warp& warp, int lane) {
  const Launch& launch = *context.launch;
  const auto& shape = context.cluster;
  auto thread = static_cast<unsigned>(warp.index * kLanes + lane);
  unsigned threads = launch.block[0] * launch.block[1] * launch.block[2];
  std::uint32_t bit = 1u << lane;
  switch (special) {
    case Special::kTidX:
      return thread % launch.block[0];
    case Special::kTidY:
      return thread / launch.block[0] % launch.block[1];
    case Special::kTidZ:
      return thread / launch.block[0] / launch.block[1];
    case Special::kNtidX:
    case Special::kNtidY:
    case Special::kNtidZ:
      return launch.block[axis(special, Special::kNtidX)];
    case Special::kCtaidX:
    case Special::kCtaidY:
    case Special::kCtaidZ:
      return block.index[axis(special, Special::kCtaidX)];
    case Special::kNctaidX:
    case Special::kNctaidY:
    case Special::kNctaidZ:
      return launch.grid[axis(special, Special::kNctaidX)];
    case Special::kClusterIdX:
    case Special::kClusterIdY:
    case Special::kClusterIdZ:
      return cluster.index[axis(special, Special::kClusterIdX)];
    case Special::kNclusterIdX:
    case Special::kNclusterIdY:
    case Special::kNclusterIdZ: {
      unsigned i = axis(special, Special::kNclusterIdX);
      return launch.grid[i] / shape[i];
    }
    case Special::kClusterCtaidX:
    case Special::kClusterCtaidY:
    case Special::kClusterCtaidZ: {
      unsigned i = axis(special, Special::kClusterCtaidX);
      return block.index[i] % shape[i];
    }
    case Special::kClusterNctaidX:
    case Special::kClusterNctaidY:
    case Special::kClusterNctaidZ:
      return shape[axis(special, Special::kClusterNctaidX)];
    case Special::kClusterCtarank:
      return block.rank;
    case Special::kClusterNctarank:
      return shape[0] * shape[1] * shape[2];
    case Special::kIsExplicitCluster:
      return context.explicit_cluster ? kAllLanes : 0;
    case Special::kLaneId:
      return static_cast<std::uint64_t>(lane);
    case Special::kWarpId:
      return static_cast<std::uint64_t>(warp.index);
    case Special::kNwarpId:
      return (threads + kLanes - 1) / kLanes;
    case Special::kLanemaskEq:
      return bit;
    case Special::kLanemaskLt:
      return bit - 1;
    case Special::kLanemaskLe:
      return bit | (bit - 1);
    case Special::kLanemaskGt:
      return ~(bit | (bit - 1));
    case Special::kLanemaskGe:
      return ~(bit - 1);
    case Special::kDynamicSmemSize:
      return launch.dynamic_shared_bytes;
    case Special::kTotalSmemSize:
      return static_cast<std::uint64_t>(context.code->dynamic_shared_offset) +
             launch.dynamic_shared_bytes;
    case Special::kOne:
      return 1;
    case Special::kGridWorkspaceLow:
      return context.grid_workspace & 0xffffffffu;
    case Special::kGridWorkspaceHigh:
      return context.grid_workspace >> 32;
    case Special::kZero:
    case Special::kGridId:
      return 0;
  }
  return 0;
}

bool differs_by_lane(Special special) {
  return special <= Special::kTidZ || special == Special::kLaneId ||
         (special >= Special::kLanemaskEq && special <= Special::kLanemaskGt);
}

}  // namespace

bool changes_by_cluster(Special special) {
  return (special >= Special::kCtaidX && special <= Special::kCtaidZ) ||
         (special >= Special::kClusterIdX && special <= Special::kClusterIdZ);
}

void set_special(const SpecialPlace& place, const LaunchContext& context, const Cluster& cluster,
                 const Block& block, Warp& warp) {
  if (!differs_by_lane(place.special)) {
    std::uint64_t value = value_of(place.special, context, cluster, block, warp, 0);
    if (place.bytes == 0 && place.special == Special::kOne) value = kAllLanes;
    return fill_place(warp.registers, place.offset, place.bytes, value);
  }
  for (int i = 0; i < kLanes; ++i) {
    std::uint64_t value = value_of(place.special, context, cluster, block, warp, i);
    std::memcpy(warp.registers + place.offset + static_cast<std::size_t>(i) * place.bytes, &value,
                place.bytes);
  }
}

void fill_place(std::byte* registers, std::uint32_t offset, std::uint32_t bytes,
                std::uint64_t value) {
  std::byte* at = registers + offset;
  auto repeat = [&](auto typed) {
    for (int i = 0; i < kLanes; ++i)
      std::memcpy(at + static_cast<std::size_t>(i) * sizeof typed, &typed, sizeof typed);
  };
  switch (bytes) {
    case 0: {
      auto mask = static_cast<std::uint32_t>(value);
      std::memcpy(at, &mask, 4);
      return;
    }
    case 2:
      return repeat(static_cast<std::uint16_t>(value));
    case 4:
      return repeat(static_cast<std::uint32_t>(value));
    default:
      return repeat(value);
  }
}

}  // namespace tilewright::vgpu
