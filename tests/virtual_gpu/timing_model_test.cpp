// The timing model on described work, and the kernels that are only described: orderings, limits and
// units, which hold whatever the constants are.
#include <gtest/gtest.h>

#include <cmath>

#include "jit/virtual_gpu/timing/attention.h"
#include "jit/virtual_gpu/timing/gemm.h"
#include "jit/virtual_gpu/timing/model.h"
#include "jit/virtual_gpu/timing/summary.h"

namespace tilewright::vgpu {
namespace {

jit::DeviceDescription device(const std::string& id = "h200") {
  auto loaded =
      jit::DeviceDescription::load(TILEWRIGHT_SOURCE_DIR "/configs/devices/" + id + ".yaml");
  EXPECT_TRUE(loaded) << loaded.error().message;
  return *loaded;
}

/// Blocks of 64 KiB of loads and a little arithmetic, two of them to an SM.
Work streaming(double blocks) {
  Work work;
  work.blocks = blocks;
  work.block = {256, 64, 100 << 10};
  work.instructions = 2048;
  work.loaded_bytes = work.l2_bytes = 65536;
  work.bytes_in_flight = 32768;
  work.dram_bytes = blocks * 65536;
  return work;
}

GemmProblem gemm(double m, double n, double k, GemmType type = GemmType::kBf16) {
  GemmProblem problem;
  problem.m = m;
  problem.n = n;
  problem.k = k;
  problem.type = type;
  return problem;
}

double gemm_us(double m, double n, double k, GemmType type = GemmType::kBf16) {
  return best_gemm(device(), gemm(m, n, k, type)).time.total_us;
}

TEST(TimingModel, MoreOfAnyResourceIsNeverFaster) {
  const auto h200 = device();
  double Work::*const amounts[] = {
      &Work::instructions, &Work::fma,         &Work::integer,      &Work::special,
      &Work::f64,          &Work::l1_requests, &Work::l1_sectors,   &Work::shared_wavefronts,
      &Work::l2_bytes,     &Work::dram_bytes,  &Work::loaded_bytes, &Work::chain_clocks,
      &Work::block_us,     &Work::fixed_us,    &Work::launch_us,    &Work::l2_more_bytes};
  for (const auto amount : amounts) {
    Work work = streaming(1000);
    double before = model(h200, work).total_us;
    for (double more = 1; more < 1e9; more *= 4) {
      work.*amount = std::max(work.*amount, more);
      const double now = model(h200, work).total_us;
      EXPECT_GE(now, before * (1 - 1e-12)) << more;
      before = now;
    }
  }
}

TEST(TimingModel, MoreBytesInFlightHelpOnlyWhereLatencyBinds) {
  const auto h200 = device();
  Work work = streaming(264);
  work.bytes_in_flight = 512;
  const LaunchTime starved = model(h200, work);
  EXPECT_STREQ(starved.bound_by, "latency");
  work.bytes_in_flight *= 2;
  EXPECT_NEAR(model(h200, work).latency_us, starved.latency_us / 2, 1e-9);
  work.bytes_in_flight = 65536;
  const LaunchTime fed = model(h200, work);
  EXPECT_STRNE(fed.bound_by, "latency");
  work.bytes_in_flight *= 4;
  EXPECT_NEAR(model(h200, work).total_us, fed.total_us, 0.1 * fed.total_us);
}

TEST(TimingModel, LatencyIsThatOfLittlesLaw) {
  auto h200 = device();
  Work work = streaming(264);                     // one wave of two to an SM
  work.dram_bytes = work.l2_bytes * work.blocks;  // all of it from DRAM
  const double latency_us = h200.dram_latency_ns * 1e-3 * h200.timing.latency_factor;
  EXPECT_NEAR(model(h200, work).latency_us, 65536.0 / 32768 * latency_us, 1e-9);
  work.blocks = 265;
  work.dram_bytes = work.l2_bytes * work.blocks;
  EXPECT_NEAR(model(h200, work).latency_us, 2 * 65536.0 / 32768 * latency_us, 1e-9);
}

TEST(TimingModel, UnitsAgreeWithTheDescription) {
  auto h200 = device();
  // One second's worth of each, at efficiencies of 1.
  h200.timing.dram_efficiency = h200.timing.l2_efficiency = 1;
  h200.timing.tensor_efficiency_16 = 1;
  Work work;
  work.blocks = 132;
  work.block = {128, 32, 0};
  work.dram_bytes = 4800e9;
  EXPECT_NEAR(model(h200, work).dram_us, 1e6, 1);
  work.l2_more_bytes = 6500e9;
  EXPECT_NEAR(model(h200, work).l2_us, 1e6, 1);
  work.tensor_ops[std::size_t(TensorType::kBF16)] = 989.4e12 / 132;
  EXPECT_NEAR(model(h200, work).tensor_us, 1e6, 1);
  work.fma = 66.9e12 / 2 / 132 / 32;
  EXPECT_NEAR(model(h200, work).fma_us, 1e6, 1);
  work.special = 16.0 / 32 * 1.98e9;
  EXPECT_NEAR(model(h200, work).special_us, 1e6, 1);
  work.instructions = 4 * 1.98e9;
  EXPECT_NEAR(model(h200, work).issue_us, 1e6, 1);
  work.shared_wavefronts = 1.98e9;
  EXPECT_NEAR(model(h200, work).shared_us, 1e6, 1);
}

TEST(TimingModel, TheWholeIsNotFasterThanAnyResource) {
  const auto h200 = device();
  Work work = streaming(4096);
  work.fma = 3e4;
  const LaunchTime time = model(h200, work);
  for (const double us : {time.dram_us, time.l2_us, time.fma_us, time.issue_us, time.latency_us})
    EXPECT_GE(time.total_us, us);
}

TEST(TimingModel, ABalancedGridHasNoTailButItsLongestBlock) {
  const auto h200 = device();
  Work work = streaming(133);
  work.fma = 1e6;
  const double tail = model(h200, work).fma_us;
  work.balanced = true;
  const double balanced = model(h200, work).fma_us;
  EXPECT_NEAR(balanced, tail * (133.0 / 132) / 2, 1e-9);
  work.longest_block = 3;
  EXPECT_NEAR(model(h200, work).fma_us, tail * 3 / 2, 1e-9);
}

TEST(TimingModel, ATensorInstructionThatADeviceLacksIsDoneOnItsLanes) {
  const auto a100 = device("a100");
  Work work;
  work.blocks = 108;
  work.block = {128, 32, 0};
  work.tensor_ops[std::size_t(TensorType::kFp8)] = 1e9;
  const double fp8 = model(a100, work).tensor_us;
  work.tensor_ops = {};
  work.tensor_ops[std::size_t(TensorType::kBF16)] = 1e9;
  EXPECT_GT(fp8, 4 * model(a100, work).tensor_us);
}

TEST(TimingGemm, IsNeverFasterThanTheDevice) {
  const auto h200 = device();
  for (const double m : {1.0, 17.0, 256.0, 8192.0})
    for (const double n : {32.0, 4096.0, 65536.0})
      for (const double k : {64.0, 8192.0}) {
        const double us = gemm_us(m, n, k);
        EXPECT_GT(us, 2 * (m * k + n * k + m * n) / 4800e3) << m << ' ' << n << ' ' << k;
        EXPECT_GT(us, 2 * m * n * k / 989.4e6) << m << ' ' << n << ' ' << k;
      }
}

TEST(TimingGemm, GrowsWithEachDimension) {
  for (const GemmType type : {GemmType::kBf16, GemmType::kFp8})
    for (int dimension = 0; dimension < 3; ++dimension) {
      double before = 0;
      for (double size = 64; size <= 16384; size *= 2) {
        double sizes[] = {256, 4096, 4096};
        sizes[dimension] = size;
        const double now = gemm_us(sizes[0], sizes[1], sizes[2], type);
        EXPECT_GE(now, 0.98 * before) << dimension << ' ' << size;
        before = now;
      }
    }
}

TEST(TimingGemm, FewRowsAreBoundByDramAndManyByTensorCores) {
  EXPECT_STREQ(best_gemm(device(), gemm(8, 16384, 16384)).time.bound_by, "dram");
  EXPECT_STREQ(best_gemm(device(), gemm(8192, 8192, 8192)).time.bound_by, "tensor");
}

TEST(TimingGemm, SplitsALongSumOverFewTiles) {
  EXPECT_GT(best_gemm(device(), gemm(16, 256, 65536)).config.split_k, 1);
  EXPECT_EQ(best_gemm(device(), gemm(4096, 4096, 4096)).config.split_k, 1);
}

TEST(TimingGemm, ATailWaveOfTilesCostsAWholeOne) {
  const auto h200 = device();
  GemmConfig config;
  config.tile_n = 256;
  auto waves = [&](double m) { return model(h200, gemm_work(h200, gemm(m, 256, 4096), config)); };
  EXPECT_DOUBLE_EQ(waves(132 * 128).tensor_us, waves(128).tensor_us);
  EXPECT_DOUBLE_EQ(waves(132 * 128 + 1).tensor_us, 2 * waves(128).tensor_us);
}

TEST(TimingGemm, ALargeSharedFootprintIsReadAgain) {
  const auto h200 = device();
  const GemmConfig config;
  const double once = 2 * (16384.0 * 16384 * 2 + 16384.0 * 16384);
  EXPECT_GT(gemm_work(h200, gemm(16384, 16384, 16384), config).dram_bytes, once);
  const double small = 2 * 3.0 * 1024 * 1024;
  EXPECT_DOUBLE_EQ(gemm_work(h200, gemm(1024, 1024, 1024), config).dram_bytes, small);
}

TEST(TimingGemm, NarrowerWeightsAreFasterWhereTheyAreAllThatIsRead) {
  const double bf16 = gemm_us(1, 16384, 16384);
  const double int8 = gemm_us(1, 16384, 16384, GemmType::kInt8Weight);
  EXPECT_LT(int8, bf16);
  EXPECT_LT(gemm_us(1, 16384, 16384, GemmType::kInt4Weight), int8);
  EXPECT_LT(gemm_us(8, 16384, 16384, GemmType::kFp8), bf16);
}

TEST(TimingGemm, AWeightOnlyKernelIsTheOneThatWasFastestAtThePowerOfTwoBelow) {
  for (const GemmType type : {GemmType::kInt4Weight, GemmType::kInt8Weight})
    for (const double m : {1.0, 3.0, 48.0, 96.0, 160.0, 255.0, 768.0}) {
      const double below = std::exp2(std::floor(std::log2(m)));
      const GemmConfig at = best_gemm(device(), gemm(m, 3072, 3072, type)).config;
      const GemmConfig profiled = best_gemm(device(), gemm(below, 3072, 3072, type)).config;
      EXPECT_EQ(at.tile_m, profiled.tile_m) << m;
      EXPECT_EQ(at.tile_n, profiled.tile_n) << m;
      EXPECT_EQ(at.split_k, profiled.split_k) << m;
      EXPECT_EQ(at.gemv, profiled.gemv) << m;
    }
  // One wave of tiles at 128 rows, more than one at 255: up to twice the time, and more than at 256.
  EXPECT_GT(gemm_us(255, 8192, 4096, GemmType::kInt4Weight),
            gemm_us(256, 8192, 4096, GemmType::kInt4Weight));
}

TEST(TimingGemm, AWeightOnlyGemmOfLessThanTwoTilesOfKCostsMore) {
  for (const GemmType type : {GemmType::kInt4Weight, GemmType::kInt8Weight})
    EXPECT_GT(gemm_us(128, 1024, 64, type), gemm_us(128, 1024, 128, type) + 2);
  EXPECT_LT(gemm_us(128, 1024, 64), gemm_us(128, 1024, 128));
}

TEST(TimingModel, LanesAreThoseOfTheCapability) {
  // f64: 64 of an SM in a clock on 9.0, 32 on 8.0, 2 elsewhere. Integers: 64, and 128 on 12.0.
  struct {
    const char* id;
    double f64, integer;
  } cases[] = {{"h200", 64, 64}, {"a100", 32, 64}, {"l4", 2, 64}, {"rtx5090", 2, 128}};
  for (const auto& c : cases) {
    const auto description = device(c.id);
    Work work;
    work.blocks = description.info.sm_count;
    work.block = {128, 32, 0};
    work.f64 = work.integer = 1e6;
    const LaunchTime time = model(description, work);
    const double clocks_per_us = description.clock_ghz * 1e3;
    EXPECT_NEAR(time.fma_us, 32e6 / c.f64 / clocks_per_us, 1e-6) << c.id;
    EXPECT_NEAR(time.integer_us, 32e6 / c.integer / clocks_per_us, 1e-6) << c.id;
  }
}

TEST(TimingAttention, DecodingGrowsWithBatchAndKeysAndShrinksWithAWindow) {
  const auto h200 = device();
  AttentionProblem problem;
  problem.q_heads = 32;
  problem.kv_heads = 8;
  double before = 0;
  for (problem.kv_len = 16; problem.kv_len <= 131072; problem.kv_len *= 2) {
    problem.batch = 16;
    const double now = best_decode(h200, problem).total_us;
    EXPECT_GE(now, before);
    problem.batch = 32;
    EXPECT_GE(best_decode(h200, problem).total_us, now);
    before = now;
  }
  problem.window = 128;
  EXPECT_LT(best_decode(h200, problem).total_us, before / 4);
}

TEST(TimingAttention, DecodingManyKeysIsBoundByDram) {
  AttentionProblem problem;
  problem.batch = 64;
  problem.kv_len = 32768;
  problem.q_heads = 32;
  problem.kv_heads = 8;
  const LaunchTime time = best_decode(device(), problem);
  EXPECT_STREQ(time.bound_by, "dram");
  EXPECT_GT(time.total_us, 2.0 * 64 * 8 * 32768 * 128 * 2 / 4800e3);
}

TEST(TimingAttention, AChunkOfAPrefillCostsMoreThanItsQueriesAloneAndLessThanTheWhole) {
  const auto h200 = device();
  AttentionProblem problem;
  problem.q_heads = 32;
  problem.kv_heads = 8;
  problem.q_len = problem.kv_len = 8192;
  const double whole = prefill(h200, problem).total_us;
  problem.q_len = 2048;
  const double chunk = prefill(h200, problem).total_us;
  problem.kv_len = 2048;
  EXPECT_GT(chunk, prefill(h200, problem).total_us);
  EXPECT_LT(chunk, whole);
}

TEST(TimingAttention, PrefillIsNeverFasterThanItsMatrixProducts) {
  AttentionProblem problem;
  problem.q_heads = problem.kv_heads = 32;
  for (const double length : {64.0, 1000.0, 8192.0}) {
    problem.q_len = problem.kv_len = length;
    EXPECT_GT(prefill(device(), problem).total_us,
              4 * 32 * 128 * length * (length + 1) / 2 / 989.4e6);
  }
}

TEST(TimingSummary, DerivesRatiosFromCounters) {
  LaunchShape shape;
  shape.blocks = 200;
  shape.block = {256, 64, 0};
  Counters counters;
  counters.blocks = 200;
  counters.blocks_executed = 100;
  counters.global_loads = 1000;
  counters.global_load_sectors = 4000;
  counters.distinct_load_sectors = 1000;
  counters.shared_requests = 500;
  counters.shared_wavefronts = 800;
  counters.shared_conflicts = 300;
  counters.barriers = 1600;
  counters.tensor_operations[std::size_t(TensorType::kBF16)] = 64;
  const LaunchSummary summary = summarize(device(), shape, counters);
  EXPECT_DOUBLE_EQ(summary.sectors_per_load, 4);
  EXPECT_DOUBLE_EQ(summary.sectors_per_store, 0);
  EXPECT_DOUBLE_EQ(summary.bank_conflicts, 2 * 300);
  EXPECT_DOUBLE_EQ(summary.l2_bytes, 2 * 4000 * 32);
  EXPECT_DOUBLE_EQ(summary.dram_bytes, 2 * 1000 * 32);
  EXPECT_DOUBLE_EQ(summary.l2_hit_rate, 0.75);
  EXPECT_DOUBLE_EQ(summary.barriers_per_warp, 2);
  EXPECT_DOUBLE_EQ(summary.tensor_operations, 128);
  EXPECT_EQ(summary.time.occupancy.blocks_per_sm, 4);
  EXPECT_STREQ(summary.time.occupancy.limiter, "registers");
  EXPECT_NE(text_of(summary).find("4.0 sectors per load"), std::string::npos) << text_of(summary);
}

}  // namespace
}  // namespace tilewright::vgpu
