// mbarrier.*, cp.async.mbarrier.arrive. PTX ISA, "mbarrier".
#include "jit/virtual_gpu/execute/mbarrier.h"

#include <cstring>

#include "jit/virtual_gpu/check/checker.h"
#include "jit/virtual_gpu/execute/common/families.h"
#include "jit/virtual_gpu/execute/common/per_lane.h"
#include "jit/virtual_gpu/execute/worker.h"
#include "jit/virtual_gpu/program/async_form.h"

namespace tilewright::vgpu {
namespace {

/// The mbarrier that a lane names; its block is null after a fault.
SharedPlace named(const Step* s, std::byte* r, Warp& w, int lane, std::byte** host) {
  const Site& site = w.code->sites[s->site];
  Wanted wanted;
  wanted.space = site.space;
  wanted.address = lanes<std::uint64_t>(r, s->a)[lane];
  wanted.bytes = 8;
  wanted.alignment = 8;
  wanted.cluster = site.cluster;
  wanted.what = "access to an mbarrier in shared memory";
  Place place = locate(s, w, lane, wanted);
  *host = place.host;
  if (place.host != nullptr && place.block == nullptr)
    fault(s, w, FaultKind::kOutOfBounds, lane, wanted.address, wanted.what);
  return {place.host == nullptr ? nullptr : place.block, place.address};
}

MbarrierEvent event_of(std::int32_t flags) {
  if ((flags & kMbarrierInit) != 0) return MbarrierEvent::kInit;
  if ((flags & kMbarrierInvalidate) != 0) return MbarrierEvent::kInvalidate;
  if ((flags & kMbarrierCompletes) != 0) return MbarrierEvent::kCompleteTx;
  if ((flags & kMbarrierArrives) == 0) return MbarrierEvent::kExpectTx;
  return (flags & kMbarrierExpects) != 0 ? MbarrierEvent::kArriveExpectTx : MbarrierEvent::kArrive;
}

void tell(const Step* s, Warp& w, MbarrierEvent event, const SharedPlace& place, int lane,
          std::uint64_t before, std::uint64_t after, bool completed) {
  Checker* checker = w.worker->context.checker;
  if (checker == nullptr) return;
  const Site& site = w.code->sites[s->site];
  MbarrierUse use;
  use.event = event;
  use.place = place;
  use.mask = 1u << lane;
  use.before = before;
  use.after = after;
  use.completed = completed;
  bool waits = event == MbarrierEvent::kWaited || event == MbarrierEvent::kWaitFailed;
  use.order = site.order != Order::kWeak ? site.order : waits ? Order::kAcquire : Order::kRelease;
  use.scope = site.scope;
  checker->mbarrier(s, w, use);
}

std::uint64_t word_at(const std::byte* host) {
  std::uint64_t word = 0;
  std::memcpy(&word, host, 8);
  return word;
}

/// A lane's part; false after a fault.
bool change(const Step* s, std::byte* r, Warp& w, int lane) {
  const std::int32_t flags = s->immediate;
  std::byte* host = nullptr;
  SharedPlace place = named(s, r, w, lane, &host);
  if (place.block == nullptr) return false;
  std::uint32_t count = lanes<std::uint32_t>(r, s->b)[lane];
  if ((flags & (kMbarrierInit | kMbarrierInvalidate)) != 0) {
    std::uint64_t before = word_at(host), after = ~std::uint64_t{0};
    if ((flags & kMbarrierInit) != 0) {
      if (count == 0 || count > kMaxArrivals) {
        fault(s, w, FaultKind::kIllegalInstruction, lane, place.address,
              "an mbarrier's count that is not 1 to 2^20 - 1");
        return false;
      }
      Mbarrier state;
      state.pending = state.expected = count;
      after = pack(state);
    }
    std::memcpy(host, &after, 8);
    tell(s, w, event_of(flags), place, lane, before, after, false);
    return true;
  }
  MbarrierChange change;
  if ((flags & kMbarrierArrives) != 0)
    change.arrivals = (flags & kMbarrierExpects) != 0 ? 1 : count;
  if ((flags & kMbarrierDrops) != 0) change.drops = change.arrivals;
  if ((flags & kMbarrierExpects) != 0) change.expect_tx = count;
  if ((flags & kMbarrierCompletes) != 0) change.complete_tx = count;
  change.may_complete = (flags & kMbarrierNoComplete) == 0;
  std::uint64_t before = 0;
  bool completed = false;
  if (!change_mbarrier(s, w, lane, place, change, &before, &completed)) return false;
  if ((flags & kMbarrierReturnsState) != 0) lanes<std::uint64_t>(r, s->d)[lane] = before;
  tell(s, w, event_of(flags), place, lane, before, word_at(host), completed);
  return true;
}

const Step* mbarrier(const Step* s, std::byte* r, Warp& w) {
  for (std::uint32_t mask = w.mask; mask != 0; mask &= mask - 1)
    if (!change(s, r, w, std::countr_zero(mask))) return nullptr;
  return s + 1;
}

/// Suspends the split until the phase that its first lane waits for ends.
const Step* suspend(const Step* s, Warp& w, const SharedPlace& place, std::uint32_t parity) {
  Split& split = w.splits[w.current];
  split.state = Split::State::kMbarrier;
  split.wanted = place.address;
  split.barrier = static_cast<std::int8_t>(parity);
  split.mask = w.mask;
  split.pc = s;
  ++w.mbarrier_waits;
  return stop_split(w);
}

const Step* test(const Step* s, std::byte* r, Warp& w) {
  bool parity_form = (s->immediate & kTestParity) != 0, tries = (s->immediate & kTestTries) != 0;
  std::uint32_t done = 0;
  SharedPlace first;
  std::uint32_t first_phase = 0;
  for (std::uint32_t mask = w.mask; mask != 0; mask &= mask - 1) {
    int lane = std::countr_zero(mask);
    std::byte* host = nullptr;
    SharedPlace place = named(s, r, w, lane, &host);
    if (place.block == nullptr) return nullptr;
    std::uint64_t word = word_at(host);
    Mbarrier state, then;
    if (!unpack(word, &state))
      return fault(s, w, FaultKind::kIllegalInstruction, lane, place.address,
                   "a wait for an mbarrier that is not initialised");
    std::uint32_t phase;
    if (parity_form) {
      phase = lanes<std::uint32_t>(r, s->b)[lane] & 1;
    } else {
      if (!unpack(lanes<std::uint64_t>(r, s->b)[lane], &then))
        return fault(s, w, FaultKind::kIllegalInstruction, lane, place.address,
                     "a wait with a state that no mbarrier instruction returned");
      phase = then.phase;
    }
    if (first.block == nullptr) {
      first = place;
      first_phase = phase;
    }
    if (state.phase != phase) {
      done |= 1u << lane;
      tell(s, w, MbarrierEvent::kWaited, place, lane, word, word, false);
    } else if (!tries) {
      tell(s, w, MbarrierEvent::kWaitFailed, place, lane, word, word, false);
    }
  }
  Split& split = w.splits[w.current];
  bool timed_out = split.passed;
  split.passed = false;
  if (tries && done == 0 && !timed_out && first.block == w.block) {
    // Its time limit may be anything. Under checks that of every second one is nothing, so that who
    // takes its answer for granted is seen.
    w.gave_up = !w.gave_up && w.worker->context.checker != nullptr;
    if (!w.gave_up) return suspend(s, w, first, first_phase);
  }
  set_predicate(r, s->d, w.mask, done);
  if ((w.mask & ~done) != 0) {
    // Others get a turn at the end of the basic block.
    w.budget = 0;
    w.polled = true;
  }
  return s + 1;
}

const Step* pending_count(const Step* s, std::byte* r, Warp& w) {
  auto* d = lanes<std::uint32_t>(r, s->d);
  const auto* a = lanes<std::uint64_t>(r, s->a);
  for_lanes(w.mask, [&](int i) {
    Mbarrier state;
    unpack(a[i], &state);
    d[i] = state.pending;
  });
  return s + 1;
}

/// The arrivals of lanes that name the same mbarrier are one operation.
const Step* arrive_after_copies(const Step* s, std::byte* r, Warp& w) {
  bool no_increment = s->immediate != 0;
  AsyncOperation* operation = nullptr;
  AsyncEngine& engine = w.block->cluster->async;
  for (std::uint32_t mask = w.mask; mask != 0; mask &= mask - 1) {
    int lane = std::countr_zero(mask);
    std::byte* host = nullptr;
    SharedPlace place = named(s, r, w, lane, &host);
    if (place.block == nullptr) return nullptr;
    MbarrierChange more;
    more.more_pending = no_increment ? 0 : 1;
    std::uint64_t before = 0;
    bool completed = false;
    if (!no_increment && !change_mbarrier(s, w, lane, place, more, &before, &completed))
      return nullptr;
    if (operation != nullptr && (operation->mbarrier.block != place.block ||
                                 operation->mbarrier.address != place.address)) {
      engine.issue(*operation);
      operation = nullptr;
    }
    if (operation == nullptr) {
      operation = &engine.make(w, s, lane);
      operation->mbarrier = place;
    }
    ++operation->arrivals;
  }
  engine.issue(*operation);
  return s + 1;
}

}  // namespace

Handler select_mbarrier(const Form& form) {
  switch (form.op) {
    case Op::kMbarrier:
      return mbarrier;
    case Op::kMbarrierTest:
      return test;
    case Op::kMbarrierCount:
      return pending_count;
    case Op::kCpAsyncArrive:
      return arrive_after_copies;
    default:
      return nullptr;
  }
}

}  // namespace tilewright::vgpu
