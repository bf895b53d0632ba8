// Shapes of control flow in which lanes part and meet again.
#include <algorithm>

#include "tests/virtual_gpu/run_ptx.h"

namespace tilewright::vgpu {
namespace {

using Lanes = std::vector<std::uint32_t>;

Lanes expected(std::uint32_t (*f)(std::uint32_t)) {
  Lanes lanes;
  for (std::uint32_t i = 0; i < 32; ++i) lanes.push_back(f(i));
  return lanes;
}

TEST(Divergence, LabelsOfBlocksAreTheirOwn) {
  // As an asm statement with a loop leaves them behind where it was expanded three times.
  auto results = lane_results<std::uint32_t>(R"(
    mov.u32 %r1, 0; mov.u32 %r2, 0;
    { AGAIN: add.u32 %r1, %r1, 1; setp.lt.u32 %p0, %r1, 3; @%p0 bra AGAIN; }
    {
      AGAIN: add.u32 %r1, %r1, 10;
      { AGAIN: add.u32 %r2, %r2, 1; setp.lt.u32 %p0, %r2, %r0; @%p0 bra AGAIN; }
      setp.lt.u32 %p0, %r1, 40;
      @%p0 bra AGAIN;
    }
    add.u32 %r1, %r1, %r2;
    st.global.u32 [%d1], %r1; ret;)");
  EXPECT_EQ(results, expected([](std::uint32_t i) -> std::uint32_t {
              return 43 + std::max(i, 1u) + 3;  // each further turn of the outer loop adds one
            }));
}

TEST(Divergence, NestedIfsMeetAtTheirEnds) {
  auto results = lane_results<std::uint32_t>(R"(
    mov.u32 %r1, 0;
    and.b32 %r2, %r0, 1; setp.eq.u32 %p0, %r2, 0;
    and.b32 %r2, %r0, 2; setp.eq.u32 %p1, %r2, 0;
    @%p0 bra ELSE;
    add.u32 %r1, %r1, 1;
    @%p1 bra INNER;
    add.u32 %r1, %r1, 10;
  INNER:
    activemask.b32 %r3;
    popc.b32 %r3, %r3;
    shl.b32 %r3, %r3, 16;
    add.u32 %r1, %r1, %r3;
    bra.uni END;
  ELSE:
    add.u32 %r1, %r1, 100;
  END:
    activemask.b32 %r3;
    setp.eq.u32 %p2, %r3, 0xffffffff;
    @%p2 add.u32 %r1, %r1, 1000;
    st.global.u32 [%d1], %r1; ret;)");
  // 16 lanes meet again at INNER, all of them at END.
  EXPECT_EQ(results, expected([](std::uint32_t i) -> std::uint32_t {
              return (i & 1) == 0 ? 1100 : 1001 + ((i & 2) != 0 ? 10 : 0) + (16u << 16);
            }));
}

TEST(Divergence, LoopsRunAsOftenAsEachLaneWants) {
  auto results = lane_results<std::uint32_t>(R"(
    mov.u32 %r1, 0; mov.u32 %r2, 0;
  LOOP:
    add.u32 %r1, %r1, %r2;
    add.u32 %r2, %r2, 1;
    setp.le.u32 %p0, %r2, %r0;
    @%p0 bra LOOP;
    activemask.b32 %r3;
    setp.eq.u32 %p1, %r3, 0xffffffff;
    @%p1 add.u32 %r1, %r1, 1000;
    st.global.u32 [%d1], %r1; ret;)");
  EXPECT_EQ(results, expected([](std::uint32_t i) { return i * (i + 1) / 2 + 1000; }));
}

TEST(Divergence, NestedLoopsWithContinueAndBreak) {
  auto results = lane_results<std::uint32_t>(R"(
    mov.u32 %r1, 0; mov.u32 %r2, 0;
  OUTER:
    setp.ge.u32 %p0, %r2, %r0;
    @%p0 bra DONE;
    add.u32 %r2, %r2, 1;
    and.b32 %r4, %r2, 3;
    setp.eq.u32 %p1, %r4, 0;
    @%p1 bra OUTER;
    mov.u32 %r3, 0;
  INNER:
    add.u32 %r1, %r1, 1;
    add.u32 %r3, %r3, 1;
    setp.gt.u32 %p2, %r1, 50;
    @%p2 bra DONE;
    setp.lt.u32 %p3, %r3, %r2;
    @%p3 bra INNER;
    bra OUTER;
  DONE:
    st.global.u32 [%d1], %r1; ret;)");
  EXPECT_EQ(results, expected([](std::uint32_t n) {
              std::uint32_t sum = 0;
              for (std::uint32_t i = 0; i < n;) {
                ++i;
                if (i % 4 == 0) continue;
                for (std::uint32_t k = 0; k < i; ++k)
                  if (++sum > 50) return sum;
              }
              return sum;
            }));
}

TEST(Divergence, EarlyReturnsLeaveTheOthersRunning) {
  auto results = lane_results<std::uint32_t>(R"(
    setp.lt.u32 %p0, %r0, 10;
    mov.u32 %r1, 7;
    @%p0 st.global.u32 [%d1], %r1;
    @%p0 ret;
    setp.gt.u32 %p1, %r0, 20;
    @!%p1 bra STAY;
    mov.u32 %r1, 8;
    st.global.u32 [%d1], %r1;
    exit;
  STAY:
    activemask.b32 %r1;
    st.global.u32 [%d1], %r1; ret;)");
  EXPECT_EQ(results, expected([](std::uint32_t i) -> std::uint32_t {
              return i < 10 ? 7 : i > 20 ? 8 : 0x001ffc00;
            }));
}

TEST(Divergence, ReturnInsideALoopThenABarrier) {
  // Lanes that return one by one do not keep the rest from the barrier.
  Machine machine(entry(R"(
    ld.param.u64 %d0, [p0];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %d1, %r0, 4; add.u64 %d1, %d0, %d1;
    mov.u32 %r1, 0;
  LOOP:
    setp.eq.u32 %p0, %r1, %r0;
    setp.lt.and.u32 %p1, %r0, 5, %p0;
    @%p1 bra LEAVE;
    add.u32 %r1, %r1, 1;
    setp.lt.u32 %p2, %r1, 8;
    @%p2 bra LOOP;
    bar.sync 0;
    activemask.b32 %r2;
    st.global.u32 [%d1], %r2;
  LEAVE:
    ret;)"));
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  auto out = machine.buffer(std::vector<std::uint32_t>(64, 0));
  Outcome outcome = machine.run({1, 1, 1}, {64, 1, 1}, out);
  ASSERT_FALSE(outcome.fault) << outcome.fault->report;
  auto results = machine.read<std::uint32_t>(out, 64);
  for (std::uint32_t i = 0; i < 64; ++i)
    EXPECT_EQ(results[i], i < 5 ? 0u : i < 32 ? 0xffffffe0u : 0xffffffffu) << i;
}

TEST(Divergence, LanesThatWaitedElsewhereMeetAgainAtAShuffle) {
  // Low lanes go ahead to OUT while the others are at the barrier; all shuffle together afterwards.
  Machine machine(entry(R"(
    ld.param.u64 %d0, [p0];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %d1, %r0, 4; add.u64 %d1, %d0, %d1;
    setp.lt.u32 %p0, %r0, 5;
    @%p0 bra OUT;
    bar.sync 0;
    bra.uni OUT;
  OUT:
    @%p0 bar.sync 0;
    shfl.sync.bfly.b32 %r1, %r0, 31, 31, 0xffffffff;
    st.global.u32 [%d1], %r1;
    ret;)"));
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  auto out = machine.buffer(std::vector<std::uint32_t>(32, 0));
  Outcome outcome = machine.run({1, 1, 1}, {32, 1, 1}, out);
  ASSERT_FALSE(outcome.fault) << outcome.fault->report;
  EXPECT_EQ(machine.read<std::uint32_t>(out, 32), expected([](std::uint32_t i) { return 31 - i; }));
}

TEST(Divergence, LanesOfAWarpTakeALockInTurn) {
  auto results = lane_results<std::uint32_t>(R"(
    .shared .align 4 .b32 lock; .shared .align 4 .b32 sum;
    mov.u32 %r1, 0;
    st.shared.u32 [lock], %r1; st.shared.u32 [sum], %r1;
  SPIN:
    atom.shared.cas.b32 %r2, [lock], 0, 1;
    setp.ne.u32 %p0, %r2, 0;
    @%p0 bra SPIN;
    ld.shared.u32 %r3, [sum]; add.u32 %r3, %r3, %r0; st.shared.u32 [sum], %r3;
    atom.shared.exch.b32 %r2, [lock], 0;
    bar.warp.sync 0xffffffff;
    ld.shared.u32 %r3, [sum];
    st.global.u32 [%d1], %r3; ret;)");
  EXPECT_EQ(results, Lanes(32, 496));
}

TEST(Divergence, RaggedBlocksHaveNoLanesBeyondTheirEnd) {
  // 40 threads: the second warp has eight. The others of its lanes must not load or store.
  Machine machine(entry(R"(
    .shared .align 4 .b32 buffer[40];
    ld.param.u64 %d0, [p0];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %d1, %r0, 4; add.u64 %d1, %d0, %d1;
    mov.u32 %r1, buffer; shl.b32 %r2, %r0, 2; add.u32 %r1, %r1, %r2;
    ld.global.u32 %r3, [%d1];
    st.shared.u32 [%r1], %r3;
    bar.sync 0;
    ld.shared.u32 %r4, [%r1];
    setp.gt.u32 %p0, %r4, 2;
    selp.u32 %r4, %r4, 2, %p0;
    activemask.b32 %r5; popc.b32 %r5, %r5; mad.lo.u32 %r4, %r5, 1000, %r4;
    st.global.u32 [%d1], %r4; ret;)"));
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  Lanes values;
  for (std::uint32_t i = 0; i < 40; ++i) values.push_back(i);
  auto out = machine.buffer(values);
  Outcome outcome = machine.run({1, 1, 1}, {40, 1, 1}, out);
  ASSERT_FALSE(outcome.fault) << outcome.fault->report;
  auto results = machine.read<std::uint32_t>(out, 40);
  for (std::uint32_t i = 0; i < 40; ++i)
    EXPECT_EQ(results[i], (i < 32 ? 32000 : 8000) + std::max(i, 2u));
}

TEST(Divergence, SwitchesJumpByIndex) {
  auto results = lane_results<std::uint32_t>(R"(
    rem.u32 %r1, %r0, 4;
    mov.u32 %r2, 0;
  TABLE: .branchtargets ZERO, ONE, TWO, ONE;
    brx.idx %r1, TABLE;
  ZERO:
    mov.u32 %r2, 5; bra END;
  ONE:
    add.u32 %r2, %r1, 10; bra END;
  TWO:
    activemask.b32 %r2;
  END:
    activemask.b32 %r3; setp.eq.u32 %p0, %r3, 0xffffffff;
    @%p0 add.u32 %r2, %r2, 1;
    st.global.u32 [%d1], %r2; ret;)");
  EXPECT_EQ(results, expected([](std::uint32_t i) -> std::uint32_t {
              constexpr std::uint32_t kCases[] = {6, 12, 0x44444445, 14};
              return kCases[i % 4];
            }));
}

TEST(Divergence, GuardsTouchOnlyTheirLanes) {
  auto results = lane_results<std::uint32_t>(R"(
    mov.u32 %r1, 1;
    setp.lt.u32 %p0, %r0, 16;
    @%p0 mov.u32 %r1, 2;
    @!%p0 add.u32 %r1, %r1, 40;
    @%p0 add.u32 %r1, %r1, %r0;
    st.global.u32 [%d1], %r1; ret;)");
  EXPECT_EQ(results, expected([](std::uint32_t i) { return i < 16 ? 2 + i : 41; }));
}

TEST(Divergence, RegistersThatSharePlacesKeepTheirValuesInEachLane) {
  // In one arm a value lives that is dead in the other; both arms use many others.
  auto results = lane_results<std::uint32_t>(R"(
    mul.lo.u32 %r1, %r0, 3;
    setp.lt.u32 %p0, %r0, 7;
    @%p0 bra A;
    add.u32 %r2, %r0, 1; add.u32 %r3, %r2, 1; add.u32 %r4, %r3, 1; mul.lo.u32 %r5, %r4, %r2;
    add.u32 %r6, %r5, %r3;
    bra END;
  A:
    add.u32 %r7, %r1, 5; add.u32 %r8, %r7, %r1; mul.lo.u32 %r6, %r8, %r7;
  END:
    st.global.u32 [%d1], %r6; ret;)");
  EXPECT_EQ(results, expected([](std::uint32_t i) {
              return i < 7 ? (6 * i + 5) * (3 * i + 5) : (i + 3) * (i + 1) + i + 2;
            }));
}

TEST(Divergence, FunctionsAreCalledInDivergentCode) {
  constexpr std::string_view kFunction = R"(
.func (.param .b32 result) twice(.param .b32 x, .param .align 8 .b8 y[16])
{
  .reg .b32 %r<4>; .reg .pred %p;
  ld.param.b32 %r1, [x];
  ld.param.b32 %r2, [y+8];
  setp.gt.u32 %p, %r1, 20;
  @%p bra BIG;
  add.u32 %r3, %r1, %r2;
  st.param.b32 [result+0], %r3;
  ret;
BIG:
  st.param.b32 [result+0], %r1;
  ret;
})";
  Machine machine(entry(R"(
    ld.param.u64 %d0, [p0];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %d1, %r0, 4; add.u64 %d1, %d0, %d1;
    mov.u32 %r5, 1000;
    and.b32 %r1, %r0, 1;
    setp.eq.u32 %p0, %r1, 0;
    @%p0 bra SKIP;
    {
      .param .b32 param0; .param .align 8 .b8 param1[16]; .param .b32 retval0;
      st.param.b32 [param0+0], %r0;
      mul.lo.u32 %r6, %r0, 100;
      st.param.b32 [param1+8], %r6;
      call.uni (retval0), twice, (param0, param1);
      ld.param.b32 %r5, [retval0+0];
    }
  SKIP:
    st.global.u32 [%d1], %r5; ret;)",
                        1, kFunction));
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  auto out = machine.buffer(Lanes(32, 0));
  Outcome outcome = machine.run({1, 1, 1}, {32, 1, 1}, out);
  ASSERT_FALSE(outcome.fault) << outcome.fault->report;
  EXPECT_EQ(machine.read<std::uint32_t>(out, 32), expected([](std::uint32_t i) -> std::uint32_t {
              return i % 2 == 0 ? 1000 : i > 20 ? i : 101 * i;
            }));
}

}  // namespace
}  // namespace tilewright::vgpu
