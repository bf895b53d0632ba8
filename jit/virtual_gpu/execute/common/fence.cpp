// Fences, which matter to a checker and to other host threads; hints; addresses of other blocks.
#include <fmt/format.h>

#include <atomic>

#include "jit/virtual_gpu/check/checker.h"
#include "jit/virtual_gpu/execute/common/families.h"
#include "jit/virtual_gpu/execute/common/per_lane.h"
#include "jit/virtual_gpu/execute/worker.h"

namespace tilewright::vgpu {
namespace {

const Step* fence(const Step* s, std::byte*, Warp& w) {
  const LaunchContext& context = w.worker->context;
  if (!context.one_thread) std::atomic_thread_fence(std::memory_order_seq_cst);
  if (context.checker != nullptr) {
    const Site& site = w.code->sites[s->site];
    context.checker->fence(
        s, w, w.mask,
        Fence{static_cast<FenceKind>(s->immediate), site.order, site.scope, site.space});
  }
  return s + 1;
}

const Step* nothing(const Step* s, std::byte*, Warp&) { return s + 1; }

/// Shared address -> the address of its counterpart in the block of rank b.
template <class T, bool kGeneric>
const Step* mapa(const Step* s, std::byte* r, Warp& w) {
  const auto* a = lanes<T>(r, s->a);
  const auto* b = lanes<std::uint32_t>(r, s->b);
  auto* d = lanes<T>(r, s->d);
  auto size = static_cast<std::uint32_t>(w.block->cluster->blocks.size());
  for (std::uint32_t mask = w.mask; mask != 0; mask &= mask - 1) {
    int i = std::countr_zero(mask);
    std::uint32_t rank = b[i];
    if (rank >= size)
      return fault(s, w, FaultKind::kIllegalInstruction, i, rank,
                   fmt::format("block {} of a cluster of {}", rank, size).c_str());
    std::uint64_t address = a[i];
    std::uint64_t high = kGeneric ? kSharedWindow : 0;
    d[i] =
        static_cast<T>(high | std::uint64_t{rank + 1} << kRankShift | (address & kRankOffsetMask));
  }
  return s + 1;
}

template <class T>
const Step* cta_rank(const Step* s, std::byte* r, Warp& w) {
  const auto* a = lanes<T>(r, s->a);
  auto* d = lanes<std::uint32_t>(r, s->d);
  for_lanes(w.mask, [&](int i) {
    std::uint32_t field = static_cast<std::uint32_t>(a[i]) >> kRankShift;
    d[i] = field == 0 ? w.block->rank : field - 1;
  });
  return s + 1;
}

}  // namespace

Handler select_fence(const Form& form) {
  bool wide = ptx::size_of(form.type) == 8, generic = form.space == Space::kGeneric;
  switch (form.op) {
    case Op::kFence:
      return fence;
    case Op::kPrefetch:
    case Op::kGridControl:
      return nothing;
    case Op::kMapa:
      if (!wide) return generic ? nullptr : mapa<std::uint32_t, false>;
      return generic ? mapa<std::uint64_t, true> : mapa<std::uint64_t, false>;
    case Op::kGetCtaRank:
      return wide ? cta_rank<std::uint64_t> : cta_rank<std::uint32_t>;
    default:
      return nullptr;
  }
}

}  // namespace tilewright::vgpu
