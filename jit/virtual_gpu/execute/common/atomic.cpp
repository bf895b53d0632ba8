// atom and red. Lane after lane; across host threads they are atomic on the host, too.
#include <cstring>

#include "jit/virtual_gpu/execute/async/reduce.h"
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

void read_addresses(const Step* s, std::byte* r, const Site& site, std::uint64_t* to) {
  for (int i = 0; i < kLanes; ++i) {
    if (site.address_bytes == 4)
      to[i] = lanes<std::uint32_t>(r, s->a)[i] + static_cast<std::uint32_t>(s->immediate);
    else
      to[i] = lanes<std::uint64_t>(r, s->a)[i] +
              static_cast<std::uint64_t>(static_cast<std::int64_t>(s->immediate));
    if (site.address_bytes == 4) to[i] &= 0xffffffffu;
  }
}

/// A vector form has operands d..., a, b... in Code::operands; a scalar one has them in the step.
template <class Kind>
const Step* atomic(const Step* s, std::byte* r, Warp& w) {
  using Bits = typename Kind::Bits;
  const Site& site = w.code->sites[s->site];
  std::uint64_t address[kLanes];
  std::byte* host[kLanes];
  read_addresses(s, r, site, address);
  if (w.counting) count_request(s, w, address, w.mask);
  if (!resolve(s, w, address, w.mask, host)) return nullptr;
  if (site.vector == 1) {
    auto* d = lanes<Bits>(r, s->d);
    const auto* b = lanes<Bits>(r, s->b);
    const auto* c = lanes<Bits>(r, s->c);
    bool cas = site.reduce == Reduce::kCas;
    for_lanes(w.mask, [&](int i) {
      d[i] = update<Kind>(site.reduce, host[i], b[i], cas ? c[i] : Bits{0});
    });
    return s + 1;
  }
  const std::uint32_t* o = w.code->operands.data() + s->c;
  std::size_t n = site.vector;
  for_lanes(w.mask, [&](int i) {
    // All sources first: a result may have the place of one.
    Bits b[8];
    for (std::size_t v = 0; v < n; ++v) b[v] = lanes<Bits>(r, o[n + 1 + v])[i];
    for (std::size_t v = 0; v < n; ++v)
      lanes<Bits>(r, o[v])[i] = update<Kind>(site.reduce, host[i] + v * sizeof(Bits), b[v], 0);
  });
  return s + 1;
}

/// *at, where it is `compare`, becomes `value`; returns what it was.
unsigned __int128 exchange_128(std::byte* at, unsigned __int128 compare, unsigned __int128 value) {
  auto low = static_cast<std::uint64_t>(compare), high = static_cast<std::uint64_t>(compare >> 64);
  asm volatile("lock cmpxchg16b %0"
               : "+m"(*reinterpret_cast<unsigned __int128*>(at)), "+a"(low), "+d"(high)
               : "b"(static_cast<std::uint64_t>(value)),
                 "c"(static_cast<std::uint64_t>(value >> 64))
               : "cc", "memory");
  return static_cast<unsigned __int128>(high) << 64 | low;
}

/// atom.{exch,cas}.b128; operands: d, a, b{, c}, each in two halves but the address.
template <bool kCas>
const Step* atomic_128(const Step* s, std::byte* r, Warp& w) {
  using U64 = std::uint64_t;
  const Site& site = w.code->sites[s->site];
  std::uint64_t address[kLanes];
  std::byte* host[kLanes];
  read_addresses(s, r, site, address);
  if (w.counting) count_request(s, w, address, w.mask);
  if (!resolve(s, w, address, w.mask, host)) return nullptr;
  const std::uint32_t* o = w.code->operands.data() + s->c;
  auto wide = [&](std::size_t at, int i) {
    return static_cast<unsigned __int128>(lanes<U64>(r, o[at + 1])[i]) << 64 |
           lanes<U64>(r, o[at])[i];
  };
  for_lanes(w.mask, [&](int i) {
    unsigned __int128 b = wide(3, i), old = 0;
    if constexpr (kCas) {
      old = exchange_128(host[i], b, wide(5, i));
    } else {
      for (unsigned __int128 seen = 0;; seen = old)
        if ((old = exchange_128(host[i], seen, b)) == seen) break;
    }
    lanes<U64>(r, o[0])[i] = static_cast<U64>(old);
    lanes<U64>(r, o[1])[i] = static_cast<U64>(old >> 64);
  });
  return s + 1;
}

bool is_float_op(Reduce reduce, bool min_max) {
  if (reduce == Reduce::kAdd) return true;
  if (min_max) return reduce == Reduce::kMin || reduce == Reduce::kMax;
  return reduce == Reduce::kExch;
}

template <class Kind>
void reduce_elements(Reduce op, std::byte* to, const std::byte* from, std::size_t bytes) {
  using Bits = typename Kind::Bits;
  for (std::size_t i = 0; i + sizeof(Bits) <= bytes; i += sizeof(Bits)) {
    Bits value = 0;
    if (from != nullptr) std::memcpy(&value, from + i, sizeof value);
    update<Kind>(op, to + i, value, 0);
  }
}

using ReduceElements = void (*)(Reduce, std::byte*, const std::byte*, std::size_t);

ReduceElements reduction_of(Type type) {
  switch (type) {
    case Type::kB32:
    case Type::kU32:
      return reduce_elements<Integer<std::uint32_t>>;
    case Type::kS32:
      return reduce_elements<Integer<std::int32_t>>;
    case Type::kB64:
    case Type::kU64:
      return reduce_elements<Integer<std::uint64_t>>;
    case Type::kS64:
      return reduce_elements<Integer<std::int64_t>>;
    case Type::kF32:
      return reduce_elements<Float32>;
    case Type::kF64:
      return reduce_elements<Float64>;
    case Type::kF16:
      return reduce_elements<Half<false>>;
    case Type::kBF16:
      return reduce_elements<Half<true>>;
    case Type::kF16x2:
      return reduce_elements<Pair<false>>;
    case Type::kBF16x2:
      return reduce_elements<Pair<true>>;
    default:
      return nullptr;
  }
}

}  // namespace

bool can_reduce(Reduce reduce, Type type) {
  if (reduction_of(type) == nullptr || reduce == Reduce::kCas || reduce == Reduce::kPopc)
    return false;
  if (!ptx::is_float(type)) return true;
  bool half = ptx::size_of(type) == 2 || type == Type::kF16x2 || type == Type::kBF16x2;
  return is_float_op(reduce, half);
}

void reduce_bytes(Reduce reduce, Type type, std::byte* to, const std::byte* from,
                  std::size_t bytes) {
  reduction_of(type)(reduce, to, from, bytes);
}

Handler select_atomic(const Form& form) {
  if (form.op != Op::kAtom) return nullptr;
  bool swaps = form.reduce == Reduce::kCas || form.reduce == Reduce::kExch;
  switch (form.type) {
    case Type::kB128:
      return form.reduce == Reduce::kCas    ? atomic_128<true>
             : form.reduce == Reduce::kExch ? atomic_128<false>
                                            : nullptr;
    case Type::kB16:
    case Type::kU16:
      return swaps ? atomic<Integer<std::int16_t>> : nullptr;
    case Type::kB32:
    case Type::kU32:
      return atomic<Integer<std::uint32_t>>;
    case Type::kS32:
      return atomic<Integer<std::int32_t>>;
    case Type::kB64:
    case Type::kU64:
      return atomic<Integer<std::uint64_t>>;
    case Type::kS64:
      return atomic<Integer<std::int64_t>>;
    case Type::kF32:
      return is_float_op(form.reduce, false) ? atomic<Float32> : nullptr;
    case Type::kF64:
      return is_float_op(form.reduce, false) ? atomic<Float64> : nullptr;
    case Type::kF16:
      return is_float_op(form.reduce, true) ? atomic<Half<false>> : nullptr;
    case Type::kBF16:
      return is_float_op(form.reduce, true) ? atomic<Half<true>> : nullptr;
    case Type::kF16x2:
      return is_float_op(form.reduce, true) ? atomic<Pair<false>> : nullptr;
    case Type::kBF16x2:
      return is_float_op(form.reduce, true) ? atomic<Pair<true>> : nullptr;
    default:
      return nullptr;
  }
}

}  // namespace tilewright::vgpu
