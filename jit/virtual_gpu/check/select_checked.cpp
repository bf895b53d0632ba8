// Handlers that say what they are about to do, and then do what the unchecked ones do.
#include <bit>

#include "jit/virtual_gpu/check/checker.h"
#include "jit/virtual_gpu/execute/common/per_lane.h"
#include "jit/virtual_gpu/execute/level.h"
#include "jit/virtual_gpu/execute/tensor/descriptor.h"
#include "jit/virtual_gpu/execute/worker.h"

namespace tilewright::vgpu {
namespace {

/// Addresses of the lanes; of those that are not active, that of the first active one.
template <class A>
void gather(const Step* s, std::byte* r, std::uint32_t mask, std::uint64_t* to) {
  const A* a = lanes<A>(r, s->a);
  auto offset = static_cast<A>(static_cast<std::int64_t>(s->immediate));
  if (mask == kAllLanes) {
    for (int i = 0; i < kLanes; ++i) to[i] = static_cast<A>(a[i] + offset);
    return;
  }
  A first = a[std::countr_zero(mask)];
  for (int i = 0; i < kLanes; ++i)
    to[i] = static_cast<A>(((mask >> i & 1) != 0 ? a[i] : first) + offset);
}

/// Whether all lanes access the block's own shared memory, or one allocation of global memory, and
/// are aligned: what most accesses do.
bool usual(const Step* s, Warp& w, const Site& site, const std::uint64_t* address, Space* space) {
  std::uint64_t low = address[0], high = address[0], any = 0;
  for (int i = 0; i < kLanes; ++i) {
    low = address[i] < low ? address[i] : low;
    high = address[i] > high ? address[i] : high;
    any |= address[i];
  }
  if ((any & (site.bytes - 1u)) != 0 || !std::has_single_bit(site.bytes)) return false;
  if (site.space == Space::kShared) {
    *space = Space::kShared;
    return low >= kSharedBase && high <= 0xffffffffu && high + site.bytes <= w.shared_end;
  }
  if (site.space != Space::kGlobal && site.space != Space::kGeneric && site.space != Space::kConst)
    return false;
  *space = Space::kGlobal;
  const Range& range = w.ranges[s->site];
  return (low >= range.begin && high < range.end && site.bytes <= range.end - high) ||
         refill(s, w, low, high);
}

const Step* unchecked(const Step* s, std::byte* r, Warp& w) {
  return w.code->unchecked[static_cast<std::size_t>(s - w.code->steps.data())](s, r, w);
}

template <AccessKind kKind>
const Step* checked(const Step* s, std::byte* r, Warp& w) {
  const Site& site = w.code->sites[s->site];
  if (w.mask == 0 || site.space == Space::kParam) return unchecked(s, r, w);
  alignas(64) std::uint64_t address[kLanes];
  if (site.address_bytes == 4)
    gather<std::uint32_t>(s, r, w.mask, address);
  else
    gather<std::uint64_t>(s, r, w.mask, address);
  std::byte* hosts[kLanes];
  Access access;
  access.kind = kKind;
  access.space = site.space;
  access.addresses = address;
  access.mask = w.mask;
  access.bytes = site.bytes;
  access.order = site.order;
  access.scope = site.scope;
  if (!usual(s, w, site, address, &access.space)) {
    if (!resolve(s, w, address, w.mask, hosts)) return nullptr;
    access.hosts = hosts;
  }
  w.worker->context.checker->access(s, w, access);
  return unchecked(s, r, w);
}

/// ldmatrix, stmatrix: the first 8 * kCount lanes name rows of 16 bytes.
template <AccessKind kKind, int kCount>
const Step* checked_matrix(const Step* s, std::byte* r, Warp& w) {
  if (w.mask != kAllLanes) return unchecked(s, r, w);  // it comes back when all are here
  constexpr std::uint32_t kMask = kCount == 4 ? kAllLanes : (1u << (8 * kCount % 32)) - 1;
  const Site& site = w.code->sites[s->site];
  alignas(64) std::uint64_t address[kLanes];
  if (site.address_bytes == 4)
    gather<std::uint32_t>(s, r, kMask, address);
  else
    gather<std::uint64_t>(s, r, kMask, address);
  std::byte* hosts[kLanes];
  Access access;
  access.kind = kKind;
  access.space = site.space;
  access.addresses = address;
  access.mask = kMask;
  access.bytes = 16;
  if (!usual(s, w, site, address, &access.space)) {
    if (!resolve(s, w, address, kMask, hosts)) return nullptr;
    access.hosts = hosts;
  }
  w.worker->context.checker->access(s, w, access);
  return unchecked(s, r, w);
}
template <AccessKind kKind>
Handler matrix_of(int count) {
  return count == 1   ? checked_matrix<kKind, 1>
         : count == 2 ? checked_matrix<kKind, 2>
                      : checked_matrix<kKind, 4>;
}

/// wgmma: reads lines of shared memory, until a wait for its group.
const Step* checked_wgmma(const Step* s, std::byte* r, Warp& w) {
  if (w.mask != kAllLanes) return unchecked(s, r, w);
  std::vector<std::uint32_t> lines = lines_of_wgmma(s, w, r);
  bool valid = true;
  for (std::uint32_t line : lines)
    valid &= line >= kSharedBase && line + kLineBytes <= w.shared_end;
  if (valid) w.worker->context.checker->tensor_read(s, w, lines, kLineBytes);
  return unchecked(s, r, w);
}
const Step* checked_fence(const Step* s, std::byte* r, Warp& w) {
  if (w.mask == kAllLanes) w.worker->context.checker->tensor_fence(w);
  return unchecked(s, r, w);
}
const Step* checked_commit(const Step* s, std::byte* r, Warp& w) {
  if (w.mask == kAllLanes) w.worker->context.checker->tensor_commit(w);
  return unchecked(s, r, w);
}
const Step* checked_wait(const Step* s, std::byte* r, Warp& w) {
  if (w.mask == kAllLanes)
    w.worker->context.checker->tensor_wait(w, static_cast<std::size_t>(s->immediate));
  return unchecked(s, r, w);
}

template <bool kMore>
const Step* checked_registers(const Step* s, std::byte* r, Warp& w) {
  if (w.mask == kAllLanes) w.worker->context.checker->set_max_registers(s, w, s->immediate, kMore);
  return unchecked(s, r, w);
}

const Step* watched(const Step* s, std::byte* r, Warp& w) {
  const Code& code = *w.code;
  auto i = static_cast<std::size_t>(s - code.steps.data());
  const RegisterWatch& watch = code.watches[static_cast<std::size_t>(code.watch_of[i])];
  // A wgmma that lacks lanes comes back when all are here.
  if (watch.kind != RegisterWatch::Kind::kWgmma || w.mask == kAllLanes)
    w.worker->context.checker->registers(s, w, watch);
  return code.unwatched[i](s, r, w);
}

}  // namespace

Handler watched_handler() { return watched; }

Handler select_checked(const Form& form, Check) {
  switch (form.op) {
    case Op::kLoad:
      return checked<AccessKind::kRead>;
    case Op::kStore:
      return checked<AccessKind::kWrite>;
    case Op::kAtom:
      return checked<AccessKind::kAtomic>;
    case Op::kLoadMatrix:
      return matrix_of<AccessKind::kRead>(form.vector);
    case Op::kStoreMatrix:
      return matrix_of<AccessKind::kWrite>(form.vector);
    case Op::kWgmma:
      return checked_wgmma;
    case Op::kWgmmaFence:
      return checked_fence;
    case Op::kSetMaxRegisters:
      return form.mode != 0 ? checked_registers<true> : checked_registers<false>;
    case Op::kWgmmaCommit:
      return checked_commit;
    case Op::kWgmmaWait:
      return checked_wait;
    default:
      return nullptr;
  }
}

}  // namespace tilewright::vgpu
