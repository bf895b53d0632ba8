// atom and red. Lane after lane; across host threads they are atomic on the host, too.
#include "jit/virtual_gpu/execute/common/families.h"
#include "jit/virtual_gpu/execute/common/half_scalar.h"
#include "jit/virtual_gpu/execute/common/per_lane.h"

namespace tilewright::vgpu {
namespace {

template <class T>
struct Integer {
  using Bits = std::make_unsigned_t<T>;
  static Bits apply(Reduce op, Bits old, Bits b, Bits c) {
    switch (op) {
      case Reduce::kAnd:
        return old & b;
      case Reduce::kOr:
        return old | b;
      case Reduce::kXor:
        return old ^ b;
      case Reduce::kExch:
        return b;
      case Reduce::kAdd:
        return static_cast<Bits>(old + b);
      case Reduce::kInc:
        return old >= b ? 0 : static_cast<Bits>(old + 1);
      case Reduce::kDec:
        return old == 0 || old > b ? b : static_cast<Bits>(old - 1);
      case Reduce::kMin:
        return static_cast<T>(old) < static_cast<T>(b) ? old : b;
      case Reduce::kMax:
        return static_cast<T>(old) > static_cast<T>(b) ? old : b;
      case Reduce::kCas:
        return old == b ? c : old;
      default:
        return old;
    }
  }
};
/// add.f32 in global memory flushes subnormals on a GPU; here it does not, as in shared memory.
struct Float32 {
  using Bits = std::uint32_t;
  static Bits apply(Reduce op, Bits old, Bits b, Bits) {
    if (op == Reduce::kExch) return b;
    float sum = std::bit_cast<float>(old) + std::bit_cast<float>(b);
    return sum != sum ? 0x7fffffffu : std::bit_cast<Bits>(sum);
  }
};
struct Float64 {
  using Bits = std::uint64_t;
  static Bits apply(Reduce op, Bits old, Bits b, Bits) {
    if (op == Reduce::kExch) return b;
    return std::bit_cast<Bits>(std::bit_cast<double>(old) + std::bit_cast<double>(b));
  }
};
template <bool kBf16>
struct Half {
  using Bits = std::uint16_t;
  static Bits apply(Reduce op, Bits old, Bits b, Bits) {
    float x = scalar::widen<kBf16>(old), y = scalar::widen<kBf16>(b);
    switch (op) {
      case Reduce::kMin:
        return x != x || y < x ? b : old;
      case Reduce::kMax:
        return x != x || y > x ? b : old;
      default:
        return scalar::narrow<kBf16>(x + y);
    }
  }
};
template <bool kBf16>
struct Pair {
  using Bits = std::uint32_t;
  static Bits apply(Reduce op, Bits old, Bits b, Bits) {
    using One = Half<kBf16>;
    Bits high = One::apply(op, static_cast<std::uint16_t>(old >> 16),
                           static_cast<std::uint16_t>(b >> 16), 0);
    return high << 16 |
           One::apply(op, static_cast<std::uint16_t>(old), static_cast<std::uint16_t>(b), 0);
  }
};

template <class Kind>
typename Kind::Bits update(Reduce op, std::byte* at, typename Kind::Bits b, typename Kind::Bits c) {
  using Bits = typename Kind::Bits;
  auto* place = reinterpret_cast<Bits*>(at);
  Bits old = __atomic_load_n(place, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(place, &old, Kind::apply(op, old, b, c), true,
                                      __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
  }
  return old;
}

template <class A>
void read_addresses(const Step* s, std::byte* r, std::uint64_t* to) {
  const auto* a = lanes<A>(r, s->a);
  auto offset = static_cast<A>(static_cast<std::int64_t>(s->immediate));
  for (int i = 0; i < kLanes; ++i) to[i] = static_cast<A>(a[i] + offset);
}

/// A vector form has operands d..., a, b... in Code::operands; a scalar one has them in the step.
template <class Kind, Reduce kReduce, class A, int kVector>
const Step* atomic(const Step* s, std::byte* r, Warp& w) {
  using Bits = typename Kind::Bits;
  std::uint64_t address[kLanes];
  std::byte* host[kLanes];
  read_addresses<A>(s, r, address);
  if (w.counting) count_request(s, w, address, w.mask);
  if (!resolve(s, w, address, w.mask, host)) return nullptr;
  if constexpr (kVector == 1) {
    auto* d = lanes<Bits>(r, s->d);
    const auto* b = lanes<Bits>(r, s->b);
    const auto* c = lanes<Bits>(r, s->c);
    for_lanes(w.mask, [&](int i) {
      d[i] = update<Kind>(kReduce, host[i], b[i], kReduce == Reduce::kCas ? c[i] : Bits{0});
    });
  } else {
    const std::uint32_t* o = w.code->operands.data() + s->c;
    for_lanes(w.mask, [&](int i) {
      for (int v = 0; v < kVector; ++v) {
        auto b = lanes<Bits>(r, o[kVector + 1 + v])[i];
        lanes<Bits>(r, o[v])[i] =
            update<Kind>(kReduce, host[i] + static_cast<std::size_t>(v) * sizeof(Bits), b, 0);
      }
    });
  }
  return s + 1;
}

template <class Kind, Reduce kReduce>
Handler addressed(const Form& form) {
  if (form.address_bytes == 4)
    return form.vector == 1 ? atomic<Kind, kReduce, std::uint32_t, 1> : nullptr;
  switch (form.vector) {
    case 1:
      return atomic<Kind, kReduce, std::uint64_t, 1>;
    case 2:
      return atomic<Kind, kReduce, std::uint64_t, 2>;
    case 4:
      return atomic<Kind, kReduce, std::uint64_t, 4>;
    case 8:
      return atomic<Kind, kReduce, std::uint64_t, 8>;
    default:
      return nullptr;
  }
}

template <class T>
Handler integer(const Form& form) {
  switch (form.reduce) {
    case Reduce::kAnd:
      return addressed<Integer<T>, Reduce::kAnd>(form);
    case Reduce::kOr:
      return addressed<Integer<T>, Reduce::kOr>(form);
    case Reduce::kXor:
      return addressed<Integer<T>, Reduce::kXor>(form);
    case Reduce::kExch:
      return addressed<Integer<T>, Reduce::kExch>(form);
    case Reduce::kAdd:
      return addressed<Integer<T>, Reduce::kAdd>(form);
    case Reduce::kInc:
      return addressed<Integer<T>, Reduce::kInc>(form);
    case Reduce::kDec:
      return addressed<Integer<T>, Reduce::kDec>(form);
    case Reduce::kMin:
      return addressed<Integer<T>, Reduce::kMin>(form);
    case Reduce::kMax:
      return addressed<Integer<T>, Reduce::kMax>(form);
    case Reduce::kCas:
      return addressed<Integer<T>, Reduce::kCas>(form);
    default:
      return nullptr;
  }
}
template <class Kind>
Handler floating(const Form& form, bool min_max) {
  switch (form.reduce) {
    case Reduce::kAdd:
      return addressed<Kind, Reduce::kAdd>(form);
    case Reduce::kExch:
      return min_max ? nullptr : addressed<Kind, Reduce::kExch>(form);
    case Reduce::kMin:
      return min_max ? addressed<Kind, Reduce::kMin>(form) : nullptr;
    case Reduce::kMax:
      return min_max ? addressed<Kind, Reduce::kMax>(form) : nullptr;
    default:
      return nullptr;
  }
}

}  // namespace

Handler select_atomic(const Form& form) {
  if (form.op != Op::kAtom) return nullptr;
  switch (form.type) {
    case Type::kB16:
    case Type::kU16:
      return form.reduce == Reduce::kCas    ? addressed<Integer<std::int16_t>, Reduce::kCas>(form)
             : form.reduce == Reduce::kExch ? addressed<Integer<std::int16_t>, Reduce::kExch>(form)
                                            : nullptr;
    case Type::kB32:
    case Type::kU32:
      return integer<std::uint32_t>(form);
    case Type::kS32:
      return integer<std::int32_t>(form);
    case Type::kB64:
    case Type::kU64:
      return integer<std::uint64_t>(form);
    case Type::kS64:
      return integer<std::int64_t>(form);
    case Type::kF32:
      return floating<Float32>(form, false);
    case Type::kF64:
      return floating<Float64>(form, false);
    case Type::kF16:
      return floating<Half<false>>(form, true);
    case Type::kBF16:
      return floating<Half<true>>(form, true);
    case Type::kF16x2:
      return floating<Pair<false>>(form, true);
    case Type::kBF16x2:
      return floating<Pair<true>>(form, true);
    default:
      return nullptr;
  }
}

}  // namespace tilewright::vgpu
