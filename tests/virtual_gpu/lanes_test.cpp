// Exchange, votes and reductions between lanes, barriers of warps and blocks.
#include "tests/virtual_gpu/run_ptx.h"

namespace tilewright::vgpu {
namespace {

using Lanes = std::vector<std::uint32_t>;

Lanes shuffle(const std::string& operands) {
  return lane_results<std::uint32_t>(
      "mul.lo.u32 %r1, %r0, 10;\nshfl.sync." + operands +
      ", 0xffffffff;\nselp.u32 %r3, 1, 0, %p0;\nshl.b32 %r3, %r3, 16;\nor.b32 %r2, %r2, %r3;\n"
      "st.global.u32 [%d1], %r2; ret;");
}

TEST(Lanes, ShufflesFollowTheirModeAndClamp) {
  struct {
    const char* operands;
    int (*source)(int lane);  ///< -1: out of range, the lane's own value
  } cases[] = {
      {"up.b32 %r2|%p0, %r1, 3, 0", [](int i) { return i >= 3 ? i - 3 : -1; }},
      {"down.b32 %r2|%p0, %r1, 5, 31", [](int i) { return i + 5 <= 31 ? i + 5 : -1; }},
      {"bfly.b32 %r2|%p0, %r1, 16, 31", [](int i) { return i ^ 16; }},
      {"idx.b32 %r2|%p0, %r1, 9, 31", [](int) { return 9; }},
      // Segments of eight lanes: __shfl_*(..., width = 8).
      {"up.b32 %r2|%p0, %r1, 2, 0x1800", [](int i) { return i % 8 >= 2 ? i - 2 : -1; }},
      {"down.b32 %r2|%p0, %r1, 1, 0x181f", [](int i) { return i % 8 < 7 ? i + 1 : -1; }},
      {"idx.b32 %r2|%p0, %r1, 3, 0x181f", [](int i) { return i / 8 * 8 + 3; }},
  };
  for (const auto& t : cases) {
    SCOPED_TRACE(t.operands);
    auto results = shuffle(t.operands);
    for (int i = 0; i < 32; ++i) {
      int from = t.source(i);
      auto want = static_cast<std::uint32_t>((from < 0 ? i : from) * 10 + (from < 0 ? 0 : 65536));
      EXPECT_EQ(results[static_cast<std::size_t>(i)], want) << "lane " << i;
    }
  }
}

TEST(Lanes, ButterfliesSumAWarp) {
  std::string body = "mov.u32 %r1, %r0;\n";
  for (int o : {16, 8, 4, 2, 1})
    body +=
        "shfl.sync.bfly.b32 %r2, %r1, " + std::to_string(o) + ", 31, -1;\nadd.u32 %r1, %r1, %r2;\n";
  EXPECT_EQ(lane_results<std::uint32_t>(body + "st.global.u32 [%d1], %r1; ret;"), Lanes(32, 496));
}

TEST(Lanes, VotesSeeMembersOnly) {
  auto results = lane_results<std::uint32_t>(R"(
    setp.lt.u32 %p0, %r0, 5;
    vote.sync.ballot.b32 %r1, %p0, 0xffffffff;
    vote.sync.any.pred %p1, %p0, 0xffffffff;
    vote.sync.all.pred %p2, %p0, 0xffffffff;
    vote.sync.uni.pred %p3, %p0, 0xffffffff;
    @%p1 or.b32 %r1, %r1, 0x100;
    @%p2 or.b32 %r1, %r1, 0x200;
    @%p3 or.b32 %r1, %r1, 0x400;
    vote.sync.ballot.b32 %r2, !%p0, 0xffffffff;
    setp.eq.u32 %p4, %r2, 0xffffffe0;
    @%p4 or.b32 %r1, %r1, 0x800;
    st.global.u32 [%d1], %r1; ret;)");
  EXPECT_EQ(results, Lanes(32, 0x91f));
}

TEST(Lanes, PartsOfAWarpExchangeAmongThemselves) {
  auto results = lane_results<std::uint32_t>(R"(
    setp.lt.u32 %p0, %r0, 16;
    @%p0 bra LOW;
    shfl.sync.bfly.b32 %r1, %r0, 1, 31, 0xffff0000;
    bra END;
  LOW:
    shfl.sync.idx.b32 %r1, %r0, 7, 31, 0x0000ffff;
  END:
    st.global.u32 [%d1], %r1; ret;)");
  for (std::uint32_t i = 0; i < 32; ++i) EXPECT_EQ(results[i], i < 16 ? 7 : i ^ 1);
}

TEST(Lanes, ReductionsAndMatches) {
  auto results = lane_results<std::uint32_t>(R"(
    redux.sync.add.u32 %r1, %r0, 0xffffffff;
    sub.s32 %r2, 10, %r0;
    redux.sync.min.s32 %r3, %r2, 0xffffffff;
    redux.sync.max.u32 %r4, %r0, 0xffffffff;
    redux.sync.xor.b32 %r5, %r0, 0xffffffff;
    add.u32 %r1, %r1, %r3; add.u32 %r1, %r1, %r4; add.u32 %r1, %r1, %r5;
    st.global.u32 [%d1], %r1; ret;)");
  EXPECT_EQ(results, Lanes(32, 496 - 21 + 31 + 0));
  results = lane_results<std::uint32_t>(R"(
    rem.u32 %r1, %r0, 3;
    match.any.sync.b32 %r2, %r1, 0xffffffff;
    match.all.sync.b32 %r3|%p0, %r1, 0xffffffff;
    @%p0 mov.u32 %r2, 0;
    st.global.u32 [%d1], %r2; ret;)");
  for (std::uint32_t i = 0; i < 32; ++i) {
    std::uint32_t want = 0;
    for (std::uint32_t k = i % 3; k < 32; k += 3) want |= 1u << k;
    EXPECT_EQ(results[i], want);
  }
}

TEST(Lanes, LaneMasksAndIds) {
  auto results = lane_results<std::uint32_t>(R"(
    mov.u32 %r1, %lanemask_lt; mov.u32 %r2, %lanemask_ge; mov.u32 %r3, %laneid;
    add.u32 %r1, %r1, %r2; add.u32 %r1, %r1, %r3;
    st.global.u32 [%d1], %r1; ret;)");
  for (std::uint32_t i = 0; i < 32; ++i) EXPECT_EQ(results[i], 0xffffffffu + i);
}

TEST(Barriers, WarpsExchangeThroughSharedMemory) {
  Machine machine(entry(R"(
    .shared .align 4 .b32 buffer[256];
    ld.param.u64 %d0, [p0];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %d1, %r0, 4; add.u64 %d1, %d0, %d1;
    mov.u32 %r1, buffer;
    shl.b32 %r2, %r0, 2; add.u32 %r3, %r1, %r2;
    mul.lo.u32 %r4, %r0, %r0;
    st.shared.u32 [%r3], %r4;
    bar.sync 0;
    xor.b32 %r5, %r2, 1020; add.u32 %r5, %r1, %r5;
    ld.shared.u32 %r6, [%r5];
    bar.sync 0;
    st.shared.u32 [%r3], %r6;
    barrier.sync.aligned 0, 256;
    ld.shared.u32 %r6, [%r5];
    st.global.u32 [%d1], %r6; ret;)"));
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  auto out = machine.buffer(Lanes(256, 0));
  Outcome outcome = machine.run({1, 1, 1}, {256, 1, 1}, out);
  ASSERT_FALSE(outcome.fault) << outcome.fault->report;
  auto results = machine.read<std::uint32_t>(out, 256);
  for (std::uint32_t i = 0; i < 256; ++i) EXPECT_EQ(results[i], i * i);
  EXPECT_EQ(outcome.counters.barriers, 24u);
}

TEST(Barriers, ReduceOverTheBlock) {
  Machine machine(entry(R"(
    ld.param.u64 %d0, [p0];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %d1, %r0, 4; add.u64 %d1, %d0, %d1;
    setp.lt.u32 %p0, %r0, 40;
    bar.red.popc.u32 %r1, 0, %p0;
    bar.red.or.pred %p1, 0, %p0;
    bar.red.and.pred %p2, 1, 96, !%p0;
    @%p1 add.u32 %r1, %r1, 1000;
    @%p2 add.u32 %r1, %r1, 10000;
    st.global.u32 [%d1], %r1; ret;)"));
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  auto out = machine.buffer(Lanes(96, 0));
  Outcome outcome = machine.run({1, 1, 1}, {96, 1, 1}, out);
  ASSERT_FALSE(outcome.fault) << outcome.fault->report;
  EXPECT_EQ(machine.read<std::uint32_t>(out, 96), Lanes(96, 1040));
}

TEST(Barriers, ProducersArriveAndConsumersWait) {
  // Warp 1 fills, arrives at barrier 3 and goes on; warp 0 waits for both.
  Machine machine(entry(R"(
    .shared .align 4 .b32 buffer[32];
    ld.param.u64 %d0, [p0];
    mov.u32 %r0, %tid.x;
    and.b32 %r1, %r0, 31; shl.b32 %r1, %r1, 2;
    mov.u32 %r2, buffer; add.u32 %r2, %r2, %r1;
    setp.lt.u32 %p0, %r0, 32;
    @%p0 bra CONSUME;
    st.shared.u32 [%r2], %r0;
    barrier.arrive 3, 64;
    ret;
  CONSUME:
    barrier.sync 3, 64;
    ld.shared.u32 %r3, [%r2];
    mul.wide.u32 %d1, %r0, 4; add.u64 %d1, %d0, %d1;
    st.global.u32 [%d1], %r3; ret;)"));
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  auto out = machine.buffer(Lanes(32, 0));
  Outcome outcome = machine.run({1, 1, 1}, {64, 1, 1}, out);
  ASSERT_FALSE(outcome.fault) << outcome.fault->report;
  auto results = machine.read<std::uint32_t>(out, 32);
  for (std::uint32_t i = 0; i < 32; ++i) EXPECT_EQ(results[i], i + 32);
}

TEST(Barriers, PartsOfAWarpMeetAtAWarpBarrier) {
  auto results = lane_results<std::uint32_t>(R"(
    .shared .align 4 .b32 flag[1];
    mov.u32 %r3, flag;
    setp.lt.u32 %p0, %r0, 16;
    @%p0 bra LOW;
    bar.warp.sync 0xffffffff;
    ld.shared.u32 %r1, [%r3];
    bra END;
  LOW:
    mov.u32 %r1, 77;
    st.shared.u32 [%r3], %r1;
    bar.warp.sync 0xffffffff;
  END:
    st.global.u32 [%d1], %r1; ret;)");
  EXPECT_EQ(results, Lanes(32, 77));
}

TEST(Barriers, WarpsThatSpinLetTheOthersRun) {
  Machine machine(entry(R"(
    .shared .align 4 .b32 flag[1];
    ld.param.u64 %d0, [p0];
    mov.u32 %r0, %tid.x;
    mov.u32 %r3, flag;
    setp.ge.u32 %p0, %r0, 32;
    @%p0 bra SET;
  WAIT:
    ld.volatile.shared.u32 %r1, [%r3];
    setp.ne.u32 %p1, %r1, 123;
    @%p1 bra WAIT;
    st.global.u32 [%d0], %r1;
    ret;
  SET:
    mov.u32 %r1, 123;
    st.volatile.shared.u32 [%r3], %r1;
    ret;)"));
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  auto out = machine.buffer(Lanes(1, 0));
  Outcome outcome = machine.run({1, 1, 1}, {64, 1, 1}, out);
  ASSERT_FALSE(outcome.fault) << outcome.fault->report;
  EXPECT_EQ(machine.read<std::uint32_t>(out, 1)[0], 123u);
}

}  // namespace
}  // namespace tilewright::vgpu
