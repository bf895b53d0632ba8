/// Loops over the 32 lanes of a warp, written so that the compiler makes vector code of them. To be
/// included by the handlers of a level only: everything is in the level's namespace, since the
/// linker would otherwise keep one level's code for all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "jit/virtual_gpu/execute/runtime.h"

#define VGPU_INLINE [[gnu::always_inline]] static inline

namespace tilewright::vgpu::VGPU_LEVEL {

using std::int16_t;
using std::int32_t;
using std::int64_t;
using std::int8_t;
using std::uint16_t;
using std::uint32_t;
using std::uint64_t;
using std::uint8_t;

template <class T>
VGPU_INLINE T* lanes(std::byte* registers, uint32_t offset) {
  return static_cast<T*>(__builtin_assume_aligned(registers + offset, 64));
}
VGPU_INLINE uint32_t& predicate(std::byte* registers, uint32_t offset) {
  return *reinterpret_cast<uint32_t*>(registers + offset);
}

template <class To, class From>
VGPU_INLINE To bits(From from) {
  return __builtin_bit_cast(To, from);
}

/// to[i] = from[i] for the lanes in mask.
template <class T>
VGPU_INLINE void blend(T* to, const T* from, uint32_t mask) {
#pragma GCC ivdep
  for (int i = 0; i < kLanes; ++i) to[i] = (mask >> i & 1) != 0 ? from[i] : to[i];
}

/// Bytes of 0 or 0xff to a mask.
VGPU_INLINE uint32_t pack_bytes(const uint8_t* bytes) {
#if defined(__AVX2__)
  return static_cast<uint32_t>(
      _mm256_movemask_epi8(_mm256_load_si256(reinterpret_cast<const __m256i*>(bytes))));
#elif defined(__SSE2__)
  auto half = [](const uint8_t* p) {
    return static_cast<uint32_t>(
        _mm_movemask_epi8(_mm_load_si128(reinterpret_cast<const __m128i*>(p))));
  };
  return half(bytes) | half(bytes + 16) << 16;
#else
  uint32_t mask = 0;
  for (int i = 0; i < kLanes; ++i) mask |= static_cast<uint32_t>(bytes[i] & 1) << i;
  return mask;
#endif
}

// A handler per function object F, whose static op maps sources to a result, lane by lane.
template <class F, class D, class A>
const Step* map1(const Step* s, std::byte* r, Warp& w) {
  const Step* end = s + s->count;
  do {
    D* d = lanes<D>(r, s->d);
    const A* a = lanes<A>(r, s->a);
    if (w.full) [[likely]] {
#pragma GCC ivdep
      for (int i = 0; i < kLanes; ++i) d[i] = F::op(a[i]);
    } else {
      alignas(64) D t[kLanes];
      for (int i = 0; i < kLanes; ++i) t[i] = F::op(a[i]);
      blend(d, t, w.mask);
    }
  } while (++s != end);
  return s;
}
template <class F, class D, class A, class B>
const Step* map2(const Step* s, std::byte* r, Warp& w) {
  const Step* end = s + s->count;
  do {
    D* d = lanes<D>(r, s->d);
    const A* a = lanes<A>(r, s->a);
    const B* b = lanes<B>(r, s->b);
    if (w.full) [[likely]] {
#pragma GCC ivdep
      for (int i = 0; i < kLanes; ++i) d[i] = F::op(a[i], b[i]);
    } else {
      alignas(64) D t[kLanes];
      for (int i = 0; i < kLanes; ++i) t[i] = F::op(a[i], b[i]);
      blend(d, t, w.mask);
    }
  } while (++s != end);
  return s;
}
template <class F, class D, class A, class B, class C>
const Step* map3(const Step* s, std::byte* r, Warp& w) {
  const Step* end = s + s->count;
  do {
    D* d = lanes<D>(r, s->d);
    const A* a = lanes<A>(r, s->a);
    const B* b = lanes<B>(r, s->b);
    const C* c = lanes<C>(r, s->c);
    if (w.full) [[likely]] {
#pragma GCC ivdep
      for (int i = 0; i < kLanes; ++i) d[i] = F::op(a[i], b[i], c[i]);
    } else {
      alignas(64) D t[kLanes];
      for (int i = 0; i < kLanes; ++i) t[i] = F::op(a[i], b[i], c[i]);
      blend(d, t, w.mask);
    }
  } while (++s != end);
  return s;
}

// Families: null for forms that they do not have.
Handler select_integer(const Form& form);
Handler select_bits(const Form& form);
Handler select_float(const Form& form);
Handler select_half(const Form& form);
Handler select_math(const Form& form);
Handler select_compare(const Form& form);
Handler select_convert(const Form& form);
Handler select_memory(const Form& form);
Handler select_mma(const Form& form);
Handler select_wgmma(const Form& form);

}  // namespace tilewright::vgpu::VGPU_LEVEL
