// What is under way asynchronously, and what orders its end: waits for groups, mbarriers.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "jit/virtual_gpu/check/race_checker.h"
#include "jit/virtual_gpu/execute/mbarrier.h"

namespace tilewright::vgpu {

void RaceChecker::async_issue(const AsyncOperation& operation) {
  using Completion = AsyncOperation::Completion;
  Warp& warp = *operation.warp;
  WarpState& state = state_of(warp);
  ClusterState& cluster = cluster_of(warp);
  Now now;
  now.step = operation.step;
  now.warp = &warp;
  now.state = &state;
  now.cluster = &cluster;
  Record next;
  next.cluster = cluster.ordinal;
  next.warp = state.slot;
  next.clock = kInFlight;
  next.step = reporter_.index_of(operation.step);
  next.asynchronous = true;
  next.lane = static_cast<std::int8_t>(operation.lane);
  next.mask = 1u << operation.lane;
  next.proxy = operation.completion != Completion::kCopyGroup && operation.arrivals == 0;
  next.stride = 0;
  auto slot = [&](bool read) -> std::uint16_t {
    int kind = operation.completion == Completion::kCopyGroup ? 1 : read ? 3 : 2;
    if (operation.completion == Completion::kMbarrier) return mbarrier_of(operation.mbarrier).slot;
    return static_cast<std::uint16_t>(cluster.warps * kind + state.slot);
  };
  std::vector<std::uint32_t>& ids = cluster.in_flight[operation.id];
  ids.clear();
  auto side = [&](bool read) {
    pieces_.clear();
    for (const AsyncChunk& chunk : operation.chunks) {
      const std::byte* host = read ? chunk.from : chunk.to;
      Piece piece;
      if (host == nullptr || !find(warp, host, chunk.bytes, operation.lane, &piece)) continue;
      if (!pieces_.empty() && pieces_.back().owner == piece.owner &&
          pieces_.back().space == piece.space &&
          pieces_.back().at + pieces_.back().bytes == piece.at)
        pieces_.back().bytes += piece.bytes;
      else
        pieces_.push_back(piece);
    }
    if (pieces_.empty()) return;
    next.kind = read ? AccessKind::kRead : AccessKind::kWrite;
    // Reductions are atomic, element by element.
    if (!read && operation.reduces) next.kind = AccessKind::kAtomic;
    next.strong = next.kind == AccessKind::kAtomic;
    next.scope = Scope::kGpu;
    next.slot = slot(read);
    next.base = pieces_[0].at;
    next.bytes = pieces_[0].bytes;
    now.id = add_record(next);
    ids.push_back(now.id);
    for (const Piece& piece : pieces_) {
      touch(now, piece);
      if (piece.space == Space::kShared && piece.owner->block != warp.block)
        note_remote(now, piece);
    }
  };
  if (operation.from != Space::kRegister) side(true);
  side(false);
}

void RaceChecker::async_read(const AsyncOperation& operation) {
  WarpState& state = state_of(*operation.warp);
  auto it = cluster_of(*operation.warp).in_flight.find(operation.id);
  if (it == cluster_of(*operation.warp).in_flight.end()) return;
  for (std::uint32_t id : it->second)
    if (record(id).kind == AccessKind::kRead && record(id).clock == kInFlight)
      record(id).clock = ++state.bulk_reads;
}

void RaceChecker::async_land(const AsyncOperation& operation) {
  MemoryChecker::async_land(operation);
}

void RaceChecker::async_complete(const AsyncOperation& operation) {
  using Completion = AsyncOperation::Completion;
  WarpState& state = state_of(*operation.warp);
  auto& flying = cluster_of(*operation.warp).in_flight;
  auto it = flying.find(operation.id);
  if (it == flying.end()) return;
  for (std::uint32_t id : it->second) {
    Record& one = record(id);
    if (one.clock != kInFlight) continue;
    if (operation.completion == Completion::kCopyGroup)
      one.clock = ++state.copies;
    else if (operation.completion == Completion::kMbarrier)
      one.clock = ++mbarrier_of(operation.mbarrier).landed;
    else
      one.clock = one.kind == AccessKind::kRead ? ++state.bulk_reads : ++state.bulk_writes;
  }
  flying.erase(it);
}

void RaceChecker::async_waited(const Step*, Warp& warp, std::uint32_t, bool bulk, bool read_only) {
  WarpState& state = state_of(warp);
  std::uint16_t warps = cluster_of(warp).warps;
  auto learn = [&](int kind, std::uint32_t clock) {
    auto slot = static_cast<std::size_t>(warps * kind + state.slot);
    Clock& known = state.knowledge.clock;
    if (clock == 0) return;
    if (known.size() <= slot) known.resize(slot + 1, 0);
    known[slot] = std::max(known[slot], clock);
  };
  if (!bulk) return learn(1, state.copies);
  learn(3, state.bulk_reads);
  if (!read_only) learn(2, state.bulk_writes);
}

void RaceChecker::tensor_read(const Step* step, Warp& warp, const std::vector<std::uint32_t>& lines,
                              std::uint32_t bytes) {
  WarpState& state = state_of(warp);
  split(warp, lines, bytes);
  Record next;
  next.cluster = cluster_of(warp).ordinal;
  next.warp = state.slot;
  next.slot = static_cast<std::uint16_t>(cluster_of(warp).warps * 4 + state.slot);
  next.clock = kInFlight;
  next.step = reporter_.index_of(step);
  next.asynchronous = next.proxy = true;
  next.mask = 1;
  next.bytes = bytes;
  next.base = pieces_.empty() ? 0 : pieces_[0].at;
  Now now;
  now.step = step;
  now.warp = &warp;
  now.state = &state;
  now.cluster = &cluster_of(warp);
  now.id = add_record(next);
  state.tensor_open.push_back(now.id);
  for (const Piece& piece : pieces_) touch(now, piece);
  Access access;
  access.bytes = bytes;
  access.space = Space::kShared;
  if (!now.found) check_written(step, warp, access);
}

void RaceChecker::tensor_commit(Warp& warp) {
  WarpState& state = state_of(warp);
  state.tensor_groups.push_back(std::move(state.tensor_open));
  state.tensor_open.clear();
}

void RaceChecker::tensor_wait(Warp& warp, std::size_t left) {
  WarpState& state = state_of(warp);
  Clock& known = state.knowledge.clock;
  const std::size_t committed = state.tensor_reads + state.tensor_groups.size();
  if (committed <= left) return;
  const auto complete = static_cast<std::uint32_t>(committed - left);
  // A group is one of the warpgroup: what its four warps read is read.
  for (Warp& other : warp.block->warps) {
    if (other.index / 4 != warp.index / 4) continue;
    WarpState& reader = state_of(other);
    while (reader.tensor_reads < complete && !reader.tensor_groups.empty()) {
      ++reader.tensor_reads;
      for (std::uint32_t id : reader.tensor_groups.front()) record(id).clock = reader.tensor_reads;
      reader.tensor_groups.pop_front();
    }
    const auto slot = static_cast<std::size_t>(cluster_of(warp).warps * 4 + reader.slot);
    if (known.size() <= slot) known.resize(slot + 1, 0);
    known[slot] = std::max(known[slot], std::min(complete, reader.tensor_reads));
  }
}

// mbarriers ----------------------------------------------------------------------------------------

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
    races.mbarriers[use.place.address] = std::move(fresh);
  }
  MbarrierState& barrier = mbarrier_of(use.place);
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
  }
}

}  // namespace tilewright::vgpu
