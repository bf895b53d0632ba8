/// What handlers ask of the machine: translation of addresses, faults, divergence, counters. Built
/// once, called from the builds of every level: declarations only.
#pragma once

#include <cstdint>

#include "jit/virtual_gpu/execute/state.h"
#include "jit/virtual_gpu/machine.h"

namespace tilewright::vgpu {

/// Host addresses of the lanes in `mask`, which access `addresses[lane]` in the site's space. False:
/// a lane's access is not valid, the warp has faulted.
bool resolve(const Step* step, Warp& warp, const std::uint64_t* addresses, std::uint32_t mask,
             std::byte** hosts);

/// A range that one lane wants to access, apart from the site of its step.
struct Wanted {
  Space space = Space::kGlobal;  ///< kGlobal, kShared or kGeneric
  std::uint64_t address = 0, bytes = 0;
  std::uint64_t alignment = 1;
  bool cluster = false;   ///< the address may be that of another block of the cluster
  const char* what = "";  ///< for the fault: "bulk copy from global memory"
};
struct Place {
  std::byte* host = nullptr;  ///< null: not valid, the warp has faulted
  Block* block = nullptr;     ///< of shared memory: whose
  std::uint32_t address = 0;  ///< of shared memory: within the block, without rank
};
Place locate(const Step* step, Warp& warp, int lane, const Wanted& wanted);

/// Makes the site's range the allocation that holds [first, last + bytes of the site); false if
/// there is none.
bool refill(const Step* step, Warp& warp, std::uint64_t first, std::uint64_t last);

/// Counts one request of the site. Called only while warp.counting.
void count_request(const Step* step, Warp& warp, const std::uint64_t* addresses,
                   std::uint32_t mask);

/// Counts an access to [address, address + bytes) of global memory that is not a site's: a bulk copy.
void count_range(Warp& warp, std::uint64_t address, std::uint64_t bytes, bool store);

/// Stops the launch; returns null, for the handler to return.
const Step* fault(const Step* step, Warp& warp, FaultKind kind, int lane, std::uint64_t address,
                  const char* what);

/// Lanes of the current split part: those in `taken` go to `target`, the others to `next`.
const Step* diverge(Warp& warp, std::uint32_t taken, const Step* target, const Step* next,
                    const Step* reconverge);
/// The current split has reached the place where it joins its parent.
const Step* join(const Step* step, Warp& warp);
/// The active lanes are done.
const Step* leave(Warp& warp);
/// The current split waits (its state, pc and mask are set); returns where another goes on, or null.
const Step* stop_split(Warp& warp);
/// Lanes that wait where they are to join others go on without them: the others may be waiting for
/// what these lanes have yet to do (at a barrier, or spinning). Whether there were any.
bool let_joins_go(Warp& warp);
/// Before an instruction that the lanes `members` execute together. True: they are all here; those
/// that came earlier have been waiting and are active now, too. False: the split waits, and the
/// handler returns `next`.
bool gather_members(const Step* step, Warp& warp, std::uint32_t members, const Step** next);
/// Makes the lanes of `split` the active ones; returns where they go on.
const Step* activate(Warp& warp, int split);

}  // namespace tilewright::vgpu
