/// The product of fragments, as vector code: to be included by the handlers of a level only.
///
/// A register of A holds 8 rows, 4 lanes each. After its elements are made floats, a vector of as
/// many lanes holds some rows, and spreading one lane of each four over its group gives A's column k
/// as the accumulator's lanes want it: they hold the same rows. B's row k is four floats for the
/// even columns and four for the odd ones, the same for every group.
#pragma once

#include "jit/virtual_gpu/execute/handlers/float_math.h"
#include "jit/virtual_gpu/execute/tensor/tensor.h"

namespace tilewright::vgpu::VGPU_LEVEL {

#if defined(__AVX512F__)
using Vec = __m512;
inline constexpr int kWidth = 16;
VGPU_INLINE Vec load(const float* p) { return _mm512_load_ps(p); }
VGPU_INLINE void store(float* p, Vec v) { _mm512_store_ps(p, v); }
VGPU_INLINE Vec four(const float* p) { return _mm512_broadcast_f32x4(_mm_load_ps(p)); }
template <int kLane>
VGPU_INLINE Vec spread(Vec v) {
  return _mm512_permute_ps(v, kLane * 0x55);
}
template <bool kExact>
VGPU_INLINE Vec multiply_add(Vec a, Vec b, Vec c) {
  return _mm512_fmadd_ps(a, b, c);
}
#elif defined(__AVX2__)
using Vec = __m256;
inline constexpr int kWidth = 8;
VGPU_INLINE Vec load(const float* p) { return _mm256_load_ps(p); }
VGPU_INLINE void store(float* p, Vec v) { _mm256_store_ps(p, v); }
VGPU_INLINE Vec four(const float* p) {
  return _mm256_broadcast_ps(reinterpret_cast<const __m128*>(p));
}
template <int kLane>
VGPU_INLINE Vec spread(Vec v) {
  return _mm256_permute_ps(v, kLane * 0x55);
}
template <bool kExact>
VGPU_INLINE Vec multiply_add(Vec a, Vec b, Vec c) {
  return _mm256_fmadd_ps(a, b, c);
}
#else
using Vec = __m128;
inline constexpr int kWidth = 4;
VGPU_INLINE Vec load(const float* p) { return _mm_load_ps(p); }
VGPU_INLINE void store(float* p, Vec v) { _mm_store_ps(p, v); }
VGPU_INLINE Vec four(const float* p) { return _mm_load_ps(p); }
template <int kLane>
VGPU_INLINE Vec spread(Vec v) {
  return _mm_shuffle_ps(v, v, kLane * 0x55);
}
/// kExact: products of the type fit a float, so that multiplying first loses nothing.
template <bool kExact>
VGPU_INLINE Vec multiply_add(Vec a, Vec b, Vec c) {
  if constexpr (kExact) return _mm_add_ps(_mm_mul_ps(a, b), c);
  alignas(16) float x[4], y[4], z[4];
  _mm_store_ps(x, a);
  _mm_store_ps(y, b);
  _mm_store_ps(z, c);
  for (int i = 0; i < 4; ++i) z[i] = __builtin_fmaf(x[i], y[i], z[i]);
  return _mm_load_ps(z);
}
#endif

/// Small floats, from the magnitude where a float has it: scaled by what the biases of the exponents
/// differ, which makes subnormals right as well.
template <int kBias>
VGPU_INLINE uint32_t rebias(uint32_t f) {
  return bits<uint32_t>(bits<float>(f) * bits<float>((127u + 127u - kBias) << 23));
}

/// Part `kPart` (in the order of k) of a register's 32 bits.
template <Element kElement, int kPart>
VGPU_INLINE float element(uint32_t u) {
  constexpr int kBits = bits_of_element(kElement);
  if constexpr (kElement == Element::kTF32) {
    return bits<float>(u & 0xffffe000u);
  } else if constexpr (kElement == Element::kBF16) {
    return bits<float>(kPart == 0 ? u << 16 : u & 0xffff0000u);
  } else if constexpr (kElement == Element::kF16) {
    uint32_t h = kPart == 0 ? u : u >> 16, magnitude = h & 0x7fffu;
    uint32_t f = rebias<15>(magnitude << 13);
    f = magnitude >= 0x7c00u ? f | 0x7f800000u : f;
    return bits<float>(f | (h & 0x8000u) << 16);
  } else if constexpr (kElement == Element::kS8 || kElement == Element::kS4) {
    auto top = static_cast<int32_t>(u << (32 - kBits * (kPart + 1)));
    return static_cast<float>(top >> (32 - kBits));
  } else if constexpr (kElement == Element::kU8 || kElement == Element::kU4) {
    return static_cast<float>(static_cast<int32_t>(u >> (kBits * kPart) & ((1u << kBits) - 1u)));
  } else if constexpr (kElement == Element::kE4M3) {
    uint32_t v = u >> (8 * kPart), magnitude = v & 0x7fu;
    uint32_t f = rebias<7>(magnitude << 20);
    f = magnitude == 0x7fu ? kNan32 : f;
    return bits<float>(f | (v & 0x80u) << 24);
  } else if constexpr (kElement == Element::kE5M2) {
    uint32_t v = u >> (8 * kPart), magnitude = v & 0x7fu;
    uint32_t f = rebias<15>(magnitude << 21);
    f = magnitude >= 0x7cu ? f | 0x7f800000u : f;
    return bits<float>(f | (v & 0x80u) << 24);
  } else if constexpr (kElement == Element::kE3M2) {
    uint32_t v = u >> (8 * kPart);
    return bits<float>(rebias<3>((v & 0x1fu) << 21) | (v & 0x20u) << 26);
  } else if constexpr (kElement == Element::kE2M3) {
    uint32_t v = u >> (8 * kPart);
    return bits<float>(rebias<1>((v & 0x1fu) << 20) | (v & 0x20u) << 26);
  } else {
    static_assert(kElement == Element::kE2M1);
    uint32_t v = u >> (8 * kPart);
    return bits<float>(rebias<1>((v >> 2 & 7u) << 22) | (v & 0x20u) << 26);
  }
}

template <Element kElement, int kPart>
VGPU_INLINE void convert_part(const uint32_t* from, float* to) {
#if defined(__AVX512F__)
  if constexpr (kElement == Element::kF16) {
    for (int i = 0; i < kLanes; i += 16) {
      __m512i u = _mm512_load_si512(from + i);
      if (kPart == 1) u = _mm512_srli_epi32(u, 16);
      _mm512_store_ps(to + i, _mm512_cvtph_ps(_mm512_cvtepi32_epi16(u)));
    }
    return;
  }
#endif
#pragma GCC ivdep
  for (int i = 0; i < kLanes; ++i) to[i] = element<kElement, kPart>(from[i]);
}

/// A register's parts, each 32 floats, `stride` floats apart.
template <Element kElement>
VGPU_INLINE void convert_parts(const uint32_t* from, float* to, int stride) {
  constexpr int kParts = parts_of(kElement);
  convert_part<kElement, 0>(from, to);
  if constexpr (kParts > 1) convert_part<kElement, 1>(from, to + stride);
  if constexpr (kParts > 2) {
    convert_part<kElement, 2>(from, to + 2 * stride);
    convert_part<kElement, 3>(from, to + 3 * stride);
  }
  if constexpr (kParts > 4) {
    convert_part<kElement, 4>(from, to + 4 * stride);
    convert_part<kElement, 5>(from, to + 5 * stride);
    convert_part<kElement, 6>(from, to + 6 * stride);
    convert_part<kElement, 7>(from, to + 7 * stride);
  }
}

/// The elements that have kParts in a register. Not inline: there are many.
template <int kParts>
static void convert(Element element, const uint32_t* from, float* to, int stride) {
  if constexpr (kParts == 1) return convert_parts<Element::kTF32>(from, to, stride);
  if constexpr (kParts == 2) {
    if (element == Element::kF16) return convert_parts<Element::kF16>(from, to, stride);
    return convert_parts<Element::kBF16>(from, to, stride);
  }
  if constexpr (kParts == 4) {
    switch (element) {
      case Element::kE4M3:
        return convert_parts<Element::kE4M3>(from, to, stride);
      case Element::kE5M2:
        return convert_parts<Element::kE5M2>(from, to, stride);
      case Element::kS8:
        return convert_parts<Element::kS8>(from, to, stride);
      case Element::kU8:
        return convert_parts<Element::kU8>(from, to, stride);
      case Element::kE2M1:
        return convert_parts<Element::kE2M1>(from, to, stride);
      case Element::kE3M2:
        return convert_parts<Element::kE3M2>(from, to, stride);
      default:
        return convert_parts<Element::kE2M3>(from, to, stride);
    }
  }
  if constexpr (kParts == 8) {
    if (element == Element::kS4) return convert_parts<Element::kS4>(from, to, stride);
    return convert_parts<Element::kU4>(from, to, stride);
  }
}

/// The register of A of k block `block` and row half `half` of `halves` into tile.a.
template <int kParts>
VGPU_INLINE void put_a(Element element, const uint32_t* from, int block, int half, int halves,
                       TensorTile& tile) {
  convert<kParts>(element, from, tile.a + (block * kParts * halves + half) * kLanes,
                  halves * kLanes);
}

/// One part of a register of B, lanes [column][q], to rows q * kParts of `to`, 8 floats each: first
/// the even columns, then the odd ones.
template <int kParts>
VGPU_INLINE void transpose_part(const float* from, float* to) {
#if defined(__AVX512F__)
  const __m512i first = _mm512_setr_epi32(0, 8, 16, 24, 4, 12, 20, 28, 1, 9, 17, 25, 5, 13, 21, 29);
  const __m512i second =
      _mm512_setr_epi32(2, 10, 18, 26, 6, 14, 22, 30, 3, 11, 19, 27, 7, 15, 23, 31);
  __m512 low = _mm512_load_ps(from), high = _mm512_load_ps(from + 16);
  __m512 rows = _mm512_permutex2var_ps(low, first, high);
  _mm256_store_ps(to, _mm512_castps512_ps256(rows));
  _mm256_store_ps(to + kParts * 8, _mm512_extractf32x8_ps(rows, 1));
  rows = _mm512_permutex2var_ps(low, second, high);
  _mm256_store_ps(to + 2 * kParts * 8, _mm512_castps512_ps256(rows));
  _mm256_store_ps(to + 3 * kParts * 8, _mm512_extractf32x8_ps(rows, 1));
#else
  for (int parity = 0; parity < 2; ++parity) {
    __m128 x0 = _mm_load_ps(from + parity * 4), x1 = _mm_load_ps(from + parity * 4 + 8);
    __m128 x2 = _mm_load_ps(from + parity * 4 + 16), x3 = _mm_load_ps(from + parity * 4 + 24);
    _MM_TRANSPOSE4_PS(x0, x1, x2, x3);
    _mm_store_ps(to + parity * 4, x0);
    _mm_store_ps(to + kParts * 8 + parity * 4, x1);
    _mm_store_ps(to + 2 * kParts * 8 + parity * 4, x2);
    _mm_store_ps(to + 3 * kParts * 8 + parity * 4, x3);
  }
#endif
}

/// The register of B of k block `block` into tile.b.
template <int kParts>
VGPU_INLINE void put_b(Element element, const uint32_t* from, int block, TensorTile& tile) {
  alignas(64) float parts[kParts * kLanes];
  convert<kParts>(element, from, parts, kLanes);
  float* to = tile.b + block * 4 * kParts * 8;
  for (int p = 0; p < kParts; ++p) transpose_part<kParts>(parts + p * kLanes, to + p * 8);
}

/// Four k that follow each other by kParts: one for each lane of a group.
template <int kParts, bool kExact, int kGroups, int kLane>
VGPU_INLINE void step_k(const float* a, const float* b, int stride, Vec (&even)[kGroups],
                        Vec (&odd)[kGroups]) {
  for (int p = 0; p < kParts; ++p) {
    const float* row = b + (kLane * kParts + p) * 8;
    Vec b_even = four(row), b_odd = four(row + 4);
    for (int g = 0; g < kGroups; ++g) {
      Vec column = spread<kLane>(load(a + p * stride + g * kWidth));
      even[g] = multiply_add<kExact>(column, b_even, even[g]);
      odd[g] = multiply_add<kExact>(column, b_odd, odd[g]);
    }
  }
}

/// acc += a b, in the order of k, for kHalves * 8 rows and 8 columns.
template <int kParts, bool kExact, int kHalves>
VGPU_INLINE void multiply_tile(const float* a, const float* b, int k_blocks, float* acc) {
  constexpr int kVectors = kHalves * kLanes / kWidth;  // of one column parity
  constexpr int kGroups = kVectors < 4 ? kVectors : 4;
  for (int v = 0; v < kVectors; v += kGroups) {
    Vec even[kGroups], odd[kGroups];
    auto place = [&](int g) {
      int lane = (v + g) * kWidth;
      return acc + lane / kLanes * 2 * kLanes + lane % kLanes;
    };
    for (int g = 0; g < kGroups; ++g) {
      even[g] = load(place(g));
      odd[g] = load(place(g) + kLanes);
    }
    constexpr int kStride = kHalves * kLanes;
    for (int block = 0; block < k_blocks; ++block) {
      const float* at = a + block * kParts * kStride + v * kWidth;
      const float* rows = b + block * 4 * kParts * 8;
      step_k<kParts, kExact, kGroups, 0>(at, rows, kStride, even, odd);
      step_k<kParts, kExact, kGroups, 1>(at, rows, kStride, even, odd);
      step_k<kParts, kExact, kGroups, 2>(at, rows, kStride, even, odd);
      step_k<kParts, kExact, kGroups, 3>(at, rows, kStride, even, odd);
    }
    for (int g = 0; g < kGroups; ++g) {
      store(place(g), even[g]);
      store(place(g) + kLanes, odd[g]);
    }
  }
}

/// tile.acc += tile.a tile.b.
template <int kParts, bool kExact>
VGPU_INLINE void multiply(const TensorForm& form, Accumulation how, TensorTile& tile) {
  if (how != Accumulation::kF32) [[unlikely]]
    return accumulate_otherwise(how, form, tile);
  if (form.row_halves == 2) [[likely]]
    multiply_tile<kParts, kExact, 2>(tile.a, tile.b, static_cast<int>(form.k_blocks), tile.acc);
  else
    multiply_tile<kParts, kExact, 1>(tile.a, tile.b, static_cast<int>(form.k_blocks), tile.acc);
}

/// Registers `c` of an accumulator into tile.acc. `places`: offsets of those of one tile.
template <Accumulator kAccumulator>
VGPU_INLINE void get_accumulator(std::byte* r, const uint32_t* places, int halves,
                                 TensorTile& tile) {
  for (int h = 0; h < halves; ++h) {
    float* even = tile.acc + h * 2 * kLanes;
    float* odd = even + kLanes;
    if constexpr (kAccumulator == Accumulator::kF16) {
      const uint32_t* c = lanes<uint32_t>(r, places[h]);
      convert_part<Element::kF16, 0>(c, even);
      convert_part<Element::kF16, 1>(c, odd);
    } else if constexpr (kAccumulator == Accumulator::kF32) {
      const float* c = lanes<float>(r, places[2 * h]);
      const float* d = lanes<float>(r, places[2 * h + 1]);
      for (int i = 0; i < kLanes; ++i) even[i] = c[i];
      for (int i = 0; i < kLanes; ++i) odd[i] = d[i];
    } else {
      for (int i = 0; i < 2 * kLanes; ++i) even[i] = 0;  // C is added to the sum, as integers
    }
  }
}

VGPU_INLINE int32_t add_saturated(int32_t x, int32_t y) {
  auto sum = static_cast<int32_t>(static_cast<uint32_t>(x) + static_cast<uint32_t>(y));
  int32_t limit = x < 0 ? INT32_MIN : INT32_MAX;
  return ((x ^ sum) & (y ^ sum)) < 0 ? limit : sum;
}

/// tile.acc to the registers of D; of integers, C (none: zero) is added.
template <Accumulator kAccumulator>
VGPU_INLINE void put_accumulator(std::byte* r, const uint32_t* places, const uint32_t* c_places,
                                 int halves, bool saturate, const TensorTile& tile) {
  if constexpr (kAccumulator == Accumulator::kF16) {
    for (int h = 0; h < halves; ++h) {
      const float* even = tile.acc + h * 2 * kLanes;
      const float* odd = even + kLanes;
      uint32_t* d = lanes<uint32_t>(r, places[h]);
#pragma GCC ivdep
      for (int i = 0; i < kLanes; ++i)
        d[i] = to_f16(even[i]) | static_cast<uint32_t>(to_f16(odd[i])) << 16;
    }
  } else if constexpr (kAccumulator == Accumulator::kF32) {
    for (int c = 0; c < 2 * halves; ++c) {
      const float* sum = tile.acc + c * kLanes;
      float* d = lanes<float>(r, places[c]);
      for (int i = 0; i < kLanes; ++i) d[i] = one_nan(sum[i]);
    }
  } else {
    alignas(64) int32_t sums[4 * kLanes];  // a register of D may be one of C
    for (int c = 0; c < 2 * halves; ++c) {
      static constexpr int32_t kZeros[kLanes] = {};
      const int32_t* addend = c_places != nullptr ? lanes<int32_t>(r, c_places[c]) : kZeros;
      for (int i = 0; i < kLanes; ++i) {
        auto sum = static_cast<int32_t>(tile.acc[c * kLanes + i]);
        auto wrapped = static_cast<uint32_t>(sum) + static_cast<uint32_t>(addend[i]);
        sums[c * kLanes + i] =
            saturate ? add_saturated(sum, addend[i]) : static_cast<int32_t>(wrapped);
      }
    }
    for (int c = 0; c < 2 * halves; ++c) {
      int32_t* d = lanes<int32_t>(r, places[c]);
      for (int i = 0; i < kLanes; ++i) d[i] = sums[c * kLanes + i];
    }
  }
}

}  // namespace tilewright::vgpu::VGPU_LEVEL
