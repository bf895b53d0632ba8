// C = A B^T in bf16 with f32 sums: A is [m, k], B is [n, k], C is [m, n]. Tiles of 64 x 64 x 64 come by
// tensor copies in a ring of stages, swizzled by 128 bytes; one warpgroup multiplies them by wgmma.
#include "device.cuh"

constexpr int kTile = 64, kDepth = 64, kStages = 3;
constexpr u32 kTileBytes = kTile * kDepth * 2;

struct alignas(64) TensorMap {
  char bytes[128];
};

__device__ inline void copy_tile(u32 to, const TensorMap* map, int column, int row, u32 barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];" ::"r"(to),
      "l"(map), "r"(column), "r"(row), "r"(barrier)
      : "memory");
}

/// A matrix descriptor of rows of 128 bytes, swizzled by 128: eight rows are 1024 bytes.
__device__ inline u64 descriptor(u32 address) {
  return u64((address & 0x3ffff) >> 4) | u64(1) << 16 | u64(1024 >> 4) << 32 | u64(1) << 62;
}

__device__ inline void multiply(float (&d)[32], u64 a, u64 b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, %32, %33, 1, 1, 1, 0, 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
        "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
        "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "l"(a), "l"(b));
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
