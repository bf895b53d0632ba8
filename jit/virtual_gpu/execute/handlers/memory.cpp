// Loads and stores. The common cases (one allocation, aligned) are decided for all lanes at once;
// everything else, faults included, goes through resolve().
#include "jit/virtual_gpu/execute/handlers/lanes.h"

namespace tilewright::vgpu::VGPU_LEVEL {
namespace {

/// Addresses of the lanes; inactive lanes take that of the first active one, so that a load may
/// read for all of them.
template <class A>
VGPU_INLINE void gather_addresses(const Step* s, std::byte* r, uint32_t mask, uint64_t* to) {
  const A* a = lanes<A>(r, s->a);
  auto offset = static_cast<A>(static_cast<int64_t>(s->immediate));
  if (mask == kAllLanes) [[likely]] {
    for (int i = 0; i < kLanes; ++i) to[i] = static_cast<A>(a[i] + offset);
    return;
  }
  A first = a[__builtin_ctz(mask)];
  for (int i = 0; i < kLanes; ++i)
    to[i] = static_cast<A>(((mask >> i & 1) != 0 ? a[i] : first) + offset);
}

struct Span {
  uint64_t low, high;
  bool aligned;
};
template <int kBytes>
VGPU_INLINE Span span_of(const uint64_t* a) {
  uint64_t low = a[0], high = a[0], any = 0;
  for (int i = 0; i < kLanes; ++i) {
    low = a[i] < low ? a[i] : low;
    high = a[i] > high ? a[i] : high;
    any |= a[i];
  }
  return {low, high, (any & (kBytes - 1)) == 0};
}

/// Host address of address 0 of the space, if all lanes may access theirs; 0 if that needs a closer
/// look.
template <Space kSpace, int kBytes>
VGPU_INLINE std::uintptr_t base_of(const Step* s, Warp& w, const Span& span) {
  if (!span.aligned) return 0;
  if constexpr (kSpace == Space::kShared) {
    if (span.low < kSharedBase || span.high > 0xffffffffu || span.high + kBytes > w.shared_end)
      return 0;
    return reinterpret_cast<std::uintptr_t>(w.shared);
  } else {
    const Range& range = w.ranges[s->site];
    if (span.low < range.begin || span.high > range.end - kBytes)
      if (!refill(s, w, span.low, span.high)) return 0;
    return w.global_delta;
  }
}

template <class T>
VGPU_INLINE T read(const void* p) {
  T value;
  __builtin_memcpy(&value, p, sizeof(T));
  return value;
}

/// T: element in memory; R: register; kVector elements per lane.
template <Space kSpace, class A, class T, class R, int kVector>
const Step* load(const Step* s, std::byte* r, Warp& w) {
  constexpr int kBytes = sizeof(T) * kVector;
  uint32_t mask = w.mask;
  alignas(64) uint64_t address[kLanes];
  gather_addresses<A>(s, r, mask, address);
  if (w.counting) [[unlikely]]
    count_request(s, w, address, mask);
  const uint32_t* places = kVector > 1 ? w.code->operands.data() + s->c : &s->d;
  Span span = span_of<kBytes>(address);
  std::uintptr_t base = base_of<kSpace, kBytes>(s, w, span);
  if (base == 0) [[unlikely]] {
    std::byte* host[kLanes];
    if (!resolve(s, w, address, mask, host)) return nullptr;
    for (int v = 0; v < kVector; ++v) {
      R* d = lanes<R>(r, places[v]);
      for (int i = 0; i < kLanes; ++i)
        if ((mask >> i & 1) != 0) d[i] = static_cast<R>(read<T>(host[i] + v * sizeof(T)));
    }
    return s + 1;
  }

  // Loaded for all lanes into t, then written where the mask says.
  alignas(64) R t[kVector][kLanes];
  bool whole = w.full;
  R* d[kVector];
  for (int v = 0; v < kVector; ++v) d[v] = whole ? lanes<R>(r, places[v]) : t[v];
  bool in_order = mask == kAllLanes && span.high - span.low == (kLanes - 1) * kBytes;
  if (in_order) {
    uint64_t wrong = 0;
    for (int i = 0; i < kLanes; ++i) wrong |= address[i] ^ (address[0] + i * kBytes);
    in_order = wrong == 0;
  }
  if (in_order) {
    const auto* from = reinterpret_cast<const std::byte*>(base + address[0]);
    if constexpr (kVector == 1) {
#pragma GCC ivdep
      for (int i = 0; i < kLanes; ++i) d[0][i] = static_cast<R>(read<T>(from + i * sizeof(T)));
    } else {
      for (int v = 0; v < kVector; ++v) {
        R* to = d[v];
#pragma GCC ivdep
        for (int i = 0; i < kLanes; ++i)
          to[i] = static_cast<R>(read<T>(from + (i * kVector + v) * sizeof(T)));
      }
    }
  } else if (span.low == span.high) {
    const auto* from = reinterpret_cast<const std::byte*>(base + span.low);
    for (int v = 0; v < kVector; ++v) {
      R value = static_cast<R>(read<T>(from + v * sizeof(T)));
      R* to = d[v];
      for (int i = 0; i < kLanes; ++i) to[i] = value;
    }
  } else if constexpr (kVector == 4 && sizeof(T) == 4 && sizeof(R) == 4) {
    // Four lanes at a time: a 4x4 transposition.
    for (int i = 0; i < kLanes; i += 4) {
      auto row = [&](int k) {
        return _mm_loadu_ps(reinterpret_cast<const float*>(base + address[i + k]));
      };
      __m128 x0 = row(0), x1 = row(1), x2 = row(2), x3 = row(3);
      _MM_TRANSPOSE4_PS(x0, x1, x2, x3);
      _mm_storeu_ps(reinterpret_cast<float*>(d[0] + i), x0);
      _mm_storeu_ps(reinterpret_cast<float*>(d[1] + i), x1);
      _mm_storeu_ps(reinterpret_cast<float*>(d[2] + i), x2);
      _mm_storeu_ps(reinterpret_cast<float*>(d[3] + i), x3);
    }
  } else {
    for (int i = 0; i < kLanes; ++i) {
      const auto* from = reinterpret_cast<const std::byte*>(base + address[i]);
      for (int v = 0; v < kVector; ++v) d[v][i] = static_cast<R>(read<T>(from + v * sizeof(T)));
    }
  }
  if (!whole)
    for (int v = 0; v < kVector; ++v) blend(lanes<R>(r, places[v]), t[v], mask);
  return s + 1;
}

template <Space kSpace, class A, class T, class R, int kVector>
const Step* store(const Step* s, std::byte* r, Warp& w) {
  constexpr int kBytes = sizeof(T) * kVector;
  uint32_t mask = w.mask;
  alignas(64) uint64_t address[kLanes];
  gather_addresses<A>(s, r, mask, address);
  if (w.counting) [[unlikely]]
    count_request(s, w, address, mask);
  const uint32_t* places = kVector > 1 ? w.code->operands.data() + s->c + 1 : &s->b;
  const R* from[kVector];
  for (int v = 0; v < kVector; ++v) from[v] = lanes<R>(r, places[v]);
  Span span = span_of<kBytes>(address);
  std::uintptr_t base = base_of<kSpace, kBytes>(s, w, span);
  if (base == 0) [[unlikely]] {
    std::byte* host[kLanes];
    if (!resolve(s, w, address, mask, host)) return nullptr;
    for (int i = 0; i < kLanes; ++i) {
      if ((mask >> i & 1) == 0) continue;
      for (int v = 0; v < kVector; ++v) {
        T value = static_cast<T>(from[v][i]);
        __builtin_memcpy(host[i] + v * sizeof(T), &value, sizeof(T));
      }
    }
    return s + 1;
  }
  if (mask == kAllLanes && span.high - span.low == (kLanes - 1) * kBytes) {
    uint64_t wrong = 0;
    for (int i = 0; i < kLanes; ++i) wrong |= address[i] ^ (address[0] + i * kBytes);
    if (wrong == 0) {
      T* to = reinterpret_cast<T*>(base + address[0]);
#pragma GCC ivdep
      for (int i = 0; i < kLanes; ++i)
        for (int v = 0; v < kVector; ++v) to[i * kVector + v] = static_cast<T>(from[v][i]);
      return s + 1;
    }
  }
  if constexpr (kVector == 4 && sizeof(T) == 4 && sizeof(R) == 4) {
    if (mask == kAllLanes) {
      for (int i = 0; i < kLanes; i += 4) {
        auto column = [&](int v) {
          return _mm_loadu_ps(reinterpret_cast<const float*>(from[v] + i));
        };
        __m128 x0 = column(0), x1 = column(1), x2 = column(2), x3 = column(3);
        _MM_TRANSPOSE4_PS(x0, x1, x2, x3);
        auto row = [&](int k) { return reinterpret_cast<float*>(base + address[i + k]); };
        _mm_storeu_ps(row(0), x0);
        _mm_storeu_ps(row(1), x1);
        _mm_storeu_ps(row(2), x2);
        _mm_storeu_ps(row(3), x3);
      }
      return s + 1;
    }
  }
  // In the order of lanes: where two write to one place, the last one wins.
  for (int i = 0; i < kLanes; ++i) {
    if ((mask >> i & 1) == 0) continue;
    auto* to = reinterpret_cast<std::byte*>(base + address[i]);
    for (int v = 0; v < kVector; ++v) {
      T value = static_cast<T>(from[v][i]);
      __builtin_memcpy(to + v * sizeof(T), &value, sizeof(T));
    }
  }
  return s + 1;
}

template <Space kSpace, class A, bool kStore, class T, class R, int kVector>
constexpr Handler access() {
  if constexpr (kStore)
    return store<kSpace, A, T, R, kVector>;
  else
    return load<kSpace, A, T, R, kVector>;
}
template <Space kSpace, class A, bool kStore, class T>
Handler vectors(int vector) {
  switch (vector) {
    case 1:
      return access<kSpace, A, kStore, T, T, 1>();
    case 2:
      return access<kSpace, A, kStore, T, T, 2>();
    case 4:
      return access<kSpace, A, kStore, T, T, 4>();
    default:
      return nullptr;
  }
}

/// Elements as wide as their register, and the usual extensions. The others are in
/// common/rare_memory.cpp.
template <Space kSpace, class A, bool kStore>
Handler elements(const Form& form) {
  int bytes = ptx::size_of(form.type);
  if (bytes == form.register_bytes) {
    switch (bytes) {
      case 2:
        return vectors<kSpace, A, kStore, uint16_t>(form.vector);
      case 4:
        return vectors<kSpace, A, kStore, uint32_t>(form.vector);
      case 8:
        return vectors<kSpace, A, kStore, uint64_t>(form.vector);
      default:
        return nullptr;
    }
  }
  if (form.vector != 1) return nullptr;
  bool word = form.register_bytes == 4;
  if (form.register_bytes != 2 && !word) return nullptr;
  switch (form.type) {
    case Type::kU8:
      return word ? access<kSpace, A, kStore, uint8_t, uint32_t, 1>()
                  : access<kSpace, A, kStore, uint8_t, uint16_t, 1>();
    case Type::kS8:
      if (kStore) return nullptr;
      return word ? access<kSpace, A, false, int8_t, uint32_t, 1>()
                  : access<kSpace, A, false, int8_t, uint16_t, 1>();
    case Type::kU16:
      return word ? access<kSpace, A, kStore, uint16_t, uint32_t, 1>() : nullptr;
    case Type::kS16:
      return word && !kStore ? access<kSpace, A, false, int16_t, uint32_t, 1>() : nullptr;
    default:
      return nullptr;
  }
}

template <bool kStore>
Handler spaces(const Form& form) {
  if (form.space == Space::kShared)
    return form.address_bytes == 4 ? elements<Space::kShared, uint32_t, kStore>(form)
                                   : elements<Space::kShared, uint64_t, kStore>(form);
  // Local and parameter addresses are in no allocation, so that resolve() finds them.
  return form.address_bytes == 8 ? elements<Space::kGlobal, uint64_t, kStore>(form) : nullptr;
}

}  // namespace

Handler select_memory(const Form& form) {
  if (form.op == Op::kLoad) return spaces<false>(form);
  if (form.op == Op::kStore) return spaces<true>(form);
  return nullptr;
}

}  // namespace tilewright::vgpu::VGPU_LEVEL
