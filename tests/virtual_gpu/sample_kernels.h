/// CUDA sources of kernels that tests and benchmarks compile with NVRTC.
#pragma once

namespace tilewright::vgpu::samples {

/// C = A B, row-major, sizes multiples of 64 and 16. Tile 64x64x16, 256 threads, 4x4 per thread.
inline constexpr const char* kGemm = R"(
constexpr int kTile = 64, kDepth = 16, kThread = 4;
extern "C" __global__ void __launch_bounds__(256)
gemm(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n,
     int k) {
  __shared__ float tile_a[kDepth][kTile + 4];
  __shared__ float tile_b[kDepth][kTile];
  int t = threadIdx.x, column = t % 16 * kThread, row = t / 16 * kThread;
  const float4* from_a = reinterpret_cast<const float4*>(
      a + (long long)(blockIdx.y * kTile + t / 4) * k + t % 4 * 4);
  const float4* from_b = reinterpret_cast<const float4*>(
      b + (long long)(t / 16) * n + blockIdx.x * kTile + t % 16 * 4);
  float sum[kThread][kThread] = {};
  for (int depth = 0; depth < k; depth += kDepth) {
    float4 x = *from_a, y = *from_b;
    from_a += kDepth / 4;
    from_b += (long long)kDepth * n / 4;
    tile_a[t % 4 * 4 + 0][t / 4] = x.x;
    tile_a[t % 4 * 4 + 1][t / 4] = x.y;
    tile_a[t % 4 * 4 + 2][t / 4] = x.z;
    tile_a[t % 4 * 4 + 3][t / 4] = x.w;
    *reinterpret_cast<float4*>(&tile_b[t / 16][t % 16 * 4]) = y;
    __syncthreads();
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      float4 u = *reinterpret_cast<float4*>(&tile_a[d][row]);
      float4 v = *reinterpret_cast<float4*>(&tile_b[d][column]);
      float rows[4] = {u.x, u.y, u.z, u.w}, columns[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
      for (int i = 0; i < kThread; ++i)
#pragma unroll
        for (int j = 0; j < kThread; ++j) sum[i][j] += rows[i] * columns[j];
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kThread; ++i)
    *reinterpret_cast<float4*>(c + (long long)(blockIdx.y * kTile + row + i) * n +
                               blockIdx.x * kTile + column) =
        make_float4(sum[i][0], sum[i][1], sum[i][2], sum[i][3]);
}
)";

/// y = silu(x) * g + 1, one element per thread.
inline constexpr const char* kElementwise = R"(
extern "C" __global__ void elementwise(const float* __restrict__ x, const float* __restrict__ g,
                                       float* __restrict__ y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] / (1.0f + __expf(-x[i])) * g[i] + 1.0f;
}
)";

/// y = softmax(x) along rows, one block per row.
inline constexpr const char* kSoftmax = R"(
extern "C" __global__ void __launch_bounds__(256)
softmax(const float* __restrict__ x, float* __restrict__ y, int columns) {
  __shared__ float part[8];
  const float* row = x + (long long)blockIdx.x * columns;
  float largest = -__int_as_float(0x7f800000);
  for (int c = threadIdx.x; c < columns; c += 256) largest = fmaxf(largest, row[c]);
  for (int o = 16; o; o >>= 1) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, o));
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = largest;
  __syncthreads();
  largest = part[0];
  for (int i = 1; i < 8; ++i) largest = fmaxf(largest, part[i]);
  __syncthreads();
  float sum = 0;
  for (int c = threadIdx.x; c < columns; c += 256) sum += expf(row[c] - largest);
  for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(~0u, sum, o);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0;
  for (int i = 0; i < 8; ++i) sum += part[i];
  for (int c = threadIdx.x; c < columns; c += 256)
    y[(long long)blockIdx.x * columns + c] = expf(row[c] - largest) / sum;
}
)";

}  // namespace tilewright::vgpu::samples
