#include "jit/virtual_gpu/execute/worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

#include "jit/virtual_gpu/execute/runtime.h"

namespace tilewright::vgpu {
namespace {

/// Basic blocks that a warp executes before others get a turn and the deadline is looked at.
constexpr std::int32_t kBudget = 4096;
/// After so many turns without an end, lanes that wait for others of their warp go on without them:
/// these may be spinning until they do.
constexpr std::uint32_t kPatience = 4;
/// NaN in every float type, -1 in every integer type: what uninitialised shared memory holds.
constexpr int kPoison = 0xff;

constexpr std::size_t kAlign = 64;
std::byte* aligned(std::byte* p) {
  return reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(p) + kAlign - 1) / kAlign *
                                      kAlign);
}

void fill(std::byte* registers, std::uint32_t offset, std::uint32_t bytes, std::uint64_t value) {
  std::byte* at = registers + offset;
  auto repeat = [&](auto typed) {
    for (int i = 0; i < kLanes; ++i)
      std::memcpy(at + static_cast<std::size_t>(i) * sizeof typed, &typed, sizeof typed);
  };
  switch (bytes) {
    case 0: {
      auto mask = static_cast<std::uint32_t>(value);
      std::memcpy(at, &mask, 4);
      return;
    }
    case 2:
      return repeat(static_cast<std::uint16_t>(value));
    case 4:
      return repeat(static_cast<std::uint32_t>(value));
    default:
      return repeat(value);
  }
}

bool changes_by_block(Special special) {
  return special == Special::kCtaidX || special == Special::kCtaidY || special == Special::kCtaidZ;
}

std::uint64_t value_of(Special special, const LaunchContext& context, const Warp& warp, int lane,
                       const std::array<unsigned, 3>& block) {
  const Launch& launch = *context.launch;
  auto thread = static_cast<unsigned>(warp.index * kLanes + lane);
  unsigned threads = launch.block[0] * launch.block[1] * launch.block[2];
  std::uint32_t bit = 1u << lane;
  switch (special) {
    case Special::kTidX:
      return thread % launch.block[0];
    case Special::kTidY:
      return thread / launch.block[0] % launch.block[1];
    case Special::kTidZ:
      return thread / launch.block[0] / launch.block[1];
    case Special::kNtidX:
      return launch.block[0];
    case Special::kNtidY:
      return launch.block[1];
    case Special::kNtidZ:
      return launch.block[2];
    case Special::kCtaidX:
      return block[0];
    case Special::kCtaidY:
      return block[1];
    case Special::kCtaidZ:
      return block[2];
    case Special::kNctaidX:
      return launch.grid[0];
    case Special::kNctaidY:
      return launch.grid[1];
    case Special::kNctaidZ:
      return launch.grid[2];
    case Special::kLaneId:
      return static_cast<std::uint64_t>(lane);
    case Special::kWarpId:
      return static_cast<std::uint64_t>(warp.index);
    case Special::kNwarpId:
      return (threads + kLanes - 1) / kLanes;
    case Special::kLanemaskEq:
      return bit;
    case Special::kLanemaskLt:
      return bit - 1;
    case Special::kLanemaskLe:
      return bit | (bit - 1);
    case Special::kLanemaskGt:
      return ~(bit | (bit - 1));
    case Special::kLanemaskGe:
      return ~(bit - 1);
    case Special::kDynamicSmemSize:
      return launch.dynamic_shared_bytes;
    case Special::kTotalSmemSize:
      return static_cast<std::uint64_t>(context.code->dynamic_shared_offset) +
             launch.dynamic_shared_bytes;
    case Special::kOne:
      return 1;
    case Special::kZero:
    case Special::kGridId:
      return 0;
  }
  return 0;
}

void set_special(const SpecialPlace& place, const LaunchContext& context, Warp& warp,
                 const std::array<unsigned, 3>& block) {
  for (int i = 0; i < kLanes; ++i) {
    std::uint64_t value = value_of(place.special, context, warp, i, block);
    std::memcpy(warp.registers + place.offset + static_cast<std::size_t>(i) * place.bytes, &value,
                place.bytes);
  }
}

}  // namespace

Worker::Worker(const LaunchContext& launch_context) : context(launch_context) { prepare_once(); }

void Worker::prepare_once() {
  const Code& code = *context.code;
  const Launch& launch = *context.launch;
  unsigned threads = launch.block[0] * launch.block[1] * launch.block[2];
  block.warps = static_cast<int>((threads + kLanes - 1) / kLanes);
  auto count = static_cast<std::size_t>(block.warps);
  block_counts.assign(code.blocks.size(), 0);
  ranges_.assign(code.sites.size() + 1, Range{});
  block.copies.resize(count);
  warps.resize(count);

  std::size_t stride = (code.register_bytes + kAlign - 1) / kAlign * kAlign;
  // Consecutive files begin in different cache sets.
  if (stride % 4096 == 0) stride += kAlign;
  register_storage_ = std::make_unique<std::byte[]>(stride * count + kAlign);
  shared_bytes_ = static_cast<std::size_t>(code.dynamic_shared_offset - kSharedBase) +
                  launch.dynamic_shared_bytes;
  shared_storage_ = std::make_unique<std::byte[]>(shared_bytes_ + 2048);
  std::byte* shared = aligned(shared_storage_.get());
  shared =
      reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(shared) + 1023) / 1024 * 1024);

  for (const auto& place : code.specials)
    if (changes_by_block(place.special)) block_specials_.push_back(place);
  for (int i = 0; i < block.warps; ++i) {
    Warp& warp = warps[static_cast<std::size_t>(i)];
    warp.registers = aligned(register_storage_.get()) + stride * static_cast<std::size_t>(i);
    warp.counting = launch.count;
    warp.block_counts = block_counts.data();
    warp.worker = this;
    warp.block = &block;
    warp.code = &code;
    warp.index = i;
    // As an integer: the address of shared address 0 lies before the buffer.
    warp.shared =
        reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(shared) - kSharedBase);
    warp.shared_end = kSharedBase + static_cast<std::uint32_t>(shared_bytes_);
    warp.global_delta = context.global_delta;
    warp.ranges = ranges_.data();
    warp.parameters = context.parameters;
    for (const auto& constant : code.constants)
      fill(warp.registers, constant.offset, constant.bytes, constant.bits);
    for (const auto& place : code.specials) {
      if (place.bytes == 0)
        fill(warp.registers, place.offset, 0, place.special == Special::kOne ? kAllLanes : 0);
      else
        set_special(place, context, warp, {});
    }
  }
}

void Worker::prepare_block(std::array<unsigned, 3> index) {
  const Code& code = *context.code;
  const Launch& launch = *context.launch;
  block.index = index;
  bool any_used = false;
  for (auto& barrier : block.barriers) any_used |= barrier.used;
  if (any_used) block.barriers = {};
  if (shared_bytes_ != 0)
    std::memset(reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(warps[0].shared) +
                                             kSharedBase),
                kPoison, shared_bytes_);
  unsigned threads = launch.block[0] * launch.block[1] * launch.block[2];
  for (int i = 0; i < block.warps; ++i) {
    Warp& warp = warps[static_cast<std::size_t>(i)];
    unsigned here = std::min<unsigned>(kLanes, threads - static_cast<unsigned>(i) * kLanes);
    warp.live = here == kLanes ? kAllLanes : (1u << here) - 1;
    warp.status = WarpStatus::kReady;
    warp.carry = 0;
    warp.yields = 0;
    warp.used = 1;
    warp.splits[0] = Split{};
    warp.splits[0].state = Split::State::kReady;
    warp.splits[0].mask = warp.live;
    warp.splits[0].pc = code.steps.data();
    warp.current = 0;
    for (const auto& place : block_specials_)
      fill(warp.registers, place.offset, place.bytes,
           value_of(place.special, context, warp, 0, index));
    for (const auto& place : code.undefined) fill(warp.registers, place.offset, place.bytes, 0);
    auto& copies = block.copies[static_cast<std::size_t>(i)];
    if (!copies.copies.empty() || !copies.groups.empty()) copies = CopyQueue{};
  }
}

void Worker::run(std::array<unsigned, 3> index) {
  prepare_block(index);
  schedule();
}

void Worker::schedule() {
  int alive = block.warps;
  bool progressed = true;
  for (int i = 0; alive > 0; i = i + 1 == block.warps ? 0 : i + 1) {
    if (i == 0) {
      if (!progressed) return deadlock();
      progressed = false;
    }
    Warp& warp = warps[static_cast<std::size_t>(i)];
    if (warp.status == WarpStatus::kDone || warp.status == WarpStatus::kBlocked) continue;
    progressed = true;
    // Splits take turns, too: one of them may spin until another has done its part.
    constexpr int kSplits = static_cast<int>(std::size(Warp{}.splits));
    int next = -1, from = std::max<int>(warp.current, 0);
    if (warp.status == WarpStatus::kYielded) ++from;
    for (int k = 0; k < kSplits && next < 0; ++k)
      if (warp.splits[(from + k) % kSplits].state == Split::State::kReady)
        next = (from + k) % kSplits;
    warp.budget = kBudget;
    const Step* step = activate(warp, next);
    std::byte* registers = warp.registers;
    while (step != nullptr) step = step->run(step, registers, warp);
    if (warp.status == WarpStatus::kFaulted) return;
    if (warp.status == WarpStatus::kDone) --alive;
    if (warp.status != WarpStatus::kYielded) continue;
    if (++warp.yields % kPatience == 0) let_joins_go(warp);
    if (context.deadline && std::chrono::steady_clock::now() > *context.deadline) {
      const Step* at = warp.splits[warp.current].pc;
      vgpu::fault(at, warp, FaultKind::kTimeout, std::countr_zero(warp.mask), 0,
                  fmt::format("still running after {} s", context.launch->deadline_s).c_str());
      return;
    }
  }
}

void Worker::deadlock() {
  std::string waiting;
  Warp* first = nullptr;
  const Split* example = nullptr;
  for (Warp& warp : warps) {
    for (const Split& split : warp.splits) {
      if (split.state != Split::State::kBarrier && split.state != Split::State::kWarpSync) continue;
      if (first == nullptr) {
        first = &warp;
        example = &split;
      }
      auto at = static_cast<std::size_t>(split.pc - context.code->steps.data());
      std::string where = split.state == Split::State::kBarrier
                              ? fmt::format("barrier {}", split.barrier)
                              : fmt::format("'{}' for lanes {:#010x}", context.code->texts[at],
                                            split.wanted & warp.live & ~split.mask);
      waiting += fmt::format("\n  warp {} (lanes {:#010x}) waits at {}, ptx line {}", warp.index,
                             split.mask, where, context.code->lines[at]);
    }
  }
  int done = 0;
  for (const Warp& warp : warps) done += warp.status == WarpStatus::kDone ? 1 : 0;
  std::string what = fmt::format("threads wait for what cannot come; {} of {} warps have exited",
                                 done, block.warps);
  if (first == nullptr) return;
  vgpu::fault(example->pc, *first, FaultKind::kBarrier, std::countr_zero(example->mask), 0,
              what.c_str());
  fault->report += waiting;
}

std::byte* local_memory(Warp& warp, int lane) { return warp.worker->local(warp.index, lane); }

std::byte* Worker::local(int warp, int lane) {
  auto bytes = (static_cast<std::size_t>(context.code->info.local_bytes) + 63) / 64 * 64;
  if (local_storage_ == nullptr)
    local_storage_ = std::make_unique<std::byte[]>(
        bytes * static_cast<std::size_t>(block.warps) * kLanes + kAlign);
  return aligned(local_storage_.get()) + bytes * static_cast<std::size_t>(warp * kLanes + lane);
}

}  // namespace tilewright::vgpu
