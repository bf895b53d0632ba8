// C = A B^T in bf16 with f32 sums: A is [m, k], B is [n, k], C is f32 [m, n]. Tiles of 128 x 64 x 64: one
// warpgroup loads them by tensor copies into a ring of stages, two multiply 64 rows each. A stage is
// full by the bytes of its copies and empty when both have read it. C leaves by a tensor copy, too.
#include "hopper.cuh"

constexpr int kRows = 128, kColumns = 64, kDepth = 64, kStages = 3;
constexpr u32 kLeftBytes = kRows * kDepth * 2, kRightBytes = kColumns * kDepth * 2;
constexpr u32 kStageBytes = kLeftBytes + kRightBytes;

/// A matrix descriptor of rows of 128 bytes, swizzled by 128: eight rows are 1024 bytes.
__device__ inline u64 descriptor(u32 address) {
  return u64((address & 0x3ffff) >> 4) | u64(1) << 16 | u64(1024 >> 4) << 32 | u64(1) << 62;
}

extern "C" __global__ void __launch_bounds__(384, 1)
    wgmma_ring(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b,
               const __grid_constant__ TensorMap c, int k) {
  extern __shared__ __align__(1024) char memory[];
  __shared__ u64 full[kStages], empty[kStages];
  int t = threadIdx.x, row = blockIdx.y * kRows, column = blockIdx.x * kColumns;
  int count = (k + kDepth - 1) / kDepth;
  u32 ring = shared_address(memory), out = ring + kStages * kStageBytes;
  if (t == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      barrier_init(shared_address(&full[stage]), 1);
      barrier_init(shared_address(&empty[stage]), 2);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();  // the barriers are there
  if (t < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (t != 0) return;
    for (int tile = 0; tile < count; ++tile) {
      int stage = tile % kStages;
      u32 to = ring + stage * kStageBytes, barrier = shared_address(&full[stage]);
      if (tile >= kStages) barrier_wait(shared_address(&empty[stage]), (tile / kStages - 1) & 1);
      barrier_expect(barrier, kStageBytes);
      copy_tile(to, &a, tile * kDepth, row, barrier);
      copy_tile(to + kLeftBytes, &b, tile * kDepth, column, barrier);
    }
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
  int half = t / 128 - 1;
  float sum[32] = {};
  for (int tile = 0; tile < count; ++tile) {
    int stage = tile % kStages;
    barrier_wait(shared_address(&full[stage]), tile / kStages & 1);
    u32 left = ring + stage * kStageBytes + half * 64 * kDepth * 2;
    u32 right = ring + stage * kStageBytes + kLeftBytes;
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (int step = 0; step < kDepth; step += 16)
      multiply(sum, descriptor(left + step * 2), descriptor(right + step * 2));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    if (t % 128 == 0) barrier_arrive(shared_address(&empty[stage]));
  }
  float* tile = reinterpret_cast<float*>(memory + kStages * kStageBytes);
  for (int j = 0; j < 8; ++j)
    for (int e = 0; e < 4; ++e) {
      int r = half * 64 + t / 32 % 4 * 16 + t % 32 / 4 + e / 2 * 8, s = j * 8 + t % 4 * 2 + e % 2;
      tile[r * kColumns + s] = sum[j * 4 + e];
    }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  asm volatile("bar.sync 1, 256;" ::: "memory");  // of the two that multiply
  if (t == 128) {
    store_tile(&c, column, row, out);
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
  }
}
