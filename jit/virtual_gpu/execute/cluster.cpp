#include "jit/virtual_gpu/execute/cluster.h"

#include <algorithm>
#include <cstring>

#include "jit/virtual_gpu/check/checker.h"
#include "jit/virtual_gpu/execute/special.h"
#include "jit/virtual_gpu/execute/worker.h"

namespace tilewright::vgpu {
namespace {

/// NaN in every float type, -1 in every integer type: what uninitialised shared memory holds.
constexpr int kPoison = 0xff;

constexpr std::size_t kAlign = 64;
/// Shared address 0 has host address 0 modulo this: swizzles and alignments are those of hardware.
constexpr std::size_t kSharedAlign = 1024;
static_assert(kSharedBase % kSharedAlign == 0);

std::byte* aligned(std::byte* p, std::size_t to) {
  return reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(p) + to - 1) / to * to);
}

}  // namespace

std::byte* Block::at(std::uint64_t address, std::uint64_t bytes) const {
  if (address < kSharedBase || address - kSharedBase > shared_bytes ||
      bytes > shared_bytes - (address - kSharedBase))
    return nullptr;
  return shared + (address - kSharedBase);
}

Cluster::Cluster(Worker& its_worker, const LaunchContext& launch_context)
    : worker(its_worker),
      context(launch_context),
      blocks(context.cluster[0] * context.cluster[1] * context.cluster[2]) {
  for (const auto& place : context.code->specials)
    if (changes_by_cluster(place.special)) changing_.push_back(place);
  const auto& shape = context.cluster;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    auto rank = static_cast<unsigned>(i);
    blocks[i].rank = rank;
    blocks[i].index = {rank % shape[0], rank / shape[0] % shape[1], rank / shape[0] / shape[1]};
    blocks[i].cluster = this;
    prepare(blocks[i]);
  }
}

void Cluster::prepare(Block& block) {
  const Code& code = *context.code;
  const Launch& launch = *context.launch;
  unsigned threads = launch.block[0] * launch.block[1] * launch.block[2];
  block.warps.resize((threads + kLanes - 1) / kLanes);

  std::size_t stride = (code.register_bytes + kAlign - 1) / kAlign * kAlign;
  // Consecutive files begin in different cache sets.
  if (stride % 4096 == 0) stride += kAlign;
  block.register_storage = std::make_unique<std::byte[]>(stride * block.warps.size() + kAlign);
  // Without dynamic shared memory, what aligns it is not valid either.
  int static_bytes = launch.dynamic_shared_bytes == 0
                         ? code.info.static_shared_bytes
                         : code.dynamic_shared_offset - static_cast<int>(kSharedBase);
  block.shared_bytes = static_cast<std::uint32_t>(static_bytes) + launch.dynamic_shared_bytes;
  block.shared_storage = std::make_unique<std::byte[]>(block.shared_bytes + 2 * kSharedAlign);
  block.shared = aligned(block.shared_storage.get(), kSharedAlign);

  for (std::size_t i = 0; i < block.warps.size(); ++i) {
    Warp& warp = block.warps[i];
    warp.registers = aligned(block.register_storage.get(), kAlign) + stride * i;
    warp.counting = launch.count;
    warp.accumulation = launch.accumulation;
    warp.block_counts = worker.block_counts.data();
    warp.worker = &worker;
    warp.block = &block;
    warp.code = &code;
    warp.index = static_cast<int>(i);
    // As an integer: the address of shared address 0 lies before the buffer.
    warp.shared =
        reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(block.shared) - kSharedBase);
    warp.shared_end = kSharedBase + block.shared_bytes;
    warp.global_delta = context.global_delta;
    warp.ranges = worker.ranges.data();
    warp.parameters = context.parameters;
    for (const auto& constant : code.constants)
      fill_place(warp.registers, constant.offset, constant.bytes, constant.bits);
    for (const auto& place : code.specials) set_special(place, context, *this, block, warp);
  }
}

void Cluster::begin(std::array<unsigned, 3> new_index, std::uint64_t new_position,
                    std::uint64_t seed) {
  const Code& code = *context.code;
  const Launch& launch = *context.launch;
  unsigned threads = launch.block[0] * launch.block[1] * launch.block[2];
  const auto& shape = context.cluster;
  index = new_index;
  position = new_position;
  random = Random(seed);
  alive = 0;
  barrier_used = false;
  stalls = polls = 0;
  for (Block& block : blocks) {
    unsigned rank = block.rank;
    block.index = {index[0] * shape[0] + rank % shape[0],
                   index[1] * shape[1] + rank / shape[0] % shape[1],
                   index[2] * shape[2] + rank / shape[0] / shape[1]};
    block.alive = static_cast<int>(block.warps.size());
    alive += block.alive;
    bool any_used = false;
    for (auto& barrier : block.barriers) any_used |= barrier.used;
    if (any_used) block.barriers = {};
    if (block.shared_bytes != 0) std::memset(block.shared, kPoison, block.shared_bytes);
    for (Warp& warp : block.warps) {
      unsigned first = static_cast<unsigned>(warp.index) * kLanes;
      unsigned here = std::min<unsigned>(kLanes, threads - first);
      warp.live = here == kLanes ? kAllLanes : (1u << here) - 1;
      warp.status = WarpStatus::kReady;
      warp.carry = 0;
      warp.yields = 0;
      warp.mbarrier_waits = 0;
      warp.wgmma_groups = 0;
      warp.polled = warp.slept = warp.gave_up = false;
      std::fill(std::begin(warp.seen), std::end(warp.seen), 0);
      warp.cluster_arrived = warp.cluster_outstanding = 0;
      if (warp.used != 0)  // it did not end
        for (Split& split : used_splits(warp)) split = Split{};
      warp.used = warp.top = 1;
      warp.splits[0] = Split{};
      warp.splits[0].state = Split::State::kReady;
      warp.splits[0].mask = warp.live;
      warp.splits[0].pc = code.steps.data();
      warp.current = 0;
      for (const auto& place : changing_) set_special(place, context, *this, block, warp);
      for (const auto& place : code.undefined)
        fill_place(warp.registers, place.offset, place.bytes, 0);
    }
  }
  if (context.checker != nullptr) context.checker->cluster_begin(*this);
}

std::byte* local_memory(Warp& warp, int lane) {
  Block& block = *warp.block;
  auto bytes = (static_cast<std::size_t>(warp.code->info.local_bytes) + 63) / 64 * 64;
  if (block.local_storage == nullptr)
    block.local_storage =
        std::make_unique<std::byte[]>(bytes * block.warps.size() * kLanes + kAlign);
  return aligned(block.local_storage.get(), kAlign) +
         bytes * static_cast<std::size_t>(warp.index * kLanes + lane);
}

}  // namespace tilewright::vgpu
