// What orders accesses: barriers, fences, releases and acquires, mbarriers, waits for asynchronous
// operations. PTX ISA, "Memory Consistency Model".
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "jit/virtual_gpu/check/race_checker.h"
#include "jit/virtual_gpu/execute/mbarrier.h"

namespace tilewright::vgpu {
namespace {

enum { kNarrow, kWide };
int width_of(Scope scope) { return scope >= Scope::kGpu ? kWide : kNarrow; }

bool acquires(Order order) {
  return order == Order::kAcquire || order == Order::kAcqRel || order == Order::kSeqCst;
}
bool releases(Order order) {
  return order == Order::kRelease || order == Order::kAcqRel || order == Order::kSeqCst;
}

}  // namespace

void RaceChecker::lanes_synced(Warp& warp, std::uint32_t members) {
  WarpState& state = state_of(warp);
  ++state.sync;
  if ((warp.live & ~members) == 0) {
    state.whole_sync = state.sync;
    state.partial.clear();
  } else {
    state.partial.push_back(members);
  }
}

void RaceChecker::warp_sync(const Step* step, Warp& warp, std::uint32_t members,
                            std::uint32_t here) {
  std::string_view text = warp.code->texts[static_cast<std::size_t>(reporter_.index_of(step))];
  bool barrier = text.starts_with("bar");
  if (std::uint32_t gone = members & ~warp.live; gone != 0 && !barrier)
    misuse(
        step, warp, std::countr_zero(here), "shuffle-divergence",
        fmt::format("the members {:#010x} name lanes that have exited: {:#010x}", members, gone));
  else if (std::uint32_t strangers = here & warp.mask & ~members; strangers != 0)
    misuse(step, warp, std::countr_zero(strangers),
           barrier ? "barrier-divergence" : "shuffle-divergence",
           fmt::format("executed by lanes {:#010x}, which the members {:#010x} do not name",
                       strangers, members));
  // Shuffles and votes do not order memory.
  if (barrier) lanes_synced(warp, members & here);
}

void RaceChecker::shuffle(const Step* step, Warp& warp, std::uint32_t from) {
  if (std::uint32_t missing = from & ~warp.mask; missing != 0)
    misuse(step, warp, std::countr_zero(warp.mask), "shuffle-divergence",
           fmt::format("takes values of lanes {:#010x}, which do not execute it", missing));
}

// Barriers -----------------------------------------------------------------------------------------

void RaceChecker::barrier_arrive(const Step* step, Warp& warp, std::uint32_t mask, int barrier,
                                 bool) {
  std::string_view text = warp.code->texts[static_cast<std::size_t>(reporter_.index_of(step))];
  bool aligned = !text.starts_with("barrier") || text.find(".aligned") != std::string_view::npos;
  // Where all lanes come to, a seed may have let some of them come later.
  bool divergent = context_.launch->schedule_seed == 0 || warp.reconverge != nullptr;
  if (aligned && divergent && mask != warp.live)
    misuse(step, warp, std::countr_zero(mask), "barrier-divergence",
           fmt::format("lanes {:#010x} of a warp arrive without lanes {:#010x}", mask,
                       warp.live & ~mask));
  WarpState& state = state_of(warp);
  auto index = static_cast<std::size_t>(barrier);
  auto& arriving = races_of(*warp.block).barriers[index];
  arriving.lanes[static_cast<std::size_t>(warp.index)] |= mask;
  arriving.whole = warp.block->barriers[index].wanted == 0;
  arriving.arriving.join(state.knowledge);
  tick(state);
}

void RaceChecker::barrier_open(Block& block, int barrier) {
  BlockRaces& races = races_of(block);
  auto& state = races.barriers[static_cast<std::size_t>(barrier)];
  // Warps that have exited count as arrived where all do.
  if (state.whole) join(state.arriving.clock, races.exited);
  std::swap(state.opened, state.arriving);
  state.arriving.clear();
  state.opened_lanes = state.lanes;
  state.lanes = {};
}

void RaceChecker::barrier_pass(const Step*, Warp& warp, std::uint32_t mask, int barrier) {
  auto& state = races_of(*warp.block).barriers[static_cast<std::size_t>(barrier)];
  state_of(warp).knowledge.join(state.opened);
  lanes_synced(warp, mask | state.opened_lanes[static_cast<std::size_t>(warp.index)]);
}

void RaceChecker::cluster_arrive(const Step*, Warp& warp, std::uint32_t, Order order) {
  if (order == Order::kRelaxed) return;
  WarpState& state = state_of(warp);
  cluster_of(warp).arriving.join(state.knowledge);
  tick(state);
}

void RaceChecker::cluster_open(Cluster& cluster) {
  ClusterState& state = *races_of(cluster.blocks[0]).cluster;
  join(state.arriving.clock, state.exited);
  std::swap(state.opened, state.arriving);
  state.arriving.clear();
}

void RaceChecker::cluster_pass(const Step*, Warp& warp, std::uint32_t, Order order) {
  if (order != Order::kRelaxed) state_of(warp).knowledge.join(cluster_of(warp).opened);
  // All threads have arrived, though a seed may let the lanes of a warp pass in parts.
  lanes_synced(warp, warp.live);
}

// Ends ---------------------------------------------------------------------------------------------

void RaceChecker::lanes_exit(Warp& warp, std::uint32_t mask) {
  if ((warp.live & ~mask) != 0) return;
  WarpState& state = state_of(warp);
  join(races_of(*warp.block).exited, state.knowledge.clock);
  join(cluster_of(warp).exited, state.knowledge.clock);
}

void RaceChecker::block_exit(Block& block) { races_of(block).gone = true; }

void RaceChecker::cluster_end(Cluster& cluster) {
  ClusterState* state = races_of(cluster.blocks[0]).cluster;
  for (Block& block : cluster.blocks) {
    BlockRaces& races = races_of(block);
    for (const auto& [slot, remote] : races.remote) {
      const Record& last = record(remote.record);
      bool before =
          last.clock != kInFlight && slot < races.exited.size() && last.clock <= races.exited[slot];
      constexpr std::string_view kCheck = "cluster-exit";
      if (before || reporter_.known(kCheck, last.step, -1)) continue;
      std::size_t per_block = block.warps.size();
      Block& from = cluster.blocks[last.warp / per_block];
      Warp& warp = from.warps[last.warp % per_block];
      int lane = last.asynchronous ? last.lane : std::countr_zero(last.mask);
      Finding finding;
      finding.check = kCheck;
      finding.step = last.step;
      finding.block = from.index;
      finding.thread = reporter_.thread_of(warp, lane);
      finding.spot = {Space::kShared, last.base + kSharedBase, last.bytes, block.index};
      finding.what = fmt::format(
          "{} of {} bytes of the shared memory of block {}, which may exit before",
          last.kind == AccessKind::kRead ? "read" : "write", last.bytes, text_of(block.index));
      finding.other =
          fmt::format("nothing orders it before the end of block {}", text_of(block.index));
      reporter_.add(finding);
    }
  }
  for (auto& active : active_) {
    if (active.get() != state) continue;
    spare_.push_back(std::move(active));
    active = std::move(active_.back());
    active_.pop_back();
    break;
  }
  MemoryChecker::cluster_end(cluster);
}

// Fences, releases, acquires -----------------------------------------------------------------------

ReleasePointer RaceChecker::make_release(Warp& warp, const Clock& clock, Scope scope) {
  auto release = std::make_shared<Release>();
  release->cluster = cluster_of(warp).ordinal;
  release->block = warp.block;
  release->scope = scope;
  release->clock = std::make_shared<Clock>(clock);
  const Foreign& foreign = state_of(warp).knowledge.foreign;
  if (!foreign.empty()) release->foreign = std::make_shared<Foreign>(foreign);
  return release;
}

void RaceChecker::acquire(Warp& warp, const ReleasePointer& release, Scope scope) {
  std::uint32_t ordinal = cluster_of(warp).ordinal;
  Scope narrow = std::min(scope, release->scope);
  if (narrow < Scope::kGpu && release->cluster != ordinal) return;
  if (narrow == Scope::kCta && release->block != warp.block) return;
  Knowledge& knowledge = state_of(warp).knowledge;
  if (release->cluster == ordinal) {
    join(knowledge.clock, *release->clock);
  } else {
    if (knowledge.foreign.size() <= release->cluster)
      knowledge.foreign.resize(release->cluster + 1);
    join(knowledge.foreign[release->cluster], release->clock);
  }
  if (release->foreign == nullptr) return;
  join(knowledge.foreign, *release->foreign);
  if (ordinal < knowledge.foreign.size() && knowledge.foreign[ordinal] != nullptr)
    join(knowledge.clock, *knowledge.foreign[ordinal]);
}

void RaceChecker::fence(const Step*, Warp& warp, std::uint32_t, const Fence& fence) {
  WarpState& state = state_of(warp);
  Knowledge& knowledge = state.knowledge;
  if (fence.kind == FenceKind::kProxyAsync) {
    join(knowledge.proxied, knowledge.clock);
    tick(state);
    return;
  }
  if (fence.kind != FenceKind::kThread) return;
  if (fence.order != Order::kRelease) {
    std::vector<ReleasePointer> pending;
    pending.swap(knowledge.pending);
    for (const auto& release : pending) acquire(warp, release, fence.scope);
  }
  if (fence.order != Order::kAcquire) {
    for (int i = 0; i <= width_of(fence.scope); ++i) knowledge.fenced[i] = knowledge.clock;
    tick(state);
  }
}

/// A strong access: what it releases and acquires by the places it touches.
void RaceChecker::synchronise(const Step*, Warp& warp, const Access& access) {
  WarpState& state = state_of(warp);
  ClusterState& cluster = cluster_of(warp);
  Scope scope = access.order == Order::kVolatile ? Scope::kSys : access.scope;
  bool writes = access.kind != AccessKind::kRead, reads = access.kind != AccessKind::kWrite;
  const Clock& fenced = state.knowledge.fenced[width_of(scope)];
  bool release = writes && (releases(access.order) || !fenced.empty());
  if (!release && releases_.empty() && cluster.releases.empty()) return;
  ReleasePointer made;
  for (std::uint32_t mask = access.mask; mask != 0; mask &= mask - 1) {
    int lane = std::countr_zero(mask);
    Piece piece;
    std::uint64_t key = 0;
    if (access.hosts != nullptr) {
      if (!find(warp, access.hosts[lane], access.bytes, lane, &piece)) continue;
    } else {
      bool shared = access.space == Space::kShared;
      piece.space = access.space;
      piece.owner = static_cast<BlockMemory*>(warp.block->checked);
      piece.at = access.addresses[lane] - (shared ? kSharedBase : 0);
    }
    key = piece.at;
    if (piece.space == Space::kShared)
      key |= std::uint64_t{piece.owner->block->rank + 1} << kRankShift << 8;
    auto& places = piece.space == Space::kShared ? cluster.releases : releases_;
    auto it = places.find(key);
    if (reads && it != places.end()) {
      for (const ReleasePointer& one : it->second) {
        if (acquires(access.order)) {
          acquire(warp, one, scope);
        } else {
          auto& pending = state.knowledge.pending;
          if (std::find(pending.begin(), pending.end(), one) == pending.end())
            pending.push_back(one);
        }
      }
    }
    if (!writes) continue;
    if (release && made == nullptr)
      made = make_release(warp, releases(access.order) ? state.knowledge.clock : fenced, scope);
    if (access.kind == AccessKind::kWrite) {
      // A read-modify-write goes on with the release sequence, another write ends it.
      if (release)
        places[key] = {made};
      else if (it != places.end())
        places.erase(it);
    } else if (release) {
      auto& sequence = places[key];
      // What it acquired itself is part of what it releases.
      if (acquires(access.order)) sequence.clear();
      sequence.push_back(made);
    }
  }
  if (made != nullptr && releases(access.order)) tick(state);
}

// Asynchronous operations --------------------------------------------------------------------------

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
  auto slot = static_cast<std::size_t>(cluster_of(warp).warps * 4 + state.slot);
  Clock& known = state.knowledge.clock;
  while (state.tensor_groups.size() > left) {
    for (std::uint32_t id : state.tensor_groups.front()) record(id).clock = ++state.tensor_reads;
    state.tensor_groups.pop_front();
  }
  if (known.size() <= slot) known.resize(slot + 1, 0);
  known[slot] = state.tensor_reads;
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
