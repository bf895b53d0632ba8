// The timing model, by orderings: what must be slower than what, and why. No value is asserted that
// does not follow from the description of the device alone.
#include "jit/virtual_gpu/timing.h"

#include <gtest/gtest.h>

namespace tilewright::vgpu {
namespace {

jit::DeviceDescription device(const std::string& id = "h200") {
  auto loaded =
      jit::DeviceDescription::load(TILEWRIGHT_SOURCE_DIR "/configs/devices/" + id + ".yaml");
  EXPECT_TRUE(loaded) << loaded.error().message;
  return *loaded;
}

/// A kernel of `blocks` equal blocks that streams: every thread loads and stores one float.
struct Kernel {
  LaunchShape shape;
  Counters counters;

  explicit Kernel(std::uint64_t blocks, int threads = 256) {
    const std::uint64_t warps = blocks * std::uint64_t(threads) / 32;
    shape.blocks = blocks;
    shape.block = {threads, 32, 0};
    shape.launch_us = 2;
    shape.reachable_bytes = 2 * blocks * std::uint64_t(threads) * 4;
    counters.blocks = counters.blocks_executed = blocks;
    counters.warp_instructions = warps * 12;
    counters.integer_warps = warps * 6;
    counters.memory_warps = warps * 2;
    counters.global_loads = counters.global_stores = warps;
    counters.global_load_sectors = counters.global_store_sectors = warps * 4;
    counters.distinct_load_sectors = counters.distinct_store_sectors = warps * 4;
    counters.global_load_bytes = counters.global_store_bytes = warps * 128;
  }
  LaunchTime time(const std::string& id = "h200") const {
    return model_launch(device(id), shape, counters);
  }
};

TEST(Timing, AStreamingKernelIsBoundByDramAndNotFasterThanIt) {
  Kernel kernel(1 << 18);  // 512 MiB through
  const auto time = kernel.time();
  EXPECT_STREQ(time.bound_by, "dram");
  const double bytes = 2.0 * (1 << 18) * 256 * 4;
  EXPECT_DOUBLE_EQ(time.dram_us, bytes / (4800e3 * device().timing.dram_efficiency));
  EXPECT_GT(time.total_us, time.dram_us);
  EXPECT_LT(time.total_us, 1.3 * time.dram_us);
}

TEST(Timing, AnEmptyLaunchCostsItsLaunch) {
  LaunchShape shape;
  shape.blocks = 1;
  shape.block = {32, 16, 0};
  shape.launch_us = 2;
  Counters counters;
  counters.blocks = counters.blocks_executed = 1;
  counters.warp_instructions = 1;
  const auto time = model_launch(device(), shape, counters);
  EXPECT_STREQ(time.bound_by, "launch");
  EXPECT_NEAR(time.total_us, 2, 0.05);
}

TEST(Timing, MoreOfTheSameIsNeverFaster) {
  double before = 0;
  for (std::uint64_t blocks = 1; blocks < 1 << 16; blocks += 1 + blocks / 3) {
    const double now = Kernel(blocks).time().total_us;
    EXPECT_GE(now, before) << blocks;
    before = now;
  }
}

TEST(Timing, ATailWaveOfComputeCostsAWholeOne) {
  auto compute = [](std::uint64_t blocks) {
    Kernel kernel(blocks);
    kernel.counters.fma_warps = blocks * 8 * 4096;
    kernel.counters.warp_instructions = kernel.counters.fma_warps;
    return kernel.time();
  };
  EXPECT_STREQ(compute(132).bound_by, "fma");
  EXPECT_DOUBLE_EQ(compute(1).fma_us, compute(132).fma_us);
  EXPECT_DOUBLE_EQ(compute(133).fma_us, 2 * compute(132).fma_us);
}

TEST(Timing, MoreSectorsForTheSameBytesAreSlower) {
  double before = 0;
  for (std::uint64_t sectors : {4, 8, 16, 32}) {
    Kernel kernel(4096);
    kernel.counters.global_load_sectors = kernel.counters.global_loads * sectors;
    const double now = kernel.time().total_us;
    EXPECT_GT(now, before) << sectors;
    before = now;
  }
}

TEST(Timing, BankConflictsAreSlower) {
  double before = 0;
  for (std::uint64_t ways : {1, 2, 4, 32}) {
    Kernel kernel(1024);
    kernel.counters.shared_requests = 1024 * 8 * 64;
    kernel.counters.shared_wavefronts = kernel.counters.shared_requests * ways;
    const auto time = kernel.time();
    EXPECT_GT(time.total_us, before) << ways;
    before = time.total_us;
    EXPECT_TRUE(ways < 32 || time.bound_by == std::string("shared")) << time.bound_by;
  }
}

TEST(Timing, FewerResidentBlocksAreSlowerWhereLatencyBinds) {
  double before = 0;
  for (int registers : {32, 64, 128, 255}) {
    Kernel kernel(2048);
    // Sixty-four loads, each behind a barrier: nothing to overlap within a warp.
    kernel.counters.global_loads *= 64;
    kernel.counters.barriers = kernel.counters.global_loads;
    kernel.shape.block.registers = registers;
    const auto time = kernel.time();
    EXPECT_STREQ(time.bound_by, "latency") << registers;
    EXPECT_GT(time.total_us, before) << registers;
    before = time.total_us;
  }
}

TEST(Timing, IndependentLoadsOverlap) {
  Kernel dependent(2048), independent(2048);
  dependent.counters.global_loads *= 8;
  independent.counters.global_loads *= 8;
  dependent.counters.barriers = dependent.counters.global_loads;
  EXPECT_LT(independent.time().latency_us, dependent.time().latency_us);
}

TEST(Timing, WhatBlocksShareIsReadOnce) {
  // 896 blocks of a gemm with 16 rows: each reads its own columns of B (32 KiB) and all of A.
  const std::uint64_t blocks = 896, own = 1024, shared_sectors = 4096;
  Kernel whole(blocks);
  whole.counters.global_load_sectors = blocks * (own + shared_sectors);
  whole.counters.distinct_load_sectors = blocks * own + shared_sectors;
  whole.counters.distinct_store_sectors = 0;
  whole.shape.reachable_bytes = whole.counters.distinct_load_sectors * 32;
  EXPECT_DOUBLE_EQ(whole.time().dram_bytes, (blocks * own + shared_sectors) * 32.0);

  // Seen through eight blocks of them.
  Kernel sample = whole;
  for (auto Counters::*counter :
       {&Counters::warp_instructions, &Counters::integer_warps, &Counters::memory_warps,
        &Counters::global_loads, &Counters::global_stores, &Counters::global_load_sectors,
        &Counters::global_store_sectors})
    sample.counters.*counter /= blocks / 8;
  sample.counters.blocks_executed = 8;
  sample.counters.distinct_load_sectors = 8 * own + shared_sectors;
  EXPECT_DOUBLE_EQ(sample.time().dram_bytes, whole.time().dram_bytes);
  EXPECT_NEAR(sample.time().total_us, whole.time().total_us, 0.01 * whole.time().total_us);

  // Were the allocations not known, A would be counted for every eighth block.
  sample.shape.reachable_bytes = 0;
  EXPECT_GT(sample.time().dram_bytes, whole.time().dram_bytes);
}

TEST(Timing, WhatDoesNotFitInTheL2IsReadAgain) {
  // 512 MiB that every wave of blocks reads in part, and 16 times in all.
  Kernel kernel(4096);
  kernel.counters.distinct_load_sectors = 1 << 24;
  kernel.counters.global_load_sectors = 1 << 28;
  kernel.shape.reachable_bytes = 1 << 29;
  const double footprint = double(1 << 24) * 32;
  EXPECT_GT(kernel.time().dram_bytes, footprint);
  EXPECT_LE(kernel.time().dram_bytes, double(1 << 28) * 32 + footprint);
  auto bigger = device();
  bigger.info.l2_bytes = std::size_t(1) << 30;
  EXPECT_LT(model_launch(bigger, kernel.shape, kernel.counters).dram_bytes,
            kernel.time().dram_bytes);
}

TEST(Timing, ABetterDeviceIsFaster) {
  Kernel kernel(1 << 16);
  EXPECT_LT(kernel.time("h200").total_us, kernel.time("a100").total_us);
  EXPECT_LT(kernel.time("a100").total_us, kernel.time("rtx5090").total_us);
  EXPECT_LT(kernel.time("rtx5090").total_us, kernel.time("rtx4090").total_us);
  EXPECT_LT(kernel.time("rtx4090").total_us, kernel.time("l4").total_us);
}

TEST(Timing, ANodeOfAGraphCostsLessThanALaunch) {
  EXPECT_LT(graph_node_us(device()), device().launch_us);
  EXPECT_GT(graph_node_us(device()), 0);
}

}  // namespace
}  // namespace tilewright::vgpu
