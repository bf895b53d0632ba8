// Clusters of four blocks. Each block takes a row of x, and the leader's bulk copy of gain reaches the
// shared memory of all. The sum of a row goes by st.async to the next block of the cluster; then the
// blocks read each other's maximum. y = (x + sum of the row of the block before) * gain / maximum.
#include "device.cuh"

constexpr int kBlocks = 4, kColumns = 128;

__device__ inline u32 map_to(u32 address, u32 rank) {
  u32 mapped;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
  return mapped;
}
__device__ inline void cluster_sync() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

extern "C" __global__ void __launch_bounds__(kColumns)
    cluster_rows(const float* __restrict__ x, const float* __restrict__ gain,
                 float* __restrict__ y) {
  __shared__ __align__(128) float scale[kColumns];
  __shared__ float sums[4], maxima[4], highest, received;
  __shared__ u64 arrived, copied;
  int t = threadIdx.x, lane = t % 32, warp = t / 32;
  u32 rank = blockIdx.x % kBlocks, next = (rank + 1) % kBlocks;
  if (t == 0) {
    barrier_init(shared_address(&arrived), 1);
    barrier_init(shared_address(&copied), 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    barrier_expect(shared_address(&arrived), 4);
    barrier_expect(shared_address(&copied), kColumns * 4);
  }
  cluster_sync();  // the barriers of all are ready
  if (rank == 0 && t == 0)
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1], %2, [%3], %4;" ::"r"(shared_address(scale)),
        "l"(gain), "r"(kColumns * 4), "r"(shared_address(&copied)), "h"((u16)15)
        : "memory");
  float value = x[blockIdx.x * kColumns + t], sum = value, most = fabsf(value);
  for (int step = 16; step > 0; step /= 2) {
    sum += __shfl_xor_sync(0xffffffffu, sum, step);
    most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, step));
  }
  if (lane == 0) {
    sums[warp] = sum;
    maxima[warp] = most;
  }
  __syncthreads();
  if (t == 0) {
    sum = sums[0] + sums[1] + sums[2] + sums[3];
    highest = fmaxf(fmaxf(maxima[0], maxima[1]), fmaxf(maxima[2], maxima[3]));
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(
                     map_to(shared_address(&received), next)),
                 "r"(__float_as_uint(sum)), "r"(map_to(shared_address(&arrived), next))
                 : "memory");
  }
  cluster_sync();  // the maxima of all are there
  float top = 0;
  for (u32 other = 0; other < kBlocks; ++other) {
    float theirs;
    asm volatile("ld.shared::cluster.f32 %0, [%1];"
                 : "=f"(theirs)
                 : "r"(map_to(shared_address(&highest), other))
                 : "memory");
    top = fmaxf(top, theirs);
  }
  barrier_wait(shared_address(&arrived), 0);
  barrier_wait(shared_address(&copied), 0);
  y[blockIdx.x * kColumns + t] = (value + received) * scale[t] / top;
  cluster_sync();  // nobody leaves while others read its maximum
}
