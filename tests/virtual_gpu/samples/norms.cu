// y = x / sqrt(mean(x^2) + eps) * gain, rows of f32. One block a row.
extern "C" __global__ void rms_norm(const float* __restrict__ x, const float* __restrict__ gain,
                                    float* __restrict__ y, int columns, float eps) {
  __shared__ float partial[32];
  const float* row = x + (long long)blockIdx.x * columns;
  float sum = 0;
  for (int c = threadIdx.x; c < columns; c += blockDim.x) sum += row[c] * row[c];
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  if (lane == 0) partial[warp] = sum;
  __syncthreads();
  float total = 0;
  for (int w = 0; w < warps; ++w) total += partial[w];
  float factor = rsqrtf(total / columns + eps);
  for (int c = threadIdx.x; c < columns; c += blockDim.x)
    y[(long long)blockIdx.x * columns + c] = row[c] * factor * gain[c];
}
