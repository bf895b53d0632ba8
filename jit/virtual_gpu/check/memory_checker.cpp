#include "jit/virtual_gpu/check/memory_checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "jit/virtual_gpu/check/footprint.h"
#include "jit/virtual_gpu/check/shadow.h"

namespace tilewright::vgpu {

std::string_view space_name(Space space) {
  return space == Space::kShared ? "shared" : space == Space::kLocal ? "local" : "global";
}

void MemoryChecker::launch_begin(const LaunchContext&) {
  arena_.track();
  arena_.settle();
}

void MemoryChecker::launch_end(std::vector<Report>* to) {
  for (Report& report : reporter_.take()) to->push_back(std::move(report));
}

void MemoryChecker::cluster_begin(Cluster& cluster) {
  for (Block& block : cluster.blocks) {
    if (spare_.empty()) spare_.push_back(make_block());
    used_.push_back(std::move(spare_.back()));
    spare_.pop_back();
    BlockMemory& memory = *used_.back();
    memory.block = &block;
    memory.written.assign(block.shared_bytes / 64 + 2, 0);
    memory.local_written.clear();
    block.checked = &memory;
  }
}

void MemoryChecker::cluster_end(Cluster& cluster) {
  for (Block& block : cluster.blocks) {
    for (auto& used : used_) {
      if (used.get() != block.checked) continue;
      spare_.push_back(std::move(used));
      used = std::move(used_.back());
      used_.pop_back();
      break;
    }
    block.checked = nullptr;
  }
}

bool MemoryChecker::find(Warp& warp, const std::byte* host, std::uint32_t bytes, int lane,
                         Piece* piece) const {
  auto address = reinterpret_cast<std::uintptr_t>(host) - context_.global_delta;
  bool global = address >= last_.begin && address < last_.end && bytes <= last_.end - address;
  if (!global && address >= kArenaBase) {
    const Allocation* found = holding(*context_.table, address, bytes);
    global = found != nullptr;
    if (global) last_ = *found;
  }
  if (global) {
    *piece = {Space::kGlobal, nullptr, address, bytes, lane};
    return true;
  }
  // Host memory that kernels reach has one address for both.
  const auto own = reinterpret_cast<std::uintptr_t>(host);
  if (!context_.table->empty() && own >= context_.table->front().begin &&
      holding(*context_.table, own, bytes) != nullptr) {
    *piece = {Space::kGlobal, nullptr, own, bytes, lane};
    return true;
  }
  for (Block& block : warp.block->cluster->blocks) {
    if (host < block.shared || host >= block.shared + block.shared_bytes) continue;
    *piece = {Space::kShared, static_cast<BlockMemory*>(block.checked),
              static_cast<std::uint64_t>(host - block.shared), bytes, lane};
    return true;
  }
  if (warp.code->info.local_bytes != 0 && warp.block->local_storage != nullptr) {
    std::byte* first = local_memory(warp.block->warps[0], 0);
    std::byte* end = local_memory(warp.block->warps.back(), kLanes - 1) +
                     (static_cast<std::size_t>(warp.code->info.local_bytes) + 63) / 64 * 64;
    if (host >= first && host < end) {
      *piece = {Space::kLocal, static_cast<BlockMemory*>(warp.block->checked),
                static_cast<std::uint64_t>(host - first), bytes, lane};
      return true;
    }
  }
  return false;
}

void MemoryChecker::split(Warp& warp, const Access& access) {
  pieces_.clear();
  if (access.hosts == nullptr) return split_simple(warp, access);
  Piece next;
  for (std::uint32_t mask = access.mask; mask != 0; mask &= mask - 1) {
    int lane = std::countr_zero(mask);
    if (!find(warp, access.hosts[lane], access.bytes, lane, &next)) continue;
    if (!pieces_.empty() && pieces_.back().owner == next.owner &&
        pieces_.back().space == next.space && pieces_.back().at + pieces_.back().bytes == next.at)
      pieces_.back().bytes += next.bytes;
    else
      pieces_.push_back(next);
  }
}

void MemoryChecker::split_simple(Warp& warp, const Access& access) {
  const bool shared = access.space == Space::kShared, reads = access.kind == AccessKind::kRead;
  const std::uint64_t base = shared ? kSharedBase : 0;
  const std::uint32_t bytes = access.bytes;
  int first = std::countr_zero(access.mask);
  std::uint64_t begin = access.addresses[first], end = begin + bytes;
  auto add = [&] {
    pieces_.push_back({shared ? Space::kShared : Space::kGlobal,
                       shared ? static_cast<BlockMemory*>(warp.block->checked) : nullptr,
                       begin - base, static_cast<std::uint32_t>(end - begin), first});
  };
  for (std::uint32_t mask = access.mask & (access.mask - 1); mask != 0; mask &= mask - 1) {
    int lane = std::countr_zero(mask);
    std::uint64_t at = access.addresses[lane];
    if (at == end) {
      end += bytes;
      continue;
    }
    // A broadcast; a second write to the same bytes is looked at by itself.
    if (reads && at >= begin && at + bytes <= end) continue;
    add();
    first = lane;
    begin = at;
    end = at + bytes;
  }
  add();
}

std::uint64_t* MemoryChecker::bits_of(const Piece& piece, std::uint64_t* at) {
  *at = piece.at;
  if (piece.space == Space::kGlobal) {
    if (piece.at < kArenaBase) return nullptr;  // the host may have written it
    *at -= kArenaBase;
    return arena_.written();
  }
  if (piece.space == Space::kShared) return piece.owner->written.data();
  auto& bits = piece.owner->local_written;
  if (bits.empty()) {
    Block& block = *piece.owner->block;
    std::size_t each = (static_cast<std::size_t>(context_.code->info.local_bytes) + 63) / 64 * 64;
    bits.assign(each * block.warps.size() * kLanes / 64 + 2, 0);
  }
  return bits.data();
}

Spot MemoryChecker::spot_of(const Piece& piece, std::uint64_t at, std::uint64_t bytes) const {
  Spot spot{piece.space, at, bytes, {}};
  if (piece.owner != nullptr) spot.block = piece.owner->block->index;
  if (piece.space == Space::kShared) spot.address += kSharedBase;
  if (piece.space == Space::kLocal) {
    std::size_t each = (static_cast<std::size_t>(context_.code->info.local_bytes) + 63) / 64 * 64;
    spot.address = spot.address % each + kLocalBase;
  }
  return spot;
}

int MemoryChecker::lane_of(Warp& warp, const Access& access, const Piece& piece,
                           std::uint64_t at) const {
  std::uint64_t base = piece.space == Space::kShared ? kSharedBase : 0;
  for (std::uint32_t mask = access.addresses == nullptr ? 0 : access.mask; mask != 0;
       mask &= mask - 1) {
    int lane = std::countr_zero(mask);
    Piece one;
    one.at = access.addresses[lane] - base;
    if (access.hosts != nullptr && !find(warp, access.hosts[lane], access.bytes, lane, &one))
      continue;
    if (at >= one.at && at < one.at + access.bytes) return lane;
  }
  return piece.lane;
}

void MemoryChecker::report_unwritten(const Step* step, Warp& warp, const Access& access,
                                     const Piece& piece) {
  constexpr std::string_view kCheck = "uninitialised-read";
  int index = reporter_.index_of(step);
  if (reporter_.known(kCheck, index, -1)) return;
  std::uint64_t at = 0;
  const std::uint64_t* bits = bits_of(piece, &at);
  std::uint64_t first = 0;
  while (first < piece.bytes && all_bits(bits, at + first, 1)) ++first;
  Finding finding;
  finding.check = kCheck;
  finding.step = index;
  finding.block = warp.block->index;
  finding.thread = reporter_.thread_of(warp, lane_of(warp, access, piece, piece.at + first));
  finding.spot = spot_of(piece, piece.at + first, access.bytes);
  finding.what = fmt::format("{} of {} bytes of {} memory that nobody has written",
                             access.kind == AccessKind::kAtomic ? "atomic access" : "read",
                             access.bytes, space_name(piece.space));
  reporter_.add(finding);
}

void MemoryChecker::access(const Step* step, Warp& warp, const Access& access) {
  split(warp, access);
  note_footprint(access);
  bool found = precheck(step, warp, access, pieces_);
  if (access.kind != AccessKind::kWrite && !found) check_written(step, warp, access);
  if (access.kind == AccessKind::kRead) return;
  for (const Piece& piece : pieces_) {
    std::uint64_t at = 0;
    if (std::uint64_t* bits = bits_of(piece, &at)) set_bits(bits, at, piece.bytes, true);
  }
}

void MemoryChecker::split(Warp& warp, const std::vector<std::uint32_t>& lines,
                          std::uint32_t bytes) {
  pieces_.clear();
  lines_ = lines;
  std::sort(lines_.begin(), lines_.end());
  for (std::uint32_t line : lines_) {
    std::uint64_t at = line - kSharedBase;
    if (!pieces_.empty() && at <= pieces_.back().at + pieces_.back().bytes)
      pieces_.back().bytes = static_cast<std::uint32_t>(at + bytes - pieces_.back().at);
    else
      pieces_.push_back(
          {Space::kShared, static_cast<BlockMemory*>(warp.block->checked), at, bytes, 0});
  }
}

bool MemoryChecker::check_written(const Step* step, Warp& warp, const Access& access) {
  for (const Piece& piece : pieces_) {
    std::uint64_t at = 0;
    const std::uint64_t* bits = bits_of(piece, &at);
    if (bits == nullptr || all_bits(bits, at, piece.bytes)) continue;
    report_unwritten(step, warp, access, piece);
    return true;
  }
  return false;
}

void MemoryChecker::tensor_read(const Step* step, Warp& warp,
                                const std::vector<std::uint32_t>& lines, std::uint32_t bytes) {
  split(warp, lines, bytes);
  Access access;
  access.bytes = bytes;
  access.space = Space::kShared;
  check_written(step, warp, access);
}

void MemoryChecker::note_footprint(const Access& access) {
  Footprint* footprint = arena_.shadow == nullptr ? nullptr : arena_.shadow->footprint;
  if (footprint == nullptr) return;
  using Kind = Footprint::Kind;
  const bool strong = access.kind == AccessKind::kAtomic || access.order != Order::kWeak;
  const Kind kind = access.kind == AccessKind::kRead ? strong ? Kind::kStrongRead : Kind::kRead
                    : strong                         ? Kind::kStrongWrite
                                                     : Kind::kWrite;
  for (const Piece& piece : pieces_)
    if (piece.space == Space::kGlobal) footprint->add(kind, piece.at, piece.bytes);
}

void MemoryChecker::note_footprint(const AsyncOperation& operation) {
  Footprint* footprint = arena_.shadow == nullptr ? nullptr : arena_.shadow->footprint;
  if (footprint == nullptr) return;
  using Kind = Footprint::Kind;
  for (const AsyncChunk& chunk : operation.chunks) {
    Piece piece;
    if (chunk.from != nullptr && operation.from != Space::kRegister &&
        find(*operation.warp, chunk.from, chunk.bytes, operation.lane, &piece) &&
        piece.space == Space::kGlobal)
      footprint->add(Kind::kRead, piece.at, chunk.bytes);
    if (find(*operation.warp, chunk.to, chunk.bytes, operation.lane, &piece) &&
        piece.space == Space::kGlobal)
      footprint->add(operation.reduces ? Kind::kStrongWrite : Kind::kWrite, piece.at, chunk.bytes);
  }
}

void MemoryChecker::async_land(const AsyncOperation& operation) {
  note_footprint(operation);
  for (const AsyncChunk& chunk : operation.chunks) {
    Piece to, from;
    if (!find(*operation.warp, chunk.to, chunk.bytes, operation.lane, &to)) continue;
    std::uint64_t to_at = 0, from_at = 0;
    std::uint64_t* bits = bits_of(to, &to_at);
    if (bits == nullptr) continue;
    // Copies of what was not written are not written either; its reader is told.
    bool memory = chunk.from != nullptr && !operation.source_read && !operation.reduces &&
                  find(*operation.warp, chunk.from, chunk.bytes, operation.lane, &from);
    if (const std::uint64_t* source = memory ? bits_of(from, &from_at) : nullptr)
      copy_bits(bits, to_at, source, from_at, chunk.bytes);
    else
      set_bits(bits, to_at, chunk.bytes, true);
  }
}

void MemoryChecker::mbarrier(const Step*, Warp&, const MbarrierUse& use) {
  if (use.event != MbarrierEvent::kInit) return;
  auto* memory = static_cast<BlockMemory*>(use.place.block->checked);
  set_bits(memory->written.data(), use.place.address - kSharedBase, 8, true);
}

}  // namespace tilewright::vgpu
