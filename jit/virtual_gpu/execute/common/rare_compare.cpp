// setp with two results or a predicate to combine with, comparisons of halves, set, isspacep.
#include "jit/virtual_gpu/execute/cluster.h"
#include "jit/virtual_gpu/execute/common/families.h"
#include "jit/virtual_gpu/execute/common/half_scalar.h"
#include "jit/virtual_gpu/execute/common/per_lane.h"

namespace tilewright::vgpu {
namespace {

template <class T>
bool test(Compare compare, T a, T b) {
  switch (compare) {
    case Compare::kEq:
      return a == b;
    case Compare::kNe:
      return a < b || a > b;
    case Compare::kLt:
      return a < b;
    case Compare::kLe:
      return a <= b;
    case Compare::kGt:
      return a > b;
    case Compare::kGe:
      return a >= b;
    case Compare::kEqu:
      return !(a < b || a > b);
    case Compare::kNeu:
      return a != b;
    case Compare::kLtu:
      return !(a >= b);
    case Compare::kLeu:
      return !(a > b);
    case Compare::kGtu:
      return !(a <= b);
    case Compare::kGeu:
      return !(a < b);
    case Compare::kNum:
      return a == a && b == b;
    case Compare::kNan:
      return a != a || b != b;
  }
  return false;
}
bool combine(Boolean boolean, bool a, bool b) {
  switch (boolean) {
    case Boolean::kAnd:
      return a && b;
    case Boolean::kOr:
      return a || b;
    case Boolean::kXor:
      return a != b;
    default:
      return a;
  }
}

/// How a lane's operand of a type is read: a value, or two for a pair.
template <class T>
struct Plain {
  using Register = T;
  static constexpr bool kPair = false;
  static T low(T a) { return a; }
  static T high(T a) { return a; }
};
struct FlushedFloat : Plain<float> {
  static float low(float a) { return scalar::flush(a); }
};
/// .ftz is of f16 only.
template <bool kBf16, bool kFtz = false>
struct HalfValue {
  using Register = std::uint16_t;
  static constexpr bool kPair = false;
  static float low(Register a) {
    if (kFtz && (a & 0x7c00u) == 0) a &= 0x8000u;
    return scalar::widen<kBf16>(a);
  }
  static float high(Register a) { return low(a); }
};
template <bool kBf16, bool kFtz = false>
struct HalfPair {
  using Register = std::uint32_t;
  static constexpr bool kPair = true;
  using One = HalfValue<kBf16, kFtz>;
  static float low(Register a) { return One::low(static_cast<std::uint16_t>(a)); }
  static float high(Register a) { return One::low(static_cast<std::uint16_t>(a >> 16)); }
};

/// The comparison and its combination lie in the step's immediate: compare | boolean << 8.
struct Packed {
  explicit Packed(std::int32_t immediate)
      : compare(static_cast<Compare>(immediate & 0xff)),
        boolean(static_cast<Boolean>(immediate >> 8 & 0xff)) {}
  Compare compare;
  Boolean boolean;
};

/// kTwo: operands d, q, a, b{, c}; else they are in the step.
template <class V, bool kTwo>
const Step* setp(const Step* s, std::byte* r, Warp& w) {
  const std::uint32_t* o = kTwo ? w.code->operands.data() + s->c : nullptr;
  Packed packed(s->immediate);
  const auto* a = lanes<typename V::Register>(r, s->a);
  const auto* b = lanes<typename V::Register>(r, s->b);
  std::uint32_t c = packed.boolean == Boolean::kNone ? 0 : predicate(r, kTwo ? o[4] : s->c);
  std::uint32_t p = 0, q = 0;
  for_lanes(w.mask, [&](int i) {
    bool with = (c >> i & 1) != 0;
    bool first = test(packed.compare, V::low(a[i]), V::low(b[i]));
    bool second = V::kPair ? test(packed.compare, V::high(a[i]), V::high(b[i])) : !first;
    p |= (combine(packed.boolean, first, with) ? 1u : 0u) << i;
    q |= (combine(packed.boolean, second, with) ? 1u : 0u) << i;
  });
  set_predicate(r, s->d, w.mask, p);
  if (kTwo) set_predicate(r, o[1], w.mask, q);
  return s + 1;
}
template <class V>
Handler setp_of(const Form& form) {
  return form.vector == 2 ? setp<V, true> : setp<V, false>;
}

enum class Truth { kMinusOne, kF32, kF16, kBf16 };

/// True is -1 in integers and 1.0 in floats.
template <class V, class D, Truth kTruth>
const Step* set(const Step* s, std::byte* r, Warp& w) {
  Packed packed(s->immediate);
  constexpr D yes = kTruth == Truth::kMinusOne ? static_cast<D>(~D{0})
                    : kTruth == Truth::kF32    ? static_cast<D>(0x3f800000u)
                    : kTruth == Truth::kF16    ? static_cast<D>(0x3c00)
                                               : static_cast<D>(0x3f80);
  auto* d = lanes<D>(r, s->d);
  const auto* a = lanes<typename V::Register>(r, s->a);
  const auto* b = lanes<typename V::Register>(r, s->b);
  std::uint32_t c = packed.boolean == Boolean::kNone ? 0 : predicate(r, s->c);
  for_lanes(w.mask, [&](int i) {
    bool with = (c >> i & 1) != 0;
    bool low = combine(packed.boolean, test(packed.compare, V::low(a[i]), V::low(b[i])), with);
    if constexpr (V::kPair && sizeof(D) == 4) {
      bool high = combine(packed.boolean, test(packed.compare, V::high(a[i]), V::high(b[i])), with);
      auto half = static_cast<D>(yes & 0xffff);
      d[i] = static_cast<D>((high ? half << 16 : 0) | (low ? half : 0));
    } else {
      d[i] = low ? yes : D{0};
    }
  });
  return s + 1;
}
template <class V>
Handler set_of(const Form& form) {
  using U16 = std::uint16_t;
  using U32 = std::uint32_t;
  switch (form.type) {
    case Type::kU16:
    case Type::kS16:
      return set<V, U16, Truth::kMinusOne>;
    case Type::kU32:
    case Type::kS32:
      return set<V, U32, Truth::kMinusOne>;
    case Type::kF32:
      return set<V, U32, Truth::kF32>;
    case Type::kF16:
      return set<V, U16, Truth::kF16>;
    case Type::kBF16:
      return set<V, U16, Truth::kBf16>;
    case Type::kF16x2:
      return set<V, U32, Truth::kF16>;
    case Type::kBF16x2:
      return set<V, U32, Truth::kBf16>;
    default:
      return nullptr;
  }
}

template <template <class> class Make>
Handler by_type(const Form& form) {
  switch (form.from) {
    case Type::kU16:
      return Make<Plain<std::uint16_t>>::handler(form);
    case Type::kS16:
      return Make<Plain<std::int16_t>>::handler(form);
    case Type::kU32:
      return Make<Plain<std::uint32_t>>::handler(form);
    case Type::kS32:
      return Make<Plain<std::int32_t>>::handler(form);
    case Type::kU64:
      return Make<Plain<std::uint64_t>>::handler(form);
    case Type::kS64:
      return Make<Plain<std::int64_t>>::handler(form);
    case Type::kF32:
      return form.ftz ? Make<FlushedFloat>::handler(form) : Make<Plain<float>>::handler(form);
    case Type::kF64:
      return Make<Plain<double>>::handler(form);
    case Type::kF16:
      return form.ftz ? Make<HalfValue<false, true>>::handler(form)
                      : Make<HalfValue<false>>::handler(form);
    case Type::kBF16:
      return form.ftz ? nullptr : Make<HalfValue<true>>::handler(form);
    case Type::kF16x2:
      return form.ftz ? Make<HalfPair<false, true>>::handler(form)
                      : Make<HalfPair<false>>::handler(form);
    case Type::kBF16x2:
      return form.ftz ? nullptr : Make<HalfPair<true>>::handler(form);
    default:
      return nullptr;
  }
}
template <class V>
struct MakeSetp {
  static Handler handler(const Form& form) { return setp_of<V>(form); }
};
template <class V>
struct MakeSet {
  static Handler handler(const Form& form) { return set_of<V>(form); }
};

/// kCluster: the windows of all blocks of the cluster, not only the own one.
template <Space kSpace, bool kCluster = false>
const Step* is_space(const Step* s, std::byte* r, Warp& w) {
  const auto* a = lanes<std::uint64_t>(r, s->a);
  std::uint32_t result = 0;
  for_lanes(w.mask, [&](int i) {
    auto in = [&](std::uint64_t base) { return a[i] - base < kWindowBytes; };
    bool shared = in(kSharedWindow), local = in(kLocalWindow), param = in(kParamWindow);
    auto rank = static_cast<std::uint32_t>(a[i]) >> kRankShift;  // plus one; 0: the own block
    bool own = rank == 0 || rank == w.block->rank + 1;
    bool yes = kSpace == Space::kShared  ? shared && (kCluster || own)
               : kSpace == Space::kLocal ? local
               : kSpace == Space::kParam ? param
                                         : !shared && !local && !param;
    result |= (yes ? 1u : 0u) << i;
  });
  set_predicate(r, s->d, w.mask, result);
  return s + 1;
}

}  // namespace

Handler select_rare_compare(const Form& form) {
  switch (form.op) {
    case Op::kSetp:
      return by_type<MakeSetp>(form);
    case Op::kSet:
      return by_type<MakeSet>(form);
    case Op::kIsSpace:
      if (form.space == Space::kShared && form.mode == 1) return is_space<Space::kShared, true>;
      return form.space == Space::kShared  ? is_space<Space::kShared>
             : form.space == Space::kLocal ? is_space<Space::kLocal>
             : form.space == Space::kParam ? is_space<Space::kParam>
                                           : is_space<Space::kGlobal>;
    default:
      return nullptr;
  }
}

}  // namespace tilewright::vgpu
