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
  check_visible(operation);
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
    now.readers = {};
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

void RaceChecker::tensor_fence(Warp& warp) {
  WarpRegisters& registers = state_of(warp).registers;
  ++registers.fences;
  registers.fenced = true;
}

void RaceChecker::tensor_commit(Warp& warp) {
  WarpState& state = state_of(warp);
  ++state.registers.committed;
  state.registers.fenced = false;
  state.tensor_groups.push_back(std::move(state.tensor_open));
  state.tensor_open.clear();
}

void RaceChecker::tensor_wait(Warp& warp, std::size_t left) {
  WarpState& state = state_of(warp);
  Clock& known = state.knowledge.clock;
  WarpRegisters& registers = state.registers;
  if (registers.committed > left)
    registers.complete =
        std::max(registers.complete, registers.committed - static_cast<std::uint32_t>(left));
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

}  // namespace tilewright::vgpu
