/// Reductions over the threads of a row: what a thread gathers, and how the threads of a warp and
/// of several warps bring it together. The order is fixed, so every run gives equal bits.
#pragma once
#include "device/math.cuh"

struct Sum {
  float value = 0.f;
  __device__ void add(float x) { value += x; }
};
/// NaN if a NaN was added; minus infinity if nothing was.
struct Max {
  float value = -bits_as<float>(0x7f800000);
  __device__ void add(float x) { value = scalar::max(value, x); }
};

/// Adds the columns of `f` that exist.
template <typename Gathered, int kWidth, bool kWhole>
__device__ void gather(Gathered& into, Place<kWidth, kWhole> at, const Fragment<kWidth>& f) {
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    if (kWhole || i < at.valid) into.add(f.value[i]);
  }
}
/// A value that is equal along the row counts once for every column.
template <typename Gathered, int kWidth, bool kWhole>
__device__ void gather(Gathered& into, Place<kWidth, kWhole> at, float x) {
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    if (kWhole || i < at.valid) into.add(x);
  }
}

// PTX ISA, "shfl.sync": all threads of the warp take part.
__device__ inline float shuffle_xor(float x, int lane_mask) {
  float y;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;"
               : "=f"(y)
               : "f"(x), "r"(lane_mask));
  return y;
}

/// Brings together what kThreads neighbouring threads gathered; every one of them gets it.
/// `scratch`: one float per warp of the block; all threads of the block take part.
template <int kThreads, typename Gathered>
__device__ void reduce_row(Gathered& x, float* scratch) {
#pragma unroll
  for (int mask = smaller(kThreads, 32) / 2; mask > 0; mask /= 2) {
    x.add(shuffle_xor(x.value, mask));
  }
  if constexpr (kThreads > 32) {
    constexpr int kWarps = kThreads / 32;
    int warp = threadIdx.x / 32, first = warp / kWarps * kWarps;
    __syncthreads();  // the last reduction's scratch has been read
    if (threadIdx.x % 32 == 0) scratch[warp] = x.value;
    __syncthreads();
    x = Gathered();
#pragma unroll
    for (int i = 0; i < kWarps; ++i) x.add(scratch[first + i]);
  }
}
