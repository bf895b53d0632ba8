// y = x W^T, where W is [n, k] of 4 bits, two in a byte, biased by 8, each 32 of a row with a scale.
// x is f32 [m, k]. A warp computes one element of y.
extern "C" __global__ void quant_gemm(const float* __restrict__ x,
                                      const unsigned char* __restrict__ weights,
                                      const float* __restrict__ scales, float* __restrict__ y,
                                      int m, int n, int k) {
  int column = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  int row = blockIdx.y;
  if (column >= n) return;  // whole warps
  float sum = 0;
  for (int at = lane * 2; at < k; at += 64) {
    unsigned char pair = weights[((long long)column * k + at) / 2];
    float scale = scales[(long long)column * (k / 32) + at / 32];
    float low = ((pair & 15) - 8) * scale, high = ((pair >> 4) - 8) * scale;
    sum += x[(long long)row * k + at] * low + x[(long long)row * k + at + 1] * high;
  }
  for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffffu, sum, step);
  if (lane == 0) y[(long long)row * n + column] = sum;
}
