/// CUDA sources of products on tensor cores, for the tests and the benchmark.
#pragma once

namespace tilewright::vgpu::samples {

/// c = a b, a [m, k], b [k, n] of bf16, c [m, n] of f32, all row-major; multiples of 128, 128 and 32.
/// 8 warps of 64x32, cp.async in 3 stages, rows of 16-byte chunks swizzled against bank conflicts.
inline constexpr const char* kMmaGemm = R"(
using u16 = unsigned short;
using u32 = unsigned;
constexpr int kM = 128, kN = 128, kK = 32, kStages = 3;
constexpr u32 kBytesA = kM * kK * 2, kBytesB = kK * kN * 2;

__device__ inline void copy16(u32 to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ inline u32 at_a(u32 base, int row, int chunk) {
  return base + row * (kK * 2) + ((chunk ^ (row / 2 % 4)) * 16);
}
__device__ inline u32 at_b(u32 base, int row, int chunk) {
  return base + row * (kN * 2) + ((chunk ^ (row % 8)) * 16);
}

extern "C" __global__ void __launch_bounds__(256)
mma_gemm(const u16* a, const u16* b, float* c, int m, int n, int k) {
  extern __shared__ __align__(128) unsigned char buffer[];
  u32 base = static_cast<u32>(__cvta_generic_to_shared(buffer));
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int row0 = blockIdx.y * kM, column0 = blockIdx.x * kN;
  int warp_row = warp / 4 * 64, warp_column = warp % 4 * 32;
  auto load = [&](int stage, int k0) {
    u32 to_a = base + stage * (kBytesA + kBytesB), to_b = to_a + kBytesA;
    for (int i = threadIdx.x; i < kM * kK / 8; i += 256)
      copy16(at_a(to_a, i / 4, i % 4), a + (row0 + i / 4) * static_cast<long long>(k) + k0 + i % 4 * 8);
    for (int i = threadIdx.x; i < kK * kN / 8; i += 256)
      copy16(at_b(to_b, i / 16, i % 16),
             b + (k0 + i / 16) * static_cast<long long>(n) + column0 + i % 16 * 8);
  };
  float acc[4][4][4] = {};
  int steps = k / kK;
  for (int s = 0; s < kStages - 1; ++s) {
    if (s < steps) load(s, s * kK);
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  for (int step = 0; step < steps; ++step) {
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncthreads();
    if (step + kStages - 1 < steps) load((step + kStages - 1) % kStages, (step + kStages - 1) * kK);
    asm volatile("cp.async.commit_group;" ::: "memory");
    u32 from_a = base + step % kStages * (kBytesA + kBytesB), from_b = from_a + kBytesA;
#pragma unroll
    for (int kk = 0; kk < 2; ++kk) {
      u32 fa[4][4], fb[4][2];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(fa[i][0]), "=r"(fa[i][1]), "=r"(fa[i][2]), "=r"(fa[i][3])
                     : "r"(at_a(from_a, warp_row + i * 16 + lane % 16, kk * 2 + lane / 16)));
#pragma unroll
      for (int j = 0; j < 4; j += 2)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(fb[j][0]), "=r"(fb[j][1]), "=r"(fb[j + 1][0]), "=r"(fb[j + 1][1])
                     : "r"(at_b(from_b, kk * 16 + lane % 16, warp_column / 8 + j + lane / 16)));
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j)
          asm volatile(
              "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
              "{%8,%9}, {%0,%1,%2,%3};"
              : "+f"(acc[i][j][0]), "+f"(acc[i][j][1]), "+f"(acc[i][j][2]), "+f"(acc[i][j][3])
              : "r"(fa[i][0]), "r"(fa[i][1]), "r"(fa[i][2]), "r"(fa[i][3]), "r"(fb[j][0]),
                "r"(fb[j][1]));
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        int row = row0 + warp_row + i * 16 + h * 8 + lane / 4;
        int column = column0 + warp_column + j * 8 + lane % 4 * 2;
        *reinterpret_cast<float2*>(c + static_cast<long long>(row) * n + column) =
            make_float2(acc[i][j][2 * h], acc[i][j][2 * h + 1]);
      }
}
)";
inline constexpr unsigned kMmaGemmShared = 3 * (128 * 32 + 32 * 128) * 2;

/// c = a b^T, a [m, k], b [n, k] of bf16, c [m, n] of f32; multiples of 128, 128 and 64. Two
/// warpgroups of 64x128 each; tiles of 64 k are copied into the 128-byte swizzle by the threads.
inline constexpr const char* kWgmmaGemm = R"(
using u16 = unsigned short;
using u32 = unsigned;
using u64 = unsigned long long;
constexpr u32 kTile = 128 * 64 * 2;

__device__ inline u64 descriptor(u32 address) {
  return static_cast<u64>((address & 0x3ffff) >> 4) | u64{1} << 16 | u64{1024 / 16} << 32 |
         u64{1} << 62;
}
#define FOUR(x, i) x(d[i]), x(d[i + 1]), x(d[i + 2]), x(d[i + 3])
#define SIXTEEN(x, i) FOUR(x, i), FOUR(x, i + 4), FOUR(x, i + 8), FOUR(x, i + 12)

extern "C" __global__ void __launch_bounds__(256)
wgmma_gemm(const u16* a, const u16* b, float* c, int m, int n, int k) {
  extern __shared__ __align__(1024) unsigned char buffer[];
  u32 base = static_cast<u32>(__cvta_generic_to_shared(buffer));
  int row0 = blockIdx.y * 128, column0 = blockIdx.x * 128, group = threadIdx.x / 128;
  auto copy = [&](u32 to, const u16* from, int first, int k0) {
    for (int i = threadIdx.x; i < 128 * 8; i += 256) {
      int row = i / 8, chunk = i % 8;
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                       to + row * 128 + ((chunk ^ (row % 8)) * 16)),
                   "l"(from + (first + row) * static_cast<long long>(k) + k0 + chunk * 8)
                   : "memory");
    }
  };
  float d[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) d[i] = 0;
  for (int k0 = 0; k0 < k; k0 += 64) {
    __syncthreads();
    copy(base, a, row0, k0);
    copy(base + kTile, b, column0, k0);
    asm volatile("cp.async.wait_all;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int kk = 0; kk < 4; ++kk)
      asm volatile(
          "{\n.reg .pred p;\nsetp.ne.u32 p, %66, 0;\n"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,"
          "%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,"
          "%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,"
          "%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, %64, %65, p, 1, 1, 0, 0;\n}"
          : SIXTEEN("+f", 0), SIXTEEN("+f", 16), SIXTEEN("+f", 32), SIXTEEN("+f", 48)
          : "l"(descriptor(base + group * 8192 + kk * 32)), "l"(descriptor(base + kTile + kk * 32)),
            "r"(k0 + kk > 0 ? 1 : 0));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  }
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
#pragma unroll
  for (int j = 0; j < 16; ++j)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      int row = row0 + group * 64 + warp * 16 + h * 8 + lane / 4;
      *reinterpret_cast<float2*>(c + static_cast<long long>(row) * n + column0 + j * 8 +
                                 lane % 4 * 2) = make_float2(d[j * 4 + 2 * h], d[j * 4 + 2 * h + 1]);
    }
}
)";
inline constexpr unsigned kWgmmaGemmShared = 2 * 128 * 64 * 2;

/// The same with a and b as tensor maps of boxes of 64x128, in the 128-byte swizzle; two stages.
inline constexpr const char* kTmaGemm = R"(
using u16 = unsigned short;
using u32 = unsigned;
using u64 = unsigned long long;
constexpr u32 kTile = 128 * 64 * 2;

__device__ inline u64 descriptor(u32 address) {
  return static_cast<u64>((address & 0x3ffff) >> 4) | u64{1} << 16 | u64{1024 / 16} << 32 |
         u64{1} << 62;
}
struct alignas(64) TensorMap {
  u64 opaque[16];
};
__device__ inline void tma(u32 to, const TensorMap* map, int x, int y, u32 bar) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%2, %3}], [%4];" ::"r"(to), "l"(map), "r"(x), "r"(y), "r"(bar)
      : "memory");
}
#define FOUR(x, i) x(d[i]), x(d[i + 1]), x(d[i + 2]), x(d[i + 3])
#define SIXTEEN(x, i) FOUR(x, i), FOUR(x, i + 4), FOUR(x, i + 8), FOUR(x, i + 12)

extern "C" __global__ void __launch_bounds__(256)
tma_gemm(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float* c, int m,
         int n, int k) {
  extern __shared__ __align__(1024) unsigned char buffer[];
  __shared__ __align__(8) u64 full[2];
  u32 base = static_cast<u32>(__cvta_generic_to_shared(buffer));
  u32 bar = static_cast<u32>(__cvta_generic_to_shared(full));
  int row0 = blockIdx.y * 128, column0 = blockIdx.x * 128, group = threadIdx.x / 128;
  int steps = k / 64;
  auto load = [&](int step) {
    u32 at = bar + step % 2 * 8, to = base + step % 2 * 2 * kTile;
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(2 * kTile)
                 : "memory");
    tma(to, &a, step * 64, row0, at);
    tma(to + kTile, &b, step * 64, column0, at);
  };
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bar) : "memory");
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bar + 8) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("prefetch.tensormap [%0];" ::"l"(&a) : "memory");
    for (int s = 0; s < 2 && s < steps; ++s) load(s);
  }
  __syncthreads();
  float d[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) d[i] = 0;
  for (int step = 0; step < steps; ++step) {
    u32 from = base + step % 2 * 2 * kTile;
    u32 done = 0;
    while (done == 0)
      asm volatile(
          "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
          "selp.u32 %0, 1, 0, p;\n}"
          : "=r"(done)
          : "r"(bar + step % 2 * 8), "r"(step / 2 % 2)
          : "memory");
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int kk = 0; kk < 4; ++kk)
      asm volatile(
          "{\n.reg .pred p;\nsetp.ne.u32 p, %66, 0;\n"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,"
          "%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,"
          "%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,"
          "%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, %64, %65, p, 1, 1, 0, 0;\n}"
          : SIXTEEN("+f", 0), SIXTEEN("+f", 16), SIXTEEN("+f", 32), SIXTEEN("+f", 48)
          : "l"(descriptor(from + group * 8192 + kk * 32)), "l"(descriptor(from + kTile + kk * 32)),
            "r"(step + kk > 0 ? 1 : 0));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0 && step + 2 < steps) load(step + 2);
  }
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
#pragma unroll
  for (int j = 0; j < 16; ++j)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      int row = row0 + group * 64 + warp * 16 + h * 8 + lane / 4;
      *reinterpret_cast<float2*>(c + static_cast<long long>(row) * n + column0 + j * 8 +
                                 lane % 4 * 2) = make_float2(d[j * 4 + 2 * h], d[j * 4 + 2 * h + 1]);
    }
}
)";
inline constexpr unsigned kTmaGemmShared = 4 * 128 * 64 * 2;

}  // namespace tilewright::vgpu::samples
