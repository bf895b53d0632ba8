/// Packed: some consecutive elements as memory holds them, and how they come and go in accesses of
/// at most 16 bytes.
#pragma once
#include "device/types.cuh"

// PTX ISA, "ld", "st": one access of 8 or 16 bytes of global memory. Not by way of a vector type: a
// compiler may split those. Volatile: loads stay before the stores that follow them in the source.
template <int kBytes>
__device__ void load_global(unsigned* word, const void* p) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
  if constexpr (kBytes == 16) {
    asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
                 : "l"(p)
                 : "memory");
  } else if constexpr (kBytes == 8) {
    asm volatile("ld.global.v2.b32 {%0, %1}, [%2];"
                 : "=r"(word[0]), "=r"(word[1])
                 : "l"(p)
                 : "memory");
  } else {
    word[0] = *static_cast<const unsigned*>(p);
  }
}
template <int kBytes>
__device__ void store_global(void* p, const unsigned* word) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
  if constexpr (kBytes == 16) {
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(word[0]), "r"(word[1]),
                 "r"(word[2]), "r"(word[3])
                 : "memory");
  } else if constexpr (kBytes == 8) {
    asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(p), "r"(word[0]), "r"(word[1])
                 : "memory");
  } else {
    *static_cast<unsigned*>(p) = word[0];
  }
}

/// The widest access of kBytes consecutive bytes whose address is a multiple of kAlign bytes.
template <int kBytes, int kAlign>
inline constexpr int kAccessBytes = smaller(smaller(kBytes, kAlign), 16);

/// kWidth consecutive elements of T in registers, unconverted. A lone 16-bit element is the low
/// half of its word.
template <typename T, int kWidth>
struct Packed {
  unsigned word[ceil_div(kWidth * sizeof(T), 4)];

  /// Element i in f32; i is a constant once its loop is unrolled.
  __device__ float get(int i) const {
    if constexpr (sizeof(T) == 4) {
      return bits_as<float>(word[i]);
    } else {
      return i % 2 == 0 ? widen_half<T, 0>(word[i / 2]) : widen_half<T, 1>(word[i / 2]);
    }
  }
};

/// Reads a whole Packed from global memory at `p`, a multiple of kAlign bytes.
template <int kAlign, int kWidth, typename T>
__device__ Packed<T, kWidth> read_packed(const T* p) {
  constexpr int kBytes = kWidth * sizeof(T);
  constexpr int kAccess = kAccessBytes<kBytes, kAlign>;
  Packed<T, kWidth> result;
#pragma unroll
  for (int i = 0; i < kBytes / kAccess; ++i) {
    if constexpr (kAccess == 2) {
      if (i % 2 == 0) result.word[i / 2] = p[i].bits;
      if (i % 2 == 1) result.word[i / 2] |= unsigned(p[i].bits) << 16;
    } else {
      load_global<kAccess>(result.word + i * (kAccess / 4), p + i * kAccess / int(sizeof(T)));
    }
  }
  return result;
}

/// Reads the elements before `valid`; the others are 0.
template <int kWidth, typename T>
__device__ Packed<T, kWidth> read_some(const T* p, int valid) {
  Packed<T, kWidth> result = {};
  // Not `i < valid` as the bound of the loop: that would move the elements to local memory.
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    if (i < valid) {
      if constexpr (sizeof(T) == 4) {
        result.word[i] = bits_as<unsigned>(p[i]);
      } else {
        result.word[i / 2] |= unsigned(p[i].bits) << (i % 2 * 16);
      }
    }
  }
  return result;
}

/// Writes a whole Packed to global memory at `p`, a multiple of kAlign bytes.
template <int kAlign, int kWidth, typename T>
__device__ void write_packed(T* p, const Packed<T, kWidth>& packed) {
  constexpr int kBytes = kWidth * sizeof(T);
  constexpr int kAccess = kAccessBytes<kBytes, kAlign>;
#pragma unroll
  for (int i = 0; i < kBytes / kAccess; ++i) {
    if constexpr (kAccess == 2) {
      p[i].bits = static_cast<unsigned short>(packed.word[i / 2] >> (i % 2 * 16));
    } else {
      store_global<kAccess>(p + i * kAccess / int(sizeof(T)), packed.word + i * (kAccess / 4));
    }
  }
}

/// Writes the elements before `valid`.
template <int kWidth, typename T>
__device__ void write_some(T* p, const Packed<T, kWidth>& packed, int valid) {
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    if (i < valid) {
      if constexpr (sizeof(T) == 4) {
        p[i] = bits_as<float>(packed.word[i]);
      } else {
        p[i].bits = static_cast<unsigned short>(packed.word[i / 2] >> (i % 2 * 16));
      }
    }
  }
}

/// The same in shared memory, at a multiple of its size or of 16 bytes.
template <int kBytes>
struct alignas(smaller(kBytes, 16)) SharedWords {
  unsigned word[kBytes / 4];
};
template <int kWidth, typename T>
__device__ Packed<T, kWidth> read_shared(const T* p) {
  if constexpr (kWidth * sizeof(T) < 4) {
    return {{p->bits}};
  } else {
    using Words = SharedWords<kWidth * sizeof(T)>;
    return bits_as<Packed<T, kWidth>>(*reinterpret_cast<const Words*>(p));
  }
}
template <int kWidth, typename T>
__device__ void write_shared(T* p, const Packed<T, kWidth>& packed) {
  using Words = SharedWords<kWidth * sizeof(T)>;
  *reinterpret_cast<Words*>(p) = bits_as<Words>(packed);
}
