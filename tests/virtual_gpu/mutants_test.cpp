// The sample kernels with one mistake each: every one is caught, by the check that has a name for it
// where there is one.
#include <algorithm>

#include "tests/virtual_gpu/mutant.h"

namespace tilewright::cli {
namespace {

struct Mutant {
  const char* name;
  const char* sample;
  const char* from;
  const char* to;
  const char* caught_by;
};

constexpr Mutant kMutants[] = {
    {"VectorsBeyondTheEnd", "elementwise", "first + 4 <= n", "first < n", "out-of-bounds"},
    {"TailOneTooLong", "elementwise", "i < n; ++i", "i <= n; ++i", "out-of-bounds"},
    {"TailOneTooShort", "elementwise", "i < n; ++i", "i < n - 1; ++i", kWrong},
    {"VectorsThatOverlap", "elementwise", "threadIdx.x) * 4", "threadIdx.x) * 3", "misaligned"},
    {"BlocksThatWriteTheSame", "elementwise", "blockIdx.x * blockDim.x + threadIdx.x",
     "threadIdx.x", "global-race"},
    {"WrongComponent", "elementwise", "swish(a.w) * g.w", "swish(a.w) * g.z", kWrong},

    {"NormWithoutBarrier", "norms", "__syncthreads();", "", "shared-race"},
    {"NormWithoutItsFirstPartialSum", "norms", "if (lane == 0) partial",
     "if (lane == 0 && warp) partial", "uninitialised-read"},
    {"NormOfOneWarpTooMany", "norms", "w < warps", "w <= warps", "uninitialised-read"},
    {"NormWithHalfAShuffle", "norms", "int step = 16", "int step = 8", kWrong},
    {"NormReadsBeyondTheRow", "norms", "c < columns; c += blockDim.x) sum",
     "c <= columns; c += blockDim.x) sum", "out-of-bounds"},
    {"NormWithTooSmallAnArray", "norms", "partial[32]", "partial[3]", "out-of-bounds"},
    {"NormWithALaxShuffleMask", "norms", "__shfl_xor_sync(0xffffffffu", "__shfl_xor_sync(0xffffu",
     "shuffle-divergence"},
    {"NormBarrierInABranch", "norms", "__syncthreads();", "if (threadIdx.x < 48) __syncthreads();",
     "barrier-divergence|shared-race|deadlock"},

    {"GemmWithoutBarrierAfterLoading", "simt_gemm", "__syncthreads();\n#pragma", "#pragma",
     "shared-race"},
    {"GemmWithoutBarrierBeforeLoading", "simt_gemm", "__syncthreads();  // before", "// before",
     "shared-race"},
    {"GemmReadsOneDepthTooMany", "simt_gemm", "depth + ak < k ?", "depth + ak <= k ?",
     "out-of-bounds"},
    {"GemmWritesOneColumnTooMany", "simt_gemm", "column + s + j < n)", "column + s + j <= n)",
     "out-of-bounds"},
    {"GemmWritesRowsWithoutAGuard", "simt_gemm", "row + r + i < m && ", "", "out-of-bounds"},
    {"GemmForgetsTheLastTile", "simt_gemm", "depth < k; depth", "depth + kDepth < k; depth",
     kWrong},

    {"MmaWithALaxWait", "mma_gemm", "copies_wait<kStages - 2>()", "copies_wait<kStages - 1>()",
     "async-read"},
    {"MmaWithoutBarrier", "mma_gemm", "__syncthreads();  // the tile", "// the tile",
     "async-read|shared-race"},
    {"MmaCopiesOneRowTooMany", "mma_gemm", "row + r < m && at", "row + r <= m && at",
     "out-of-bounds"},
    {"MmaCopiesBeyondTheDepth", "mma_gemm", "row + r < m && at < k, ", "row + r < m, ",
     "out-of-bounds"},
    {"MmaLoadsTheWrongTile", "mma_gemm", "load(tile + kStages - 1);", "load(tile + kStages - 2);",
     "wrong result|async-read|shared-race"},
    {"MmaWithSwappedFragments", "mma_gemm", "y[j / 2][j % 2 + 2]", "y[j / 2][j % 2 + 1]", kWrong},
    {"MmaWithTheWrongMatrixOrder", "mma_gemm", "d = step + lane / 16 * 8",
     "d = step + lane / 8 % 2 * 8", kWrong},
    {"MmaWithUnalignedRows", "mma_gemm", "kPitch = kDepth + 8", "kPitch = kDepth + 4",
     "misaligned"},
    {"MmaStoresTheWrongRows", "mma_gemm", "e / 2 * 8", "e / 2 * 4", kWrong},
    {"MmaStoresWithoutAGuard", "mma_gemm", "r < m && s < n", "s < n", "out-of-bounds"},

    {"QuantWithoutAGuard", "quant_gemm", "if (column >= n) return;", "", "out-of-bounds"},
    {"QuantWithTheWrongBias", "quant_gemm", "(pair & 15) - 8", "(pair & 15) - 7", kWrong},
    {"QuantOnePairTooMany", "quant_gemm", "at < k; at += 64", "at <= k; at += 64", "out-of-bounds"},
    {"QuantWithTheWrongGroup", "quant_gemm", "at / 32]", "at / 16]", "out-of-bounds"},
    {"QuantWithANarrowMask", "quant_gemm", "__shfl_down_sync(0xffffffffu",
     "__shfl_down_sync(0x0fffffffu", "shuffle-divergence"},

    {"SplitKWithoutFence", "splitk", "__threadfence();\n  __syncthreads();  // all",
     "__syncthreads();  // all", "global-race"},
    {"SplitKCountsBeforeAllHaveWritten", "splitk", "__syncthreads();  // all", "// all",
     "global-race"},
    {"SplitKReadsTheFlagTooEarly", "splitk", "__syncthreads();\n  if (!last)", "if (!last)",
     "shared-race"},
    {"SplitKCountsWithoutAtomics", "splitk", "atomicAdd(&counters[blockIdx.x], 1u)",
     "counters[blockIdx.x]++", "global-race"},
    {"SplitKNeverLast", "splitk", "== splits - 1", "== splits", kWrong},
    {"SplitKLeavesTheCounter", "splitk", "counters[blockIdx.x] = 0", "counters[blockIdx.x] = 1",
     kWrong},
    {"SplitKWritesWithoutAGuard", "splitk", "if (column < n) workspace", "workspace",
     "out-of-bounds"},

    {"DecodeWithoutBarrier", "paged_decode", "__syncthreads();", "", "shared-race"},
    {"DecodeWithoutWeights", "paged_decode", "if (lane == 0) weight[warp] = sum;", "",
     "uninitialised-read|wrong result"},
    {"DecodeOneKeyTooMany", "paged_decode", "at < length", "at <= length", kWrong},
    {"DecodeOfTheWrongPage", "paged_decode", "at / kPage]", "at / kPage + 1]", kWrong},

    {"FlashWithoutBarrierBeforeLoading", "flash", "__syncthreads();  // before", "// before",
     "shared-race|source-overwritten|async-read"},
    {"FlashWithALaxWait", "flash", "copies_wait<0>()", "copies_wait<1>()", "async-read"},
    {"FlashWithoutMask", "flash", "at < keys ? score", "true ? score", kWrong},
    {"FlashWithoutRescaling", "flash", "total[h] *= factor;", "", kWrong},
    {"FlashWithSwappedValues", "flash", "multiply(y[d / 8], p, b[0], b[1])",
     "multiply(y[d / 8], p, b[0], b[2])", kWrong},

    {"WgmmaWaitsForTheWrongPhase", "wgmma_gemm", "tile / kStages & 1", "tile / kStages + 1 & 1",
     "async-read"},
    {"WgmmaWithoutWait", "wgmma_gemm", "barrier_wait(shared_address(&full[stage])",
     "(void)(shared_address(&full[stage])", "async-read"},
    {"WgmmaWithTheWrongSwizzle", "wgmma_gemm", "u64(1) << 62", "u64(2) << 62", kWrong},
    {"WgmmaExpectsTooFewBytes", "wgmma_gemm", "barrier_expect(barrier, 2 * kTileBytes)",
     "barrier_expect(barrier, kTileBytes)", "async-read|mbarrier-misuse"},
    {"WgmmaExpectsTooManyBytes", "wgmma_gemm", "barrier_expect(barrier, 2 * kTileBytes)",
     "barrier_expect(barrier, 3 * kTileBytes)", "deadlock"},
    {"WgmmaWithALaxWait", "wgmma_gemm", "wgmma.wait_group.sync.aligned 0;",
     "wgmma.wait_group.sync.aligned 2;", "source-overwritten"},

    {"BytesWithALaxWait", "int8_gemm", "copies_wait<1>()", "copies_wait<2>()", "async-read"},
    {"BytesWithoutBarrier", "int8_gemm", "__syncthreads();  // the tile", "// the tile",
     "async-read|shared-race"},
    {"BytesLoadedTooEarly", "int8_gemm", "__syncthreads();  // all have", "// all have",
     "shared-race|source-overwritten|async-read"},
    {"BytesOfTheWrongRow", "int8_gemm", "lane / 4 + e / 2 * 8", "lane / 4 + e / 2 * 4", kWrong},
    {"Fp8CopiesBeyondTheDepth", "fp8_gemm", "column + r < n && at < k", "column + r < n",
     "out-of-bounds"},
    {"Fp8WithSwappedFragments", "fp8_gemm", "y[j], y[j + 2]", "y[j + 2], y[j]", kWrong},
    {"Fp8WithUnalignedRows", "fp8_gemm", "kDepth + 16;", "kDepth + 8;", "misaligned"},
    {"Fp8StoresWithoutAGuard", "fp8_gemm", "r < m && s < n", "s < n", "out-of-bounds"},

    {"RingFreesAStageTooEarly", "wgmma_ring",
     "asm volatile(\"wgmma.wait_group.sync.aligned 0;\" ::: \"memory\");", "",
     "source-overwritten|shared-race|async-read"},
    {"RingFreedByOneOfTwo", "wgmma_ring", "barrier_init(shared_address(&empty[stage]), 2)",
     "barrier_init(shared_address(&empty[stage]), 1)", "async-read|shared-race|mbarrier-misuse"},
    {"RingWaitsForTheWrongPhase", "wgmma_ring", "(tile / kStages - 1) & 1", "tile / kStages & 1",
     "mbarrier-misuse"},
    {"RingStoresWithoutAProxyFence", "wgmma_ring",
     "asm volatile(\"fence.proxy.async.shared::cta;\" ::: \"memory\");", "", "missing-proxy-fence"},
    {"RingStoresTooEarly", "wgmma_ring", "asm volatile(\"bar.sync 1, 256;\" ::: \"memory\");", "",
     "shared-race|source-overwritten"},
    {"RingLeavesItsStoreBehind", "wgmma_ring",
     "asm volatile(\"cp.async.bulk.wait_group.read 0;\" ::: \"memory\");", "", "async-exit"},
    {"RingTakesAnAnswerForGranted", "wgmma_ring", "barrier_wait(shared_address(&full[stage])",
     "asm volatile(\"{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%0], %1;}\""
     " ::\"r\"(shared_address(&full[stage])), \"r\"(tile / kStages & 1) : \"memory\"); (void)(0",
     "async-read"},

    {"ClusterLeavesTooEarly", "cluster", "cluster_sync();  // nobody", "// nobody", "cluster-exit"},
    {"ClusterReadsMaximaTooEarly", "cluster", "cluster_sync();  // the maxima", "// the maxima",
     "shared-race"},
    {"ClusterDoesNotWaitForTheSum", "cluster", "barrier_wait(shared_address(&arrived), 0);", "",
     "async-read"},
    {"ClusterDoesNotWaitForTheCopy", "cluster", "barrier_wait(shared_address(&copied), 0);", "",
     "async-read"},
    {"ClusterExpectsNothing", "cluster", "barrier_expect(shared_address(&arrived), 4);", "",
     "deadlock"},
    {"ClusterForgetsABlock", "cluster", "(u16)15", "(u16)7", "deadlock"},
    {"ClusterSendsToTheWrongBlock", "cluster", "next = (rank + 1)", "next = (rank + 2)", kWrong},
    {"ClusterCopiesBeforeBarriersAreThere", "cluster", "cluster_sync();  // the barriers",
     "// the barriers", "mbarrier-misuse"},
};

class Mutants : public testing::TestWithParam<Mutant> {};

TEST_P(Mutants, AreCaught) {
  const Mutant& mutant = GetParam();
  auto spec = load_launch_spec(kSamples / (std::string(mutant.sample) + ".yaml"));
  ASSERT_TRUE(spec) << spec.error().message;
  auto file = load_kernel_file(spec->source);
  ASSERT_TRUE(file) << file.error().message;
  expect_caught(*file, *spec, spec->architectures.front(),
                {mutant.from, mutant.to, mutant.caught_by});
}

INSTANTIATE_TEST_SUITE_P(All, Mutants, testing::ValuesIn(kMutants),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tilewright::cli
