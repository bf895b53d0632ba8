// cp.async. A copy lands when its group is waited for, so that a kernel that forgets to wait reads
// what was there before. Groups are kept per warp.
#include "jit/virtual_gpu/check/checker.h"
#include "jit/virtual_gpu/execute/common/families.h"
#include "jit/virtual_gpu/execute/common/per_lane.h"
#include "jit/virtual_gpu/execute/shared_count.h"
#include "jit/virtual_gpu/execute/worker.h"

namespace tilewright::vgpu {
namespace {

AsyncEngine& engine_of(Warp& w) { return w.block->cluster->async; }

/// Bytes that each lane reads; the rest of its target becomes zero.
struct Reads {
  std::uint64_t address[kLanes] = {};
  std::uint32_t bytes[kLanes] = {};
  std::uint32_t lanes = 0;  ///< that read any: the others may have any address
};

/// Whether the lanes read whole elements of one allocation.
bool in_one_allocation(const Step* s, Warp& w, const Reads& reads, std::uint32_t bytes) {
  std::uint64_t low = ~std::uint64_t{0}, high = 0, any = 0;
  bool whole = true;
  for_lanes(reads.lanes, [&](int i) {
    low = std::min(low, reads.address[i]);
    high = std::max(high, reads.address[i]);
    any |= reads.address[i];
    whole &= reads.bytes[i] == bytes;
  });
  if (!whole || any % bytes != 0) return false;
  const Range& range = w.ranges[s->site];
  return (low >= range.begin && high < range.end && bytes <= range.end - high) ||
         refill(s, w, low, high);
}

/// Where a lane reads fewer bytes than it writes, only these have to be valid, and aligned as the
/// largest element that they are made of.
bool locate_reads(const Step* s, Warp& w, const Reads& reads, std::uint32_t bytes,
                  std::byte** hosts) {
  if (reads.lanes == 0) return true;
  if (in_one_allocation(s, w, reads, bytes)) {
    for_lanes(reads.lanes, [&](int i) {
      hosts[i] = reinterpret_cast<std::byte*>(reads.address[i] + w.global_delta);
    });
    return true;
  }
  bool valid = true;
  for_lanes(reads.lanes, [&](int i) {
    if (!valid) return;
    Wanted wanted;
    wanted.address = reads.address[i];
    wanted.bytes = reads.bytes[i];
    wanted.alignment = reads.bytes[i] & (~reads.bytes[i] + 1);
    wanted.what = "asynchronous read of global memory";
    hosts[i] = locate(s, w, i, wanted).host;
    valid = hosts[i] != nullptr;
  });
  return valid;
}

/// The usual case: all lanes read whole elements of one allocation, and write valid shared memory.
/// False: not that case, nothing was done.
template <class To>
bool copy_whole(const Step* s, Warp& w, std::uint32_t bytes, const std::uint64_t* from,
                const To* to) {
  std::uint64_t low = from[0], high = from[0], any = 0, first = to[0], last = to[0];
  for (int i = 0; i < kLanes; ++i) {
    low = std::min(low, from[i]);
    high = std::max(high, from[i]);
    first = std::min<std::uint64_t>(first, to[i]);
    last = std::max<std::uint64_t>(last, to[i]);
    any |= from[i] | to[i];
  }
  if ((any & (bytes - 1)) != 0 || first < kSharedBase || last > 0xffffffffu ||
      last + bytes > w.shared_end)
    return false;
  const Range& range = w.ranges[s->site];
  if (low < range.begin || high >= range.end || bytes > range.end - high)
    if (!refill(s, w, low, high)) return false;
  AsyncOperation& operation = engine_of(w).make(w, s, 0);
  operation.completion = AsyncOperation::Completion::kCopyGroup;
  operation.chunks.resize(kLanes);
  for (int i = 0; i < kLanes; ++i)
    operation.chunks[static_cast<std::size_t>(i)] = {
        w.shared + to[i], reinterpret_cast<std::byte*>(from[i] + w.global_delta), bytes};
  engine_of(w).issue(operation);
  return true;
}

/// a: source, b: target, c: bytes to read (kMode 1) or a predicate that says to read none (2).
template <int kMode, class To>
const Step* copy(const Step* s, std::byte* r, Warp& w) {
  const std::uint32_t bytes = w.code->sites[s->site].bytes;
  const auto* from = lanes<std::uint64_t>(r, s->a);
  const auto* to = lanes<To>(r, s->b);
  if (w.mask == kAllLanes && !w.counting) {
    bool whole = true;
    if (kMode == 1)
      for (int i = 0; i < kLanes; ++i) whole &= lanes<std::uint32_t>(r, s->c)[i] == bytes;
    if (kMode == 2) whole = predicate(r, s->c) == 0;
    if (whole && copy_whole(s, w, bytes, from, to)) return s + 1;
  }
  Reads reads;
  int wrong = -1;
  for_lanes(w.mask, [&](int i) {
    std::uint32_t wanted = bytes;
    if (kMode == 1) wanted = lanes<std::uint32_t>(r, s->c)[i];
    if (kMode == 2 && (predicate(r, s->c) >> i & 1) != 0) wanted = 0;
    if (wanted > bytes && wrong < 0) wrong = i;
    reads.bytes[i] = wanted;
    reads.address[i] = from[i];
    if (wanted != 0) reads.lanes |= 1u << i;
  });
  if (wrong >= 0)
    return fault(s, w, FaultKind::kIllegalInstruction, wrong, reads.bytes[wrong],
                 "a source size beyond the copy's");
  if (w.counting) {
    count_request(s, w, reads.address, reads.lanes);
    for_lanes(reads.lanes,
              [&](int i) { w.worker->counters.global_load_bytes -= bytes - reads.bytes[i]; });
  }
  std::byte* hosts[kLanes] = {};
  if (!locate_reads(s, w, reads, bytes, hosts)) return nullptr;

  for_lanes(w.mask, [&](int i) {
    std::uint64_t target = to[i];
    if (wrong < 0 && (target < kSharedBase || target > 0xffffffffu ||
                      target + bytes > w.shared_end || target % bytes != 0))
      wrong = i;
  });
  if (wrong >= 0)
    return fault(s, w, to[wrong] % bytes != 0 ? FaultKind::kMisaligned : FaultKind::kOutOfBounds,
                 wrong, to[wrong], "asynchronous write to shared memory");
  if (w.counting) {
    std::uint64_t targets[kLanes];
    for (int i = 0; i < kLanes; ++i) targets[i] = to[i];
    count_shared_writes(w, targets, w.mask, static_cast<int>(bytes));
  }
  AsyncOperation& operation = engine_of(w).make(w, s, std::countr_zero(w.mask));
  operation.completion = AsyncOperation::Completion::kCopyGroup;
  operation.chunks.reserve(kLanes);
  for_lanes(w.mask, [&](int i) {
    std::uint32_t read = reads.bytes[i];
    std::byte* target = w.shared + to[i];
    if (read != 0) operation.chunks.push_back({target, hosts[i], read});
    if (read != bytes) operation.chunks.push_back({target + read, nullptr, bytes - read});
  });
  engine_of(w).issue(operation);
  return s + 1;
}

const Step* commit(const Step* s, std::byte*, Warp& w) {
  engine_of(w).commit_copies(w);
  return s + 1;
}
const Step* waited(const Step* s, Warp& w) {
  if (Checker* checker = w.worker->context.checker)
    checker->async_waited(s, w, w.mask, false, false);
  return s + 1;
}
const Step* wait_group(const Step* s, std::byte*, Warp& w) {
  engine_of(w).wait_copies(w, static_cast<std::size_t>(s->immediate));
  return waited(s, w);
}
const Step* wait_all(const Step* s, std::byte*, Warp& w) {
  engine_of(w).wait_all_copies(w);
  return waited(s, w);
}

}  // namespace

Handler select_async_copy(const Form& form) {
  switch (form.op) {
    case Op::kCpAsyncCommit:
      return commit;
    case Op::kCpAsyncWait:
      return form.mode == 1 ? wait_all : wait_group;
    case Op::kCpAsync:
      if (form.address_bytes == 4)
        return form.mode == 0   ? copy<0, std::uint32_t>
               : form.mode == 1 ? copy<1, std::uint32_t>
                                : copy<2, std::uint32_t>;
      return form.mode == 0   ? copy<0, std::uint64_t>
             : form.mode == 1 ? copy<1, std::uint64_t>
                              : copy<2, std::uint64_t>;
    default:
      return nullptr;
  }
}

}  // namespace tilewright::vgpu
