// Logic, shifts, packing and bit fields.
#include "jit/virtual_gpu/execute/handlers/lanes.h"

namespace tilewright::vgpu::VGPU_LEVEL {
namespace {

struct And {
  template <class T>
  VGPU_INLINE T op(T a, T b) {
    return a & b;
  }
};
struct Or {
  template <class T>
  VGPU_INLINE T op(T a, T b) {
    return a | b;
  }
};
struct Xor {
  template <class T>
  VGPU_INLINE T op(T a, T b) {
    return a ^ b;
  }
};
struct Not {
  template <class T>
  VGPU_INLINE T op(T a) {
    return static_cast<T>(~a);
  }
};
struct Cnot {
  template <class T>
  VGPU_INLINE T op(T a) {
    return a == 0 ? 1 : 0;
  }
};
// Amounts of the width and more shift everything out; the amount is always of 32 bits.
struct Shl {
  template <class T>
  VGPU_INLINE T op(T a, uint32_t n) {
    constexpr uint32_t kBits = 8 * sizeof(T);
    return n >= kBits ? T{0} : static_cast<T>(a << (n & (kBits - 1)));
  }
};
struct Shr {
  template <class T>
  VGPU_INLINE T op(T a, uint32_t n) {
    constexpr uint32_t kBits = 8 * sizeof(T);
    if constexpr (std::is_signed_v<T>)
      return static_cast<T>(a >> (n >= kBits ? kBits - 1 : n));
    else
      return n >= kBits ? T{0} : static_cast<T>(a >> (n & (kBits - 1)));
  }
};
template <bool kLeft, bool kWrap>
struct Funnel {
  VGPU_INLINE uint32_t op(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t n = kWrap ? (c & 31) : (c > 32 ? 32 : c);
    uint64_t pair = static_cast<uint64_t>(b) << 32 | a;
    return kLeft ? static_cast<uint32_t>(pair << n >> 32) : static_cast<uint32_t>(pair >> n);
  }
};
/// prmt without a mode: byte k of the result is the one that nibble k of c chooses; with its
/// highest bit set, that byte's sign, eight times.
struct Permute {
  VGPU_INLINE uint32_t op(uint32_t a, uint32_t b, uint32_t c) {
    uint64_t pair = static_cast<uint64_t>(b) << 32 | a;
    uint32_t result = 0;
    for (int k = 0; k < 4; ++k) {
      uint32_t choice = c >> (4 * k);
      uint32_t byte = static_cast<uint32_t>(pair >> (8 * (choice & 7))) & 0xff;
      uint32_t sign = (byte >> 7) * 0xff;
      result |= ((choice & 8) != 0 ? sign : byte) << (8 * k);
    }
    return result;
  }
};

template <class F>
Handler any2(int bytes) {
  switch (bytes) {
    case 2:
      return map2<F, uint16_t, uint16_t, uint16_t>;
    case 4:
      return map2<F, uint32_t, uint32_t, uint32_t>;
    case 8:
      return map2<F, uint64_t, uint64_t, uint64_t>;
    default:
      return nullptr;
  }
}
template <class F>
Handler any1(int bytes) {
  switch (bytes) {
    case 2:
      return map1<F, uint16_t, uint16_t>;
    case 4:
      return map1<F, uint32_t, uint32_t>;
    case 8:
      return map1<F, uint64_t, uint64_t>;
    default:
      return nullptr;
  }
}
Handler shift_left(int bytes) {
  switch (bytes) {
    case 2:
      return map2<Shl, uint16_t, uint16_t, uint32_t>;
    case 4:
      return map2<Shl, uint32_t, uint32_t, uint32_t>;
    case 8:
      return map2<Shl, uint64_t, uint64_t, uint32_t>;
    default:
      return nullptr;
  }
}
Handler shift_right(Type type) {
  switch (type) {
    case Type::kS16:
      return map2<Shr, int16_t, int16_t, uint32_t>;
    case Type::kS32:
      return map2<Shr, int32_t, int32_t, uint32_t>;
    case Type::kS64:
      return map2<Shr, int64_t, int64_t, uint32_t>;
    case Type::kU16:
    case Type::kB16:
      return map2<Shr, uint16_t, uint16_t, uint32_t>;
    case Type::kU32:
    case Type::kB32:
      return map2<Shr, uint32_t, uint32_t, uint32_t>;
    case Type::kU64:
    case Type::kB64:
      return map2<Shr, uint64_t, uint64_t, uint32_t>;
    default:
      return nullptr;
  }
}

/// The lookup table holds the result for each of the eight combinations of three bits.
template <class T>
const Step* lop3(const Step* s, std::byte* r, Warp& w) {
  T* d = lanes<T>(r, s->d);
  const T *a = lanes<T>(r, s->a), *b = lanes<T>(r, s->b), *c = lanes<T>(r, s->c);
  T minterm[8];
  for (int k = 0; k < 8; ++k) minterm[k] = (s->immediate >> k & 1) != 0 ? ~T{0} : T{0};
  alignas(64) T t[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    T x = a[i], y = b[i], z = c[i];
    T low = (~y & ~z & minterm[0]) | (~y & z & minterm[1]) | (y & ~z & minterm[2]) |
            (y & z & minterm[3]);
    T high = (~y & ~z & minterm[4]) | (~y & z & minterm[5]) | (y & ~z & minterm[6]) |
             (y & z & minterm[7]);
    t[i] = (~x & low) | (x & high);
  }
  blend(d, t, w.mask);
  return s + 1;
}

template <class Whole, class Part>
const Step* unpack2(const Step* s, std::byte* r, Warp& w) {
  const uint32_t* o = w.code->operands.data() + s->c;
  Part *low = lanes<Part>(r, o[0]), *high = lanes<Part>(r, o[1]);
  const Whole* a = lanes<Whole>(r, s->a);
  constexpr int kBits = 8 * sizeof(Part);
  if (w.full) [[likely]] {
#pragma GCC ivdep
    for (int i = 0; i < kLanes; ++i) low[i] = static_cast<Part>(a[i]);
#pragma GCC ivdep
    for (int i = 0; i < kLanes; ++i) high[i] = static_cast<Part>(a[i] >> kBits);
  } else {
    for (int i = 0; i < kLanes; ++i) {
      if ((w.mask >> i & 1) == 0) continue;
      low[i] = static_cast<Part>(a[i]);
      high[i] = static_cast<Part>(a[i] >> kBits);
    }
  }
  return s + 1;
}
/// The elements of a packed pair are operands of a vector form.
template <class Whole, class Part>
const Step* pack2(const Step* s, std::byte* r, Warp& w) {
  Whole* d = lanes<Whole>(r, s->d);
  const Part *a = lanes<Part>(r, s->a), *b = lanes<Part>(r, s->b);
  constexpr int kBits = 8 * sizeof(Part);
  alignas(64) Whole t[kLanes];
  for (int i = 0; i < kLanes; ++i)
    t[i] = static_cast<Whole>(static_cast<Whole>(b[i]) << kBits | a[i]);
  blend(d, t, w.mask);
  return s + 1;
}

const Step* and_predicate(const Step* s, std::byte* r, Warp& w) {
  uint32_t& d = predicate(r, s->d);
  d = (d & ~w.mask) | (predicate(r, s->a) & predicate(r, s->b) & w.mask);
  return s + 1;
}
const Step* or_predicate(const Step* s, std::byte* r, Warp& w) {
  uint32_t& d = predicate(r, s->d);
  d = (d & ~w.mask) | ((predicate(r, s->a) | predicate(r, s->b)) & w.mask);
  return s + 1;
}
const Step* xor_predicate(const Step* s, std::byte* r, Warp& w) {
  uint32_t& d = predicate(r, s->d);
  d = (d & ~w.mask) | ((predicate(r, s->a) ^ predicate(r, s->b)) & w.mask);
  return s + 1;
}
const Step* not_predicate(const Step* s, std::byte* r, Warp& w) {
  uint32_t& d = predicate(r, s->d);
  d = (d & ~w.mask) | (~predicate(r, s->a) & w.mask);
  return s + 1;
}
const Step* move_predicate(const Step* s, std::byte* r, Warp& w) {
  uint32_t& d = predicate(r, s->d);
  d = (d & ~w.mask) | (predicate(r, s->a) & w.mask);
  return s + 1;
}

}  // namespace

Handler select_bits(const Form& form) {
  int bytes = ptx::size_of(form.type);
  bool pred = form.type == Type::kPred;
  switch (form.op) {
    case Op::kMov:
      return pred ? move_predicate : nullptr;
    case Op::kAnd:
      return pred ? and_predicate : any2<And>(bytes);
    case Op::kOr:
      return pred ? or_predicate : any2<Or>(bytes);
    case Op::kXor:
      return pred ? xor_predicate : any2<Xor>(bytes);
    case Op::kNot:
      return pred ? not_predicate : any1<Not>(bytes);
    case Op::kCnot:
      return any1<Cnot>(bytes);
    case Op::kShl:
      return shift_left(bytes);
    case Op::kShr:
      return shift_right(form.type);
    case Op::kShfLeft:
      return form.integral ? map3<Funnel<true, true>, uint32_t, uint32_t, uint32_t, uint32_t>
                           : map3<Funnel<true, false>, uint32_t, uint32_t, uint32_t, uint32_t>;
    case Op::kShfRight:
      return form.integral ? map3<Funnel<false, true>, uint32_t, uint32_t, uint32_t, uint32_t>
                           : map3<Funnel<false, false>, uint32_t, uint32_t, uint32_t, uint32_t>;
    case Op::kLop3:
      return bytes == 4 ? lop3<uint32_t> : nullptr;
    case Op::kPrmt:
      return form.mode == 0 ? map3<Permute, uint32_t, uint32_t, uint32_t, uint32_t> : nullptr;
    case Op::kPack:
      if (form.vector != 2) return nullptr;
      return bytes == 4   ? pack2<uint32_t, uint16_t>
             : bytes == 8 ? pack2<uint64_t, uint32_t>
                          : nullptr;
    case Op::kUnpack:
      if (form.vector != 2) return nullptr;
      return bytes == 4   ? unpack2<uint32_t, uint16_t>
             : bytes == 8 ? unpack2<uint64_t, uint32_t>
                          : nullptr;
    default:
      return nullptr;
  }
}

}  // namespace tilewright::vgpu::VGPU_LEVEL
