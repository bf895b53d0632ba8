// Saturating and extended-precision arithmetic, 24-bit products, dot products.
#include <algorithm>

#include "jit/virtual_gpu/execute/common/families.h"
#include "jit/virtual_gpu/execute/common/per_lane.h"

namespace tilewright::vgpu {
namespace {

using S32 = std::int32_t;
using U32 = std::uint32_t;
using S64 = std::int64_t;
using U64 = std::uint64_t;
using S128 = __int128;
using U128 = unsigned __int128;

S32 clamp_s32(S64 v) {
  return v > 0x7fffffff      ? 0x7fffffff
         : v < -0x80000000LL ? static_cast<S32>(0x80000000u)
                             : static_cast<S32>(v);
}
struct AddSat {
  static S32 op(S32 a, S32 b) { return clamp_s32(S64{a} + b); }
};
struct SubSat {
  static S32 op(S32 a, S32 b) { return clamp_s32(S64{a} - b); }
};
template <class Wide>
struct MulHi {
  template <class T>
  static T op(T a, T b) {
    return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b) >> (8 * sizeof(T)));
  }
};
template <class Wide>
struct MadHi {
  template <class T>
  static T op(T a, T b, T c) {
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Unsigned>(MulHi<Wide>::op(a, b)) + static_cast<Unsigned>(c));
  }
};
struct MadHiSat {
  static S32 op(S32 a, S32 b, S32 c) { return clamp_s32((S64{a} * b >> 32) + c); }
};
template <class T, bool kHigh>
struct Mul24 {
  static T op(T a, T b) {
    auto low = [](T v) -> S64 {
      if constexpr (std::is_signed_v<T>)
        return static_cast<S32>(static_cast<U32>(v) << 8) >> 8;
      else
        return v & 0xffffff;
    };
    S64 product = low(a) * low(b);
    return static_cast<T>(kHigh ? product >> 16 : product);
  }
  static T op(T a, T b, T c) {
    return static_cast<T>(static_cast<U32>(op(a, b)) + static_cast<U32>(c));
  }
};
struct Mad24HiSat {
  static S32 op(S32 a, S32 b, S32 c) { return clamp_s32(S64{Mul24<S32, true>::op(a, b)} + c); }
};
struct Sad {
  template <class T>
  static T op(T a, T b, T c) {
    using Unsigned = std::make_unsigned_t<T>;
    auto x = static_cast<Unsigned>(a), y = static_cast<Unsigned>(b);
    return static_cast<T>(static_cast<Unsigned>(c) + static_cast<Unsigned>(a < b ? y - x : x - y));
  }
};
template <class T>
struct MinRelu {
  static T op(T a, T b) { return std::max<T>(std::min(a, b), 0); }
};
template <class T>
struct MaxRelu {
  static T op(T a, T b) { return std::max<T>(std::max(a, b), 0); }
};

template <bool kSigned>
S32 byte_of(U32 v, int k) {
  U32 b = v >> (8 * k) & 0xff;
  return kSigned ? static_cast<std::int8_t>(b) : static_cast<S32>(b);
}
template <bool kSigned>
S32 half_of(U32 v, int k) {
  U32 h = v >> (16 * k) & 0xffff;
  return kSigned ? static_cast<std::int16_t>(h) : static_cast<S32>(h);
}
template <bool kA, bool kB>
struct Dp4a {
  static U32 op(U32 a, U32 b, U32 c) {
    for (int k = 0; k < 4; ++k) c += static_cast<U32>(byte_of<kA>(a, k) * byte_of<kB>(b, k));
    return c;
  }
};
template <bool kA, bool kB, bool kHigh>
struct Dp2a {
  static U32 op(U32 a, U32 b, U32 c) {
    for (int k = 0; k < 2; ++k)
      c += static_cast<U32>(half_of<kA>(a, k) * byte_of<kB>(b, k + (kHigh ? 2 : 0)));
    return c;
  }
};

/// add.cc, addc, sub.cc, subc: the carry lies in a bit per lane. kMode: 1 carry out, 2 carry in.
template <class T, bool kSubtract, int kMode>
const Step* carry2(const Step* s, std::byte* r, Warp& w) {
  auto* d = lanes<T>(r, s->d);
  const auto *a = lanes<T>(r, s->a), *b = lanes<T>(r, s->b);
  for_lanes(w.mask, [&](int i) {
    unsigned in = (kMode & 2) != 0 ? w.carry >> i & 1 : 0;
    U128 x = a[i], y = b[i];
    U128 result = kSubtract ? x - y - in : x + y + in;
    d[i] = static_cast<T>(result);
    if ((kMode & 1) != 0) {
      auto out = static_cast<U32>(result >> (8 * sizeof(T))) & 1;
      w.carry = (w.carry & ~(1u << i)) | out << i;
    }
  });
  return s + 1;
}
template <class T, bool kHigh, int kMode>
const Step* carry3(const Step* s, std::byte* r, Warp& w) {
  using Unsigned = std::make_unsigned_t<T>;
  auto* d = lanes<T>(r, s->d);
  const auto *a = lanes<T>(r, s->a), *b = lanes<T>(r, s->b), *c = lanes<T>(r, s->c);
  for_lanes(w.mask, [&](int i) {
    unsigned in = (kMode & 2) != 0 ? w.carry >> i & 1 : 0;
    S128 product = static_cast<S128>(a[i]) * static_cast<S128>(b[i]);
    if constexpr (!std::is_signed_v<T>)
      product = static_cast<S128>(static_cast<U128>(a[i]) * static_cast<U128>(b[i]));
    auto part = static_cast<Unsigned>(kHigh ? product >> (8 * sizeof(T)) : product);
    U128 result = static_cast<U128>(part) + static_cast<Unsigned>(c[i]) + in;
    d[i] = static_cast<T>(static_cast<Unsigned>(result));
    if ((kMode & 1) != 0) {
      auto out = static_cast<U32>(result >> (8 * sizeof(T))) & 1;
      w.carry = (w.carry & ~(1u << i)) | out << i;
    }
  });
  return s + 1;
}
template <class T, bool kSubtract>
Handler carries2(int mode) {
  return mode == 1   ? carry2<T, kSubtract, 1>
         : mode == 2 ? carry2<T, kSubtract, 2>
                     : carry2<T, kSubtract, 3>;
}
template <class T, bool kHigh>
Handler carries3(int mode) {
  return mode == 1 ? carry3<T, kHigh, 1> : mode == 2 ? carry3<T, kHigh, 2> : carry3<T, kHigh, 3>;
}

template <bool kHigh>
Handler mad_carry(const Form& form) {
  switch (form.type) {
    case Type::kU32:
      return carries3<U32, kHigh>(form.mode);
    case Type::kS32:
      return carries3<S32, kHigh>(form.mode);
    case Type::kU64:
      return carries3<U64, kHigh>(form.mode);
    case Type::kS64:
      return carries3<S64, kHigh>(form.mode);
    default:
      return nullptr;
  }
}

}  // namespace

Handler select_rare_integer(const Form& form) {
  Type t = form.type;
  switch (form.op) {
    case Op::kAdd:
      return form.saturate && t == Type::kS32 ? lane2<AddSat, S32, S32, S32> : nullptr;
    case Op::kSub:
      return form.saturate && t == Type::kS32 ? lane2<SubSat, S32, S32, S32> : nullptr;
    case Op::kMulHi:
      return t == Type::kU64   ? lane2<MulHi<U128>, U64, U64, U64>
             : t == Type::kS64 ? lane2<MulHi<S128>, S64, S64, S64>
                               : nullptr;
    case Op::kMadHi:
      if (form.saturate) return t == Type::kS32 ? lane3<MadHiSat, S32, S32, S32, S32> : nullptr;
      switch (t) {
        case Type::kU16:
          return lane3<MadHi<U32>, std::uint16_t, std::uint16_t, std::uint16_t, std::uint16_t>;
        case Type::kS16:
          return lane3<MadHi<S32>, std::int16_t, std::int16_t, std::int16_t, std::int16_t>;
        case Type::kU32:
          return lane3<MadHi<U64>, U32, U32, U32, U32>;
        case Type::kS32:
          return lane3<MadHi<S64>, S32, S32, S32, S32>;
        case Type::kU64:
          return lane3<MadHi<U128>, U64, U64, U64, U64>;
        case Type::kS64:
          return lane3<MadHi<S128>, S64, S64, S64, S64>;
        default:
          return nullptr;
      }
    case Op::kMul24:
      if (t == Type::kS32)
        return form.mode != 0 ? lane2<Mul24<S32, true>, S32, S32, S32>
                              : lane2<Mul24<S32, false>, S32, S32, S32>;
      return form.mode != 0 ? lane2<Mul24<U32, true>, U32, U32, U32>
                            : lane2<Mul24<U32, false>, U32, U32, U32>;
    case Op::kMad24:
      if (form.saturate) return lane3<Mad24HiSat, S32, S32, S32, S32>;
      if (t == Type::kS32)
        return form.mode != 0 ? lane3<Mul24<S32, true>, S32, S32, S32, S32>
                              : lane3<Mul24<S32, false>, S32, S32, S32, S32>;
      return form.mode != 0 ? lane3<Mul24<U32, true>, U32, U32, U32, U32>
                            : lane3<Mul24<U32, false>, U32, U32, U32, U32>;
    case Op::kSad:
      switch (t) {
        case Type::kU16:
          return lane3<Sad, std::uint16_t, std::uint16_t, std::uint16_t, std::uint16_t>;
        case Type::kS16:
          return lane3<Sad, std::int16_t, std::int16_t, std::int16_t, std::int16_t>;
        case Type::kU32:
          return lane3<Sad, U32, U32, U32, U32>;
        case Type::kS32:
          return lane3<Sad, S32, S32, S32, S32>;
        case Type::kU64:
          return lane3<Sad, U64, U64, U64, U64>;
        case Type::kS64:
          return lane3<Sad, S64, S64, S64, S64>;
        default:
          return nullptr;
      }
    case Op::kMin:
      return form.relu && t == Type::kS32 ? lane2<MinRelu<S32>, S32, S32, S32> : nullptr;
    case Op::kMax:
      return form.relu && t == Type::kS32 ? lane2<MaxRelu<S32>, S32, S32, S32> : nullptr;
    case Op::kDp4a:
      switch (form.mode) {
        case 0:
          return lane3<Dp4a<false, false>, U32, U32, U32, U32>;
        case 1:
          return lane3<Dp4a<true, false>, U32, U32, U32, U32>;
        case 2:
          return lane3<Dp4a<false, true>, U32, U32, U32, U32>;
        default:
          return lane3<Dp4a<true, true>, U32, U32, U32, U32>;
      }
    case Op::kDp2a: {
      bool high = form.integral;
      switch (form.mode) {
        case 0:
          return high ? lane3<Dp2a<false, false, true>, U32, U32, U32, U32>
                      : lane3<Dp2a<false, false, false>, U32, U32, U32, U32>;
        case 1:
          return high ? lane3<Dp2a<true, false, true>, U32, U32, U32, U32>
                      : lane3<Dp2a<true, false, false>, U32, U32, U32, U32>;
        case 2:
          return high ? lane3<Dp2a<false, true, true>, U32, U32, U32, U32>
                      : lane3<Dp2a<false, true, false>, U32, U32, U32, U32>;
        default:
          return high ? lane3<Dp2a<true, true, true>, U32, U32, U32, U32>
                      : lane3<Dp2a<true, true, false>, U32, U32, U32, U32>;
      }
    }
    case Op::kAddCarry:
      return t == Type::kU32   ? carries2<U32, false>(form.mode)
             : t == Type::kU64 ? carries2<U64, false>(form.mode)
                               : nullptr;
    case Op::kSubCarry:
      return t == Type::kU32   ? carries2<U32, true>(form.mode)
             : t == Type::kU64 ? carries2<U64, true>(form.mode)
                               : nullptr;
    case Op::kMadCarryLo:
      return mad_carry<false>(form);
    case Op::kMadCarryHi:
      return mad_carry<true>(form);
    default:
      return nullptr;
  }
}

}  // namespace tilewright::vgpu
