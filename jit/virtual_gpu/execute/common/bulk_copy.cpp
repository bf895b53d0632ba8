// Bulk copies and reductions, st.async, red.async. PTX ISA, "cp.async.bulk", "st.async".
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "jit/virtual_gpu/check/checker.h"
#include "jit/virtual_gpu/execute/common/families.h"
#include "jit/virtual_gpu/execute/common/per_lane.h"
#include "jit/virtual_gpu/execute/shared_count.h"
#include "jit/virtual_gpu/execute/worker.h"
#include "jit/virtual_gpu/program/async_form.h"

namespace tilewright::vgpu {
namespace {

constexpr std::uint32_t kBulkAlignment = 16;

Wanted shared_range(std::uint64_t address, std::uint64_t bytes, const char* what) {
  Wanted wanted;
  wanted.space = Space::kShared;
  wanted.address = address;
  wanted.bytes = bytes;
  wanted.alignment = kBulkAlignment;
  wanted.cluster = true;
  wanted.what = what;
  return wanted;
}
Wanted mbarrier_range(std::uint64_t address) {
  Wanted wanted = shared_range(address, 8, "access to an mbarrier in shared memory");
  wanted.alignment = 8;
  return wanted;
}

/// The same address in another block of the cluster.
Place in_block(const Place& place, Block& block, std::uint64_t bytes) {
  return {block.at(place.address, bytes), &block, place.address};
}

/// Which bytes of a copy are moved.
struct Selection {
  std::uint32_t left = 0, right = 0;  ///< not the first and the last of them
  std::uint32_t mask = 0xffff;        ///< of each 16 bytes, those whose bit is set
};

void add_chunks(AsyncOperation& operation, const Place& to, const Place& from, std::uint32_t bytes,
                const Selection& selection) {
  const std::uint32_t end = bytes - selection.right;
  if (selection.mask == 0xffff) {
    operation.chunks.push_back(
        {to.host + selection.left, from.host + selection.left, end - selection.left});
    return;
  }
  for (std::uint32_t i = 0; i < bytes;) {
    std::uint32_t run = i;
    while (run < bytes && (selection.mask >> run % 16 & 1) != 0) ++run;
    if (run > i) operation.chunks.push_back({to.host + i, from.host + i, run - i});
    i = std::max(run, i + 1);
  }
}

void start(AsyncEngine& engine, const Step* s, Warp& w, int lane, const Place& to,
           const Place& from, std::uint32_t bytes, const Place& mbarrier,
           const Selection& selection) {
  const Site& site = w.code->sites[s->site];
  const std::int32_t flags = s->immediate;
  AsyncOperation& operation = engine.make(w, s, lane);
  add_chunks(operation, to, from, bytes, selection);
  operation.to = (flags & kBulkToGlobal) != 0 ? Space::kGlobal : Space::kShared;
  operation.from = (flags & kBulkFromShared) != 0 ? Space::kShared : Space::kGlobal;
  operation.reduces = (flags & kBulkReduce) != 0;
  operation.reduce = site.reduce;
  operation.type = site.type;
  if ((flags & kBulkMbarrier) != 0) {
    operation.mbarrier = {mbarrier.block, mbarrier.address};
    operation.tx_bytes = bytes;
  } else {
    operation.completion = AsyncOperation::Completion::kBulkGroup;
  }
  engine.issue(operation);
}

/// One lane's copy; false after a fault. Operands: target, source, bytes, mbarrier, mask of blocks or
/// bytes, bytes that are ignored on the left and on the right.
bool copy(const Step* s, std::byte* r, Warp& w, int lane) {
  const std::uint32_t* o = w.code->operands.data() + s->c;
  const std::int32_t flags = s->immediate;
  std::uint64_t to_address = lanes<std::uint64_t>(r, o[0])[lane];
  std::uint64_t from_address = lanes<std::uint64_t>(r, o[1])[lane];
  std::uint32_t bytes = lanes<std::uint32_t>(r, o[2])[lane];
  if (bytes % kBulkAlignment != 0) {
    fault(s, w, FaultKind::kIllegalInstruction, lane, bytes,
          fmt::format("a bulk copy of {} bytes, expected a multiple of 16", bytes).c_str());
    return false;
  }
  Selection selection;
  if ((flags & kBulkMasked) != 0) selection.mask = lanes<std::uint16_t>(r, o[4])[lane];
  if ((flags & kBulkIgnoresEnds) != 0) {
    selection.left = lanes<std::uint32_t>(r, o[5])[lane];
    selection.right = lanes<std::uint32_t>(r, o[6])[lane];
    if (selection.left > 15 || selection.right > 15 || selection.left + selection.right > bytes) {
      fault(s, w, FaultKind::kIllegalInstruction, lane, bytes,
            fmt::format("a bulk copy of {} bytes that ignores {} and {} at its ends", bytes,
                        selection.left, selection.right)
                .c_str());
      return false;
    }
  }
  Wanted wanted = shared_range(from_address, bytes, "bulk read of shared memory");
  wanted.cluster = false;
  if ((flags & kBulkFromShared) == 0) {
    wanted.space = Space::kGlobal;
    wanted.what = "bulk read of global memory";
    if (from_address % kBulkAlignment == 0 && bytes > selection.left + selection.right) {
      // What is ignored may lie outside of the allocation.
      wanted.address += selection.left;
      wanted.bytes -= selection.left + selection.right;
      wanted.alignment = 1;
    }
  }
  Place from = locate(s, w, lane, wanted);
  if (from.host == nullptr) return false;
  if (wanted.space == Space::kGlobal) from.host -= wanted.address - from_address;
  wanted = shared_range(to_address, bytes, "bulk write of shared memory");
  if ((flags & kBulkToGlobal) != 0) {
    wanted.space = Space::kGlobal;
    wanted.what = "bulk write of global memory";
  }
  Place to = locate(s, w, lane, wanted);
  if (to.host == nullptr) return false;
  Place mbarrier;
  if ((flags & kBulkMbarrier) != 0) {
    mbarrier = locate(s, w, lane, mbarrier_range(lanes<std::uint64_t>(r, o[3])[lane]));
    if (mbarrier.host == nullptr) return false;
    if ((flags & kBulkMulticast) == 0 && mbarrier.block != to.block) {
      fault(s, w, FaultKind::kIllegalInstruction, lane, mbarrier.address,
            "the mbarrier of a bulk copy that is not in the block of its target");
      return false;
    }
  }
  if (w.counting) {
    if ((flags & kBulkFromShared) == 0) count_range(w, from_address, bytes, false);
    if ((flags & kBulkToGlobal) != 0) count_range(w, to_address, bytes, true);
    // Each block that the copy reads or writes, of its shared memory.
    const bool reads = (flags & kBulkFromShared) != 0, writes = (flags & kBulkToGlobal) == 0;
    if (reads) count_shared_lines(w, bytes);
    if (writes)
      for (int i = (flags & kBulkMulticast) == 0
                       ? 1
                       : std::popcount(unsigned{lanes<std::uint16_t>(r, o[4])[lane]});
           i > 0; --i)
        count_shared_lines(w, bytes);
  }
  Cluster& cluster = *w.block->cluster;
  if ((flags & kBulkMulticast) == 0) {
    start(cluster.async, s, w, lane, to, from, bytes, mbarrier, selection);
    return true;
  }
  std::uint32_t ranks = lanes<std::uint16_t>(r, o[4])[lane];
  if (ranks >> cluster.blocks.size() != 0) {
    fault(
        s, w, FaultKind::kIllegalInstruction, lane, ranks,
        fmt::format("a multicast to blocks {:#x} of a cluster of {}", ranks, cluster.blocks.size())
            .c_str());
    return false;
  }
  for (; ranks != 0; ranks &= ranks - 1) {
    Block& block = cluster.blocks[static_cast<std::size_t>(std::countr_zero(ranks))];
    start(cluster.async, s, w, lane, in_block(to, block, bytes), from, bytes,
          in_block(mbarrier, block, 8), selection);
  }
  return true;
}

const Step* bulk_copy(const Step* s, std::byte* r, Warp& w) {
  for (std::uint32_t mask = w.mask; mask != 0; mask &= mask - 1)
    if (!copy(s, r, w, std::countr_zero(mask))) return nullptr;
  return s + 1;
}

/// Has no effect but that its range has to be valid.
const Step* prefetch(const Step* s, std::byte* r, Warp& w) {
  for (std::uint32_t mask = w.mask; mask != 0; mask &= mask - 1) {
    int lane = std::countr_zero(mask);
    Wanted wanted;
    wanted.address = lanes<std::uint64_t>(r, s->a)[lane];
    wanted.bytes = lanes<std::uint32_t>(r, s->b)[lane];
    wanted.alignment = kBulkAlignment;
    wanted.what = "bulk prefetch of global memory";
    if (locate(s, w, lane, wanted).host == nullptr) return nullptr;
  }
  return s + 1;
}

const Step* commit(const Step* s, std::byte*, Warp& w) {
  w.block->cluster->async.commit_bulk(w, w.mask);
  return s + 1;
}
template <bool kRead>
const Step* wait(const Step* s, std::byte*, Warp& w) {
  w.block->cluster->async.wait_bulk(w, w.mask, static_cast<std::size_t>(s->immediate), kRead);
  if (Checker* checker = w.worker->context.checker)
    checker->async_waited(s, w, w.mask, true, kRead);
  return s + 1;
}

/// Operands: target, mbarrier, elements.
bool store_lane(const Step* s, std::byte* r, Warp& w, int lane) {
  const Site& site = w.code->sites[s->site];
  const std::uint32_t* o = w.code->operands.data() + s->c;
  Wanted wanted = shared_range(lanes<std::uint64_t>(r, o[0])[lane], site.bytes,
                               "asynchronous store to shared memory");
  wanted.alignment = site.bytes;
  Place to = locate(s, w, lane, wanted);
  if (to.host == nullptr) return false;
  Place mbarrier = locate(s, w, lane, mbarrier_range(lanes<std::uint64_t>(r, o[1])[lane]));
  if (mbarrier.host == nullptr) return false;
  if (mbarrier.block != to.block) {
    fault(s, w, FaultKind::kIllegalInstruction, lane, mbarrier.address,
          "the mbarrier of an asynchronous store that is not in the block of its target");
    return false;
  }
  AsyncOperation& operation = w.block->cluster->async.make(w, s, lane);
  std::size_t element = site.bytes / site.vector;
  operation.data.resize(site.bytes);
  for (std::size_t v = 0; v < site.vector; ++v)
    std::memcpy(operation.data.data() + v * element,
                r + o[2 + v] + static_cast<std::size_t>(lane) * element, element);
  operation.chunks.push_back({to.host, operation.data.data(), site.bytes});
  operation.from = Space::kRegister;
  operation.reduces = s->immediate != 0;
  operation.reduce = site.reduce;
  operation.type = site.type;
  operation.mbarrier = {mbarrier.block, mbarrier.address};
  operation.tx_bytes = site.bytes;
  w.block->cluster->async.issue(operation);
  return true;
}

const Step* store_async(const Step* s, std::byte* r, Warp& w) {
  for (std::uint32_t mask = w.mask; mask != 0; mask &= mask - 1)
    if (!store_lane(s, r, w, std::countr_zero(mask))) return nullptr;
  return s + 1;
}

/// st.bulk: zeros, at once. a: address, b: bytes.
template <class T>
const Step* store_bulk(const Step* s, std::byte* r, Warp& w) {
  for (std::uint32_t mask = w.mask; mask != 0; mask &= mask - 1) {
    int lane = std::countr_zero(mask);
    Wanted wanted = shared_range(lanes<std::uint64_t>(r, s->a)[lane], lanes<T>(r, s->b)[lane],
                                 "bulk store to shared memory");
    wanted.space = w.code->sites[s->site].space;
    wanted.alignment = 8;
    wanted.cluster = false;
    if (wanted.bytes % 8 != 0)
      return fault(
          s, w, FaultKind::kIllegalInstruction, lane, wanted.bytes,
          fmt::format("a bulk store of {} bytes, expected a multiple of 8", wanted.bytes).c_str());
    Place place = locate(s, w, lane, wanted);
    if (place.host == nullptr) return nullptr;
    if (place.block == nullptr)
      return fault(s, w, FaultKind::kOutOfBounds, lane, wanted.address, wanted.what);
    if (Checker* checker = w.worker->context.checker) {
      std::uint64_t addresses[kLanes] = {};
      std::byte* hosts[kLanes] = {};
      addresses[lane] = wanted.address;
      hosts[lane] = place.host;
      Access access;
      access.kind = AccessKind::kWrite;
      access.space = wanted.space;
      access.addresses = addresses;
      access.hosts = hosts;
      access.mask = 1u << lane;
      access.bytes = static_cast<std::uint32_t>(wanted.bytes);
      checker->access(s, w, access);
    }
    std::memset(place.host, 0, wanted.bytes);
  }
  return s + 1;
}

/// clusterlaunchcontrol.try_cancel: 16 bytes that say that no launch was cancelled, which is always a
/// valid answer. a: response, b: mbarrier.
const Step* try_cancel(const Step* s, std::byte* r, Warp& w) {
  Cluster& cluster = *w.block->cluster;
  for (std::uint32_t mask = w.mask; mask != 0; mask &= mask - 1) {
    int lane = std::countr_zero(mask);
    const Space space = w.code->sites[s->site].space;
    Wanted wanted = shared_range(lanes<std::uint64_t>(r, s->a)[lane], kBulkAlignment,
                                 "response to clusterlaunchcontrol");
    wanted.space = space;
    Place to = locate(s, w, lane, wanted);
    if (to.host == nullptr) return nullptr;
    wanted = mbarrier_range(lanes<std::uint64_t>(r, s->b)[lane]);
    wanted.space = space;
    Place mbarrier = locate(s, w, lane, wanted);
    if (mbarrier.host == nullptr) return nullptr;
    if (to.block == nullptr || mbarrier.block == nullptr)
      return fault(s, w, FaultKind::kOutOfBounds, lane, wanted.address, wanted.what);
    for (Block& block : cluster.blocks) {
      if (s->immediate == 0 && &block != to.block) continue;
      AsyncOperation& operation = cluster.async.make(w, s, lane);
      operation.data.assign(kBulkAlignment, std::byte{});
      Place target = in_block(to, block, kBulkAlignment);
      operation.chunks.push_back({target.host, operation.data.data(), kBulkAlignment});
      operation.from = Space::kRegister;
      operation.mbarrier = {&block, mbarrier.address};
      operation.tx_bytes = kBulkAlignment;
      cluster.async.issue(operation);
    }
  }
  return s + 1;
}

/// The block that a request that was not granted would have cancelled.
const Step* first_of_cancelled(const Step* s, std::byte*, Warp& w) {
  if (w.mask == 0) return s + 1;
  return fault(s, w, FaultKind::kIllegalInstruction, std::countr_zero(w.mask), 0,
               "the block of a launch that was not cancelled");
}

}  // namespace

Handler select_bulk_copy(const Form& form) {
  switch (form.op) {
    case Op::kBulkCopy:
      return bulk_copy;
    case Op::kBulkPrefetch:
      return prefetch;
    case Op::kBulkCommit:
      return commit;
    case Op::kBulkWait:
      return form.mode == 1 ? wait<true> : wait<false>;
    case Op::kStoreAsync:
      return store_async;
    case Op::kStoreBulk:
      return ptx::size_of(form.type) == 4 ? store_bulk<std::uint32_t> : store_bulk<std::uint64_t>;
    case Op::kClusterLaunch:
      return try_cancel;
    case Op::kClusterQuery:
      return first_of_cancelled;
    default:
      return nullptr;
  }
}

}  // namespace tilewright::vgpu
