// Clusters of blocks: their special registers, their shared memory, their barrier.
#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "tests/virtual_gpu/run_ptx.h"

namespace tilewright::vgpu {
namespace {

using testing::HasSubstr;
using Words = std::vector<std::uint32_t>;

/// %d1: place of the thread's result, p0 + 4 * (linear block * ntid + tid); %r15: its rank.
constexpr std::string_view kPlace = R"(
ld.param.u64 %d0, [p0];
mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ctaid.y; mov.u32 %r2, %nctaid.x;
mad.lo.u32 %r0, %r1, %r2, %r0;
mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x;
mad.lo.u32 %r0, %r0, %r1, %r2;
mul.wide.u32 %d1, %r0, 4; add.u64 %d1, %d0, %d1;
mov.u32 %r15, %cluster_ctarank;
)";

struct Shape {
  std::array<unsigned, 3> grid{1, 1, 1}, cluster{};
  unsigned threads = 32;
};

/// What each thread of the grid stores to [%d1].
Words run(const std::string& body, const Shape& shape, std::string_view declarations = "",
          std::uint64_t seed = 0) {
  Machine machine(entry(std::string(kPlace) + body + "\nret;", 1, declarations));
  EXPECT_TRUE(machine.ok()) << machine.error().message;
  if (!machine.ok()) return {};
  std::size_t count = std::size_t{shape.grid[0]} * shape.grid[1] * shape.grid[2] * shape.threads;
  auto out = machine.buffer(Words(count, 0));
  Launch launch = machine.launch(shape.grid, {shape.threads, 1, 1}, out);
  launch.cluster = shape.cluster;
  launch.schedule_seed = seed;
  Outcome outcome = machine.run(launch);
  EXPECT_FALSE(outcome.fault) << outcome.fault->report;
  return machine.read<std::uint32_t>(out, count);
}

TEST(Cluster, SpecialRegistersSayWhereABlockIs) {
  // A grid of 6x4 blocks in clusters of 3x2.
  struct {
    const char* name;
    unsigned (*want)(unsigned x, unsigned y);
  } cases[] = {
      {"%clusterid.x", [](unsigned x, unsigned) { return x / 3; }},
      {"%clusterid.y", [](unsigned, unsigned y) { return y / 2; }},
      {"%clusterid.z", [](unsigned, unsigned) { return 0u; }},
      {"%nclusterid.x", [](unsigned, unsigned) { return 2u; }},
      {"%nclusterid.y", [](unsigned, unsigned) { return 2u; }},
      {"%cluster_ctaid.x", [](unsigned x, unsigned) { return x % 3; }},
      {"%cluster_ctaid.y", [](unsigned, unsigned y) { return y % 2; }},
      {"%cluster_nctaid.x", [](unsigned, unsigned) { return 3u; }},
      {"%cluster_nctaid.y", [](unsigned, unsigned) { return 2u; }},
      {"%cluster_nctaid.z", [](unsigned, unsigned) { return 1u; }},
      {"%cluster_ctarank", [](unsigned x, unsigned y) { return y % 2 * 3 + x % 3; }},
      {"%cluster_nctarank", [](unsigned, unsigned) { return 6u; }},
  };
  for (const auto& t : cases) {
    SCOPED_TRACE(t.name);
    Words got = run(std::string("mov.u32 %r1, ") + t.name + "; st.global.u32 [%d1], %r1;",
                    {{6, 4, 1}, {3, 2, 1}, 1});
    ASSERT_EQ(got.size(), 24u);
    for (unsigned i = 0; i < 24; ++i) EXPECT_EQ(got[i], t.want(i % 6, i / 6)) << i;
  }
  constexpr const char* kExplicit =
      "mov.pred %p0, %is_explicit_cluster; selp.u32 %r1, 1, 0, %p0; st.global.u32 [%d1], %r1;";
  EXPECT_EQ(run(kExplicit, {{2, 1, 1}, {2, 1, 1}, 1}), (Words{1, 1}));
  EXPECT_EQ(run(kExplicit, {{2, 1, 1}, {}, 1}), (Words{0, 0}));
}

/// Every block puts 100 + its rank into `cell`; after the barrier a thread looks at the next block.
std::string neighbour(const std::string& access) {
  return R"(
.shared .align 8 .b32 cell[2];
mov.u32 %r3, cell;
add.u32 %r4, %r15, 100;
st.shared.u32 [%r3], %r4;
barrier.cluster.arrive.release.aligned;
barrier.cluster.wait.acquire.aligned;
mov.u32 %r5, %cluster_nctarank;
add.u32 %r6, %r15, 1; rem.u32 %r6, %r6, %r5;
)" + access +
         R"(
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
)";
}

TEST(Cluster, SharedMemoryOfOtherBlocksIsReadWrittenAndUpdated) {
  Shape shape{{8, 1, 1}, {4, 1, 1}, 1};
  Words next{101, 102, 103, 100, 101, 102, 103, 100};
  struct {
    const char* name;
    const char* access;
    Words want;
  } cases[] = {
      {"32-bit addresses",
       "mapa.shared::cluster.u32 %r7, %r3, %r6; ld.shared::cluster.u32 %r8, [%r7];"
       "st.global.u32 [%d1], %r8;",
       next},
      {"a symbol",
       "mapa.shared::cluster.u32 %r7, cell, %r6; ld.shared::cluster.u32 %r8, [%r7];"
       "st.global.u32 [%d1], %r8;",
       next},
      {"64-bit addresses",
       "mov.u64 %d2, cell; mapa.shared::cluster.u64 %d3, %d2, %r6;"
       "ld.shared::cluster.u32 %r8, [%d3]; st.global.u32 [%d1], %r8;",
       next},
      {"generic addresses",
       "mov.u64 %d2, cell; cvta.shared.u64 %d2, %d2; mapa.u64 %d3, %d2, %r6;"
       "ld.u32 %r8, [%d3]; st.global.u32 [%d1], %r8;",
       next},
      {"own memory without a rank",
       "ld.shared::cluster.u32 %r8, [%r3]; st.global.u32 [%d1], %r8;",
       {100, 101, 102, 103, 100, 101, 102, 103}},
      {"stores",
       "mapa.shared::cluster.u32 %r7, %r3, %r6; st.shared::cluster.u32 [%r7+4], %r15;"
       "barrier.cluster.arrive; barrier.cluster.wait;"
       "ld.shared.u32 %r8, [%r3+4]; st.global.u32 [%d1], %r8;",
       {3, 0, 1, 2, 3, 0, 1, 2}},
      {"atomics",
       "mapa.shared::cluster.u32 %r7, %r3, 0; atom.shared::cluster.add.u32 %r8, [%r7], 1;"
       "barrier.cluster.arrive; barrier.cluster.wait;"
       "ld.shared::cluster.u32 %r8, [%r7]; st.global.u32 [%d1], %r8;",
       Words(8, 104)},
      {"rank of an address",
       "mapa.shared::cluster.u32 %r7, %r3, %r6; getctarank.shared::cluster.u32 %r8, %r7;"
       "getctarank.shared::cluster.u32 %r9, %r3; mad.lo.u32 %r8, %r8, 10, %r9;"
       "st.global.u32 [%d1], %r8;",
       {10, 21, 32, 3, 10, 21, 32, 3}},
      {"rank of a generic address",
       "mov.u64 %d2, cell; cvta.shared.u64 %d2, %d2; mapa.u64 %d3, %d2, %r6;"
       "getctarank.u64 %r8, %d3; st.global.u32 [%d1], %r8;",
       {1, 2, 3, 0, 1, 2, 3, 0}},
      {"isspacep",
       "mov.u64 %d2, cell; cvta.shared.u64 %d2, %d2; mapa.u64 %d3, %d2, %r6; mapa.u64 %d4, %d2, "
       "%r15;"
       "isspacep.shared::cta %p0, %d2; selp.u32 %r8, 1, 0, %p0;"
       "isspacep.shared::cluster %p0, %d2; selp.u32 %r9, 10, 0, %p0; add.u32 %r8, %r8, %r9;"
       "isspacep.shared::cta %p0, %d3; selp.u32 %r9, 100, 0, %p0; add.u32 %r8, %r8, %r9;"
       "isspacep.shared::cluster %p0, %d3; selp.u32 %r9, 1000, 0, %p0; add.u32 %r8, %r8, %r9;"
       "isspacep.shared %p0, %d4; selp.u32 %r9, 10000, 0, %p0; add.u32 %r8, %r8, %r9;"
       "isspacep.global %p0, %d3; selp.u32 %r9, 100000, 0, %p0; add.u32 %r8, %r8, %r9;"
       "st.global.u32 [%d1], %r8;",
       Words(8, 11011)},
  };
  for (const auto& t : cases) {
    SCOPED_TRACE(t.name);
    EXPECT_EQ(run(neighbour(t.access), shape), t.want);
    for (std::uint64_t seed : {1, 2, 3})
      EXPECT_EQ(run(neighbour(t.access), shape, "", seed), t.want);
  }
}

TEST(Cluster, EveryFormOfItsBarrierWaitsForAll) {
  // 3 blocks of 3 warps add to a counter of block 0; whoever passed the barrier sees all.
  for (const char* forms : {
           "barrier.cluster.arrive; barrier.cluster.wait;",
           "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;",
           "barrier.cluster.arrive.release; barrier.cluster.wait.acquire;",
           "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;",
           "fence.acq_rel.cluster; barrier.cluster.arrive.relaxed; barrier.cluster.wait;",
           "fence.acq_rel.cluster; barrier.cluster.arrive.relaxed.aligned; "
           "barrier.cluster.wait.acquire.aligned;",
       }) {
    SCOPED_TRACE(forms);
    std::string body = R"(
.shared .b32 counter;
mov.u32 %r3, counter; mapa.shared::cluster.u32 %r4, %r3, 0;
st.shared.u32 [%r3], 0;
)" + std::string(forms) +
                       "red.shared::cluster.add.u32 [%r4], 1;" + forms +
                       "ld.shared::cluster.u32 %r5, [%r4]; st.global.u32 [%d1], %r5;" + forms;
    EXPECT_EQ(run(body, {{3, 1, 1}, {3, 1, 1}, 80}), Words(240, 240));
    for (std::uint64_t seed : {5, 6})
      EXPECT_EQ(run(body, {{3, 1, 1}, {3, 1, 1}, 80}, "", seed), Words(240, 240));
  }
}

TEST(Cluster, ThreadsThatExitedAreNotWaitedFor) {
  EXPECT_EQ(run(R"(
setp.gt.u32 %p0, %r2, 5;
@%p0 exit;
barrier.cluster.arrive;
barrier.cluster.wait;
st.global.u32 [%d1], 7;)",
                {{2, 1, 1}, {2, 1, 1}, 8}),
            (Words{7, 7, 7, 7, 7, 7, 0, 0, 7, 7, 7, 7, 7, 7, 0, 0}));
}

TEST(Cluster, WhatTheKernelRequiresIsKept) {
  std::string body =
      std::string(kPlace) + "mov.u32 %r1, %cluster_nctarank; st.global.u32 [%d1], %r1; ret;";
  struct {
    const char* attributes;
    std::array<unsigned, 3> grid, cluster;
    const char* fault;
    std::uint32_t blocks;
  } cases[] = {
      {".reqnctapercluster 2", {4, 1, 1}, {}, "", 2},
      {".reqnctapercluster 2, 1, 1", {4, 1, 1}, {2, 1, 1}, "", 2},
      {".explicitcluster\n.reqnctapercluster 4, 1, 1", {4, 1, 1}, {}, "", 4},
      {".explicitcluster", {4, 1, 1}, {}, "launched without clusters", 0},
      {".explicitcluster", {4, 1, 1}, {2, 1, 1}, "", 2},
      {".maxclusterrank 2", {4, 1, 1}, {2, 1, 1}, "", 2},
      {".maxclusterrank 2", {4, 1, 1}, {4, 1, 1}, "a cluster has 4 blocks, expected at most 2", 0},
      {"", {32, 1, 1}, {32, 1, 1}, "a cluster has 32 blocks, expected at most 16", 0},
      {".reqnctapercluster 2", {4, 1, 1}, {4, 1, 1}, "the kernel requires 2x1x1", 0},
      {"", {3, 1, 1}, {2, 1, 1}, "expected multiples of the cluster's 2x1x1", 0},
  };
  for (const auto& t : cases) {
    SCOPED_TRACE(std::string(t.attributes) + " -> " + t.fault);
    Machine machine(entry(body, 1, "", t.attributes));
    ASSERT_TRUE(machine.ok()) << machine.error().message;
    auto out = machine.buffer(Words(32, 0));
    Launch launch = machine.launch(t.grid, {1, 1, 1}, out);
    launch.cluster = t.cluster;
    Outcome outcome = machine.run(launch);
    if (*t.fault == '\0') {
      ASSERT_FALSE(outcome.fault) << outcome.fault->report;
      EXPECT_EQ(machine.read<std::uint32_t>(out, 1)[0], t.blocks);
    } else {
      ASSERT_TRUE(outcome.fault);
      EXPECT_THAT(outcome.fault->report, HasSubstr(t.fault));
    }
  }
}

TEST(Cluster, SamplesAreOfWholeClusters) {
  Machine machine(entry(std::string(kPlace) + "st.global.u32 [%d1], 1; ret;"));
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  auto out = machine.buffer(Words(64, 0));
  Launch launch = machine.launch({8, 8, 1}, {1, 1, 1}, out);
  launch.cluster = {2, 2, 1};
  launch.chosen = {9, 63};
  Outcome outcome = machine.run(launch);
  ASSERT_FALSE(outcome.fault) << outcome.fault->report;
  EXPECT_EQ(outcome.executed, (std::vector<std::uint64_t>{0, 1, 8, 9, 54, 55, 62, 63}));
  EXPECT_EQ(outcome.counters.blocks_executed, 8u);
  Words got = machine.read<std::uint32_t>(out, 64);
  for (std::uint64_t i = 0; i < 64; ++i)
    EXPECT_EQ(got[i] == 1, std::count(outcome.executed.begin(), outcome.executed.end(), i) == 1);

  launch.chosen.clear();
  launch.sample_blocks = 12;
  outcome = machine.run(launch);
  EXPECT_EQ(outcome.executed.size(), 12u);
  std::set<std::uint64_t> clusters;
  for (std::uint64_t b : outcome.executed) clusters.insert(b / 16 * 4 + b % 8 / 2);
  EXPECT_EQ(clusters.size(), 3u);
}

TEST(Cluster, FaultsAreTold) {
  struct {
    const char* body;
    const char* report;
  } cases[] = {
      {"mapa.shared::cluster.u32 %r4, %r3, 2;", "block 2 of a cluster of 2"},
      {"mapa.shared::cluster.u32 %r4, %r3, 1; ld.shared.u32 %r5, [%r4];",
       "out-of-bounds read of 4 bytes of shared memory"},
      {"mapa.shared::cluster.u32 %r4, %r3, 1; ld.shared::cluster.u32 %r5, [%r4+4];",
       "out-of-bounds read of 4 bytes of shared memory"},
      {"ld.shared::cluster.u32 %r5, [0x9000400];", "out-of-bounds read"},
      {"barrier.cluster.arrive; barrier.cluster.arrive;", "a second arrival"},
      {"barrier.cluster.wait;", "without an arrival"},
  };
  for (const auto& t : cases) {
    SCOPED_TRACE(t.body);
    Machine machine(
        entry(std::string(kPlace) + ".shared .b32 cell; mov.u32 %r3, cell;" + t.body + "ret;"));
    ASSERT_TRUE(machine.ok()) << machine.error().message;
    auto out = machine.buffer(Words(4, 0));
    Launch launch = machine.launch({2, 1, 1}, {1, 1, 1}, out);
    launch.cluster = {2, 1, 1};
    Outcome outcome = machine.run(launch);
    ASSERT_TRUE(outcome.fault);
    EXPECT_THAT(outcome.fault->report, HasSubstr(t.report));
  }
}

TEST(Cluster, ABlockThatNeverArrivesIsADeadlock) {
  Machine machine(entry(std::string(kPlace) + R"(
.shared .b64 bar;
setp.eq.u32 %p0, %r15, 1;
@%p0 bra OTHER;
barrier.cluster.arrive; barrier.cluster.wait; ret;
OTHER:
mbarrier.init.shared.b64 [bar], 2;
mbarrier.arrive.expect_tx.shared.b64 _, [bar], 48;
LOOP: mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0;
@!%p1 bra LOOP;
ret;)"));
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  auto out = machine.buffer(Words(2, 0));
  Launch launch = machine.launch({2, 1, 1}, {1, 1, 1}, out);
  launch.cluster = {2, 1, 1};
  Outcome outcome = machine.run(launch);
  ASSERT_TRUE(outcome.fault);
  EXPECT_EQ(outcome.fault->kind, FaultKind::kBarrier);
  EXPECT_THAT(outcome.fault->report, HasSubstr("0 of 2 warps have exited"));
  EXPECT_THAT(outcome.fault->report,
              HasSubstr("block (0, 0, 0), warp 0 (lanes 0x00000001) waits at the cluster's barrier "
                        "(1 threads have not arrived)"));
  EXPECT_THAT(
      outcome.fault->report,
      HasSubstr("block (1, 0, 0), warp 0 (lanes 0x00000001) waits at mbarrier 0x400 for the "
                "end of a phase of parity 0 (in phase 0: 1 of 2 arrivals and 48 bytes are "
                "missing)"));
}

}  // namespace
}  // namespace tilewright::vgpu
