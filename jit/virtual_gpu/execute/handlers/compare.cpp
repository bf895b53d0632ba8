// setp with one result and no predicate to combine with; selp, slct. The rarer forms of setp, and
// set, are in common/compare.cpp.
#include "jit/virtual_gpu/execute/handlers/float_math.h"

namespace tilewright::vgpu::VGPU_LEVEL {
namespace {

template <Compare kCompare>
struct Test {
  template <class T>
  VGPU_INLINE bool op(T a, T b) {
    // Unordered comparisons are the negation of the opposite ordered ones.
    switch (kCompare) {
      case Compare::kEq:
        return a == b;
      case Compare::kNe:
        return (a < b) | (a > b);
      case Compare::kLt:
        return a < b;
      case Compare::kLe:
        return a <= b;
      case Compare::kGt:
        return a > b;
      case Compare::kGe:
        return a >= b;
      case Compare::kEqu:
        return !((a < b) | (a > b));
      case Compare::kNeu:
        return !(a == b);
      case Compare::kLtu:
        return !(a >= b);
      case Compare::kLeu:
        return !(a > b);
      case Compare::kGtu:
        return !(a <= b);
      case Compare::kGeu:
        return !(a < b);
      case Compare::kNum:
        return (a == a) & (b == b);
      case Compare::kNan:
        return (a != a) | (b != b);
    }
  }
};

template <Compare kCompare, class T, bool kFtz>
const Step* setp(const Step* s, std::byte* r, Warp& w) {
  const T *a = lanes<T>(r, s->a), *b = lanes<T>(r, s->b);
  alignas(32) uint8_t t[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    if constexpr (kFtz)
      t[i] = Test<kCompare>::op(flush(a[i]), flush(b[i])) ? 0xff : 0;
    else
      t[i] = Test<kCompare>::op(a[i], b[i]) ? 0xff : 0;
  }
  uint32_t& d = predicate(r, s->d);
  d = (d & ~w.mask) | (pack_bytes(t) & w.mask);
  return s + 1;
}

template <class T, bool kFtz = false>
Handler ordered(Compare compare) {
  switch (compare) {
    case Compare::kEq:
      return setp<Compare::kEq, T, kFtz>;
    case Compare::kNe:
      return setp<Compare::kNe, T, kFtz>;
    case Compare::kLt:
      return setp<Compare::kLt, T, kFtz>;
    case Compare::kLe:
      return setp<Compare::kLe, T, kFtz>;
    case Compare::kGt:
      return setp<Compare::kGt, T, kFtz>;
    case Compare::kGe:
      return setp<Compare::kGe, T, kFtz>;
    default:
      return nullptr;
  }
}
template <class T, bool kFtz = false>
Handler floating(Compare compare) {
  switch (compare) {
    case Compare::kEqu:
      return setp<Compare::kEqu, T, kFtz>;
    case Compare::kNeu:
      return setp<Compare::kNeu, T, kFtz>;
    case Compare::kLtu:
      return setp<Compare::kLtu, T, kFtz>;
    case Compare::kLeu:
      return setp<Compare::kLeu, T, kFtz>;
    case Compare::kGtu:
      return setp<Compare::kGtu, T, kFtz>;
    case Compare::kGeu:
      return setp<Compare::kGeu, T, kFtz>;
    case Compare::kNum:
      return setp<Compare::kNum, T, kFtz>;
    case Compare::kNan:
      return setp<Compare::kNan, T, kFtz>;
    default:
      return ordered<T, kFtz>(compare);
  }
}

Handler select_setp(const Form& form) {
  if (form.boolean != Boolean::kNone || form.vector != 1) return nullptr;
  switch (form.from) {
    case Type::kU16:
      return ordered<uint16_t>(form.compare);
    case Type::kS16:
      return ordered<int16_t>(form.compare);
    case Type::kU32:
      return ordered<uint32_t>(form.compare);
    case Type::kS32:
      return ordered<int32_t>(form.compare);
    case Type::kU64:
      return ordered<uint64_t>(form.compare);
    case Type::kS64:
      return ordered<int64_t>(form.compare);
    case Type::kF32:
      return form.ftz ? floating<float, true>(form.compare) : floating<float>(form.compare);
    case Type::kF64:
      return floating<double>(form.compare);
    default:
      return nullptr;
  }
}

template <class T>
const Step* selp(const Step* s, std::byte* r, Warp& w) {
  T* d = lanes<T>(r, s->d);
  const T *a = lanes<T>(r, s->a), *b = lanes<T>(r, s->b);
  uint32_t p = predicate(r, s->c);
  if (w.full) [[likely]] {
#pragma GCC ivdep
    for (int i = 0; i < kLanes; ++i) d[i] = (p >> i & 1) != 0 ? a[i] : b[i];
  } else {
    alignas(64) T t[kLanes];
    for (int i = 0; i < kLanes; ++i) t[i] = (p >> i & 1) != 0 ? a[i] : b[i];
    blend(d, t, w.mask);
  }
  return s + 1;
}

struct SelectSigned {
  template <class T>
  VGPU_INLINE T op(T a, T b, int32_t c) {
    return c >= 0 ? a : b;
  }
};
template <bool kFtz>
struct SelectFloat {
  template <class T>
  VGPU_INLINE T op(T a, T b, float c) {
    return (kFtz ? flush(c) : c) >= 0.0f ? a : b;
  }
};
template <class T>
Handler slct(const Form& form) {
  if (form.from == Type::kS32) return map3<SelectSigned, T, T, T, int32_t>;
  if (form.from != Type::kF32) return nullptr;
  return form.ftz ? map3<SelectFloat<true>, T, T, T, float>
                  : map3<SelectFloat<false>, T, T, T, float>;
}

}  // namespace

Handler select_compare(const Form& form) {
  int bytes = ptx::size_of(form.type);
  switch (form.op) {
    case Op::kSetp:
      return select_setp(form);
    case Op::kSelp:
      return bytes == 2   ? selp<uint16_t>
             : bytes == 4 ? selp<uint32_t>
             : bytes == 8 ? selp<uint64_t>
                          : nullptr;
    case Op::kSlct:
      return bytes == 2   ? slct<uint16_t>(form)
             : bytes == 4 ? slct<uint32_t>(form)
             : bytes == 8 ? slct<uint64_t>(form)
                          : nullptr;
    default:
      return nullptr;
  }
}

}  // namespace tilewright::vgpu::VGPU_LEVEL
