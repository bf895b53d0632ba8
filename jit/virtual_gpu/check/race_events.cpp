// What orders accesses: barriers, fences, releases and acquires. PTX ISA, "Memory Consistency Model".
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "jit/virtual_gpu/check/race_checker.h"
#include "jit/virtual_gpu/execute/common/per_lane.h"
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
  int lane = std::countr_zero(mask);
  std::uint32_t all = static_cast<std::uint32_t>(warp.block->warps.size()) * kLanes;
  std::uint32_t threads = lanes<std::uint32_t>(warp.registers, step->b)[lane];
  if (threads == 0) threads = all;
  if (!arriving.begun) {
    arriving.begun = true;
    arriving.threads = threads;
    arriving.first_step = reporter_.index_of(step);
  } else if (arriving.threads != threads) {
    misuse(step, warp, lane, "barrier-misuse",
           fmt::format("barrier {} is to be of {} threads, it is under way for {}", barrier,
                       threads, arriving.threads),
           {}, arriving.first_step, "the first to arrive");
  }
  if (std::uint32_t again = arriving.lanes[static_cast<std::size_t>(warp.index)] & mask; again != 0)
    misuse(step, warp, std::countr_zero(again), "barrier-misuse",
           fmt::format("lanes {:#010x} arrive at barrier {} again, before it has opened", again,
                       barrier),
           {}, arriving.first_step, "the first to arrive");
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
  state.begun = false;
}

void RaceChecker::barrier_pass(const Step*, Warp& warp, std::uint32_t mask, int barrier) {
  auto& state = races_of(*warp.block).barriers[static_cast<std::size_t>(barrier)];
  state_of(warp).knowledge.join(state.opened);
  lanes_synced(warp, mask | state.opened_lanes[static_cast<std::size_t>(warp.index)]);
}

void RaceChecker::cluster_arrive(const Step*, Warp& warp, std::uint32_t, Order order) {
  WarpState& state = state_of(warp);
  // Loads are over when their thread goes on, whatever the barrier orders.
  join(cluster_of(warp).reached_arriving, state.knowledge.clock);
  join(cluster_of(warp).reached_arriving, state.reached);
  Knowledge& arriving = cluster_of(warp).arriving;
  if (order == Order::kRelaxed) {
    // What fences before it have released, and mbarriers by fence.mbarrier_init.
    join(arriving.inited, state.knowledge.inited);
    join(arriving.clock, state.knowledge.fenced[kNarrow]);
    join(arriving.clock, state.knowledge.fenced[kWide]);
    tick(state);
    return;
  }
  arriving.join(state.knowledge);
  tick(state);
}

void RaceChecker::cluster_open(Cluster& cluster) {
  ClusterState& state = *races_of(cluster.blocks[0]).cluster;
  join(state.arriving.clock, state.exited);
  std::swap(state.opened, state.arriving);
  state.arriving.clear();
  std::swap(state.reached, state.reached_arriving);
  state.reached_arriving.clear();
}

void RaceChecker::cluster_pass(const Step*, Warp& warp, std::uint32_t, Order order) {
  join(state_of(warp).reached, cluster_of(warp).reached);
  if (order != Order::kRelaxed) state_of(warp).knowledge.join(cluster_of(warp).opened);
  // All threads have arrived, though a seed may let the lanes of a warp pass in parts.
  lanes_synced(warp, warp.live);
}

// Ends ---------------------------------------------------------------------------------------------

void RaceChecker::lanes_exit(Warp& warp, std::uint32_t mask) {
  if ((warp.live & ~mask) != 0) return;
  WarpState& state = state_of(warp);
  join(races_of(*warp.block).exited, state.knowledge.clock);
  join(races_of(*warp.block).reached, state.knowledge.clock);
  join(races_of(*warp.block).reached, state.reached);
  join(cluster_of(warp).exited, state.knowledge.clock);
}

void RaceChecker::block_exit(Block& block) {
  races_of(block).gone = true;
  constexpr std::string_view kCheck = "async-exit";
  const AsyncOperation* copy = block.cluster->async.in_flight(block);
  const int step = copy == nullptr ? -1 : reporter_.index_of(copy->step);
  if (copy != nullptr && !reporter_.known(kCheck, step, -1)) {
    Finding finding;
    finding.check = kCheck;
    finding.step = step;
    finding.block = copy->warp->block->index;
    finding.thread = reporter_.thread_of(*copy->warp, copy->lane);
    finding.what =
        fmt::format("block {} ends while a copy may still {} its shared memory",
                    text_of(block.index), copy->from == Space::kShared ? "read" : "write");
    reporter_.add(finding);
  }
  check_register_budget(block);
}

void RaceChecker::cluster_end(Cluster& cluster) {
  ClusterState* state = races_of(cluster.blocks[0]).cluster;
  for (Block& block : cluster.blocks) {
    BlockRaces& races = races_of(block);
    for (const auto& [slot, remote] : races.remote) {
      const Record& last = record(remote.record);
      const Clock& ends =
          last.kind == AccessKind::kRead && !last.asynchronous ? races.reached : races.exited;
      bool before = last.clock != kInFlight && slot < ends.size() && last.clock <= ends[slot];
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
  if (fence.kind == FenceKind::kMbarrierInit) {
    join(knowledge.inited, knowledge.clock);
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

}  // namespace tilewright::vgpu
