#include "jit/virtual_gpu/check/race_checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdlib>

namespace tilewright::vgpu {
namespace {

/// Ids are not used up to their end, nor is more than this kept of a launch (half a GiB).
constexpr std::uint32_t kLastId = 1u << 30;
constexpr std::size_t kMostRecords = std::size_t{1} << 23;
constexpr std::size_t kMostSetWords = std::size_t{1} << 26;
/// Readers of a cell that are remembered, and of those from other clusters.
constexpr std::size_t kMostReaders = 64, kMostForeignReaders = 4;

std::uint64_t cell_of(std::uint32_t write, std::uint32_t read) {
  return std::uint64_t{read} << 32 | write;
}

}  // namespace

void Knowledge::join(const Knowledge& other) {
  vgpu::join(clock, other.clock);
  if (!other.proxied.empty()) vgpu::join(proxied, other.proxied);
  if (!other.inited.empty()) vgpu::join(inited, other.inited);
  if (!other.foreign.empty()) vgpu::join(foreign, other.foreign);
  for (int i = 0; i < 2; ++i)
    if (!other.fenced[i].empty()) vgpu::join(fenced[i], other.fenced[i]);
  for (const auto& release : other.pending)
    if (std::find(pending.begin(), pending.end(), release) == pending.end())
      pending.push_back(release);
}
void Knowledge::clear() {
  clock.clear();
  proxied.clear();
  inited.clear();
  foreign.clear();
  for (Clock& clock_of_fence : fenced) clock_of_fence.clear();
  pending.clear();
}

namespace {

std::shared_ptr<RaceStorage> take_storage(Arena& arena) {
  if (arena.shadow == nullptr) arena.shadow = std::make_shared<GlobalShadow>();
  auto storage = std::static_pointer_cast<RaceStorage>(std::move(arena.shadow->storage));
  arena.shadow->storage = nullptr;
  return storage != nullptr ? storage : std::make_shared<RaceStorage>();
}

}  // namespace

RaceChecker::RaceChecker(const LaunchContext& context, Arena& arena)
    : MemoryChecker(context, arena),
      storage_(take_storage(arena)),
      records_(storage_->records),
      sets_(storage_->sets),
      offsets_(storage_->offsets) {}

void RaceChecker::launch_begin(const LaunchContext& context) {
  MemoryChecker::launch_begin(context);
  GlobalShadow& shadow = *arena_.shadow;
  if (shadow.next_record > kLastId || shadow.next_set > kLastId) {
    shadow.clear();
    shadow.next_record = shadow.next_set = 1;
  }
  first_record_ = shadow.next_record;
  first_set_ = shadow.next_set;
}

void RaceChecker::launch_end(std::vector<Report>* to) {
  arena_.shadow->next_record = first_record_ + static_cast<std::uint32_t>(records_.size());
  arena_.shadow->next_set = first_set_ + static_cast<std::uint32_t>(sets_.size());
  MemoryChecker::launch_end(to);
  records_.clear();
  sets_.clear();
  offsets_.clear();
  constexpr std::size_t kWorthKeeping = std::size_t{1} << 21;
  if (records_.capacity() <= kWorthKeeping) arena_.shadow->storage = storage_;
}

void RaceChecker::cluster_begin(Cluster& cluster) {
  MemoryChecker::cluster_begin(cluster);
  if (records_.size() > kMostRecords || sets_.size() > kMostSetWords) forget();
  if (spare_.empty()) spare_.push_back(std::make_unique<ClusterState>());
  active_.push_back(std::move(spare_.back()));
  spare_.pop_back();
  ClusterState& state = *active_.back();
  state.cluster = &cluster;
  state.ordinal = static_cast<std::uint32_t>(clusters_.size());
  clusters_.push_back(cluster.blocks[0].index);
  state.first_record = first_record_ + static_cast<std::uint32_t>(records_.size());
  state.first_set = first_set_ + static_cast<std::uint32_t>(sets_.size());
  std::size_t per_block = cluster.blocks[0].warps.size();
  state.warps = static_cast<std::uint16_t>(cluster.blocks.size() * per_block);
  state.next_slot = static_cast<std::uint16_t>(state.warps * 5);
  state.arriving.clear();
  state.opened.clear();
  state.exited.clear();
  state.reached.clear();
  state.reached_arriving.clear();
  state.releases.clear();
  state.in_flight.clear();
  for (Block& block : cluster.blocks) {
    BlockRaces& races = races_of(block);
    races.cluster = &state;
    if (races.cells == nullptr && block.shared_bytes != 0)
      races.cells = std::make_unique<ShadowCells>(block.shared_bytes);
    races.warps.resize(per_block);
    for (std::size_t i = 0; i < per_block; ++i) {
      WarpState& warp = races.warps[i];
      warp.slot = static_cast<std::uint16_t>(block.rank * per_block + i);
      warp.knowledge.clear();
      warp.knowledge.clock.assign(state.warps, 0);
      warp.knowledge.clock[warp.slot] = 1;
      warp.sync = warp.whole_sync = 0;
      warp.partial.clear();
      warp.last_record = 0;
      warp.reached.clear();
      warp.copies = warp.bulk_writes = warp.bulk_reads = warp.tensor_reads = 0;
      warp.tensor_groups.clear();
      warp.tensor_open.clear();
      warp.accesses = 0;
      warp.registers.clear();
      warp.budget = {};
    }
    for (auto& barrier : races.barriers) {
      barrier.arriving.clear();
      barrier.opened.clear();
      barrier.lanes = barrier.opened_lanes = {};
      barrier.begun = false;
    }
    races.mbarriers.clear();
    races.exited.clear();
    races.reached.clear();
    races.gone = false;
    races.remote.clear();
  }
}

// Accesses -----------------------------------------------------------------------------------------

bool RaceChecker::happened_before(const Now& now, const Record& other) const {
  if (other.clock == kInFlight) return false;
  const Knowledge& knowledge = now.state->knowledge;
  const Clock* clock = &knowledge.clock;
  if (other.initialises && other.cluster == now.cluster->ordinal &&
      other.slot < knowledge.inited.size() && other.clock <= knowledge.inited[other.slot])
    return true;
  if (other.cluster != now.cluster->ordinal) {
    if (other.cluster >= knowledge.foreign.size()) return false;
    clock = knowledge.foreign[other.cluster].get();
    if (clock == nullptr) return false;
  }
  return other.slot < clock->size() && other.clock <= (*clock)[other.slot];
}

/// Of two accesses by a warp.
bool RaceChecker::lanes_conflict(const Now& now, const Record& other, std::uint64_t at,
                                 unsigned bytes) const {
  const Record& mine = records_[now.id - first_record_];
  if (mine.asynchronous || other.asynchronous || other.sync < now.state->whole_sync) return false;
  std::uint32_t a = lanes_at(other, at, bytes), b = lanes_at(mine, at, bytes);
  // Lanes that no synchronisation since had both of.
  std::uint32_t pairs = 0;
  for (std::uint32_t m = a; m != 0 && pairs == 0; m &= m - 1) {
    std::uint32_t one = m & (~m + 1), ordered = one;
    std::size_t from = other.sync - now.state->whole_sync;
    for (std::size_t i = from; i < now.state->partial.size(); ++i)
      if ((now.state->partial[i] & one) != 0) ordered |= now.state->partial[i];
    pairs = b & ~ordered;
  }
  return pairs != 0;
}

/// Whether the scope of each includes the other's thread.
bool RaceChecker::includes(const Record& a, const Record& b) const {
  Scope scope = std::min(a.scope, b.scope);
  if (scope >= Scope::kGpu) return true;
  if (a.cluster != b.cluster) return false;
  auto per_block = static_cast<std::uint16_t>(
      (context_.launch->block[0] * context_.launch->block[1] * context_.launch->block[2] + kLanes -
       1) /
      kLanes);
  return scope == Scope::kCluster || a.warp / per_block == b.warp / per_block;
}

bool RaceChecker::conflicts(Now& now, std::uint32_t id, const Piece& piece, std::uint64_t at,
                            unsigned bytes, bool* same_for_all) {
  const Record& other = record(id);
  const Record& mine = record(now.id);
  if (mine.kind == AccessKind::kRead && other.kind == AccessKind::kRead) return false;
  bool own = other.cluster == mine.cluster && other.slot == now.state->slot;
  if (own ? !lanes_conflict(now, other, at, bytes) : happened_before(now, other)) {
    // Where each lane comes back to its own bytes, what holds of one holds of all.
    bool alike = other.stride == mine.stride && other.base == mine.base &&
                 other.bytes == mine.bytes && mine.stride != kScattered &&
                 static_cast<std::uint32_t>(std::abs(mine.stride)) >= mine.bytes;
    if (own && !alike && other.sync >= now.state->whole_sync) *same_for_all = false;
    // Ordered, but also for the other proxy? That writes come after reads, barriers see to.
    if (mine.proxy && !other.asynchronous && other.kind != AccessKind::kRead &&
        !other.initialises && piece.space == Space::kShared) {
      const Clock& proxied = now.state->knowledge.proxied;
      if (other.slot >= proxied.size() || other.clock > proxied[other.slot])
        report(now, "missing-proxy-fence", id, piece, at, bytes);
    }
    return false;
  }
  if (own) *same_for_all = false;
  if (mine.strong && other.strong && includes(mine, other)) return false;
  // Two writes of one value leave it there in any order: warps may compute the same. Of global memory
  // it is rather work done twice.
  if (piece.space == Space::kShared && mine.kind == AccessKind::kWrite &&
      other.kind == AccessKind::kWrite && !mine.proxy && !other.proxy && !other.asynchronous &&
      !mine.initialises && !other.initialises) {
    *same_for_all = false;
    if (stores_what_is_there(now, piece, at, bytes)) return false;
  }
  std::string_view check = piece.space == Space::kShared ? "shared-race" : "global-race";
  if (other.asynchronous && other.clock == kInFlight)
    check = mine.kind == AccessKind::kRead ? "async-read" : "source-overwritten";
  else if (mine.initialises || other.initialises)
    check = "mbarrier-misuse";
  report(now, check, id, piece, at, bytes);
  return true;
}

/// What a cell holds after the access; `same_for_all`: a cell of the same state comes to the same.
std::uint64_t RaceChecker::touched(Now& now, const Piece& piece, std::uint64_t state,
                                   std::uint64_t at, unsigned bytes, bool* same_for_all) {
  const std::uint32_t floor = floor_of(now, piece.space);
  const std::uint32_t set_floor =
      piece.space == Space::kShared ? now.cluster->first_set : first_set_;
  auto write = static_cast<std::uint32_t>(state), read = static_cast<std::uint32_t>(state >> 32);
  if (write < floor) write = 0;
  if ((read & kSet) != 0 ? (read & ~kSet) < set_floor : read < floor) read = 0;
  const Record& mine = record(now.id);
  // Strong writes stand with the readers: they race with weak accesses only, and must not hide a weak
  // write from those who come later.
  const bool overwrites = mine.kind != AccessKind::kRead && !mine.strong;
  if (mine.kind != AccessKind::kRead && write == now.id) {
    now.overlaps = true;
    return state;
  }
  if (read == now.id) return state;
  const bool reads = mine.kind == AccessKind::kRead;
  auto plainly_before = [&](const Record& other) {
    return RaceChecker::plainly_before(now, mine, other);
  };
  if (write != 0 && !plainly_before(record(write)))
    conflicts(now, write, piece, at, bytes, same_for_all);
  std::uint32_t readers = 0;
  const std::uint32_t* first_reader = (read & kSet) != 0 ? set_of(read, &readers) : nullptr;
  bool strong_readers = false;
  for (std::uint32_t i = 0; i < readers; ++i) strong_readers |= record(first_reader[i]).strong;
  // Weak records among the readers are reads: two reads are no conflict.
  if ((read & kSet) != 0 && (!reads || strong_readers)) {
    const std::uint32_t count = readers;
    // A strong read that happened before has observed the strong writes before it: observation order.
    std::uint32_t observed = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
      std::uint32_t ignored = 0, id = set_of(read, &ignored)[i];
      const Record& one = record(id);
      bool own = one.cluster == mine.cluster && one.slot == now.state->slot;
      if (one.strong && one.kind != AccessKind::kWrite && (own || happened_before(now, one)))
        observed = std::max(observed, id);
    }
    for (std::uint32_t i = 0; i < count; ++i) {
      std::uint32_t ignored = 0, id = set_of(read, &ignored)[i];
      if (id < observed && record(id).strong) continue;
      if (conflicts(now, id, piece, at, bytes, same_for_all)) break;
    }
  } else if (read != 0 && (read & kSet) == 0 && !plainly_before(record(read))) {
    conflicts(now, read, piece, at, bytes, same_for_all);
  }
  if (overwrites) return cell_of(now.id, 0);
  if (read == 0) return cell_of(write, now.id);
  // Readers that this one makes superfluous: whoever comes after it comes after them.
  auto superfluous = [&](const Record& other) {
    if (other.cluster == mine.cluster && other.slot == mine.slot)
      return mine.kind != AccessKind::kRead || other.kind == AccessKind::kRead;
    return !mine.asynchronous && (plainly_before(other) || happened_before(now, other));
  };
  scratch_.clear();
  std::size_t foreign = 0;
  auto keep = [&](std::uint32_t id) {
    const Record& other = record(id);
    if (superfluous(other)) return;
    if (other.cluster != mine.cluster) ++foreign;
    scratch_.push_back(id);
  };
  if ((read & kSet) != 0) {
    std::uint32_t count = 0;
    const std::uint32_t* ids = set_of(read, &count);
    for (std::uint32_t i = 0; i < count; ++i) {
      if (ids[i] == now.id) return state;
      keep(ids[i]);
    }
    if (foreign >= kMostForeignReaders || scratch_.size() >= kMostReaders) {
      if (!mine.strong) return cell_of(write, read);
      scratch_.erase(scratch_.begin());  // strong ones say what was observed
    }
  } else {
    keep(read);
  }
  if (scratch_.empty()) return cell_of(write, now.id);
  scratch_.push_back(now.id);
  return cell_of(write, add_set(scratch_));
}

void RaceChecker::touch(Now& now, const Piece& piece) {
  const Record& mine = record(now.id);
  const bool plain_read = mine.kind == AccessKind::kRead && !mine.strong;
  const std::uint32_t floor = floor_of(now, piece.space);
  auto cells_of_page = [&](std::uint64_t* cells, std::uint64_t count, std::uint64_t at,
                           unsigned bytes) {
    constexpr std::uint64_t kNone = ~std::uint64_t{0};
    std::uint64_t from = kNone, to = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
      std::uint64_t state = cells[i];
      if (state == from) [[likely]] {
        cells[i] = to;
        continue;
      }
      const auto write = static_cast<std::uint32_t>(state);
      if (plain_read && now.readers.known && state >> 32 == now.readers.from &&
          (write < floor || plainly_before(now, mine, record(write)))) {
        from = state;
        cells[i] = to = cell_of(write < floor ? 0 : write, now.readers.to);
        continue;
      }
      bool same_for_all = true;
      std::uint64_t next = touched(now, piece, state, at + i * bytes, bytes, &same_for_all);
      cells[i] = next;
      if (plain_read && same_for_all && !now.found)
        now.readers = {true, static_cast<std::uint32_t>(state >> 32),
                       static_cast<std::uint32_t>(next >> 32)};
      from = same_for_all ? state : kNone;
      to = next;
    }
  };
  if (piece.space == Space::kGlobal)
    arena_.shadow->for_cells(piece.at, piece.bytes, cells_of_page);
  else
    static_cast<BlockRaces*>(piece.owner)->cells->for_cells(piece.at, piece.bytes, cells_of_page);
}

void RaceChecker::note_remote(Now& now, const Piece& piece) {
  auto& owner = *static_cast<BlockRaces*>(piece.owner);
  if (owner.block == now.warp->block) return;
  owner.remote[record(now.id).slot].record = now.id;
}

bool RaceChecker::precheck(const Step* step, Warp& warp, const Access& access,
                           const std::vector<Piece>& pieces) {
  if (pieces.empty() || pieces[0].space == Space::kLocal) return false;
  WarpState& state = state_of(warp);
  ++state.accesses;
  Record next;
  next.cluster = cluster_of(warp).ordinal;
  next.slot = next.warp = state.slot;
  next.clock = state.knowledge.clock[state.slot];
  next.step = reporter_.index_of(step);
  next.kind = access.kind;
  next.strong = access.kind == AccessKind::kAtomic || access.order != Order::kWeak;
  next.scope = access.order == Order::kVolatile ? Scope::kSys : access.scope;
  next.proxy = access.asynchronous;
  next.sync = state.sync;
  describe_lanes(&next, access, pieces, warp);
  Now now;
  now.step = step;
  now.warp = &warp;
  now.state = &state;
  now.cluster = &cluster_of(warp);
  // A thread that spins makes no new records.
  if (state.last_record >= now.cluster->first_record && state.last_record != 0 &&
      state.last_record >= first_record_) {
    const Record& last = record(state.last_record);
    if (last.step == next.step && last.clock == next.clock && last.sync == next.sync &&
        last.mask == next.mask && last.base == next.base && last.stride == next.stride &&
        last.stride != kScattered && access.kind == AccessKind::kRead)
      now.id = state.last_record;
  }
  if (now.id == 0) now.id = state.last_record = add_record(next);
  for (const Piece& piece : pieces) {
    touch(now, piece);
    if (piece.space == Space::kShared && piece.owner->block != warp.block) note_remote(now, piece);
  }
  if (now.overlaps && access.kind == AccessKind::kWrite) report_overlap(now, access, pieces);
  if (next.strong) synchronise(step, warp, access);
  return now.found;
}

}  // namespace tilewright::vgpu
