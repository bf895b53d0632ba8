// tensormap.replace, tensormap.cp_fenceproxy. PTX ISA: both are weak accesses to all 128 bytes.
#include <atomic>
#include <cstring>
#include <span>

#include "jit/virtual_gpu/check/checker.h"
#include "jit/virtual_gpu/execute/common/families.h"
#include "jit/virtual_gpu/execute/common/per_lane.h"
#include "jit/virtual_gpu/execute/tensor/tensor.h"
#include "jit/virtual_gpu/execute/worker.h"
#include "jit/virtual_gpu/tensor_map.h"

namespace tilewright::vgpu {
namespace {

constexpr std::uint64_t kMapAlignment = 64;

Place locate_map(const Step* s, Warp& w, int lane, Space space, std::uint64_t address) {
  return locate(s, w, lane,
                {.space = space,
                 .address = address,
                 .bytes = kTensorMapBytes,
                 .alignment = kMapAlignment,
                 .what = "access to a tensor map"});
}

/// Tells the checker of one lane's access to a map.
void tell(const Step* s, Warp& w, int lane, AccessKind kind, Space space, std::uint64_t address,
          std::byte* host) {
  Checker* checker = w.worker->context.checker;
  if (checker == nullptr) return;
  std::uint64_t addresses[kLanes] = {};
  std::byte* hosts[kLanes] = {};
  addresses[lane] = address;
  hosts[lane] = host;
  Access access;
  access.kind = kind;
  access.space = space;
  access.addresses = addresses;
  access.hosts = hosts;
  access.mask = 1u << lane;
  access.bytes = kTensorMapBytes;
  checker->access(s, w, access);
}

/// a: address of the map, b: value.
template <class T>
const Step* replace(const Step* s, std::byte* r, Warp& w) {
  const Space space = w.code->sites[s->site].space;
  for (std::uint32_t mask = w.mask; mask != 0; mask &= mask - 1) {
    int lane = std::countr_zero(mask);
    std::uint64_t address = lanes<std::uint64_t>(r, s->a)[lane];
    Place place = locate_map(s, w, lane, space, address);
    if (place.host == nullptr) return nullptr;
    tell(s, w, lane, AccessKind::kWrite, space, address, place.host);
    auto done = replace_field(std::span<std::byte, kTensorMapBytes>(place.host, kTensorMapBytes),
                              static_cast<TensorMapField>(s->immediate & 0xff), s->immediate >> 8,
                              lanes<T>(r, s->b)[lane]);
    if (!done)
      return fault(s, w, FaultKind::kIllegalInstruction, lane, address,
                   done.error().message.c_str());
  }
  return s + 1;
}

/// a: to, b: from. One copy for the warp.
const Step* copy(const Step* s, std::byte* r, Warp& w) {
  if (const Step * next; w.mask != kAllLanes && !whole_warp(s, w, &next)) return next;
  const auto* to = lanes<std::uint64_t>(r, s->a);
  const auto* from = lanes<std::uint64_t>(r, s->b);
  for (int i = 1; i < kLanes; ++i)
    if (to[i] != to[0] || from[i] != from[0])
      return fault(s, w, FaultKind::kIllegalInstruction, i, to[i],
                   "the addresses differ between lanes");
  Place source = locate_map(s, w, 0, Space::kShared, from[0]);
  if (source.host == nullptr) return nullptr;
  Place target = locate_map(s, w, 0, Space::kGlobal, to[0]);
  if (target.host == nullptr) return nullptr;
  tell(s, w, 0, AccessKind::kRead, Space::kShared, from[0], source.host);
  tell(s, w, 0, AccessKind::kWrite, Space::kGlobal, to[0], target.host);
  std::memcpy(target.host, source.host, kTensorMapBytes);
  const LaunchContext& context = w.worker->context;
  const Site& site = w.code->sites[s->site];
  if (!context.one_thread) std::atomic_thread_fence(std::memory_order_seq_cst);
  if (context.checker != nullptr)
    context.checker->fence(s, w, w.mask,
                           Fence{FenceKind::kProxyTensormap, site.order, site.scope, site.space});
  return s + 1;
}

}  // namespace

Handler select_tensor_map(const Form& form) {
  if (form.op == Op::kTensorMapCopy) return copy;
  if (form.op != Op::kTensorMapReplace) return nullptr;
  return form.type == Type::kB64 ? replace<std::uint64_t> : replace<std::uint32_t>;
}

}  // namespace tilewright::vgpu
