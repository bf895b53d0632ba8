// mbarriers: what their phases order, and how they are misused.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "jit/virtual_gpu/check/race_checker.h"
#include "jit/virtual_gpu/execute/mbarrier.h"

namespace tilewright::vgpu {

MbarrierState& RaceChecker::mbarrier_of(const SharedPlace& place) {
  BlockRaces& races = races_of(*place.block);
  MbarrierState& state = races.mbarriers[place.address];
  if (state.slot == 0) state.slot = races.cluster->next_slot++;
  return state;
}

void RaceChecker::mbarrier(const Step* step, Warp& warp, const MbarrierUse& use) {
  MemoryChecker::mbarrier(step, warp, use);
  BlockRaces& races = races_of(*use.place.block);
  WarpState& state = state_of(warp);
  int lane = std::countr_zero(use.mask);
  Mbarrier before;
  bool valid = unpack(use.before, &before);
  if (use.event == MbarrierEvent::kInit) {
    Spot spot{Space::kShared, use.place.address, 8, use.place.block->index};
    if (valid && races.mbarriers.count(use.place.address) != 0)
      misuse(step, warp, lane, "mbarrier-misuse",
             fmt::format("mbarrier {:#x} is initialised again without mbarrier.inval",
                         use.place.address),
             spot);
    std::uint16_t slot = mbarrier_of(use.place).slot;
    std::uint32_t landed = mbarrier_of(use.place).landed;
    MbarrierState fresh;
    fresh.slot = slot;
    fresh.landed = landed;
    fresh.init_slot = state.slot;
    fresh.init_clock = state.knowledge.clock[state.slot];
    fresh.init_step = reporter_.index_of(step);
    races.mbarriers[use.place.address] = std::move(fresh);
  }
  MbarrierState& barrier = mbarrier_of(use.place);
  if (step != nullptr) check_wait(step, warp, use);
  if (step != nullptr) {
    // Its word is memory: initialising it must be ordered before its use, and use is atomic.
    Record next;
    next.cluster = races.cluster->ordinal;
    next.slot = next.warp = state.slot;
    next.clock = state.knowledge.clock[state.slot];
    next.step = reporter_.index_of(step);
    next.initialises = use.event == MbarrierEvent::kInit || use.event == MbarrierEvent::kInvalidate;
    next.kind = next.initialises ? AccessKind::kWrite : AccessKind::kAtomic;
    next.strong = !next.initialises;
    next.scope = Scope::kCluster;
    next.mask = use.mask;
    next.sync = state.sync;
    next.base = use.place.address - kSharedBase;
    next.bytes = 8;
    Now now;
    now.step = step;
    now.warp = &warp;
    now.state = &state;
    now.cluster = races.cluster;
    now.id = add_record(next);
    Piece piece{Space::kShared, &races, next.base, 8, lane};
    touch(now, piece);
    note_remote(now, piece);
  }
  switch (use.event) {
    case MbarrierEvent::kArrive:
    case MbarrierEvent::kArriveExpectTx:
      if (step == nullptr) {
        // After cp.async: the copies that the thread had issued are complete.
        auto slot = static_cast<std::size_t>(races.cluster->warps + state.slot);
        Clock& clock = barrier.arrived.clock;
        if (clock.size() <= slot) clock.resize(slot + 1, 0);
        clock[slot] = std::max(clock[slot], state.copies);
      } else if (use.order != Order::kRelaxed) {
        barrier.arrived.join(state.knowledge);
        tick(state);
      }
      break;
    case MbarrierEvent::kCompleteTx: {
      Clock& clock = barrier.arrived.clock;
      if (clock.size() <= barrier.slot) clock.resize(barrier.slot + 1u, 0);
      clock[barrier.slot] = barrier.landed;
      break;
    }
    case MbarrierEvent::kWaited:
      if (valid && use.order != Order::kRelaxed)
        state.knowledge.join(barrier.done[before.phase ^ 1]);
      break;
    case MbarrierEvent::kInvalidate:
      barrier.arrived.clear();
      barrier.done[0].clear();
      barrier.done[1].clear();
      break;
    default:
      break;
  }
  if (use.completed && valid) {
    std::swap(barrier.done[before.phase], barrier.arrived);
    barrier.arrived.clear();
    ++barrier.phase;
  }
}

/// A thread that waits again for a phase that it has waited for, though the next one is under way:
/// by its own arrival, or by bytes that are to come, and it has done other things in between.
void RaceChecker::check_wait(const Step* step, Warp& warp, const MbarrierUse& use) {
  using Event = MbarrierEvent;
  const bool arrives = use.event == Event::kArrive || use.event == Event::kArriveExpectTx;
  Mbarrier before;
  if ((!arrives && use.event != Event::kWaited) || !unpack(use.before, &before)) return;
  MbarrierState& barrier = mbarrier_of(use.place);
  WarpState& state = state_of(warp);
  int lane = std::countr_zero(use.mask);
  std::size_t index = std::size_t{state.slot} * kLanes + static_cast<std::size_t>(lane);
  if (barrier.waiters.size() <= index) barrier.waiters.resize(index + 1);
  MbarrierState::Waiter& waiter = barrier.waiters[index];
  if (arrives) {
    waiter.arrived = true;
    return;
  }
  bool again = barrier.phase != 0 && waiter.phase == barrier.phase;
  if (again && (waiter.arrived || (before.tx_bytes != 0 && waiter.accesses != state.accesses)))
    misuse(step, warp, lane, "mbarrier-misuse",
           fmt::format("wait for phase {} (parity {}) of mbarrier {:#x}, for which the thread has "
                       "waited before, while phase {} is under way",
                       barrier.phase - 1, before.phase ^ 1, use.place.address, barrier.phase),
           {Space::kShared, use.place.address, 8, use.place.block->index});
  waiter = {barrier.phase, state.accesses, false};
}

void RaceChecker::check_visible(const AsyncOperation& operation) {
  // Arrivals after cp.async are of the generic proxy.
  if (operation.completion != AsyncOperation::Completion::kMbarrier || operation.arrivals != 0)
    return;
  Warp& warp = *operation.warp;
  // Within a block compilers rely on the barrier alone, Triton's among them; that it orders the
  // initialisation is checked elsewhere.
  if (operation.mbarrier.block == warp.block) return;
  const MbarrierState& barrier = mbarrier_of(operation.mbarrier);
  const Knowledge& knowledge = state_of(warp).knowledge;
  auto covered = [&](const Clock& clock) {
    return barrier.init_slot < clock.size() && barrier.init_clock <= clock[barrier.init_slot];
  };
  if (barrier.init_clock == 0 || covered(knowledge.proxied) || covered(knowledge.inited)) return;
  misuse(operation.step, warp, operation.lane, "missing-proxy-fence",
         fmt::format("a copy completes on mbarrier {:#x}, which the async proxy may not see",
                     operation.mbarrier.address),
         {Space::kShared, operation.mbarrier.address, 8, operation.mbarrier.block->index},
         barrier.init_step,
         "neither fence.mbarrier_init nor fence.proxy.async since its initialisation");
}

}  // namespace tilewright::vgpu
