/// The content of an mbarrier object: 64 bits of shared memory, opaque to programs. PTX ISA,
/// "mbarrier". Ours:
///
///   bits 0-19   arrivals that the current phase still waits for
///   bits 20-39  arrivals that a phase waits for
///   bits 40-60  bytes of asynchronous copies that it waits for, two's complement
///   bit 61      parity of the current phase
///   bits 62-63  01, which neither zeros nor poisoned memory have
#pragma once

#include <cstdint>

#include "jit/virtual_gpu/execute/cluster.h"

namespace tilewright::vgpu {

struct Mbarrier {
  std::uint32_t pending = 0, expected = 0;
  std::int32_t tx_bytes = 0;
  std::uint32_t phase = 0;
};

inline constexpr std::uint32_t kMaxArrivals = (1u << 20) - 1;
inline constexpr std::int32_t kMaxTxBytes = (1 << 20) - 1;

/// False: the word is not that of an initialised mbarrier.
bool unpack(std::uint64_t word, Mbarrier* state);
std::uint64_t pack(const Mbarrier& state);

/// What is done to an mbarrier at once.
struct MbarrierChange {
  std::uint32_t arrivals = 0;
  std::uint32_t drops = 0;  ///< of these arrivals, for good: arrive_drop
  std::int64_t expect_tx = 0, complete_tx = 0;
  std::int64_t more_pending = 0;  ///< cp.async.mbarrier.arrive without .noinc, at issue
  bool may_complete = true;       ///< .noComplete: it must not
};

/// Applies the change and wakes who waits, if the phase ends. False after a fault (no mbarrier there,
/// more arrivals than are pending, counts out of range). `before`: the word before.
bool change_mbarrier(const Step* step, Warp& warp, int lane, const SharedPlace& place,
                     const MbarrierChange& change, std::uint64_t* before, bool* completed);

}  // namespace tilewright::vgpu
