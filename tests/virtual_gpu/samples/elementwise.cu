// y = silu(x) * gate + shift. Four elements a thread where a whole vector is there, one by one in
// the tail. x, gate and y are aligned to 16 bytes.
__device__ float swish(float x) { return x / (1.0f + __expf(-x)); }

extern "C" __global__ void gated_silu(const float* __restrict__ x, const float* __restrict__ gate,
                                      float shift, float* __restrict__ y, int n) {
  int first = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
  if (first + 4 <= n) {
    float4 a = *reinterpret_cast<const float4*>(x + first);
    float4 g = *reinterpret_cast<const float4*>(gate + first);
    a.x = swish(a.x) * g.x + shift;
    a.y = swish(a.y) * g.y + shift;
    a.z = swish(a.z) * g.z + shift;
    a.w = swish(a.w) * g.w + shift;
    *reinterpret_cast<float4*>(y + first) = a;
  } else {
    for (int i = first; i < n; ++i) y[i] = swish(x[i]) * gate[i] + shift;
  }
}
