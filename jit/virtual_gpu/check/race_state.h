/// What the race checker knows: of threads (a warp is one, with its lanes ordered by what it
/// executes), of accesses, of a block.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "jit/virtual_gpu/check/memory_checker.h"
#include "jit/virtual_gpu/check/shadow.h"
#include "jit/virtual_gpu/check/vector_clock.h"

namespace tilewright::vgpu {

/// What a release wrote, for whoever acquires it.
struct Release {
  std::uint32_t cluster = 0;  ///< ordinal of the releasing warp's
  const Block* block = nullptr;
  Scope scope = Scope::kGpu;
  Snapshot clock;
  std::shared_ptr<const Foreign> foreign;
};
using ReleasePointer = std::shared_ptr<const Release>;

/// What happened before. It flows along edges as one.
struct Knowledge {
  Clock clock;    ///< by slot of the own cluster
  Clock proxied;  ///< and is visible to the async proxy: a proxy fence came after it
  Clock inited;   ///< and a fence.mbarrier_init came after it
  Foreign foreign;
  /// What the latest fences of narrow (block, cluster) and wide scope came after: a strong write
  /// after them releases it.
  Clock fenced[2];
  std::vector<ReleasePointer> pending;  ///< read by relaxed reads: a fence acquires it

  void join(const Knowledge& other);
  void clear();
};

/// One execution of an instruction that accesses memory, by a warp or by an asynchronous operation.
struct Record {
  std::uint32_t cluster = 0;
  std::uint32_t clock = 0;  ///< of its slot; kInFlight: not complete
  std::int32_t step = -1;
  std::uint16_t slot = 0;  ///< whose clock says whether it happened before
  std::uint16_t warp = 0;  ///< slot of the warp that issued it
  AccessKind kind = AccessKind::kRead;
  bool strong = false, asynchronous = false, proxy = false, initialises = false;
  Scope scope = Scope::kCta;
  std::int8_t lane = 0;  ///< of an asynchronous one
  std::uint32_t mask = 0;
  std::uint32_t sync = 0;     ///< the warp's count of synchronisations among its lanes
  std::uint64_t base = 0;     ///< address of the first lane
  std::int32_t stride = 0;    ///< from lane to lane; kScattered: see `bytes` and scattered_
  std::uint32_t bytes = 0;    ///< per lane
  std::uint32_t offsets = 0;  ///< place of its 32 offsets, if scattered
};
inline constexpr std::uint32_t kInFlight = 0xffffffffu;
inline constexpr std::int32_t kScattered = INT32_MIN;
/// The high half of a cell: a set of records, not one.
inline constexpr std::uint32_t kSet = 0x80000000u;

/// What a warp's wgmmas have under way in registers, by the numbers of RegisterWatch.
struct WarpRegisters {
  /// By register: the group of the wgmma that accumulates in it, or reads it as A; the fence epoch
  /// in which something else than a plain move wrote it. 0: none.
  std::vector<std::uint32_t> accumulates, read, written;
  std::uint32_t committed = 0, complete = 0;  ///< groups; the open one is committed + 1
  std::uint32_t fences = 0;
  bool fenced = false;  ///< since the last commit
  void clear();
};

/// setmaxnreg, as a warp has executed it.
struct RegisterBudget {
  int count = 0;                   ///< registers of a thread; 0: as at entry
  std::vector<const Step*> steps;  ///< executed so far
};

struct WarpState {
  Knowledge knowledge;
  std::uint16_t slot = 0;
  /// Synchronisations among the lanes: their count, how many came before the last that all lanes took
  /// part in, and the lanes of those since.
  std::uint32_t sync = 0, whole_sync = 0;
  std::vector<std::uint32_t> partial;
  std::uint32_t last_record = 0;
  std::uint32_t accesses = 0;  ///< instructions that accessed memory so far
  std::uint32_t copies = 0, bulk_writes = 0, bulk_reads = 0;  ///< clocks of its operations' slots
  /// Records of wgmmas, oldest first: of committed groups, and of the one that is open.
  std::deque<std::vector<std::uint32_t>> tensor_groups;
  std::vector<std::uint32_t> tensor_open;
  Clock reached;  ///< what came before it by barriers of the cluster, ordered or not
  std::uint32_t tensor_reads = 0;  ///< groups that are complete: the clock of their records
  WarpRegisters registers;
  RegisterBudget budget;
};

struct MbarrierState {
  std::uint16_t slot = 0;    ///< of the asynchronous operations that complete on it
  std::uint32_t landed = 0;  ///< its clock
  Knowledge arrived;         ///< of the phase under way
  Knowledge done[2];         ///< of the last phases of both parities
  std::uint32_t phase = 0;   ///< phases that have ended
  struct Waiter {
    std::uint32_t phase = 0;     ///< the last that the thread has waited for, from 1; 0: none
    std::uint32_t accesses = 0;  ///< of its warp, then
    bool arrived = false;        ///< since then
  };
  std::vector<Waiter> waiters;  ///< by slot of the warp and lane
  // Its initialisation; slot and clock of the thread.
  std::uint16_t init_slot = 0;
  std::uint32_t init_clock = 0;  ///< 0: none
  int init_step = -1;
};

/// Kept from launch to launch for its capacity.
struct RaceStorage {
  std::vector<Record> records;
  std::vector<std::uint32_t> sets;     ///< counts and ids
  std::vector<std::uint32_t> offsets;  ///< of records that are scattered
};

struct ClusterState;

struct BlockRaces final : BlockMemory {
  ClusterState* cluster = nullptr;
  std::unique_ptr<ShadowCells> cells;
  std::vector<WarpState> warps;
  struct BarrierState {
    Knowledge arriving, opened;
    bool whole = true;  ///< of all threads of the block, not of a number
    // The first arrival of the phase under way.
    bool begun = false;
    std::uint32_t threads = 0;  ///< that it expects
    int first_step = -1;
    /// Lanes that have arrived, by warp; and had, when it opened last.
    std::array<std::uint32_t, kMaxWarps> lanes{}, opened_lanes{};
  };
  std::array<BarrierState, kBarriers> barriers;
  std::map<std::uint32_t, MbarrierState> mbarriers;
  Clock exited;   ///< what its warps had done when they exited
  Clock reached;  ///< and what was before them by barriers of the cluster that order nothing
  bool gone = false;
  struct Remote {
    std::uint32_t record = 0;
  };
  std::map<std::uint16_t, Remote> remote;  ///< latest accesses by other blocks, by slot
};

struct ClusterState {
  Cluster* cluster = nullptr;
  std::uint32_t ordinal = 0;
  std::uint32_t first_record = 0, first_set = 0;  ///< older ones are of other clusters
  std::uint16_t warps = 0, next_slot = 0;
  Knowledge arriving, opened;
  Clock exited;
  Clock reached, reached_arriving;  ///< by its barrier, ordered or not
  std::unordered_map<std::uint64_t, std::vector<ReleasePointer>> releases;  ///< shared memory
  std::map<std::uint64_t, std::vector<std::uint32_t>> in_flight;  ///< records, by operation
};

}  // namespace tilewright::vgpu
