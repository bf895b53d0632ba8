// C = A B, row-major f32 of any size: tiles of 32 x 32 x 8 in shared memory, 2 x 2 outputs a thread.
constexpr int kTile = 32, kDepth = 8;

extern "C" __global__ void __launch_bounds__(256)
    simt_gemm(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c,
              int m, int n, int k) {
  __shared__ float left[kDepth][kTile + 1];
  __shared__ float right[kDepth][kTile];
  int t = threadIdx.x, row = blockIdx.y * kTile, column = blockIdx.x * kTile;
  int r = t / 16 * 2, s = t % 16 * 2;
  float sum[2][2] = {};
  for (int depth = 0; depth < k; depth += kDepth) {
    int ai = t / kDepth, ak = t % kDepth, bk = t / kTile, bj = t % kTile;
    left[ak][ai] =
        row + ai < m && depth + ak < k ? a[(long long)(row + ai) * k + depth + ak] : 0.0f;
    right[bk][bj] =
        depth + bk < k && column + bj < n ? b[(long long)(depth + bk) * n + column + bj] : 0.0f;
    __syncthreads();
#pragma unroll
    for (int d = 0; d < kDepth; ++d)
      for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 2; ++j) sum[i][j] += left[d][r + i] * right[d][s + j];
    __syncthreads();  // before the next tile
  }
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j)
      if (row + r + i < m && column + s + j < n)
        c[(long long)(row + r + i) * n + column + s + j] = sum[i][j];
}
