/// For editors and for Clang only: what NVRTC predeclares. Pre-included, never by generated code.
#pragma once
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))

struct uint3 {
  unsigned x, y, z;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
extern const __device__ uint3 threadIdx, blockIdx, blockDim, gridDim;
__device__ void __syncthreads();

// NVRTC evaluates a constexpr __device__ function anywhere; Clang does only if it is __host__, too.
#pragma clang force_cuda_host_device begin
