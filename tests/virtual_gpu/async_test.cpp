// Asynchronous copies: what moves, and that it moves no earlier than a program may rely on. PTX ISA,
// "cp.async", "cp.async.bulk", "st.async", "red.async".
#include <gmock/gmock.h>

#include <bit>

#include "tests/virtual_gpu/run_ptx.h"

namespace tilewright::vgpu {
namespace {

using testing::HasSubstr;
using Words = std::vector<std::uint32_t>;

/// What shared memory holds that nobody wrote.
constexpr std::uint32_t kNothing = 0xffffffff;

/// `body` finds 64 words 1000, 1001, ... at %d1, a place for results at %d0, shared memory `s` of
/// 256 bytes (%r10) and mbarriers `bar` (%r11); it stores %r1 of thread i to [%d0 + 4 i] by OUT.
struct Run {
  std::array<unsigned, 3> grid{1, 1, 1};
  unsigned threads = 1;
  std::array<unsigned, 3> cluster{};
  std::uint64_t seed = 0;
  std::size_t source = 64;
};
std::string program(std::string body) {
  for (std::size_t at; (at = body.find("OUT;")) != std::string::npos;)
    body.replace(at, 4, "st.global.u32 [%d0], %r1; add.u64 %d0, %d0, 4;");
  return entry(R"(
.shared .align 16 .b8 s[256]; .shared .b64 bar;
ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1];
mov.u32 %r10, s; mov.u32 %r11, bar; mov.u32 %r0, %tid.x;
mov.u32 %r12, %ctaid.x; mov.u32 %r13, %ntid.x; mad.lo.u32 %r12, %r12, %r13, %r0;
mul.wide.u32 %d2, %r12, 64; add.u64 %d0, %d0, %d2;
)" + body + "\nret;",
               2);
}
Outcome run(const std::string& body, const Run& how, Words* results, Words* source = nullptr) {
  Machine machine(program(body));
  EXPECT_TRUE(machine.ok()) << machine.error().message;
  if (!machine.ok()) return {};
  std::size_t count = std::size_t{16} * how.threads * how.grid[0];
  Words values;
  for (std::uint32_t i = 0; i < how.source; ++i) values.push_back(1000 + i);
  auto out = machine.buffer(Words(count, 0)), in = machine.buffer(values);
  Launch launch = machine.launch(how.grid, {how.threads, 1, 1}, out, in);
  launch.cluster = how.cluster;
  launch.schedule_seed = how.seed;
  Outcome outcome = machine.run(launch);
  *results = machine.read<std::uint32_t>(out, count);
  if (source != nullptr) *source = machine.read<std::uint32_t>(in, how.source);
  return outcome;
}
/// The first words that one thread stored.
Words one(const std::string& body, std::size_t count, Words* source = nullptr) {
  Words results;
  Outcome outcome = run(body, {}, &results, source);
  EXPECT_FALSE(outcome.fault) << outcome.fault->report;
  results.resize(count);
  return results;
}

TEST(AsyncCopy, GroupsLandWhenTheyAreWaitedFor) {
  EXPECT_EQ(one(R"(
cp.async.ca.shared.global [%r10], [%d1], 4;
cp.async.commit_group;
cp.async.ca.shared.global [%r10+4], [%d1+4], 4;
cp.async.commit_group;
cp.async.ca.shared.global [%r10+8], [%d1+8], 4;
cp.async.wait_group 2; ld.shared.u32 %r1, [%r10]; OUT;
cp.async.wait_group 1; ld.shared.u32 %r1, [%r10]; OUT; ld.shared.u32 %r1, [%r10+4]; OUT;
cp.async.wait_group 0; ld.shared.u32 %r1, [%r10+4]; OUT; ld.shared.u32 %r1, [%r10+8]; OUT;
cp.async.wait_all; ld.shared.u32 %r1, [%r10+8]; OUT;)",
                6),
            (Words{kNothing, 1000, kNothing, 1001, kNothing, 1002}));
}

TEST(AsyncCopy, SomeSeedsLetThemLandEarly) {
  for (const char* copy :
       {"cp.async.ca.shared.global [%r10], [%d1], 4; cp.async.commit_group;",
        "mbarrier.init.shared.b64 [%r11], 1; mbarrier.arrive.expect_tx.shared.b64 _, [%r11], 16;"
        "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r10], [%d1], 16, [%r11];"
        "L1: nanosleep.u32 1; bra L2; L2: nanosleep.u32 1; bra L3; L3:"}) {
    SCOPED_TRACE(copy);
    int early = 0, late = 0;
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
      Words results;
      Outcome outcome =
          run(std::string(copy) + "ld.shared.u32 %r1, [%r10]; OUT;", {.seed = seed}, &results);
      ASSERT_FALSE(outcome.fault) << outcome.fault->report;
      (results[0] == 1000 ? early : late) += 1;
    }
    EXPECT_GT(early, 0);
    EXPECT_GT(late, 0);
  }
}

TEST(AsyncCopy, TheSourceIsReadLateToo) {
  EXPECT_EQ(one(R"(
cp.async.ca.shared.global [%r10], [%d1], 4;
st.global.u32 [%d1], 5;
cp.async.wait_all; ld.shared.u32 %r1, [%r10]; OUT;)",
                1),
            (Words{5}));
}

TEST(AsyncCopy, WhatIsNotReadBecomesZero) {
  // Sizes, and a predicate that says to ignore the source.
  EXPECT_EQ(one(R"(
mov.u32 %r2, 6; mov.u32 %r3, 0; setp.eq.u32 %p0, %r3, 0;
cp.async.cg.shared.global [%r10], [%d1], 16, %r2;
cp.async.ca.shared.global [%r10+16], [%d1+16], 8, %r3;
cp.async.cg.shared.global [%r10+32], [%d1], 16, %p0;
cp.async.cg.shared.global.L2::128B [%r10+48], [%d1], 16;
cp.async.wait_all;
ld.shared.u32 %r1, [%r10]; OUT; ld.shared.u32 %r1, [%r10+4]; OUT; ld.shared.u32 %r1, [%r10+12]; OUT;
ld.shared.u32 %r1, [%r10+16]; OUT; ld.shared.u32 %r1, [%r10+32]; OUT;
ld.shared.u32 %r1, [%r10+60]; OUT;)",
                6),
            (Words{1000, 1001 & 0xffff, 0, 0, 0, 1003}));
}

TEST(AsyncCopy, OnlyTheBytesThatAreReadHaveToBeValid) {
  // The last 8 of 256 bytes, at an address that is aligned to 8 only.
  EXPECT_EQ(one(R"(
mov.u32 %r2, 8;
cp.async.cg.shared.global [%r10], [%d1+248], 16, %r2;
cp.async.wait_all;
ld.shared.u32 %r1, [%r10]; OUT; ld.shared.u32 %r1, [%r10+4]; OUT; ld.shared.u32 %r1, [%r10+8]; OUT;)",
                3),
            (Words{1062, 1063, 0}));
  struct {
    const char* copy;
    const char* report;
  } cases[] = {
      {"mov.u32 %r2, 9; cp.async.cg.shared.global [%r10], [%d1+248], 16, %r2;",
       "out-of-bounds asynchronous read of global memory"},
      {"mov.u32 %r2, 8; cp.async.cg.shared.global [%r10], [%d1+4], 16, %r2;",
       "misaligned asynchronous read"},
      {"mov.u32 %r2, 17; cp.async.cg.shared.global [%r10], [%d1], 16, %r2;",
       "a source size beyond the copy's"},
      {"cp.async.cg.shared.global [%r10], [%d1+8], 16;", "misaligned asynchronous read"},
      {"cp.async.cg.shared.global [%r10+8], [%d1], 16;", "misaligned asynchronous write"},
      {"cp.async.cg.shared.global [%r10+272], [%d1], 16;", "out-of-bounds asynchronous write"},
  };
  for (const auto& t : cases) {
    SCOPED_TRACE(t.copy);
    Words results;
    Outcome outcome = run(t.copy, {}, &results);
    ASSERT_TRUE(outcome.fault);
    EXPECT_THAT(outcome.fault->report, HasSubstr(t.report));
  }
}

TEST(AsyncCopy, AnMbarrierTracksTheCopiesBeforeIt) {
  // 32 threads copy a word each. Without .noinc the arrivals are not counted in the mbarrier's 32.
  for (const char* arrivals :
       {"cp.async.mbarrier.arrive.noinc.shared.b64 [%r11];",
        "cp.async.mbarrier.arrive.shared::cta.b64 [%r11]; mbarrier.arrive.shared.b64 _, [%r11];",
        "mov.u64 %d5, bar; cvta.shared.u64 %d5, %d5; cp.async.mbarrier.arrive.noinc.b64 [%d5];"}) {
    for (std::uint64_t seed : {0, 1, 2}) {
      SCOPED_TRACE(arrivals);
      Words results;
      Outcome outcome = run(std::string(R"(
setp.ne.u32 %p0, %r0, 0;
@%p0 bra READY;
mbarrier.init.shared.b64 [bar], 32;
READY:
bar.sync 0;
mul.lo.u32 %r2, %r0, 4; add.u32 %r2, %r10, %r2;
mul.wide.u32 %d3, %r0, 4; add.u64 %d3, %d1, %d3;
cp.async.ca.shared.global [%r2], [%d3], 4;
)") + arrivals + R"(
ld.shared.u32 %r1, [%r2]; OUT;
WAIT: mbarrier.try_wait.parity.shared.b64 %p1, [%r11], 0;
@!%p1 bra WAIT;
xor.b32 %r3, %r0, 31; mul.lo.u32 %r3, %r3, 4; add.u32 %r3, %r10, %r3;
ld.shared.u32 %r1, [%r3]; OUT;)",
                            {.threads = 32, .seed = seed}, &results);
      ASSERT_FALSE(outcome.fault) << outcome.fault->report;
      for (std::uint32_t i = 0; i < 32; ++i) {
        if (seed == 0) {
          EXPECT_EQ(results[16 * i], kNothing);
        }
        EXPECT_EQ(results[16 * i + 1], 1031 - i);
      }
    }
  }
}

constexpr const char* kWait = R"(
WAIT: mbarrier.try_wait.parity.shared.b64 %p1, [%r11], 0;
@!%p1 bra WAIT;
)";

TEST(BulkCopy, FromGlobalLandsBeforeThePhaseEnds) {
  for (const char* copy : {
           "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
           "[%r10], [%d1], 32, [%r11];",
           "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes "
           "[%r10], [%d1], 32, [%r11];",
           "createpolicy.fractional.L2::evict_last.b64 %d5, 0.5;"
           "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
           "[%r10], [%d1], 32, [%r11], %d5;",
           "mov.u64 %d5, s; mov.u64 %d6, bar; mov.u32 %r2, 32;"
           "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
           "[%d5], [%d1], %r2, [%d6];",
       }) {
    SCOPED_TRACE(copy);
    EXPECT_EQ(one(std::string("mbarrier.init.shared.b64 [%r11], 1;"
                              "mbarrier.arrive.expect_tx.shared.b64 _, [%r11], 32;") +
                      copy + "ld.shared.u32 %r1, [%r10+28]; OUT;" + kWait +
                      "ld.shared.u32 %r1, [%r10]; OUT; ld.shared.u32 %r1, [%r10+28]; OUT;"
                      "ld.shared.u32 %r1, [%r10+32]; OUT;",
                  4),
              (Words{kNothing, 1000, 1007, kNothing}));
  }
}

TEST(BulkCopy, ToGlobalLandsWhenItsGroupIsWaitedFor) {
  Words source;
  EXPECT_EQ(one(R"(
st.shared.u32 [%r10], 1; st.shared.u32 [%r10+4], 2; st.shared.u32 [%r10+8], 3;
st.shared.u32 [%r10+12], 4;
fence.proxy.async.shared::cta;
cp.async.bulk.global.shared::cta.bulk_group [%d1+16], [%r10], 16;
cp.async.bulk.commit_group;
ld.global.u32 %r1, [%d1+16]; OUT;
cp.async.bulk.wait_group.read 0;
ld.global.u32 %r1, [%d1+16]; OUT;
st.shared.u32 [%r10], 50;
cp.async.bulk.wait_group 0;
ld.global.u32 %r1, [%d1+16]; OUT;
cp.async.bulk.global.shared::cta.bulk_group [%d1+32], [%r10], 16;
cp.async.bulk.commit_group;
st.shared.u32 [%r10+4], 60;)",
                3, &source),
            // After .read the source is free; a wait without it is for the write.
            (Words{1004, 1004, 1}));
  EXPECT_EQ(Words(source.begin() + 3, source.begin() + 13),
            // The last copy was not waited for before its source was overwritten.
            (Words{1003, 1, 2, 3, 4, 50, 60, 3, 4, 1012}));
}

TEST(BulkCopy, GroupsAreOfAThread) {
  // Lane 1 does not wait for what lane 0 has under way.
  Words results;
  Outcome outcome = run(R"(
mul.lo.u32 %r2, %r0, 16; add.u32 %r2, %r10, %r2; st.shared.u32 [%r2], %r0;
mul.wide.u32 %d3, %r0, 16; add.u64 %d3, %d1, %d3;
cp.async.bulk.global.shared::cta.bulk_group [%d3], [%r2], 16;
cp.async.bulk.commit_group;
setp.eq.u32 %p0, %r0, 1;
@%p0 cp.async.bulk.wait_group 0;
bar.warp.sync 0xffffffff;
ld.global.u32 %r1, [%d1]; OUT; ld.global.u32 %r1, [%d1+16]; OUT;)",
                        {.threads = 2}, &results);
  ASSERT_FALSE(outcome.fault) << outcome.fault->report;
  EXPECT_EQ(results[0], 1000u);
  EXPECT_EQ(results[1], 1u);
}

TEST(BulkCopy, ReductionsOfEveryType) {
  auto f = [](float x) { return std::bit_cast<std::uint32_t>(x); };
  struct {
    const char* operation;
    std::uint32_t old, value, want;
  } cases[] = {
      {"add.u32", 5, 7, 12},
      {"add.s32", 5, 0xfffffffe, 3},
      {"min.s32", 5, 0xfffffffe, 0xfffffffe},
      {"min.u32", 5, 0xfffffffe, 5},
      {"max.u32", 5, 9, 9},
      {"max.s32", 5, 0xfffffffe, 5},
      {"inc.u32", 5, 9, 6},
      {"inc.u32", 9, 9, 0},
      {"dec.u32", 5, 9, 4},
      {"and.b32", 12, 10, 8},
      {"or.b32", 12, 10, 14},
      {"xor.b32", 12, 10, 6},
      {"add.f32", f(1.5f), f(2.25f), f(3.75f)},
      {"add.noftz.f16", 0x3c003c00, 0x40003c00, 0x42004000},
      {"add.noftz.bf16", 0x3f803f80, 0x40003f80, 0x40404000},
      {"min.f16", 0x3c004000, 0x40003c00, 0x3c003c00},
      {"max.bf16", 0x3f804000, 0x40003f80, 0x40004000},
  };
  for (const auto& t : cases) {
    SCOPED_TRACE(t.operation);
    std::string body = "mov.u32 %r2, " + std::to_string(t.old) + "; mov.u32 %r3, " +
                       std::to_string(t.value) + ";" + R"(
st.global.v4.u32 [%d1], {%r2, %r2, %r2, %r2};
st.shared.v4.u32 [%r10], {%r3, %r3, %r3, %r3};
cp.reduce.async.bulk.global.shared::cta.bulk_group.)" +
                       t.operation + R"( [%d1], [%r10], 16;
cp.async.bulk.commit_group;
ld.global.u32 %r1, [%d1+12]; OUT;
cp.async.bulk.wait_group 0;
ld.global.u32 %r1, [%d1]; OUT; ld.global.u32 %r1, [%d1+12]; OUT; ld.global.u32 %r1, [%d1+16]; OUT;)";
    EXPECT_EQ(one(body, 4), (Words{t.old, t.want, t.want, 1004}));
  }
  // 64 bits, and into the shared memory of a block.
  EXPECT_EQ(one(R"(
mov.u64 %d3, 0xffffffff; st.global.u64 [%d1], %d3; st.global.u64 [%d1+8], %d3;
mov.u64 %d3, 2; st.shared.u64 [%r10], %d3; st.shared.u64 [%r10+8], %d3;
cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u64 [%d1], [%r10], 16;
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
ld.global.u32 %r1, [%d1]; OUT; ld.global.u32 %r1, [%d1+12]; OUT;
st.shared.u64 [%r10+16], %d3; st.shared.u64 [%r10+24], %d3;
mbarrier.init.shared.b64 [%r11], 1; mbarrier.arrive.expect_tx.shared.b64 _, [%r11], 16;
cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.s32
  [%r10+16], [%r10], 16, [%r11];
)" + std::string(kWait) +
                    "ld.shared.u32 %r1, [%r10+24]; OUT;",
                3),
            (Words{1, 1, 4}));
}

TEST(BulkCopy, WhatCannotBeIsAFault) {
  struct {
    const char* body;
    const char* report;
  } cases[] = {
      {"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
       "[%r10+8], [%d1], 16, [%r11];",
       "misaligned bulk write of shared memory"},
      {"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
       "[%r10], [%d1+8], 16, [%r11];",
       "misaligned bulk read of global memory"},
      {"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
       "[%r10], [%d1+240], 32, [%r11];",
       "out-of-bounds bulk read of global memory"},
      {"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
       "[%r10+256], [%d1], 16, [%r11];",
       "out-of-bounds bulk write of shared memory"},
      {"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
       "[%r10], [%d1], 24, [%r11];",
       "a bulk copy of 24 bytes, expected a multiple of 16"},
      {"cp.async.bulk.global.shared::cta.bulk_group [%d1+256], [%r10], 16;",
       "out-of-bounds bulk write of global memory"},
      {"cp.async.bulk.prefetch.L2.global [%d1], 512;", "out-of-bounds bulk prefetch"},
      {"st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%r10+4], %d1, [%r11];",
       "misaligned asynchronous store"},
      // The mbarrier was not initialised: told when the copy lands.
      {"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
       "[%r10], [%d1], 16, [%r11]; bar.sync 1, 64;",
       "mbarrier 0x500: not initialised"},
  };
  for (const auto& t : cases) {
    SCOPED_TRACE(t.body);
    Words results;
    Outcome outcome = run(t.body, {}, &results);
    ASSERT_TRUE(outcome.fault);
    EXPECT_THAT(outcome.fault->report, HasSubstr(t.report));
    EXPECT_THAT(outcome.fault->report, HasSubstr("block (0, 0, 0), thread (0, 0, 0)"));
  }
}

/// Every block of the cluster has an mbarrier for `bytes`; then block 0 does `leader`.
std::string in_cluster(int bytes, const std::string& leader) {
  return R"(
mov.u32 %r15, %cluster_ctarank;
mbarrier.init.shared.b64 [%r11], 1;
fence.mbarrier_init.release.cluster;
mbarrier.arrive.expect_tx.shared.b64 _, [%r11], )" +
         std::to_string(bytes) + R"(;
barrier.cluster.arrive.release; barrier.cluster.wait.acquire;
)" + leader +
         kWait +
         "ld.shared.u32 %r1, [%r10]; OUT; ld.shared.u32 %r1, [%r10+12]; OUT;"
         "barrier.cluster.arrive; barrier.cluster.wait;";
}

TEST(BulkCopy, MulticastGivesEachBlockItsBytes) {
  for (std::uint64_t seed : {0, 1, 2, 3}) {
    Words results;
    Outcome outcome =
        run(in_cluster(16,
                       "setp.ne.u32 %p0, %r15, 0; @%p0 bra WAIT; mov.u16 %h0, 7;"
                       "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                       ".multicast::cluster [%r10], [%d1+16], 16, [%r11], %h0;"),
            {.grid = {3, 1, 1}, .cluster = {3, 1, 1}, .seed = seed}, &results);
    ASSERT_FALSE(outcome.fault) << outcome.fault->report;
    for (std::size_t b = 0; b < 3; ++b) {
      EXPECT_EQ(results[16 * b], 1004u);
      EXPECT_EQ(results[16 * b + 1], 1007u);
    }
  }
}

TEST(BulkCopy, BlocksWriteIntoEachOthersSharedMemory) {
  struct {
    const char* name;
    std::string body;
  } cases[] = {
      {"bulk",
       "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
       "[%r4], [%r10+64], 16, [%r5];"},
      {"st.async",
       "ld.shared.v4.u32 {%r6, %r7, %r8, %r9}, [%r10+64];"
       "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 "
       "[%r4], {%r6, %r7, %r8, %r9}, [%r5];"},
      {"st.async of pairs",
       "ld.shared.v2.u32 {%r6, %r7}, [%r10+64]; ld.shared.u64 %d5, [%r10+72];"
       "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.u32 "
       "[%r4], {%r6, %r7}, [%r5];"
       "st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%r4+8], %d5, [%r5];"},
      {"st.async of words",
       "ld.shared.v4.u32 {%r6, %r7, %r8, %r9}, [%r10+64];"
       "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r4], %r6, [%r5];"
       "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r4+4], %r7, [%r5];"
       "st.async.shared::cluster.mbarrier::complete_tx::bytes.s32 [%r4+8], %r8, [%r5];"
       "mov.b32 %f0, %r9;"
       "st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%r4+12], %f0, [%r5];"},
  };
  for (const auto& t : cases) {
    for (std::uint64_t seed : {0, 1, 2}) {
      SCOPED_TRACE(t.name);
      Words results;
      Outcome outcome = run(in_cluster(16, R"(
add.u32 %r2, %r15, 10; st.shared.u32 [%r10+64], %r2; add.u32 %r2, %r15, 20;
st.shared.u32 [%r10+76], %r2;
xor.b32 %r3, %r15, 1;
mapa.shared::cluster.u32 %r4, %r10, %r3; mapa.shared::cluster.u32 %r5, %r11, %r3;
)" + t.body),
                            {.grid = {2, 1, 1}, .cluster = {2, 1, 1}, .seed = seed}, &results);
      ASSERT_FALSE(outcome.fault) << outcome.fault->report;
      EXPECT_EQ(results[0], 11u);
      EXPECT_EQ(results[1], 21u);
      EXPECT_EQ(results[16], 10u);
      EXPECT_EQ(results[17], 20u);
    }
  }
}

TEST(RedAsync, EveryOperationUpdatesAnotherBlock) {
  struct {
    const char* operation;
    std::uint32_t want;  ///< of 12 and 10
  } cases[] = {{"add.u32", 22}, {"add.s32", 22}, {"min.u32", 10}, {"max.s32", 12}, {"inc.u32", 0},
               {"dec.u32", 10}, {"and.b32", 8},  {"or.b32", 14},  {"xor.b32", 6}};
  for (const auto& t : cases) {
    SCOPED_TRACE(t.operation);
    Words results;
    Outcome outcome = run(in_cluster(4, R"(
st.shared.u32 [%r10], 12;
barrier.cluster.arrive; barrier.cluster.wait;
xor.b32 %r3, %r15, 1; mov.u32 %r2, 10;
mapa.shared::cluster.u32 %r4, %r10, %r3; mapa.shared::cluster.u32 %r5, %r11, %r3;
red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.)" +
                                            std::string(t.operation) + " [%r4], %r2, [%r5];"),
                          {.grid = {2, 1, 1}, .cluster = {2, 1, 1}}, &results);
    ASSERT_FALSE(outcome.fault) << outcome.fault->report;
    EXPECT_EQ(results[0], t.want);
    EXPECT_EQ(results[16], t.want);
  }
}

TEST(Async, FencesAndHintsOfEveryForm) {
  for (const char* instruction : {
           "membar.cta;",
           "membar.gl;",
           "membar.sys;",
           "fence.sc.cta;",
           "fence.acq_rel.gpu;",
           "fence.acq_rel.sys;",
           "fence.acq_rel.cluster;",
           "fence.gpu;",
           "fence.acquire.gpu;",
           "fence.release.cta;",
           "fence.mbarrier_init.release.cluster;",
           "fence.proxy.alias;",
           "fence.proxy.async;",
           "fence.proxy.async.global;",
           "fence.proxy.async.shared::cta;",
           "fence.proxy.async.shared::cluster;",
           "fence.proxy.tensormap::generic.release.gpu;",
           "fence.proxy.tensormap::generic.acquire.gpu [%d1], 128;",
           "griddepcontrol.launch_dependents;",
           "griddepcontrol.wait;",
           "prefetch.global.L1 [%d1];",
           "prefetch.global.L2 [%d1+4];",
           "prefetch.global.L2::evict_last [%d1];",
           "prefetch.L2 [%d1];",
           "prefetch.tensormap [%d1];",
           "prefetchu.L1 [%d1];",
           "applypriority.global.L2::evict_normal [%d1], 128;",
           "cp.async.bulk.prefetch.L2.global [%d1], 64;",
           "createpolicy.range.global.L2::evict_last.b64 %d5, [%d1], 16, 32;",
           "nanosleep.u32 20;",
       }) {
    SCOPED_TRACE(instruction);
    EXPECT_EQ(one(std::string(instruction) + "mov.u32 %r1, 3; OUT;", 1), (Words{3}));
  }
}

TEST(Async, FormsThatDoNotExistAreRefused) {
  for (const char* instruction : {
           "cp.async.bulk.global.global.bulk_group [%d1], [%d1], 16;",
           "cp.async.bulk.global.shared::cta.mbarrier::complete_tx::bytes [%d1], [%r10], 16, "
           "[%r11];",
           "cp.reduce.async.bulk.global.shared::cta.bulk_group.min.f32 [%d1], [%r10], 16;",
           "st.async.shared::cluster.mbarrier::complete_tx::bytes.b16 [%r10], %h0, [%r11];",
           "mbarrier.try_wait.shared::cluster.b64 %p0, [%r11], %d1;",
           "mbarrier.arrive.shared::cluster.b64 %d5, [%r11];",
           "fence.proxy.bogus;",
           "barrier.cluster.arrive.bogus;",
       }) {
    SCOPED_TRACE(instruction);
    Machine machine(program(instruction));
    EXPECT_FALSE(machine.ok());
    EXPECT_THAT(machine.error().message, HasSubstr("ptx line"));
  }
}

TEST(BulkCopy, MovesTheBytesOfItsMaskOnly) {
  // 32 bytes to global memory: of each 16, bytes 0, 1 and 8 to 11.
  Words source;
  one(R"(
mov.b32 %r1, 0x11223344; st.shared.u32 [%r10], %r1; st.shared.u32 [%r10+4], %r1;
st.shared.u32 [%r10+8], %r1; st.shared.u32 [%r10+12], %r1; st.shared.u32 [%r10+16], %r1;
st.shared.u32 [%r10+20], %r1; st.shared.u32 [%r10+24], %r1; st.shared.u32 [%r10+28], %r1;
fence.proxy.async; mov.b16 %h1, 0x0f03;
cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%d1], [%r10], 32, %h1;
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;)",
      1, &source);
  for (std::uint32_t at : {0u, 4u}) {
    EXPECT_EQ(source[at], 0x3344u);  // its upper half was that of 1000
    EXPECT_EQ(source[at + 1], 1001u + at);
    EXPECT_EQ(source[at + 2], 0x11223344u);
    EXPECT_EQ(source[at + 3], 1003u + at);
  }
}

TEST(BulkCopy, LeavesOutTheBytesThatItIgnores) {
  EXPECT_EQ(one(R"(
mbarrier.init.shared.b64 [%r11], 1;
mbarrier.arrive.expect_tx.shared.b64 _, [%r11], 32;
cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes.ignore_oob [%r10], [%d1], 32, 4, 8, [%r11];
TRY: mbarrier.try_wait.parity.shared.b64 %p1, [%r11], 0; @!%p1 bra TRY;
ld.shared.u32 %r1, [%r10]; OUT; ld.shared.u32 %r1, [%r10+4]; OUT;
ld.shared.u32 %r1, [%r10+20]; OUT; ld.shared.u32 %r1, [%r10+24]; OUT;)",
                4),
            (Words{kNothing, 1001, 1005, kNothing}));
}

TEST(BulkCopy, MayIgnoreBytesOutsideOfTheAllocation) {
  // Of the last 16 bytes 4 are in the buffer of 61 words.
  for (auto [ignored, faults] : {std::pair{12, false}, {11, true}}) {
    Words results;
    struct Run how;
    how.source = 61;
    Outcome outcome = run(R"(
mbarrier.init.shared.b64 [%r11], 1;
cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes.ignore_oob [%r10], [%d1+240], 16, 0, )" +
                              std::to_string(ignored) + ", [%r11];",
                          how, &results);
    EXPECT_EQ(outcome.fault.has_value(), faults) << ignored;
  }
}

TEST(StoreBulk, WritesZeros) {
  EXPECT_EQ(one(R"(
mov.b32 %r1, 5; st.shared.u32 [%r10], %r1; st.shared.u32 [%r10+12], %r1; st.shared.u32 [%r10+16], %r1;
mov.b64 %d3, 16; st.bulk.weak.shared::cta [%r10], %d3, 0;
ld.shared.u32 %r1, [%r10]; OUT; ld.shared.u32 %r1, [%r10+12]; OUT; ld.shared.u32 %r1, [%r10+16]; OUT;)",
                3),
            (Words{0, 0, 5}));
}

TEST(StoreAsync, ReleasesToGlobalMemory) {
  Words source;
  one(R"(
mov.b32 %r1, 77; st.async.release.gpu.global.b32 [%d1], %r1;
red.async.release.gpu.global.add.u32 [%d1+4], %r1;)",
      1, &source);
  EXPECT_EQ(source[0], 77u);
  EXPECT_EQ(source[1], 1001u + 77u);
}

TEST(ClusterLaunch, AnswersThatNothingWasCancelled) {
  // The response lands with the mbarrier, 16 bytes that were not there before.
  EXPECT_EQ(one(R"(
mbarrier.init.shared.b64 [%r11], 1;
mbarrier.arrive.expect_tx.shared.b64 _, [%r11], 16;
clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r10], [%r11];
ld.shared.u32 %r1, [%r10]; OUT;
TRY: mbarrier.try_wait.parity.shared.b64 %p1, [%r11], 0; @!%p1 bra TRY;
ld.shared.u32 %r1, [%r10]; OUT; ld.shared.u32 %r1, [%r10+12]; OUT;)",
                3),
            (Words{kNothing, 0, 0}));
}

TEST(Multimem, IsRefusedByItsLine) {
  Machine machine(program("multimem.red.relaxed.sys.global.add.u32 [%d1], %r0;"));
  ASSERT_FALSE(machine.ok());
  EXPECT_THAT(machine.error().message, HasSubstr("multicast objects do not exist"));
  EXPECT_THAT(machine.error().message, HasSubstr("ptx line"));
}

}  // namespace
}  // namespace tilewright::vgpu
