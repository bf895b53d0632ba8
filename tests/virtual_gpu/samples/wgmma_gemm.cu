// C = A B^T in bf16 with f32 sums: A is [m, k], B is [n, k], C is [m, n]. Tiles of 64 x 64 x 64 come by
// tensor copies in a ring of stages, swizzled by 128 bytes; one warpgroup multiplies them by wgmma.
#include "hopper.cuh"

constexpr int kTile = 64, kDepth = 64, kStages = 3;
constexpr u32 kTileBytes = kTile * kDepth * 2;

/// A matrix descriptor of rows of 128 bytes, swizzled by 128: eight rows are 1024 bytes.
__device__ inline u64 descriptor(u32 address) {
  return u64((address & 0x3ffff) >> 4) | u64(1) << 16 | u64(1024 >> 4) << 32 | u64(1) << 62;
}

extern "C" __global__ void __launch_bounds__(128)
    wgmma_gemm(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b,
               float* __restrict__ c, int m, int n, int k) {
  extern __shared__ __align__(1024) char tiles[];
  __shared__ u64 full[kStages];
  int t = threadIdx.x, row = blockIdx.y * kTile, column = blockIdx.x * kTile;
  u32 ring = shared_address(tiles);
  if (t == 0) {
    for (int stage = 0; stage < kStages; ++stage) barrier_init(shared_address(&full[stage]), 1);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
  auto load = [&](int tile) {
    int stage = tile % kStages;
    u32 to = ring + stage * 2 * kTileBytes, barrier = shared_address(&full[stage]);
    barrier_expect(barrier, 2 * kTileBytes);
    copy_tile(to, &a, tile * kDepth, row, barrier);
    copy_tile(to + kTileBytes, &b, tile * kDepth, column, barrier);
  };
  int count = (k + kDepth - 1) / kDepth;
  if (t == 0)
    for (int tile = 0; tile < kStages - 1 && tile < count; ++tile) load(tile);
  float sum[32] = {};
  for (int tile = 0; tile < count; ++tile) {
    int stage = tile % kStages;
    barrier_wait(shared_address(&full[stage]), tile / kStages & 1);
    u32 left = ring + stage * 2 * kTileBytes, right = left + kTileBytes;
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (int step = 0; step < kDepth; step += 16)
      multiply(sum, descriptor(left + step * 2), descriptor(right + step * 2));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    __syncthreads();  // all four warps have read the stage that is loaded next
    if (t == 0 && tile + kStages - 1 < count) load(tile + kStages - 1);
  }
  for (int j = 0; j < 8; ++j)
    for (int e = 0; e < 4; ++e) {
      int r = row + t / 32 * 16 + t % 32 / 4 + e / 2 * 8, s = column + j * 8 + t % 4 * 2 + e % 2;
      if (r < m && s < n) c[(long long)r * n + s] = sum[j * 4 + e];
    }
}
