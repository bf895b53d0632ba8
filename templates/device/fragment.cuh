/// Fragments: what one thread holds of a row, in f32, and arithmetic on them column by column.
///
/// A value that is equal along a row is a plain float: every operation takes fragments and floats
/// in any mixture.
#pragma once
#include "device/packed.cuh"

/// kWidth consecutive columns of one row.
template <typename T, int kWidth>
struct Lanes {
  T value[kWidth];
};
template <int kWidth>
using Fragment = Lanes<float, kWidth>;
template <int kWidth>
using Mask = Lanes<bool, kWidth>;

/// Where a fragment lies in its row. Columns from `valid` on do not exist; kWhole says that all
/// columns of every fragment that begins inside a row exist.
template <int kWidth, bool kWhole>
struct Place {
  int column;
  int valid;

  __device__ bool exists() const { return valid > 0; }
};

template <typename T>
inline constexpr int kWidthOf = 0;
template <typename T, int kWidth>
inline constexpr int kWidthOf<Lanes<T, kWidth>> = kWidth;

template <typename T>
__device__ T lane(T x, int) {
  return x;
}
template <typename T, int kWidth>
__device__ T lane(const Lanes<T, kWidth>& x, int i) {
  return x.value[i];
}

/// Applies `op` column by column.
template <typename Op, typename... Args>
__device__ auto map(Op op, const Args&... args) {
  constexpr int kWidth = [] {
    int width = 0;
    ((width = larger(width, kWidthOf<Args>)), ...);
    return width;
  }();
  if constexpr (kWidth == 0) {
    return op(args...);
  } else {
    Lanes<decltype(op(lane(args, 0)...)), kWidth> result;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) result.value[i] = op(lane(args, i)...);
    return result;
  }
}

template <typename A, typename B>
concept Columns = kWidthOf<A>
+ kWidthOf<B> > 0;

#define TILEWRIGHT_COLUMNWISE(symbol)                                              \
  template <typename A, typename B>                                                \
  requires Columns<A, B> __device__ auto operator symbol(const A& a, const B& b) { \
    return map([](float x, float y) { return x symbol y; }, a, b);                 \
  }
TILEWRIGHT_COLUMNWISE(+)
TILEWRIGHT_COLUMNWISE(-)
TILEWRIGHT_COLUMNWISE(*)
TILEWRIGHT_COLUMNWISE(/)
TILEWRIGHT_COLUMNWISE(<)
TILEWRIGHT_COLUMNWISE(<=)
TILEWRIGHT_COLUMNWISE(>)
TILEWRIGHT_COLUMNWISE(>=)
TILEWRIGHT_COLUMNWISE(==)
TILEWRIGHT_COLUMNWISE(!=)
#undef TILEWRIGHT_COLUMNWISE

template <int kWidth>
__device__ Fragment<kWidth> operator-(const Fragment<kWidth>& a) {
  return map([](float x) { return -x; }, a);
}

template <typename T, int kWidth>
__device__ Fragment<kWidth> widen(const Packed<T, kWidth>& packed) {
  Fragment<kWidth> f;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) f.value[i] = packed.get(i);
  return f;
}

/// Rounds to T.
template <typename T, int kWidth>
__device__ Packed<T, kWidth> pack(const Fragment<kWidth>& f) {
  Packed<T, kWidth> packed;
  if constexpr (sizeof(T) == 4) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) packed.word[i] = bits_as<unsigned>(f.value[i]);
  } else if constexpr (kWidth == 1) {
    packed.word[0] = narrow<T>(f.value[0]).bits;
  } else {
#pragma unroll
    for (int i = 0; i < kWidth / 2; ++i) {
      packed.word[i] = narrow_pair<T>(f.value[2 * i], f.value[2 * i + 1]);
    }
  }
  return packed;
}

/// The fragment at `at` of the row that begins at `row`. A row begins at a multiple of kAlign
/// bytes, or of kAlign and more. Columns that do not exist are 0.
template <int kAlign, typename T, int kWidth, bool kWhole>
__device__ Packed<T, kWidth> read(const T* row, Place<kWidth, kWhole> at) {
  if (kWhole || at.valid >= kWidth) return read_packed<kAlign, kWidth>(row + at.column);
  return read_some<kWidth>(row + at.column, at.valid);
}

/// Writes the columns that exist, rounded to T.
template <int kAlign, typename T, int kWidth, bool kWhole>
__device__ void write(T* row, Place<kWidth, kWhole> at, const Fragment<kWidth>& f) {
  if (kWhole || at.valid >= kWidth) {
    write_packed<kAlign>(row + at.column, pack<T>(f));
  } else {
    write_some(row + at.column, pack<T>(f), at.valid);
  }
}
/// The same value in every column.
template <int kAlign, typename T, int kWidth, bool kWhole>
__device__ void write(T* row, Place<kWidth, kWhole> at, float x) {
  Fragment<kWidth> f;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) f.value[i] = x;
  write<kAlign>(row, at, f);
}
