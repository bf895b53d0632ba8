/// A host thread that executes blocks, one after the other: the storage it keeps between blocks,
/// its counters, and the scheduling of the warps of a block.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "jit/virtual_gpu/execute/sectors.h"
#include "jit/virtual_gpu/execute/state.h"
#include "jit/virtual_gpu/machine.h"
#include "jit/virtual_gpu/memory.h"

namespace tilewright::vgpu {

/// One named barrier of a block. PTX ISA, "bar, barrier".
struct Barrier {
  std::array<std::uint32_t, kMaxWarps> arrived{};  ///< lanes, by warp
  std::uint32_t wanted = 0;                 ///< threads, a multiple of 32; 0: all of the block
  std::uint32_t true_lanes = 0, lanes = 0;  ///< of bar.red
  bool used = false;
};

/// Copies issued by cp.async; they land when waited for, not earlier.
struct PendingCopy {
  std::uintptr_t from = 0;  ///< host
  std::byte* to = nullptr;
  std::uint8_t bytes = 0, source_bytes = 0;
};
struct CopyQueue {
  std::vector<PendingCopy> copies;
  std::deque<std::size_t> groups;  ///< copies in each committed group, oldest first
  std::size_t open = 0;            ///< issued since the last commit
  void land(std::size_t groups_left);
  void land_all();
};

struct Block {
  std::array<unsigned, 3> index{};
  int warps = 0;
  std::array<Barrier, kBarriers> barriers;
  std::vector<CopyQueue> copies;  ///< by warp
};

/// What all workers of a launch share; constant during it.
struct LaunchContext {
  const Code* code = nullptr;
  const Launch* launch = nullptr;
  const AllocationTable* table = nullptr;
  std::uintptr_t global_delta = 0;
  const std::byte* parameters = nullptr;
  bool one_thread = true;
  std::optional<std::chrono::steady_clock::time_point> deadline;
};

struct Worker {
  explicit Worker(const LaunchContext& context);

  /// Executes a block to its end; a fault is left in `fault`.
  void run(std::array<unsigned, 3> index);
  /// Local memory of a lane; made when first touched.
  std::byte* local(int warp, int lane);

  const LaunchContext& context;
  std::optional<Fault> fault;
  Counters counters;  ///< of memory; the others follow from block_counts
  SectorSet load_sectors, store_sectors;
  std::vector<std::uint64_t> block_counts;
  std::vector<Warp> warps;
  Block block;

 private:
  void prepare_once();
  void prepare_block(std::array<unsigned, 3> index);
  void schedule();
  void deadlock();

  std::vector<Range> ranges_;
  std::unique_ptr<std::byte[]> register_storage_, shared_storage_, local_storage_;
  std::size_t shared_bytes_ = 0;
  std::vector<SpecialPlace> block_specials_;  ///< those that change from block to block
};

/// The text of a fault's report: where, what, and for global memory what lies near the address.
std::string describe(const Fault& fault, const Code& code, const Step* step, std::string_view what,
                     const AllocationTable& table);

/// Worker::local of a warp's lane.
std::byte* local_memory(Warp& warp, int lane);

/// After lanes arrived or left: splits that wait at a full barrier may go on. True if any may.
bool open_barriers(Worker& worker);

}  // namespace tilewright::vgpu
