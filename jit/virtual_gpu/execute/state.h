/// What runs: warps of a block, on a worker (a host thread). Plain data, since handlers built for
/// several instruction sets share it: nothing here may have an inline function that could be
/// emitted out of line (the linker would keep one build of it for all).
#pragma once

#include <cstddef>
#include <cstdint>

#include "jit/virtual_gpu/program/code.h"

namespace tilewright::vgpu {

inline constexpr int kLanes = 32;
inline constexpr int kBarriers = 16;
inline constexpr int kMaxWarps = 32;

struct Worker;
struct Block;

enum class WarpStatus : std::uint8_t { kReady, kBlocked, kYielded, kDone, kFaulted };

/// A group of lanes of a warp that run together. Divergence splits it: the split waits at the
/// branch's immediate post-dominator as a *join*, while its parts run there.
struct Split {
  enum class State : std::uint8_t {
    kFree,
    kReady,
    kBarrier,
    kWarpSync,
    kJoin,
    kMbarrier,  ///< in try_wait; `wanted`: the mbarrier's shared address, `barrier`: parity
    kClusterBarrier,
  };
  State state = State::kFree;
  std::int8_t barrier = -1;  ///< that it waits at
  bool passed = false;       ///< the barrier has opened (kMbarrier: the time limit has passed): the
                             ///< step is executed again to go on
  std::int16_t parent = -1;  ///< join that it goes to
  std::int16_t pending = 0;  ///< of a join: parts that are under way
  std::uint32_t mask = 0;    ///< lanes; of a join: those that have arrived
  std::uint32_t wanted = 0;  ///< kWarpSync: lanes it waits for
  std::uint32_t result = 0;  ///< of bar.red
  const Step* pc = nullptr;
  const Step* reconverge = nullptr;  ///< where it joins its parent; null: at exit
};

struct Warp {
  // What handlers of every kind read.
  std::byte* registers = nullptr;
  std::uint32_t mask = 0;  ///< lanes of the split that runs
  std::uint32_t live = 0;  ///< lanes that have not exited
  bool full = false;       ///< mask == live: a handler may write all 32 lanes
  bool counting = false;
  Accumulation accumulation = Accumulation::kF32;  ///< of the launch
  WarpStatus status = WarpStatus::kReady;
  std::int16_t current = 0;          ///< split
  std::int32_t budget = 0;           ///< basic blocks until the scheduler is asked
  std::int32_t used = 0;             ///< splits that are not free
  const Step* reconverge = nullptr;  ///< of the current split
  std::uint64_t* block_counts = nullptr;
  const Code* code = nullptr;
  std::byte* shared = nullptr;  ///< host address of shared address 0 (which is not valid)
  std::uintptr_t global_delta = 0;
  struct Range* ranges = nullptr;  ///< per site: the allocation that it met last
  const std::byte* parameters = nullptr;
  std::uint32_t shared_end = 0;  ///< one past the last valid shared address
  std::uint32_t carry = 0;       ///< condition code register, a bit per lane
  Worker* worker = nullptr;
  Block* block = nullptr;
  int index = 0;  ///< in its block
  // Of its scheduling.
  std::int32_t top = 0;                   ///< the block has not used the splits from here on
  std::uint32_t yields = 0;               ///< times that the budget ran out
  std::int32_t mbarrier_waits = 0;        ///< splits in state kMbarrier
  std::uint32_t cluster_arrived = 0;      ///< lanes that have arrived at the cluster's barrier
  std::uint32_t cluster_outstanding = 0;  ///< lanes that have arrived and not waited since
  std::uint32_t wgmma_groups = 0;         ///< committed
  bool polled = false;                    ///< yielded because a test_wait was not yet true
  bool slept = false;                     ///< yielded in nanosleep
  bool gave_up = false;                   ///< its last try_wait returned false at once
  std::uint64_t seen[4] = {};             ///< digests of its registers when it last yielded
  Split splits[kLanes * 2 + 2];
};

/// Of device addresses; at first one that holds nothing.
struct Range {
  std::uint64_t begin = ~std::uint64_t{0}, end = ~std::uint64_t{0};
};

/// The mask of a launch's whole warp is all ones unless the block has a ragged last warp.
inline constexpr std::uint32_t kAllLanes = 0xffffffffu;

}  // namespace tilewright::vgpu
