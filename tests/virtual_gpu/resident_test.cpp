// Blocks that wait for each other through global memory, and the orders that seeds choose.
#include <gmock/gmock.h>

#include "tests/virtual_gpu/run_ptx.h"

namespace tilewright::vgpu {
namespace {

using testing::HasSubstr;
using Words = std::vector<std::uint32_t>;

/// Three grid barriers by a counter at p1; then each thread stores what its right neighbour's block
/// has stored before the second one.
constexpr std::string_view kGridBarrier = R"(
ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1];
mov.u32 %r0, %ctaid.x; mov.u32 %r1, %nctaid.x; mov.u32 %r2, %tid.x;
mov.u32 %r3, 0;
mul.wide.u32 %d2, %r0, 4; add.u64 %d2, %d0, %d2;
add.u32 %r4, %r0, 1; rem.u32 %r4, %r4, %r1; mul.wide.u32 %d3, %r4, 4; add.u64 %d3, %d0, %d3;
setp.eq.u32 %p0, %r2, 0;
NEXT:
@%p0 st.global.u32 [%d2], %r0;
bar.sync 0;
@!%p0 bra JOIN;
fence.acq_rel.gpu;
atom.global.add.u32 %r5, [%d1], 1;
add.u32 %r6, %r3, 1; mul.lo.u32 %r6, %r6, %r1;
SPIN:
ld.acquire.gpu.global.u32 %r5, [%d1];
setp.lt.u32 %p1, %r5, %r6;
@%p1 bra SPIN;
JOIN:
bar.sync 0;
ld.global.u32 %r7, [%d3];
add.u32 %r3, %r3, 1;
setp.lt.u32 %p1, %r3, 3;
@%p1 bra NEXT;
mul.wide.u32 %d4, %r1, 4; add.u64 %d4, %d2, %d4;
@%p0 st.global.u32 [%d4], %r7;
ret;)";

struct Result {
  Outcome outcome;
  Words words;
};
Result grid_barrier(unsigned blocks, std::uint64_t seed, int threads, std::uint64_t residents,
                    double deadline_s = 20) {
  Machine machine(entry(kGridBarrier, 2));
  EXPECT_TRUE(machine.ok()) << machine.error().message;
  auto out = machine.buffer(Words(2 * blocks, 0)), counter = machine.buffer(Words(1, 0));
  Launch launch = machine.launch({blocks, 1, 1}, {64, 1, 1}, out, counter);
  launch.schedule_seed = seed;
  launch.threads = threads;
  launch.resident_blocks = residents;
  launch.deadline_s = deadline_s;
  Result result;
  result.outcome = machine.run(launch);
  result.words = machine.read<std::uint32_t>(out + blocks * 4, blocks);
  return result;
}

TEST(Residents, BlocksMeetAtABarrierOfTheGrid) {
  for (unsigned blocks : {1u, 2u, 37u, 200u}) {
    for (int threads : {1, 2}) {
      SCOPED_TRACE(std::to_string(blocks) + " blocks, " + std::to_string(threads) + " threads");
      Result result = grid_barrier(blocks, 0, threads, 0);
      ASSERT_FALSE(result.outcome.fault) << result.outcome.fault->report;
      for (unsigned b = 0; b < blocks; ++b) EXPECT_EQ(result.words[b], (b + 1) % blocks);
    }
  }
}

TEST(Residents, SpinsThatCountAreWaitedForTooThoughTheyLookLikeWork) {
  // Block 0 spins with a counter and a growing sleep until the last block has set a flag.
  for (const char* pause : {"", "nanosleep.u32 %r2;"}) {
    Machine machine(entry(std::string(R"(
ld.param.u64 %d0, [p0];
mov.u32 %r0, %ctaid.x; setp.eq.u32 %p0, %r0, 0;
@%p0 bra WAIT;
setp.eq.u32 %p0, %r0, 3;
mov.u32 %r1, 7;
@%p0 st.release.gpu.global.u32 [%d0], %r1;
ret;
WAIT: mov.u32 %r2, 0;
SPIN: add.u32 %r2, %r2, 1;)") +
                          pause + R"(
ld.acquire.gpu.global.u32 %r1, [%d0]; setp.eq.u32 %p1, %r1, 0; @%p1 bra SPIN;
st.global.u32 [%d0+4], %r1; ret;)"));
    ASSERT_TRUE(machine.ok()) << machine.error().message;
    auto out = machine.buffer(Words(2, 0));
    Outcome outcome = machine.run({4, 1, 1}, {32, 1, 1}, out);
    ASSERT_FALSE(outcome.fault) << outcome.fault->report;
    EXPECT_EQ(machine.read<std::uint32_t>(out, 2), (Words{7, 7}));
  }
}

TEST(Residents, MoreBlocksThanFitCannotMeet) {
  Result result = grid_barrier(9, 0, 1, 8, 0.2);
  ASSERT_TRUE(result.outcome.fault);
  EXPECT_EQ(result.outcome.fault->kind, FaultKind::kTimeout);
  EXPECT_FALSE(grid_barrier(8, 0, 1, 8).outcome.fault);
}

TEST(Residents, EveryOrderGivesTheSameResultOfARaceFreeKernel) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    Result result = grid_barrier(12, seed, 1, 0);
    ASSERT_FALSE(result.outcome.fault) << result.outcome.fault->report;
    for (unsigned b = 0; b < 12; ++b) EXPECT_EQ(result.words[b], (b + 1) % 12);
  }
}

/// Each warp appends its number to a list.
constexpr std::string_view kOrder = R"(
ld.param.u64 %d0, [p0];
mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x;
and.b32 %r3, %r0, 31; setp.ne.u32 %p0, %r3, 0;
@%p0 ret;
mad.lo.u32 %r4, %r1, %r2, %r0; shr.u32 %r4, %r4, 5;
atom.global.add.u32 %r5, [%d0], 1;
mul.wide.u32 %d1, %r5, 4; add.u64 %d1, %d0, %d1; st.global.u32 [%d1+4], %r4;
ret;)";

Words order(std::uint64_t seed) {
  Machine machine(entry(kOrder));
  EXPECT_TRUE(machine.ok()) << machine.error().message;
  auto out = machine.buffer(Words(33, 0));
  Launch launch = machine.launch({8, 1, 1}, {128, 1, 1}, out);
  launch.schedule_seed = seed;
  Outcome outcome = machine.run(launch);
  EXPECT_FALSE(outcome.fault);
  Words all = machine.read<std::uint32_t>(out, 33);
  return {all.begin() + 1, all.end()};
}

TEST(Schedule, TheCanonicalOrderIsThatOfWarpsAndBlocks) {
  Words want;
  for (std::uint32_t i = 0; i < 32; ++i) want.push_back(i);
  EXPECT_EQ(order(0), want);
}

TEST(Schedule, ASeedChoosesAnOrderAndKeepsIt) {
  EXPECT_EQ(order(1), order(1));
  EXPECT_EQ(order(2), order(2));
  EXPECT_NE(order(1), order(2));
  EXPECT_NE(order(1), order(0));
  // Blocks are mixed, not only warps within them.
  Words mixed = order(1);
  bool descends = false;
  for (std::size_t i = 1; i < mixed.size(); ++i) descends |= mixed[i] / 4 < mixed[i - 1] / 4;
  EXPECT_TRUE(descends);
}

TEST(Residents, TheFirstFaultIsToldThoughOthersSpin) {
  // Block 3 faults; the others wait for a flag that it would set.
  Machine machine(entry(R"(
ld.param.u64 %d0, [p0];
mov.u32 %r0, %ctaid.x; setp.eq.u32 %p0, %r0, 3;
@%p0 trap;
SPIN: ld.volatile.global.u32 %r1, [%d0]; setp.eq.u32 %p1, %r1, 0; @%p1 bra SPIN;
ret;)"));
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  for (int threads : {1, 2}) {
    for (std::uint64_t seed : {0, 1}) {
      auto flag = machine.buffer(Words(1, 0));
      Launch launch = machine.launch({16, 1, 1}, {32, 1, 1}, flag);
      launch.threads = threads;
      launch.schedule_seed = seed;
      Outcome outcome = machine.run(launch);
      ASSERT_TRUE(outcome.fault);
      EXPECT_EQ(outcome.fault->kind, FaultKind::kTrap);
      EXPECT_EQ(outcome.fault->block[0], 3u);
    }
  }
}

}  // namespace
}  // namespace tilewright::vgpu
