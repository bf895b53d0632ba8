// C = A B^T in bf16 with f32 sums: A is [m, k], B is [n, k], C is [m, n]; k is a multiple of 8. Tiles
// of 64 x 64 x 32 in three stages of cp.async, read by ldmatrix; four warps, 32 x 32 each.
#include "device.cuh"

constexpr int kTile = 64, kDepth = 32, kStages = 3,
              kPitch = kDepth + 8;  // the pad avoids conflicts

extern "C" __global__ void __launch_bounds__(128)
    mma_gemm(const u16* __restrict__ a, const u16* __restrict__ b, float* __restrict__ c, int m,
             int n, int k) {
  __shared__ __align__(16) u16 left[kStages][kTile * kPitch], right[kStages][kTile * kPitch];
  int t = threadIdx.x, lane = t % 32, warp = t / 32;
  int row = blockIdx.y * kTile, column = blockIdx.x * kTile;
  auto load = [&](int tile) {
    int stage = tile % kStages;
    for (int chunk = t; chunk < kTile * kDepth / 8; chunk += 128) {
      int r = chunk / (kDepth / 8), d = chunk % (kDepth / 8) * 8, at = tile * kDepth + d;
      bool a_there = row + r < m && at < k, b_there = column + r < n && at < k;
      copy16(shared_address(&left[stage][r * kPitch + d]),
             a + (a_there ? (long long)(row + r) * k + at : 0), a_there ? 16 : 0);
      copy16(shared_address(&right[stage][r * kPitch + d]),
             b + (b_there ? (long long)(column + r) * k + at : 0), b_there ? 16 : 0);
    }
  };
  int tiles = (k + kDepth - 1) / kDepth;
  for (int stage = 0; stage < kStages - 1; ++stage) {
    if (stage < tiles) load(stage);
    copies_commit();
  }
  float sum[2][4][4] = {};
  int warp_row = warp / 2 * 32, warp_column = warp % 2 * 32;
  for (int tile = 0; tile < tiles; ++tile) {
    copies_wait<kStages - 2>();
    __syncthreads();  // the tile is there for all, and the oldest stage is free
    if (tile + kStages - 1 < tiles) load(tile + kStages - 1);
    copies_commit();
    int stage = tile % kStages;
    for (int step = 0; step < kDepth; step += 16) {
      u32 x[2][4], y[2][4];
      for (int i = 0; i < 2; ++i) {
        int r = lane % 16, d = step + lane / 16 * 8;
        load_matrices(x[i], shared_address(&left[stage][(warp_row + i * 16 + r) * kPitch + d]));
        load_matrices(y[i], shared_address(&right[stage][(warp_column + i * 16 + r) * kPitch + d]));
      }
      for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 4; ++j) multiply(sum[i][j], x[i], y[j / 2][j % 2], y[j / 2][j % 2 + 2]);
    }
  }
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 4; ++j)
      for (int e = 0; e < 4; ++e) {
        int r = row + warp_row + i * 16 + lane / 4 + e / 2 * 8;
        int s = column + warp_column + j * 8 + lane % 4 * 2 + e % 2;
        if (r < m && s < n) c[(long long)r * n + s] = sum[i][j][e];
      }
}
