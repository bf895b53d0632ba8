// C = A B^T of bytes: A is [m, k], B is [n, k], C is [m, n]; k is a multiple of 16. Tiles of 32 x 32 x 64
// in two stages of cp.async, read by ldmatrix; four warps, 16 x 16 each.
#include "device.cuh"

constexpr int kTile = 32, kDepth = 64, kPitch = kDepth + 16;  // the pad avoids conflicts

/// d += a b, 16 x 8 x 32.
__device__ inline void multiply(int (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#if __CUDA_ARCH__ >= 890
__device__ inline void multiply_fp8(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#endif

template <typename Sum, typename Multiply>
__device__ inline void gemm(const char* a, const char* b, Sum* c, int m, int n, int k,
                            Multiply multiply) {
  __shared__ __align__(16) char left[2][kTile * kPitch], right[2][kTile * kPitch];
  int t = threadIdx.x, lane = t % 32, warp = t / 32;
  int row = blockIdx.y * kTile, column = blockIdx.x * kTile;
  auto load = [&](int tile) {
    int r = t / 4, d = t % 4 * 16, at = tile * kDepth + d;
    bool a_there = row + r < m && at < k, b_there = column + r < n && at < k;
    copy16(shared_address(&left[tile % 2][r * kPitch + d]),
           a + (a_there ? (long long)(row + r) * k + at : 0), a_there ? 16 : 0);
    copy16(shared_address(&right[tile % 2][r * kPitch + d]),
           b + (b_there ? (long long)(column + r) * k + at : 0), b_there ? 16 : 0);
  };
  int tiles = (k + kDepth - 1) / kDepth;
  load(0);
  copies_commit();
  Sum sum[2][4] = {};
  int warp_row = warp / 2 * 16, warp_column = warp % 2 * 16;
  for (int tile = 0; tile < tiles; ++tile) {
    if (tile + 1 < tiles) load(tile + 1);
    copies_commit();
    copies_wait<1>();
    __syncthreads();  // the tile is there for all
    for (int step = 0; step < kDepth; step += 32) {
      u32 x[4], y[4];
      int r = lane % 16, d = step + lane / 16 * 16;
      load_matrices(x, shared_address(&left[tile % 2][(warp_row + r) * kPitch + d]));
      load_matrices(y, shared_address(&right[tile % 2][(warp_column + r) * kPitch + d]));
      for (int j = 0; j < 2; ++j) multiply(sum[j], x, y[j], y[j + 2]);
    }
    __syncthreads();  // all have read the stage that is loaded next
  }
  for (int j = 0; j < 2; ++j)
    for (int e = 0; e < 4; ++e) {
      int r = row + warp_row + lane / 4 + e / 2 * 8;
      int s = column + warp_column + j * 8 + lane % 4 * 2 + e % 2;
      if (r < m && s < n) c[(long long)r * n + s] = sum[j][e];
    }
}

extern "C" __global__ void __launch_bounds__(128)
    int8_gemm(const char* __restrict__ a, const char* __restrict__ b, int* __restrict__ c, int m,
              int n, int k) {
  gemm(a, b, c, m, n, k,
       [](int(&d)[4], const u32(&x)[4], u32 b0, u32 b1) { multiply(d, x, b0, b1); });
}

#if __CUDA_ARCH__ >= 890
extern "C" __global__ void __launch_bounds__(128)
    fp8_gemm(const char* __restrict__ a, const char* __restrict__ b, float* __restrict__ c, int m,
             int n, int k) {
  gemm(a, b, c, m, n, k,
       [](float(&d)[4], const u32(&x)[4], u32 b0, u32 b1) { multiply_fp8(d, x, b0, b1); });
}
#endif
