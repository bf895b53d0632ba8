// Kernels that synchronise by atomics and flags and are free of races: the checks find nothing in
// them, and every schedule gives the right result.
#include <gtest/gtest.h>

#include "tests/virtual_gpu/nvrtc.h"
#include "tests/virtual_gpu/run_ptx.h"

namespace tilewright::vgpu {
namespace {

/// `d` has 512 words that are 0; `d[0]` is to be `result` at the end.
struct RaceFree {
  const char* name;
  unsigned grid, block;
  std::uint32_t result;
  const char* body;
  unsigned cluster = 1;
};

constexpr const char* kPrelude = R"(
typedef unsigned u32;
#define T threadIdx.x
#define B blockIdx.x
__device__ u32 shared_at(void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ u32 acquire(u32* p) {
  u32 v; asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory"); return v; }
__device__ void release(u32* p, u32 v) {
  asm volatile("st.release.gpu.u32 [%0], %1;" :: "l"(p), "r"(v) : "memory"); }
__device__ u32 relaxed(u32* p) {
  u32 v; asm volatile("ld.relaxed.gpu.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory"); return v; }
__device__ void store_relaxed(u32* p, u32 v) {
  asm volatile("st.relaxed.gpu.u32 [%0], %1;" :: "l"(p), "r"(v) : "memory"); }
__device__ u32 add_acq_rel(u32* p, u32 v) {
  u32 o; asm volatile("atom.acq_rel.gpu.add.u32 %0, [%1], %2;" : "=r"(o) : "l"(p), "r"(v) : "memory");
  return o; }
__device__ u32 cas_acquire(u32* p, u32 a, u32 b) {
  u32 o; asm volatile("atom.acquire.gpu.cas.b32 %0, [%1], %2, %3;"
                      : "=r"(o) : "l"(p), "r"(a), "r"(b) : "memory"); return o; }
)";

const RaceFree kKernels[] = {
    {"ACounter", 4, 64, 256, "atomicAdd(d, 1);"},
    {"AMaximum", 4, 64, 255, "atomicMax(d, B * 64 + T);"},
    {"ACounterByCas", 3, 4, 12,
     "u32 o = atomicAdd(d, 0), a; do { a = o; o = atomicCAS(d, a, a + 1); } while (o != a);"},
    {"ATicketLockByAcquireAndRelease", 4, 32, 4,
     "if (T) return; u32 t = atomicAdd(d + 1, 1); while (acquire(d + 2) != t); d[0] += 1;"
     "release(d + 2, t + 1);"},
    {"ATicketLockByFences", 4, 32, 4,
     "if (T) return; u32 t = atomicAdd(d + 1, 1); while (relaxed(d + 2) != t); __threadfence();"
     "d[0] += 1; __threadfence(); store_relaxed(d + 2, t + 1);"},
    {"ASpinLock", 4, 32, 4,
     "if (T) return; while (cas_acquire(d + 1, 0, 1)); d[0] += 1; release(d + 1, 0);"},
    {"ASpinLockByFences", 4, 32, 4,
     "if (T) return; while (atomicCAS(d + 1, 0, 1)); __threadfence(); d[0] += 1;"
     "__threadfence(); atomicExch(d + 1, 0);"},
    {"ASpinLockOfABlock", 4, 64, 4,
     "if (T == 0) { while (atomicCAS(d + 1, 0, 1)); __threadfence(); } __syncthreads();"
     "if (T == 40) d[0] += 1; __syncthreads();"
     "if (T == 0) { __threadfence(); atomicExch(d + 1, 0); }"},
    {"AMessageByReleaseAndAcquire", 2, 32, 77,
     "if (T) return; if (B == 0) { d[64] = 77; release(d + 1, 1); }"
     "else { while (!acquire(d + 1)); d[0] = d[64]; }"},
    {"AMessageByFences", 2, 32, 77,
     "if (T) return; if (B == 0) { d[64] = 77; __threadfence(); store_relaxed(d + 1, 1); }"
     "else { while (!relaxed(d + 1)); __threadfence(); d[0] = d[64]; }"},
    {"AMessageByVolatile", 2, 32, 77,
     "if (T) return; volatile u32* f = d + 1; if (B == 0) { d[64] = 77; __threadfence(); *f = 1; }"
     "else { while (!*f); __threadfence(); d[0] = d[64]; }"},
    {"AMessageHandedOn", 3, 32, 78,
     "if (T) return; if (B == 0) { d[64] = 77; release(d + 1, 1); }"
     "else if (B == 1) { while (!acquire(d + 1)); release(d + 2, 1); }"
     "else { while (!acquire(d + 2)); d[0] = d[64] + 1; }"},
    {"AMessageOfAWholeBlock", 2, 64, 2016,
     "if (B == 0) { d[64 + T] = T; __syncthreads(); if (T == 0) { __threadfence();"
     "  atomicExch(d + 1, 1); } }"
     "else { if (T == 0) { while (!relaxed(d + 1)); __threadfence(); } __syncthreads();"
     "  atomicAdd(d, d[64 + T]); }"},
    {"ALastBlockReduction", 4, 64, 10,
     "__shared__ bool last; if (T == 0) { d[64 + B] = B + 1; __threadfence();"
     "  last = atomicInc(d + 1, 3) == 3; } __syncthreads();"
     "if (last && T == 0) { __threadfence(); u32 s = 0;"
     "  for (int i = 0; i < 4; ++i) s += d[64 + i]; d[0] = s; }"},
    {"ALastBlockByAcqRel", 4, 32, 10,
     "if (T) return; d[64 + B] = B + 1; if (add_acq_rel(d + 1, 1) == 3)"
     "  d[0] = d[64] + d[65] + d[66] + d[67];"},
    {"AGridBarrier", 4, 64, 256,
     "d[64 + B * 64 + T] = 1; __syncthreads(); if (T == 0) { __threadfence();"
     "  atomicAdd(d + 1, 1); while (acquire(d + 1) < 4); __threadfence(); } __syncthreads();"
     "atomicAdd(d, d[64 + (B + 1) % 4 * 64 + T]);"},
    {"ARingAcrossBlocks", 2, 32, 36,
     "if (T) return; for (u32 i = 0; i < 8; ++i) { if (B == 0) {"
     "  while (i >= 2 && acquire(d + 2) < i - 1); d[64 + i % 2] = i + 1; release(d + 1, i + 1); }"
     "else { while (acquire(d + 1) <= i); d[0] += d[64 + i % 2]; release(d + 2, i + 1); } }"},
    {"AHistogramInSharedMemory", 2, 64, 16,
     "__shared__ u32 h[8]; if (T < 8) h[T] = 0; __syncthreads(); atomicAdd(h + T % 8, 1);"
     "__syncthreads(); if (T < 8) atomicAdd(d + T, h[T]);"},
    {"WarpAggregatedAtomics", 2, 64, 64,
     "u32 m = __ballot_sync(~0u, T & 1); if (T % 32 == 0) atomicAdd(d, __popc(m));"},
    {"ADoubleCheckedFlag", 4, 32, 5,
     "if (T) return; if (!acquire(d + 1)) { while (cas_acquire(d + 2, 0, 1));"
     "  if (!relaxed(d + 1)) { d[0] += 5; release(d + 1, 1); } release(d + 2, 0); }"
     "d[64 + B] = d[0];"},
    {"ASemaphoreOfSplitK", 4, 64, 10,
     "if (T == 0) while (acquire(d + 1) != B); __syncthreads(); d[T == 0 ? 0 : 64 + T] += B + 1;"
     "__syncthreads(); if (T == 0) release(d + 1, B + 1);"},
    {"NamedBarriers", 1, 64, 496,
     "__shared__ u32 s[32]; if (T < 32) { s[T] = T; asm volatile(\"bar.arrive 1, 64;\" ::: "
     "\"memory\"); } else { asm volatile(\"bar.sync 1, 64;\" ::: \"memory\"); atomicAdd(d, s[T - "
     "32]); }"},
    {"AWarpExchange", 1, 32, 496,
     "__shared__ u32 s[32]; s[T] = T; __syncwarp(); u32 v = s[T ^ 5]; __syncwarp(); s[T] = v;"
     "__syncwarp(); atomicAdd(d, s[31 - T]);"},
    {"AFlagInSharedMemory", 1, 64, 9,
     "__shared__ u32 f, v; if (T == 0) f = 0; __syncthreads(); if (T == 32) { v = 9;"
     "  __threadfence_block(); atomicExch(&f, 1); }"
     "if (T == 0) { while (!atomicAdd(&f, 0)); __threadfence_block(); d[0] = v; }"},
    {"AnMbarrierRing", 1, 64, 36,
     "__shared__ unsigned long long full, empty; __shared__ u32 v; u32 f = shared_at(&full),"
     "  e = shared_at(&empty); auto wait = [](u32 m, u32 p) { asm volatile("
     "    \"{ .reg .pred q; W%=: mbarrier.try_wait.parity.shared::cta.b64 q, [%0], %1; @!q bra "
     "W%=; }\""
     "    :: \"r\"(m), \"r\"(p) : \"memory\"); };"
     "auto init = [](u32 m) { asm volatile(\"mbarrier.init.shared::cta.b64 [%0], 1;\" :: \"r\"(m)"
     "  : \"memory\"); }; auto arrive = [](u32 m) { asm volatile("
     "    \"{ .reg .b64 s; mbarrier.arrive.shared::cta.b64 s, [%0]; }\" :: \"r\"(m) : \"memory\"); "
     "};"
     "if (T == 0) { init(f); init(e); } __syncthreads(); if (T % 32) return;"
     "_Pragma(\"unroll 1\") for (u32 i = 0; i < 8; ++i) {"
     "  if (T == 0) { if (i) wait(e, (i - 1) & 1); v = i + 1; arrive(f); }"
     "  else { wait(f, i & 1); d[0] += v; arrive(e); } }"},
    {"AFlagOfACluster", 2, 32, 77,
     "if (T) return; u32 r; asm volatile(\"mov.u32 %0, %%cluster_ctarank;\" : \"=r\"(r));"
     "if (r == 0) { d[64] = 77; asm volatile(\"st.release.cluster.global.u32 [%0], 1;\""
     "  :: \"l\"(d + 1) : \"memory\"); } else { u32 v; do { asm volatile("
     "  \"ld.acquire.cluster.global.u32 %0, [%1];\" : \"=r\"(v) : \"l\"(d + 1) : \"memory\");"
     "  } while (!v); d[0] = d[64]; }",
     2},
};

class RaceFreeKernels : public testing::TestWithParam<RaceFree> {};

TEST_P(RaceFreeKernels, AreRightAndHaveNoFindings) {
  const RaceFree& test = GetParam();
  Nvrtc nvrtc;
  if (!nvrtc.available()) GTEST_SKIP() << "NVRTC is not here";
  std::string log;
  auto ptx = nvrtc.compile(
      std::string(kPrelude) + "extern \"C\" __global__ void k(u32* d) {" + test.body + "}", "sm_90",
      &log);
  ASSERT_TRUE(ptx) << log;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    Machine machine(*ptx);
    ASSERT_TRUE(machine.ok()) << machine.error().message;
    auto data = machine.buffer(std::vector<std::uint32_t>(512));
    Launch launch = machine.launch({test.grid, 1, 1}, {test.block, 1, 1}, data);
    launch.check = Check::kFull;
    if (test.cluster > 1) launch.cluster = {test.cluster, 1, 1};
    launch.schedule_seed = seed;
    Outcome outcome = machine.run(launch);
    ASSERT_FALSE(outcome.fault) << outcome.fault->report;
    ASSERT_TRUE(outcome.reports.empty()) << "seed " << seed << ": " << outcome.reports[0].text;
    ASSERT_EQ(machine.read<std::uint32_t>(data, 1)[0], test.result) << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, RaceFreeKernels, testing::ValuesIn(kKernels),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tilewright::vgpu
