// Basic blocks, branches, exits, guards, clocks.
#include <chrono>

#include "jit/virtual_gpu/execute/common/families.h"
#include "jit/virtual_gpu/execute/common/per_lane.h"

namespace tilewright::vgpu {
namespace {

constexpr std::uint32_t kNowhere = 0xffffffffu;

const Step* enter_block(const Step* s, Warp& w) {
  ++w.block_counts[s->immediate];
  if (--w.budget > 0) [[likely]]
    return s + 1;
  w.status = WarpStatus::kYielded;
  w.splits[w.current].pc = s + 1;
  w.splits[w.current].mask = w.mask;
  return nullptr;
}
const Step* block(const Step* s, std::byte*, Warp& w) { return enter_block(s, w); }
const Step* block_join(const Step* s, std::byte*, Warp& w) {
  if (w.reconverge == s) [[unlikely]] {
    const Step* next = join(s, w);
    if (next != s) return next;
  }
  return enter_block(s, w);
}

template <bool kNegated>
const Step* guard(const Step* s, std::byte* r, Warp& w) {
  std::uint32_t p = predicate(r, s->a);
  std::uint32_t mask = w.mask, active = mask & (kNegated ? ~p : p);
  const Step* guarded = s + 1;
  if (active == mask) return guarded->run(guarded, r, w);
  if (active == 0) return guarded + 1;
  w.mask = active;
  w.full = false;
  const Step* next = guarded->run(guarded, r, w);
  w.mask = mask;
  w.full = mask == w.live;
  return next;
}

const Step* branch(const Step* s, std::byte*, Warp&) { return s + s->immediate; }

const Step* branch_if(const Step* s, std::byte* r, Warp& w) {
  std::uint32_t p = predicate(r, s->a);
  std::uint32_t taken = (s->b != 0 ? ~p : p) & w.mask;
  if (taken == 0) return s + 1;
  if (taken == w.mask) return s + s->immediate;
  const Step* reconverge = s->c == kNowhere ? nullptr : w.code->steps.data() + s->c;
  return diverge(w, taken, s + s->immediate, s + 1, reconverge);
}

/// Lanes of one target after the other part from the rest.
const Step* branch_index(const Step* s, std::byte* r, Warp& w) {
  const auto* index = lanes<std::uint32_t>(r, s->a);
  const Step* steps = w.code->steps.data();
  const int* targets = w.code->targets.data() + s->c;
  int first = __builtin_ctz(w.mask);
  auto wanted = index[first];
  if (wanted >= static_cast<std::uint32_t>(s->immediate))
    return fault(s, w, FaultKind::kIllegalInstruction, first, wanted,
                 "a branch index beyond the list of targets");
  std::uint32_t same = 0;
  for (int i = 0; i < kLanes; ++i)
    if ((w.mask >> i & 1) != 0 &&
        targets[index[i] < static_cast<std::uint32_t>(s->immediate) ? index[i] : wanted] ==
            targets[wanted] &&
        index[i] < static_cast<std::uint32_t>(s->immediate))
      same |= 1u << i;
  const Step* target = steps + targets[wanted];
  if (same == w.mask) return target;
  const Step* reconverge = s->b == kNowhere ? nullptr : steps + s->b;
  return diverge(w, same, target, s, reconverge);  // the others come back to this step
}

const Step* exit_lanes(const Step*, std::byte*, Warp& w) { return leave(w); }

const Step* trap(const Step* s, std::byte*, Warp& w) {
  const int lane = __builtin_ctz(w.mask);
  switch (static_cast<TrapReason>(s->immediate)) {
    case TrapReason::kStackOverflow:
      return fault(s, w, FaultKind::kIllegalInstruction, lane, 0,
                   "alloca of more than a thread's stack has left");
    case TrapReason::kNoFunction:
      return fault(s, w, FaultKind::kIllegalInstruction, lane, 0,
                   "a call through a pointer to no function that could be called here");
    default:
      return fault(s, w, FaultKind::kTrap, lane, 0, "trap");
  }
}

const Step* nothing(const Step* s, std::byte*, Warp&) { return s + 1; }

/// Lets other warps run at the end of the basic block.
const Step* nanosleep(const Step* s, std::byte*, Warp& w) {
  w.budget = 0;
  w.slept = true;
  return s + 1;
}

/// A nanosecond counts as a cycle.
template <bool kHigh>
const Step* clock(const Step* s, std::byte* r, Warp& w) {
  auto now = static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                            std::chrono::steady_clock::now().time_since_epoch())
                                            .count());
  auto value = static_cast<std::uint32_t>(kHigh ? now >> 32 : now);
  auto* d = lanes<std::uint32_t>(r, s->d);
  for_lanes(w.mask, [&](int i) { d[i] = value; });
  return s + 1;
}
const Step* clock64(const Step* s, std::byte* r, Warp& w) {
  auto now = static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                            std::chrono::steady_clock::now().time_since_epoch())
                                            .count());
  auto* d = lanes<std::uint64_t>(r, s->d);
  for_lanes(w.mask, [&](int i) { d[i] = now; });
  return s + 1;
}

}  // namespace

Handler select_control(const Form& form) {
  switch (form.op) {
    case Op::kBlock:
      return block;
    case Op::kBlockJoin:
      return block_join;
    case Op::kGuard:
      return form.mode != 0 ? guard<true> : guard<false>;
    case Op::kBranch:
      return branch;
    case Op::kBranchIf:
      return branch_if;
    case Op::kBranchIndex:
      return branch_index;
    case Op::kExit:
      return exit_lanes;
    case Op::kTrap:
      return trap;
    case Op::kNop:
      return nothing;
    case Op::kNanosleep:
      return nanosleep;
    case Op::kClock:
      if (ptx::size_of(form.type) == 8) return clock64;
      // The mode is the index of the name in Lowering::special_register: *_hi are 1 and 5.
      return form.mode == 1 || form.mode == 5 ? clock<true> : clock<false>;
    default:
      return nullptr;
  }
}

}  // namespace tilewright::vgpu
