#include "jit/virtual_gpu/execute/runtime.h"

#include <fmt/format.h>

#include <array>
#include <bit>

#include "jit/virtual_gpu/check/checker.h"
#include "jit/virtual_gpu/execute/shared_count.h"
#include "jit/virtual_gpu/execute/worker.h"

namespace tilewright::vgpu {
namespace {

/// Of a valid address: host memory that kernels reach is where it says.
std::byte* global_host(std::uint64_t address, std::uintptr_t delta) {
  return reinterpret_cast<std::byte*>(address < kArenaBase ? address : address + delta);
}

const Site& site_of(const Step* step, const Warp& warp) { return warp.code->sites[step->site]; }

std::string_view name_of(Space space) {
  switch (space) {
    case Space::kGlobal:
      return "global";
    case Space::kShared:
      return "shared";
    case Space::kLocal:
      return "local";
    case Space::kConst:
      return "constant";
    case Space::kParam:
      return "parameter";
    default:
      return "generic";
  }
}

/// [address, address + bytes) within [base, base + size), without overflow.
bool within(std::uint64_t address, std::uint64_t bytes, std::uint64_t base, std::uint64_t size) {
  return address >= base && address - base <= size && bytes <= size - (address - base);
}

/// A shared address, which may have the rank of another block of the cluster where `cluster` says so.
Place shared_place(Warp& warp, std::uint64_t address, std::uint64_t bytes, bool cluster) {
  Block* block = warp.block;
  if (address > kRankOffsetMask && address <= 0xffffffffu && cluster) {
    auto rank = static_cast<std::size_t>(address >> kRankShift) - 1;
    if (rank >= block->cluster->blocks.size()) return {};
    block = &block->cluster->blocks[rank];
    address &= kRankOffsetMask;
  }
  return {block->at(address, bytes), block, static_cast<std::uint32_t>(address)};
}

std::byte* translate(const Step* step, Warp& warp, int lane, std::uint64_t address) {
  const Site& site = site_of(step, warp);
  const LaunchContext& context = warp.worker->context;
  Space space = site.space;
  if (space == Space::kGeneric) {
    auto window = [&](std::uint64_t base) { return within(address, 1, base, kWindowBytes); };
    if (window(kSharedWindow)) {
      space = Space::kShared;
      address -= kSharedWindow;
    } else if (window(kLocalWindow)) {
      space = Space::kLocal;
      address -= kLocalWindow;
    } else if (window(kParamWindow)) {
      space = Space::kParam;
      address -= kParamWindow;
    }
  }
  switch (space) {
    case Space::kShared:
      return shared_place(warp, address, site.bytes, site.cluster || site.space == Space::kGeneric)
          .host;
    case Space::kLocal: {
      auto size = static_cast<std::uint64_t>(warp.code->info.local_bytes);
      if (!within(address, site.bytes, kLocalBase, size)) return nullptr;
      return local_memory(warp, lane) + (address - kLocalBase);
    }
    case Space::kParam: {
      auto size = static_cast<std::uint64_t>(warp.code->info.parameter_bytes);
      if (site.store || !within(address, site.bytes, kParamBase, size)) return nullptr;
      return const_cast<std::byte*>(context.parameters) + address;
    }
    default:
      if (holding(*context.table, address, site.bytes) == nullptr) return nullptr;
      return global_host(address, context.global_delta);
  }
}

/// Element of an atomic that is to be aligned as such: a vector's elements are updated one by one.
std::uint64_t alignment_of(const Site& site) { return site.bytes; }

}  // namespace

bool resolve(const Step* step, Warp& warp, const std::uint64_t* addresses, std::uint32_t mask,
             std::byte** hosts) {
  const Site& site = site_of(step, warp);
  for (; mask != 0; mask &= mask - 1) {
    int lane = std::countr_zero(mask);
    std::uint64_t address = addresses[lane];
    auto what = [&] {
      return fmt::format("{} {} bytes of {} memory",
                         site.atomic  ? "atomic access to"
                         : site.store ? "write of"
                                      : "read of",
                         site.bytes, name_of(site.space));
    };
    if (address % alignment_of(site) != 0) {
      fault(step, warp, FaultKind::kMisaligned, lane, address, what().c_str());
      return false;
    }
    hosts[lane] = translate(step, warp, lane, address);
    if (hosts[lane] == nullptr) {
      fault(step, warp, FaultKind::kOutOfBounds, lane, address, what().c_str());
      return false;
    }
  }
  return true;
}

Place locate(const Step* step, Warp& warp, int lane, const Wanted& wanted) {
  Space space = wanted.space;
  std::uint64_t address = wanted.address;
  bool cluster = wanted.cluster;
  if (wanted.alignment > 1 && address % wanted.alignment != 0) {
    fault(step, warp, FaultKind::kMisaligned, lane, address, wanted.what);
    return {};
  }
  if (space == Space::kGeneric && within(address, 1, kSharedWindow, kWindowBytes)) {
    space = Space::kShared;
    address -= kSharedWindow;
    cluster = true;
  }
  Place place;
  if (space == Space::kShared) {
    place = shared_place(warp, address, wanted.bytes, cluster);
  } else if (holding(*warp.worker->context.table, address, wanted.bytes) != nullptr) {
    place.host = global_host(address, warp.global_delta);
  }
  if (place.host == nullptr)
    fault(step, warp, FaultKind::kOutOfBounds, lane, wanted.address, wanted.what);
  return place;
}

bool refill(const Step* step, Warp& warp, std::uint64_t first, std::uint64_t last) {
  if (first < kArenaBase) return false;  // host memory is looked up each time
  const Allocation* found = holding(*warp.worker->context.table, first, 1);
  if (found == nullptr || last >= found->end || site_of(step, warp).bytes > found->end - last)
    return false;
  warp.ranges[step->site] = {found->begin, found->end};
  return true;
}

const Step* fault(const Step* step, Warp& warp, FaultKind kind, int lane, std::uint64_t address,
                  const char* what) {
  Worker& worker = *warp.worker;
  warp.status = WarpStatus::kFaulted;
  if (worker.fault) return nullptr;
  Fault fault;
  fault.kind = kind;
  fault.kernel = warp.code->info.name;
  auto index = static_cast<std::size_t>(step - warp.code->steps.data());
  fault.ptx_line = warp.code->lines[index];
  fault.block = warp.block->index;
  const auto& shape = worker.context.launch->block;
  auto thread = static_cast<unsigned>(warp.index * kLanes + lane);
  fault.thread = {thread % shape[0], thread / shape[0] % shape[1], thread / shape[0] / shape[1]};
  fault.address = address;
  fault.report = describe(fault, *warp.code, step, what, *worker.context.table);
  if (worker.context.checker != nullptr) worker.context.checker->faulted(fault);
  worker.fault = std::move(fault);
  return nullptr;
}

std::string describe(const Fault& fault, const Code& code, const Step* step, std::string_view what,
                     const AllocationTable& table) {
  std::string_view kind = "";
  bool addressed = false, global = false;
  switch (fault.kind) {
    case FaultKind::kOutOfBounds:
      kind = "out-of-bounds ";
      addressed = true;
      break;
    case FaultKind::kMisaligned:
      kind = "misaligned ";
      addressed = true;
      break;
    case FaultKind::kIllegalInstruction:
      kind = "illegal instruction: ";
      break;
    case FaultKind::kTimeout:
      kind = "timeout: ";
      break;
    case FaultKind::kBarrier:
      kind = "barrier: ";
      break;
    case FaultKind::kTrap:
      break;
  }
  std::string report = fmt::format("kernel {}: {}{}", fault.kernel, kind, what);
  if (addressed) report += fmt::format(" at {:#x}", fault.address);
  if (step != nullptr) {
    auto index = static_cast<std::size_t>(step - code.steps.data());
    report += fmt::format("\n  ptx line {}: {}", code.lines[index], code.texts[index]);
    if (const Site* site = &code.sites.data()[step->site]; addressed && !code.sites.empty())
      global = site->space == Space::kGlobal || site->space == Space::kGeneric ||
               site->space == Space::kConst;
  }
  report +=
      fmt::format("\n  block ({}, {}, {}), thread ({}, {}, {})", fault.block[0], fault.block[1],
                  fault.block[2], fault.thread[0], fault.thread[1], fault.thread[2]);
  if (fault.kind != FaultKind::kOutOfBounds || !global) return report;
  const Allocation* near = nearest(table, fault.address);
  if (near == nullptr) return report + "\n  nothing is allocated";
  std::string where;
  if (fault.address >= near->end)
    where = fmt::format("{} bytes past the end", fault.address - near->end);
  else if (fault.address < near->begin)
    where = fmt::format("{} bytes before the beginning", near->begin - fault.address);
  else
    where = fmt::format("{} bytes before the end", near->end - fault.address);
  report += fmt::format("\n  {} of the nearest allocation, {} bytes at {:#x}", where,
                        near->end - near->begin, near->begin);
  return report;
}

// Counters -----------------------------------------------------------------------------------------

namespace {

/// Wavefronts of one request: in each phase as many as the busiest of the 32 banks has different
/// words. Accesses of 8 and 16 bytes go in two and four phases; since they are aligned, banks can
/// be taken in groups of as many bytes.
void count_wavefronts(const std::uint64_t* addresses, std::uint32_t mask, int bytes,
                      Counters& counters) {
  int unit = std::max(bytes, 4), phases = unit / 4, lanes = kLanes / phases, groups = 128 / unit;
  auto shift = static_cast<unsigned>(std::countr_zero(static_cast<unsigned>(unit)));
  std::uint64_t total = 0, needed = 0;
  for (int phase = 0; phase < phases; ++phase) {
    std::uint64_t seen[32][kLanes];
    std::uint8_t count[32] = {};
    std::uint8_t most = 0;
    for (int i = phase * lanes; i < (phase + 1) * lanes; ++i) {
      if ((mask >> i & 1) == 0) continue;
      std::uint64_t word = addresses[i] >> shift;
      auto group = static_cast<unsigned>(word) & static_cast<unsigned>(groups - 1);
      bool known = false;
      for (int k = 0; k < count[group] && !known; ++k) known = seen[group][k] == word;
      if (known) continue;
      seen[group][count[group]++] = word;
      most = std::max(most, count[group]);
    }
    total += most;
    needed += most > 0;
  }
  counters.shared_wavefronts += std::max<std::uint64_t>(total, 1);
  counters.shared_conflicts += total - needed;
}

/// Calls f with each different sector of the request once.
template <class F>
void for_sectors(const std::uint64_t* addresses, std::uint32_t mask, int bytes, F&& f) {
  std::array<std::uint64_t, kLanes * 4> seen{};
  int count = 0;
  for (; mask != 0; mask &= mask - 1) {
    std::uint64_t address = addresses[std::countr_zero(mask)];
    for (std::uint64_t sector = address / 32;
         sector <= (address + static_cast<unsigned>(bytes) - 1) / 32; ++sector) {
      bool known = false;
      for (int j = count; j-- > 0 && !known;) known = seen[static_cast<std::size_t>(j)] == sector;
      if (known || count == static_cast<int>(seen.size())) continue;
      seen[static_cast<std::size_t>(count++)] = sector;
      f(sector * 32);
    }
  }
}

}  // namespace

void count_request(const Step* step, Warp& warp, const std::uint64_t* addresses,
                   std::uint32_t mask) {
  if (mask == 0) return;
  const Site& site = site_of(step, warp);
  Worker& worker = *warp.worker;
  Counters& counters = worker.counters;
  if (site.atomic) ++counters.atomics;
  Space space = site.space;
  std::uint64_t base = 0;
  std::uint64_t first = addresses[std::countr_zero(mask)];
  if (space == Space::kGeneric) {
    if (within(first, 1, kSharedWindow, kWindowBytes)) {
      space = Space::kShared;
      base = kSharedWindow;
    } else if (within(first, 1, kLocalWindow, kWindowBytes)) {
      space = Space::kLocal;
    } else if (within(first, 1, kParamWindow, kWindowBytes)) {
      space = Space::kParam;
    }
  }
  switch (space) {
    case Space::kShared: {
      std::uint64_t offsets[kLanes];
      for (int i = 0; i < kLanes; ++i) offsets[i] = addresses[i] - base;
      ++counters.shared_requests;
      count_wavefronts(offsets, mask, site.bytes, counters);
      return;
    }
    case Space::kLocal:
      ++counters.local_requests;
      return;
    case Space::kParam:
      return;
    default:
      break;
  }
  auto bytes = static_cast<std::uint64_t>(std::popcount(mask)) * site.bytes;
  bool store = site.store;
  (store ? counters.global_stores : counters.global_loads) += 1;
  (store ? counters.global_store_bytes : counters.global_load_bytes) += bytes;
  auto& sectors = store ? counters.global_store_sectors : counters.global_load_sectors;
  auto& distinct = store ? worker.store_sectors : worker.load_sectors;
  for_sectors(addresses, mask, site.bytes, [&](std::uint64_t address) {
    ++sectors;
    // Addresses that are not valid fault a moment later; they must not make bitmaps.
    distinct.add(address);
  });
}

void count_shared_writes(Warp& warp, const std::uint64_t* addresses, std::uint32_t mask,
                         int bytes) {
  if (mask != 0) count_wavefronts(addresses, mask, bytes, warp.worker->counters);
}

void count_shared_lines(Warp& warp, std::uint64_t bytes) {
  constexpr std::uint64_t kLine = 128;  // of 32 banks
  warp.worker->counters.shared_wavefronts += (bytes + kLine - 1) / kLine;
}

void count_range(Warp& warp, std::uint64_t address, std::uint64_t bytes, bool store) {
  Worker& worker = *warp.worker;
  Counters& counters = worker.counters;
  (store ? counters.global_stores : counters.global_loads) += 1;
  (store ? counters.global_store_bytes : counters.global_load_bytes) += bytes;
  auto& sectors = store ? counters.global_store_sectors : counters.global_load_sectors;
  auto& distinct = store ? worker.store_sectors : worker.load_sectors;
  for (std::uint64_t sector = address / 32; sector * 32 < address + bytes; ++sector) {
    ++sectors;
    distinct.add(sector * 32);
  }
}

}  // namespace tilewright::vgpu
