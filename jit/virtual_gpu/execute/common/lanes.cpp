// shfl, vote, redux, match, activemask, elect.
#include <bit>
#include <cmath>

#include "jit/virtual_gpu/check/checker.h"
#include "jit/virtual_gpu/execute/common/families.h"
#include "jit/virtual_gpu/execute/common/per_lane.h"
#include "jit/virtual_gpu/execute/worker.h"

namespace tilewright::vgpu {
namespace {

enum { kUp, kDown, kButterfly, kIndex };

/// operands: d, p, a, b, c, members. PTX ISA, "shfl.sync".
template <int kMode>
const Step* shfl(const Step* s, std::byte* r, Warp& w) {
  const std::uint32_t* o = w.code->operands.data() + s->c;
  auto* d = lanes<std::uint32_t>(r, o[0]);
  const auto* a = lanes<std::uint32_t>(r, o[2]);
  const auto* b = lanes<std::uint32_t>(r, o[3]);
  const auto* c = lanes<std::uint32_t>(r, o[4]);
  const auto* members = lanes<std::uint32_t>(r, o[5]);
  if (const Step * next; !gather_members(s, w, members[std::countr_zero(w.mask)], &next))
    return next;
  std::uint32_t source[kLanes];
  for (int i = 0; i < kLanes; ++i) source[i] = a[i];
  std::uint32_t inside = 0, mask = w.mask;
  std::uint32_t result[kLanes];
  std::uint8_t from[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    auto lane = static_cast<std::int32_t>(i);
    auto by = static_cast<std::int32_t>(b[i] & 31), clamp = static_cast<std::int32_t>(c[i] & 31);
    auto segment = static_cast<std::int32_t>(c[i] >> 8 & 31);
    std::int32_t last = (lane & segment) | (clamp & ~segment);
    std::int32_t first = lane & segment;
    std::int32_t j;
    bool in;
    if (kMode == kUp) {
      j = lane - by;
      in = j >= last;
    } else if (kMode == kDown) {
      j = lane + by;
      in = j <= last;
    } else if (kMode == kButterfly) {
      j = lane ^ by;
      in = j <= last;
    } else {
      j = first | (by & ~segment);
      in = j <= last;
    }
    result[i] = source[in ? j : lane];
    inside |= (in ? 1u : 0u) << i;
    from[i] = static_cast<std::uint8_t>(in ? j : lane);
  }
  if (Checker* checker = w.worker->context.checker) [[unlikely]] {
    std::uint32_t taken = 0;
    for_lanes(mask, [&](int i) { taken |= 1u << (from[i] & 31); });
    checker->shuffle(s, w, taken);
  }
  if (w.full) {
    for (int i = 0; i < kLanes; ++i) d[i] = result[i];
  } else {
    for_lanes(mask, [&](int i) { d[i] = result[i]; });
  }
  set_predicate(r, o[1], mask, inside);
  return s + 1;
}

enum { kAll, kAny, kUniform };

template <int kMode>
const Step* vote(const Step* s, std::byte* r, Warp& w) {
  std::uint32_t members = lanes<std::uint32_t>(r, s->b)[std::countr_zero(w.mask)];
  if (const Step * next; !gather_members(s, w, members, &next)) return next;
  std::uint32_t who = members & w.mask, p = predicate(r, s->a) & who;
  bool value = kMode == kAll ? p == who : kMode == kAny ? p != 0 : p == 0 || p == who;
  set_predicate(r, s->d, w.mask, value ? kAllLanes : 0);
  return s + 1;
}

const Step* ballot(const Step* s, std::byte* r, Warp& w) {
  std::uint32_t members = lanes<std::uint32_t>(r, s->b)[std::countr_zero(w.mask)];
  if (const Step * next; !gather_members(s, w, members, &next)) return next;
  std::uint32_t value = predicate(r, s->a) & members & w.mask;
  auto* d = lanes<std::uint32_t>(r, s->d);
  for_lanes(w.mask, [&](int i) { d[i] = value; });
  return s + 1;
}

template <class T>
T reduce(Reduce op, T x, T y) {
  switch (op) {
    case Reduce::kAdd:
      return static_cast<T>(static_cast<std::uint32_t>(x) + static_cast<std::uint32_t>(y));
    case Reduce::kMin:
      return x < y ? x : y;
    case Reduce::kMax:
      return x > y ? x : y;
    case Reduce::kAnd:
      return x & y;
    case Reduce::kOr:
      return x | y;
    default:
      return x ^ y;
  }
}
template <Reduce kReduce, class T>
const Step* redux(const Step* s, std::byte* r, Warp& w) {
  std::uint32_t members = lanes<std::uint32_t>(r, s->b)[std::countr_zero(w.mask)];
  if (const Step * next; !gather_members(s, w, members, &next)) return next;
  const auto* a = lanes<T>(r, s->a);
  std::uint32_t who = members & w.mask;
  if (who == 0) return s + 1;
  T value = a[std::countr_zero(who)];
  for_lanes(who & (who - 1), [&](int i) { value = reduce(kReduce, value, a[i]); });
  auto* d = lanes<T>(r, s->d);
  for_lanes(w.mask, [&](int i) { d[i] = value; });
  return s + 1;
}
/// +0 is above -0. NaN gives way to numbers, unless .NaN, bit 1 of the immediate; bit 0 is .abs.
template <bool kMax>
const Step* redux_float(const Step* s, std::byte* r, Warp& w) {
  std::uint32_t members = lanes<std::uint32_t>(r, s->b)[std::countr_zero(w.mask)];
  if (const Step * next; !gather_members(s, w, members, &next)) return next;
  const auto* a = lanes<float>(r, s->a);
  bool found = false, any_nan = false;
  float value = 0;
  for_lanes(members & w.mask, [&](int i) {
    float x = (s->immediate & 1) != 0 ? std::fabs(a[i]) : a[i];
    if (x != x) {
      any_nan = true;
      return;
    }
    bool better = x == value ? std::signbit(x) != kMax : kMax ? x > value : x < value;
    if (!found || better) value = x;
    found = true;
  });
  bool nan = !found || (any_nan && (s->immediate & 2) != 0);
  auto* d = lanes<std::uint32_t>(r, s->d);
  std::uint32_t bits = nan ? 0x7fffffffu : std::bit_cast<std::uint32_t>(value);
  for_lanes(w.mask, [&](int i) { d[i] = bits; });
  return s + 1;
}
template <class T>
Handler redux_of(Reduce op) {
  switch (op) {
    case Reduce::kAdd:
      return redux<Reduce::kAdd, T>;
    case Reduce::kMin:
      return redux<Reduce::kMin, T>;
    case Reduce::kMax:
      return redux<Reduce::kMax, T>;
    case Reduce::kAnd:
      return redux<Reduce::kAnd, T>;
    case Reduce::kOr:
      return redux<Reduce::kOr, T>;
    case Reduce::kXor:
      return redux<Reduce::kXor, T>;
    default:
      return nullptr;
  }
}

/// operands: d, p, a, members.
template <class T, bool kWhole>
const Step* match(const Step* s, std::byte* r, Warp& w) {
  const std::uint32_t* o = w.code->operands.data() + s->c;
  const auto* a = lanes<T>(r, o[2]);
  std::uint32_t members = lanes<std::uint32_t>(r, o[3])[std::countr_zero(w.mask)];
  if (const Step * next; !gather_members(s, w, members, &next)) return next;
  std::uint32_t who = members & w.mask, result[kLanes], equal_all = 0;
  for_lanes(w.mask, [&](int i) {
    std::uint32_t same = 0;
    for_lanes(who, [&](int k) { same |= (a[k] == a[i] ? 1u : 0u) << k; });
    bool all = same == who;
    result[i] = kWhole ? (all ? who : 0) : same;
    equal_all |= (all ? 1u : 0u) << i;
  });
  auto* d = lanes<std::uint32_t>(r, o[0]);
  for_lanes(w.mask, [&](int i) { d[i] = result[i]; });
  set_predicate(r, o[1], w.mask, equal_all);
  return s + 1;
}

const Step* active_mask(const Step* s, std::byte* r, Warp& w) {
  auto* d = lanes<std::uint32_t>(r, s->d);
  for_lanes(w.mask, [&](int i) { d[i] = w.mask; });
  return s + 1;
}

/// operands: d, p, members. The lowest member is elected.
const Step* elect(const Step* s, std::byte* r, Warp& w) {
  const std::uint32_t* o = w.code->operands.data() + s->c;
  std::uint32_t members = lanes<std::uint32_t>(r, o[2])[std::countr_zero(w.mask)];
  if (const Step * next; !gather_members(s, w, members, &next)) return next;
  auto leader = static_cast<std::uint32_t>(std::countr_zero(members & w.mask));
  auto* d = lanes<std::uint32_t>(r, o[0]);
  for_lanes(w.mask, [&](int i) { d[i] = leader; });
  set_predicate(r, o[1], w.mask, leader < 32 ? 1u << leader : 0);
  return s + 1;
}

}  // namespace

Handler select_lanes(const Form& form) {
  switch (form.op) {
    case Op::kShfl:
      return form.mode == kUp          ? shfl<kUp>
             : form.mode == kDown      ? shfl<kDown>
             : form.mode == kButterfly ? shfl<kButterfly>
                                       : shfl<kIndex>;
    case Op::kVote:
      return form.mode == kAll ? vote<kAll> : form.mode == kAny ? vote<kAny> : vote<kUniform>;
    case Op::kBallot:
      return ballot;
    case Op::kRedux:
      if (form.type == Type::kF32)
        return form.reduce == Reduce::kMin   ? redux_float<false>
               : form.reduce == Reduce::kMax ? redux_float<true>
                                             : nullptr;
      if (form.absolute || form.nan) return nullptr;
      if (form.type == Type::kS32) return redux_of<std::int32_t>(form.reduce);
      if (ptx::size_of(form.type) == 4 && !ptx::is_float(form.type))
        return redux_of<std::uint32_t>(form.reduce);
      return nullptr;
    case Op::kMatchAny:
      return ptx::size_of(form.from) == 8 ? match<std::uint64_t, false>
                                          : match<std::uint32_t, false>;
    case Op::kMatchAll:
      return ptx::size_of(form.from) == 8 ? match<std::uint64_t, true> : match<std::uint32_t, true>;
    case Op::kActiveMask:
      return active_mask;
    case Op::kElect:
      return elect;
    default:
      return nullptr;
  }
}

}  // namespace tilewright::vgpu
