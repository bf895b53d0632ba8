// One query of attention per block over keys and values in pages of 16 rows of 64; `table` lists the
// pages of each sequence, `lengths` their rows in use. A warp takes every fourth key; sums meet in
// shared memory.
constexpr int kHead = 64, kPage = 16, kWarps = 4;

extern "C" __global__ void __launch_bounds__(128)
    paged_decode(const float* __restrict__ queries, const float* __restrict__ keys,
                 const float* __restrict__ values, const int* __restrict__ table,
                 const int* __restrict__ lengths, float* __restrict__ out, int pages) {
  __shared__ float most[kWarps], weight[kWarps], part[kWarps][kHead];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, sequence = blockIdx.x;
  const float* query = queries + sequence * kHead;
  float q0 = query[lane], q1 = query[lane + 32];
  float highest = -1e30f, sum = 0, y0 = 0, y1 = 0;
  int length = lengths[sequence];
  for (int at = warp; at < length; at += kWarps) {
    int page = table[sequence * pages + at / kPage];
    long long row = ((long long)page * kPage + at % kPage) * kHead;
    float score = q0 * keys[row + lane] + q1 * keys[row + lane + 32];
    for (int step = 16; step > 0; step /= 2) score += __shfl_xor_sync(0xffffffffu, score, step);
    score *= 0.125f;
    float higher = fmaxf(highest, score), old = __expf(highest - higher),
          now = __expf(score - higher);
    sum = sum * old + now;
    y0 = y0 * old + now * values[row + lane];
    y1 = y1 * old + now * values[row + lane + 32];
    highest = higher;
  }
  if (lane == 0) most[warp] = highest;
  if (lane == 0) weight[warp] = sum;
  part[warp][lane] = y0;
  part[warp][lane + 32] = y1;
  __syncthreads();
  if (threadIdx.x < kHead) {
    float top = most[0], total = 0, y = 0;
    for (int w = 1; w < kWarps; ++w) top = fmaxf(top, most[w]);
    for (int w = 0; w < kWarps; ++w) {
      float factor = __expf(most[w] - top);
      total += weight[w] * factor;
      y += part[w][threadIdx.x] * factor;
    }
    out[sequence * kHead + threadIdx.x] = y / total;
  }
}
