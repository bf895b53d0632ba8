// c = sum over k of a[k] b[k, n], split over blockIdx.y. Partial sums go to a workspace; of the blocks
// of a column tile the one that comes last, by a counter, adds them in order and resets the counter.
extern "C" __global__ void splitk(const float* __restrict__ a, const float* __restrict__ b,
                                  float* workspace, unsigned* counters, float* __restrict__ c,
                                  int n, int k) {
  __shared__ bool last;
  int column = blockIdx.x * blockDim.x + threadIdx.x, splits = gridDim.y;
  int share = (k + splits - 1) / splits, begin = blockIdx.y * share;
  int end = begin + share < k ? begin + share : k;
  float sum = 0;
  if (column < n)
    for (int d = begin; d < end; ++d) sum += a[d] * b[(long long)d * n + column];
  if (column < n) workspace[(long long)blockIdx.y * n + column] = sum;
  __threadfence();
  __syncthreads();  // all of the block's sums come before its count
  if (threadIdx.x == 0) {
    last = atomicAdd(&counters[blockIdx.x], 1u) == splits - 1;
    __threadfence();
  }
  __syncthreads();
  if (!last) return;
  if (column < n) {
    float total = 0;
    for (int s = 0; s < splits; ++s)
      total += *(volatile float*)&workspace[(long long)s * n + column];
    c[column] = total;
  }
  if (threadIdx.x == 0) counters[blockIdx.x] = 0;
}
