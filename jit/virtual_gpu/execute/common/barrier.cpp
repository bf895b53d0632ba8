// Barriers of a block, and of a warp. Arrival is counted by lanes, so that a barrier in divergent
// code works as on GPUs with independent thread scheduling; lanes that have exited count as arrived.
#include "jit/virtual_gpu/check/checker.h"
#include "jit/virtual_gpu/execute/common/families.h"
#include "jit/virtual_gpu/execute/common/per_lane.h"
#include "jit/virtual_gpu/execute/worker.h"

namespace tilewright::vgpu {
namespace {

/// The barrier that the active lanes name; null after a fault.
Barrier* named(const Step* s, std::byte* r, Warp& w, int* index) {
  int first = std::countr_zero(w.mask);
  std::uint32_t id = lanes<std::uint32_t>(r, s->a)[first];
  std::uint32_t threads = lanes<std::uint32_t>(r, s->b)[first];
  if (id >= kBarriers) {
    fault(s, w, FaultKind::kIllegalInstruction, first, id, "a barrier beyond 15");
    return nullptr;
  }
  if (threads % kLanes != 0) {
    fault(s, w, FaultKind::kIllegalInstruction, first, threads,
          "a barrier's number of threads that is no multiple of 32");
    return nullptr;
  }
  *index = static_cast<int>(id);
  Barrier& barrier = w.block->barriers[id];
  if (threads != 0) barrier.wanted = threads;
  barrier.used = true;
  return &barrier;
}

Checker* checker_of(Warp& w) { return w.worker->context.checker; }

const Step* wait(const Step* s, Warp& w, Barrier& barrier, int index) {
  barrier.arrived[static_cast<std::size_t>(w.index)] |= w.mask;
  Split& split = w.splits[w.current];
  split.state = Split::State::kBarrier;
  split.barrier = static_cast<std::int8_t>(index);
  split.mask = w.mask;
  split.pc = s;
  if (Checker* checker = checker_of(w)) checker->barrier_arrive(s, w, w.mask, index, true);
  open_barriers(*w.block);
  return stop_split(w);
}

bool passed(Warp& w) {
  Split& split = w.splits[w.current];
  bool result = split.passed;
  split.passed = false;
  return result;
}

void tell_passed(const Step* s, Warp& w) {
  if (Checker* checker = checker_of(w))
    checker->barrier_pass(s, w, w.mask, w.splits[w.current].barrier);
}

const Step* barrier_sync(const Step* s, std::byte* r, Warp& w) {
  if (passed(w)) {
    tell_passed(s, w);
    return s + 1;
  }
  int index = 0;
  Barrier* barrier = named(s, r, w, &index);
  return barrier == nullptr ? nullptr : wait(s, w, *barrier, index);
}

const Step* barrier_arrive(const Step* s, std::byte* r, Warp& w) {
  int index = 0;
  Barrier* barrier = named(s, r, w, &index);
  if (barrier == nullptr) return nullptr;
  barrier->arrived[static_cast<std::size_t>(w.index)] |= w.mask;
  if (Checker* checker = checker_of(w)) checker->barrier_arrive(s, w, w.mask, index, false);
  open_barriers(*w.block);
  return s + 1;
}

template <Reduce kReduce>
const Step* barrier_reduce(const Step* s, std::byte* r, Warp& w) {
  if (passed(w)) {
    tell_passed(s, w);
    std::uint32_t packed = w.splits[w.current].result;
    std::uint32_t hold = packed >> 16, all = packed & 0xffff;
    if (kReduce == Reduce::kPopc) {
      auto* d = lanes<std::uint32_t>(r, s->d);
      for_lanes(w.mask, [&](int i) { d[i] = hold; });
    } else {
      bool value = kReduce == Reduce::kAnd ? hold == all : hold != 0;
      set_predicate(r, s->d, w.mask, value ? kAllLanes : 0);
    }
    return s + 1;
  }
  int index = 0;
  Barrier* barrier = named(s, r, w, &index);
  if (barrier == nullptr) return nullptr;
  std::uint32_t p = predicate(r, s->c) & w.mask;
  barrier->true_lanes += static_cast<std::uint32_t>(std::popcount(p));
  barrier->lanes += static_cast<std::uint32_t>(std::popcount(w.mask));
  return wait(s, w, *barrier, index);
}

/// Lanes that are elsewhere have to come to a bar.warp.sync as well.
const Step* warp_sync(const Step* s, std::byte* r, Warp& w) {
  if (passed(w)) return s + 1;
  std::uint32_t wanted = lanes<std::uint32_t>(r, s->a)[std::countr_zero(w.mask)] & w.live;
  if ((wanted & ~w.mask) == 0) {
    if (Checker* checker = checker_of(w)) checker->warp_sync(s, w, wanted, w.mask);
    return s + 1;
  }
  Split& split = w.splits[w.current];
  split.state = Split::State::kWarpSync;
  split.wanted = wanted;
  split.mask = w.mask;
  split.pc = s;
  std::uint32_t here = 0;
  for (const Split& other : used_splits(w))
    if (other.state == Split::State::kWarpSync) here |= other.mask;
  for (Split& other : used_splits(w)) {
    if (other.state != Split::State::kWarpSync || (other.wanted & w.live & ~here) != 0) continue;
    other.state = Split::State::kReady;
    other.passed = true;
    if (Checker* checker = checker_of(w)) checker->warp_sync(s, w, other.wanted, here);
  }
  return stop_split(w);
}

}  // namespace

void open_barriers(Block& block) {
  for (int id = 0; id < kBarriers; ++id) {
    Barrier& barrier = block.barriers[static_cast<std::size_t>(id)];
    if (!barrier.used) continue;
    std::uint32_t arrived = 0;
    bool all = true, any = false;
    for (const Warp& warp : block.warps) {
      std::uint32_t lanes = barrier.arrived[static_cast<std::size_t>(warp.index)];
      bool complete = (warp.live & ~lanes) == 0;
      all &= complete;
      any |= lanes != 0;
      if (complete && (lanes != 0 || barrier.wanted == 0)) arrived += kLanes;
    }
    if (!any || !(barrier.wanted == 0 ? all : arrived >= barrier.wanted)) continue;
    std::uint32_t result = barrier.true_lanes << 16 | (barrier.lanes & 0xffff);
    for (Warp& warp : block.warps) {
      for (Split& split : used_splits(warp)) {
        if (split.state != Split::State::kBarrier || split.barrier != id) continue;
        split.state = Split::State::kReady;
        split.passed = true;
        split.result = result;
        if (warp.status == WarpStatus::kBlocked) warp.status = WarpStatus::kReady;
      }
    }
    barrier = Barrier{};
    block.cluster->stalls = 0;
    if (Checker* checker = block.cluster->context.checker) checker->barrier_open(block, id);
  }
}

Handler select_barrier(const Form& form) {
  switch (form.op) {
    case Op::kBarrier:
      return barrier_sync;
    case Op::kBarrierArrive:
      return barrier_arrive;
    case Op::kBarrierReduce:
      return form.reduce == Reduce::kPopc  ? barrier_reduce<Reduce::kPopc>
             : form.reduce == Reduce::kAnd ? barrier_reduce<Reduce::kAnd>
                                           : barrier_reduce<Reduce::kOr>;
    case Op::kWarpSync:
      return warp_sync;
    default:
      return nullptr;
  }
}

}  // namespace tilewright::vgpu
