// Splits of a warp: how they part, meet again and end. See Split in state.h.
#include <algorithm>
#include <cassert>

#include "jit/virtual_gpu/check/checker.h"
#include "jit/virtual_gpu/execute/runtime.h"
#include "jit/virtual_gpu/execute/worker.h"

namespace tilewright::vgpu {
namespace {

void release(Warp& warp, Split& split) {
  split.state = Split::State::kFree;
  --warp.used;
}

int new_split(Warp& warp) {
  ++warp.used;
  for (int i = 0; i < static_cast<int>(std::size(warp.splits)); ++i)
    if (warp.splits[i].state == Split::State::kFree) {
      warp.top = std::max(warp.top, i + 1);
      return i;
    }
  assert(false && "a warp has fewer splits than lanes and joins");
  return 0;
}

/// The next split of the warp that can go on, or null: it stops for now.
const Step* next_ready(Warp& warp) {
  if (warp.used == 0) {
    warp.current = -1;
    warp.mask = 0;
    warp.status = WarpStatus::kDone;
    return nullptr;
  }
  do {
    for (int i = 0; i < warp.top; ++i)
      if (warp.splits[i].state == Split::State::kReady) return activate(warp, i);
    // An mbarrier may soon be complete: lanes that wait to reconverge go on waiting.
    if (warp.mbarrier_waits != 0) break;
  } while (let_joins_go(warp));
  warp.current = -1;
  warp.mask = 0;
  warp.status = WarpStatus::kBlocked;
  return nullptr;
}

/// A part of the join `parent` has come in or ended. Returns the join if it may go on now.
int settle(Warp& warp, int parent) {
  while (parent >= 0) {
    Split& join = warp.splits[parent];
    if (--join.pending > 0) return -1;
    join.mask &= warp.live;
    if (join.mask != 0) {
      join.state = Split::State::kReady;
      return parent;
    }
    // All of its lanes exited on the way.
    int next = join.parent;
    release(warp, join);
    parent = next;
  }
  return -1;
}

}  // namespace

const Step* activate(Warp& warp, int index) {
  Split& split = warp.splits[index];
  warp.current = static_cast<std::int16_t>(index);
  warp.mask = split.mask;
  warp.full = warp.mask == warp.live;
  warp.reconverge = split.reconverge;
  warp.status = WarpStatus::kReady;
  return split.pc;
}

bool let_joins_go(Warp& warp) {
  bool any = false;
  for (Split& join : used_splits(warp)) {
    if (join.state != Split::State::kJoin || join.mask == 0) continue;
    Split& split = warp.splits[new_split(warp)];
    split = Split{};
    split.state = Split::State::kReady;
    split.parent = join.parent;
    split.mask = join.mask;
    split.pc = join.pc;
    split.reconverge = join.reconverge;
    if (join.parent >= 0) ++warp.splits[join.parent].pending;
    join.mask = 0;
    any = true;
  }
  return any;
}

const Step* diverge(Warp& warp, std::uint32_t taken, const Step* target, const Step* next,
                    const Step* reconverge) {
  std::uint32_t others = warp.mask & ~taken;
  Split& current = warp.splits[warp.current];
  int parent;
  if (reconverge == warp.reconverge) {
    // The parts join where this split was to join anyway.
    parent = current.parent;
    release(warp, current);
    if (parent >= 0) --warp.splits[parent].pending;
  } else {
    parent = warp.current;
    current.state = Split::State::kJoin;
    current.pc = reconverge;
    current.mask = 0;
    current.pending = 0;
  }
  int last = -1;
  auto part = [&](std::uint32_t mask, const Step* pc) {
    if (pc == reconverge && parent >= 0) {
      warp.splits[parent].mask |= mask;
      return;
    }
    int index = new_split(warp);
    Split& split = warp.splits[index];
    split = Split{};
    split.state = Split::State::kReady;
    split.parent = static_cast<std::int16_t>(parent);
    split.mask = mask;
    split.pc = pc;
    split.reconverge = reconverge;
    if (parent >= 0) ++warp.splits[parent].pending;
    last = index;
  };
  part(taken, target);
  part(others, next);
  assert(last >= 0);
  return activate(warp, last);
}

const Step* join(const Step* step, Warp& warp) {
  Split& split = warp.splits[warp.current];
  int parent = split.parent;
  std::uint32_t mask = warp.mask;
  release(warp, split);
  assert(parent >= 0);
  warp.splits[parent].mask |= mask;
  warp.splits[parent].pc = step;
  if (int ready = settle(warp, parent); ready >= 0) return activate(warp, ready);
  return next_ready(warp);
}

const Step* leave(Warp& warp) {
  Checker* checker = warp.worker->context.checker;
  if (checker != nullptr) checker->lanes_exit(warp, warp.mask);
  warp.live &= ~warp.mask;
  Split& split = warp.splits[warp.current];
  int parent = split.parent;
  release(warp, split);
  int ready = settle(warp, parent);
  // The rest of the block, or of the cluster, may have waited for these lanes only.
  open_barriers(*warp.block);
  if (warp.block->cluster->barrier_used) open_cluster_barrier(*warp.block->cluster);
  if (ready >= 0) return activate(warp, ready);
  return next_ready(warp);
}

bool gather_members(const Step* step, Warp& warp, std::uint32_t members, const Step** next) {
  const std::uint32_t given = members;
  members &= warp.live;
  Checker* checker = warp.worker->context.checker;
  auto together = [&] {
    if (checker != nullptr) checker->warp_sync(step, warp, given, warp.mask);
    return true;
  };
  if ((members & ~warp.mask) == 0) return together();
  Split& current = warp.splits[warp.current];
  for (Split& other : used_splits(warp)) {
    // Only parts that go on to the same join can become one.
    if (other.state != Split::State::kWarpSync || other.pc != step ||
        other.parent != current.parent || other.reconverge != current.reconverge)
      continue;
    warp.mask |= other.mask;
    release(warp, other);
    if (other.parent >= 0) --warp.splits[other.parent].pending;
  }
  warp.full = warp.mask == warp.live;
  if ((members & ~warp.mask) == 0) return together();
  current.state = Split::State::kWarpSync;
  current.wanted = members;
  current.mask = warp.mask;
  current.pc = step;
  *next = stop_split(warp);
  return false;
}

const Step* stop_split(Warp& warp) { return next_ready(warp); }

}  // namespace tilewright::vgpu
