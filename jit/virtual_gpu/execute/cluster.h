/// Blocks that run together: those of one cluster (mostly a single one), with their warps, their
/// shared memory, their barriers, and what they have under way asynchronously. Storage is made once
/// and used for one cluster after the other.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "jit/virtual_gpu/execute/async/engine.h"
#include "jit/virtual_gpu/execute/random.h"
#include "jit/virtual_gpu/execute/state.h"

namespace tilewright::vgpu {

struct LaunchContext;

/// One named barrier of a block. PTX ISA, "bar, barrier".
struct Barrier {
  std::array<std::uint32_t, kMaxWarps> arrived{};  ///< lanes, by warp
  std::uint32_t wanted = 0;                 ///< threads, a multiple of 32; 0: all of the block
  std::uint32_t true_lanes = 0, lanes = 0;  ///< of bar.red
  bool used = false;
};

struct Block {
  std::array<unsigned, 3> index{};  ///< %ctaid
  unsigned rank = 0;                ///< in its cluster
  Cluster* cluster = nullptr;
  std::vector<Warp> warps;
  int alive = 0;  ///< warps that have not exited
  std::array<Barrier, kBarriers> barriers;
  std::byte* shared = nullptr;     ///< host address of shared address kSharedBase
  std::uint32_t shared_bytes = 0;  ///< valid from kSharedBase on

  /// Host address of a shared address within the block, or null where [address, address + bytes) is
  /// not valid.
  std::byte* at(std::uint64_t address, std::uint64_t bytes) const;

  std::unique_ptr<std::byte[]> register_storage, shared_storage;
  std::unique_ptr<std::byte[]> local_storage;  ///< made when first touched
  void* checked = nullptr;                     ///< what a checker keeps of it
};

struct Cluster {
  Cluster(Worker& worker, const LaunchContext& context);
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  /// Makes it the cluster `index` of the grid of clusters, at its first step.
  void begin(std::array<unsigned, 3> index, std::uint64_t position, std::uint64_t seed);

  Worker& worker;
  const LaunchContext& context;
  std::array<unsigned, 3> index{};  ///< %clusterid
  std::uint64_t position = 0;       ///< in the order in which clusters are begun
  std::vector<Block> blocks;        ///< by rank
  AsyncEngine async{*this};
  int alive = 0;              ///< warps that have not exited
  bool barrier_used = false;  ///< barrier.cluster, in this phase
  std::uint32_t stalls = 0;   ///< times that try_waits were given up since anything happened
  std::uint32_t polls = 0;    ///< rounds in which warps only polled mbarriers
  Random random{0};

 private:
  void prepare(Block& block);
  std::vector<SpecialPlace> changing_;  ///< special registers that differ between clusters
};

/// The splits of a warp that may be in use.
inline std::span<Split> used_splits(Warp& warp) {
  return {warp.splits, static_cast<std::size_t>(warp.top)};
}

/// After lanes arrived or left: splits that wait at a full barrier may go on.
void open_barriers(Block& block);
/// The same of the cluster's barrier.
void open_cluster_barrier(Cluster& cluster);
/// Splits of the block that wait for the mbarrier at `address` look at it again.
void wake_mbarrier(Block& block, std::uint32_t address);

/// Local memory of a warp's lane.
std::byte* local_memory(Warp& warp, int lane);

}  // namespace tilewright::vgpu
