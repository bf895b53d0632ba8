// Bit fields and counts, and the rarer ways to pack and permute.
#include "jit/virtual_gpu/execute/common/families.h"
#include "jit/virtual_gpu/execute/common/per_lane.h"

namespace tilewright::vgpu {
namespace {

template <class T>
constexpr std::uint32_t kBits = 8 * sizeof(T);

/// PTX ISA, "bfi". operands: d, a (what is inserted), b (into what), position, length.
template <class T>
const Step* bfi(const Step* s, std::byte* r, Warp& w) {
  const std::uint32_t* o = w.code->operands.data() + s->c;
  auto* d = lanes<T>(r, o[0]);
  const auto *a = lanes<T>(r, o[1]), *b = lanes<T>(r, o[2]);
  const auto *position = lanes<std::uint32_t>(r, o[3]), *length = lanes<std::uint32_t>(r, o[4]);
  for_lanes(w.mask, [&](int i) {
    std::uint32_t at = position[i] & 0xff, n = length[i] & 0xff;
    T result = b[i];
    if (at < kBits<T> && n > 0) {
      T ones = n >= kBits<T> ? ~T{0} : static_cast<T>((T{1} << n) - 1);
      T field = static_cast<T>(ones << at);
      result = (result & ~field) | (static_cast<T>(a[i] << at) & field);
    }
    d[i] = result;
  });
  return s + 1;
}

/// Bits beyond the most significant one are copies of it (of the field's, if that ends earlier), for
/// signed types.
struct Bfe {
  template <class T>
  static T op(T a, std::uint32_t position, std::uint32_t length) {
    using Unsigned = std::make_unsigned_t<T>;
    std::uint32_t at = position & 0xff, n = length & 0xff, msb = kBits<T> - 1;
    auto u = static_cast<Unsigned>(a);
    bool sign = false;
    if (std::is_signed_v<T> && n != 0) {
      std::uint32_t from = at + n - 1 < msb ? at + n - 1 : msb;
      sign = (u >> from & 1) != 0;
    }
    Unsigned result = sign ? ~Unsigned{0} : Unsigned{0};
    for (std::uint32_t i = 0; i <= msb; ++i) {
      if (i >= n || at + i > msb) break;
      Unsigned bit = Unsigned{1} << i;
      result = (u >> (at + i) & 1) != 0 ? result | bit : result & ~bit;
    }
    return static_cast<T>(result);
  }
};

struct Brev {
  template <class T>
  static T op(T a) {
    T result = 0;
    for (std::uint32_t i = 0; i < kBits<T>; ++i)
      result |= static_cast<T>((a >> i & 1) << (kBits<T> - 1 - i));
    return result;
  }
};
struct Clz {
  template <class T>
  static std::uint32_t op(T a) {
    return static_cast<std::uint32_t>(std::countl_zero(a));
  }
};
struct Popc {
  template <class T>
  static std::uint32_t op(T a) {
    return static_cast<std::uint32_t>(std::popcount(a));
  }
};
/// The most significant bit that is not a sign bit.
template <bool kShift>
struct Bfind {
  template <class T>
  static std::uint32_t op(T a) {
    using Unsigned = std::make_unsigned_t<T>;
    auto u = static_cast<Unsigned>(a);
    if (std::is_signed_v<T> && a < 0) u = ~u;
    if (u == 0) return 0xffffffffu;
    auto at = kBits<T> - 1 - static_cast<std::uint32_t>(std::countl_zero(u));
    return kShift ? kBits<T> - 1 - at : at;
  }
};
/// PTX ISA, "fns": the n-th set bit from a base, upwards or downwards.
struct Fns {
  static std::uint32_t op(std::uint32_t mask, std::uint32_t base, std::int32_t offset) {
    if (offset == 0) return base < 32 && (mask >> base & 1) != 0 ? base : 0xffffffffu;
    std::int32_t step = offset > 0 ? 1 : -1, left = offset > 0 ? offset : -offset;
    for (auto i = static_cast<std::int32_t>(base); i >= 0 && i < 32; i += step)
      if ((mask >> i & 1) != 0 && --left == 0) return static_cast<std::uint32_t>(i);
    return 0xffffffffu;
  }
};
template <bool kWrap>
struct Bmsk {
  static std::uint32_t op(std::uint32_t a, std::uint32_t b) {
    std::uint32_t at = kWrap ? a & 31 : a, n = kWrap ? b & 31 : b;
    if (at >= 32) return 0;
    std::uint32_t ones = n >= 32 ? 0xffffffffu : (1u << n) - 1;
    return ones << at;
  }
};
template <bool kWrap>
struct Szext {
  template <class T>
  static T op(T a, std::uint32_t b) {
    std::uint32_t n = kWrap ? b & 31 : b;
    if (n == 0) return 0;
    if (n >= 32) return a;
    return static_cast<T>(static_cast<T>(static_cast<std::uint32_t>(a) << (32 - n)) >> (32 - n));
  }
};

/// PTX ISA, "prmt": the modes other than the default.
template <int kMode>
struct Permute {
  static std::uint32_t op(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
    std::uint64_t pair = static_cast<std::uint64_t>(b) << 32 | a;
    std::uint32_t n = c & 3, result = 0;
    for (std::uint32_t k = 0; k < 4; ++k) {
      std::uint32_t choice = 0;
      switch (kMode) {
        case 1:
          choice = n + k;
          break;  // f4e
        case 2:
          choice = (n - k) & 7;
          break;  // b4e
        case 3:
          choice = n;
          break;  // rc8
        case 4:
          choice = k > n ? k : n;
          break;  // ecl
        case 5:
          choice = k < n ? k : n;
          break;  // ecr
        default:
          choice = (n & 1) * 2 + (k & 1);
          break;  // rc16
      }
      result |= (static_cast<std::uint32_t>(pair >> (8 * choice)) & 0xff) << (8 * k);
    }
    return result;
  }
};

/// operands: d, parts from the lowest.
template <class Whole, class Part, int kCount>
const Step* pack(const Step* s, std::byte* r, Warp& w) {
  const std::uint32_t* o = w.code->operands.data() + s->c;
  constexpr int kPartBits = static_cast<int>(8 * sizeof(Whole)) / kCount;
  constexpr auto kLow = static_cast<Whole>((Whole{1} << kPartBits) - 1);
  for_lanes(w.mask, [&](int i) {
    Whole value = 0;
    for (int k = 0; k < kCount; ++k)
      value |= static_cast<Whole>((static_cast<Whole>(lanes<Part>(r, o[1 + k])[i]) & kLow)
                                  << (k * kPartBits));
    lanes<Whole>(r, o[0])[i] = value;
  });
  return s + 1;
}
template <class Whole, class Part, int kCount>
const Step* unpack(const Step* s, std::byte* r, Warp& w) {
  const std::uint32_t* o = w.code->operands.data() + s->c;
  constexpr int kPartBits = static_cast<int>(8 * sizeof(Whole)) / kCount;
  constexpr auto kLow = static_cast<Whole>((Whole{1} << kPartBits) - 1);
  for_lanes(w.mask, [&](int i) {
    Whole value = lanes<Whole>(r, o[kCount])[i];
    for (int k = 0; k < kCount; ++k)
      lanes<Part>(r, o[k])[i] = static_cast<Part>((value >> (k * kPartBits)) & kLow);
  });
  return s + 1;
}

template <class F>
Handler counted(Type from) {
  switch (ptx::size_of(from)) {
    case 4:
      return lane1<F, std::uint32_t, std::uint32_t>;
    case 8:
      return lane1<F, std::uint32_t, std::uint64_t>;
    default:
      return nullptr;
  }
}
template <bool kShift>
Handler bfind(Type from) {
  switch (from) {
    case Type::kS32:
      return lane1<Bfind<kShift>, std::uint32_t, std::int32_t>;
    case Type::kU32:
      return lane1<Bfind<kShift>, std::uint32_t, std::uint32_t>;
    case Type::kS64:
      return lane1<Bfind<kShift>, std::uint32_t, std::int64_t>;
    case Type::kU64:
      return lane1<Bfind<kShift>, std::uint32_t, std::uint64_t>;
    default:
      return nullptr;
  }
}
Handler bfe(Type type) {
  using U32 = std::uint32_t;
  switch (type) {
    case Type::kS32:
      return lane3<Bfe, std::int32_t, std::int32_t, U32, U32>;
    case Type::kU32:
      return lane3<Bfe, U32, U32, U32, U32>;
    case Type::kS64:
      return lane3<Bfe, std::int64_t, std::int64_t, U32, U32>;
    case Type::kU64:
      return lane3<Bfe, std::uint64_t, std::uint64_t, U32, U32>;
    default:
      return nullptr;
  }
}
Handler permute(int mode) {
  using U32 = std::uint32_t;
  switch (mode) {
    case 1:
      return lane3<Permute<1>, U32, U32, U32, U32>;
    case 2:
      return lane3<Permute<2>, U32, U32, U32, U32>;
    case 3:
      return lane3<Permute<3>, U32, U32, U32, U32>;
    case 4:
      return lane3<Permute<4>, U32, U32, U32, U32>;
    case 5:
      return lane3<Permute<5>, U32, U32, U32, U32>;
    case 6:
      return lane3<Permute<6>, U32, U32, U32, U32>;
    default:
      return nullptr;
  }
}

}  // namespace

Handler select_rare_bits(const Form& form) {
  using U16 = std::uint16_t;
  using U32 = std::uint32_t;
  using U64 = std::uint64_t;
  int bytes = ptx::size_of(form.type);
  switch (form.op) {
    case Op::kBfi:
      return bytes == 4 ? bfi<U32> : bytes == 8 ? bfi<U64> : nullptr;
    case Op::kBfe:
      return bfe(form.type);
    case Op::kBrev:
      return bytes == 4 ? lane1<Brev, U32, U32> : bytes == 8 ? lane1<Brev, U64, U64> : nullptr;
    case Op::kClz:
      return counted<Clz>(form.from);
    case Op::kPopc:
      return counted<Popc>(form.from);
    case Op::kBfind:
      return form.mode != 0 ? bfind<true>(form.from) : bfind<false>(form.from);
    case Op::kFns:
      return lane3<Fns, U32, U32, U32, std::int32_t>;
    case Op::kBmsk:
      return form.integral ? lane2<Bmsk<true>, U32, U32, U32> : lane2<Bmsk<false>, U32, U32, U32>;
    case Op::kSzext:
      if (form.type == Type::kS32)
        return form.integral ? lane2<Szext<true>, std::int32_t, std::int32_t, U32>
                             : lane2<Szext<false>, std::int32_t, std::int32_t, U32>;
      return form.integral ? lane2<Szext<true>, U32, U32, U32> : lane2<Szext<false>, U32, U32, U32>;
    case Op::kPrmt:
      return permute(form.mode);
    case Op::kPack:
      if (form.vector == 2) return bytes == 2 ? pack<U16, U16, 2> : nullptr;
      return bytes == 4 ? pack<U32, U16, 4> : bytes == 8 ? pack<U64, U16, 4> : nullptr;
    case Op::kUnpack:
      if (form.vector == 2) return bytes == 2 ? unpack<U16, U16, 2> : nullptr;
      return bytes == 4 ? unpack<U32, U16, 4> : bytes == 8 ? unpack<U64, U16, 4> : nullptr;
    default:
      return nullptr;
  }
}

}  // namespace tilewright::vgpu
