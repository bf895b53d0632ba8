// mbarrier, instruction by instruction. PTX ISA, "mbarrier".
#include <gmock/gmock.h>

#include "tests/virtual_gpu/run_ptx.h"

namespace tilewright::vgpu {
namespace {

using testing::HasSubstr;
using Words = std::vector<std::uint32_t>;

/// One thread runs `body`, which stores words to [%d0 + 4 i]; the mbarrier is `bar`.
Words one_thread(const std::string& body, std::size_t count) {
  Machine machine(
      entry(".shared .b64 bar; ld.param.u64 %d0, [p0]; mov.u32 %r0, bar;\n" + body + "\nret;"));
  EXPECT_TRUE(machine.ok()) << machine.error().message;
  if (!machine.ok()) return {};
  auto out = machine.buffer(Words(count, 0));
  Outcome outcome = machine.run({1, 1, 1}, {1, 1, 1}, out);
  EXPECT_FALSE(outcome.fault) << outcome.fault->report;
  return machine.read<std::uint32_t>(out, count);
}

/// Stores whether a wait with `operands` is over.
std::string test(const std::string& wait, int i) {
  return wait + " selp.u32 %r1, 1, 0, %p0; st.global.u32 [%d0+" + std::to_string(4 * i) +
         "], %r1;\n";
}

TEST(Mbarrier, AStateCapturesThePhaseAndItsPendingArrivals) {
  EXPECT_EQ(one_thread(R"(
mbarrier.init.shared::cta.b64 [bar], 3;
mbarrier.arrive.shared::cta.b64 %d1, [bar];
mbarrier.pending_count.b64 %r1, %d1; st.global.u32 [%d0], %r1;
mbarrier.arrive.shared::cta.b64 %d2, [bar];
mbarrier.pending_count.b64 %r1, %d2; st.global.u32 [%d0+4], %r1;
)" + test("mbarrier.test_wait.shared::cta.b64 %p0, [bar], %d1;", 2) +
                           "mbarrier.arrive.shared::cta.b64 %d3, [bar];\n" +
                           test("mbarrier.test_wait.shared::cta.b64 %p0, [bar], %d1;", 3) +
                           test("mbarrier.test_wait.shared::cta.b64 %p0, [bar], %d3;", 4) +
                           // The next phase begins with the same count.
                           R"(
mbarrier.arrive.shared::cta.b64 %d4, [bar];
mbarrier.pending_count.b64 %r1, %d4; st.global.u32 [%d0+20], %r1;
)" + test("mbarrier.test_wait.shared::cta.b64 %p0, [bar], %d4;", 6),
                       7),
            (Words{3, 2, 0, 1, 1, 3, 0}));
}

TEST(Mbarrier, AParityIsThatOfThePhaseWaitedFor) {
  // In phase 0 the phase before (parity 1) is over; in phase 1 that of parity 0.
  EXPECT_EQ(one_thread("mbarrier.init.shared.b64 [bar], 1;\n" +
                           test("mbarrier.test_wait.parity.shared.b64 %p0, [bar], 0;", 0) +
                           test("mbarrier.test_wait.parity.shared.b64 %p0, [bar], 1;", 1) +
                           "mbarrier.arrive.shared.b64 _, [bar];\n" +
                           test("mbarrier.test_wait.parity.shared.b64 %p0, [bar], 0;", 2) +
                           test("mbarrier.test_wait.parity.shared.b64 %p0, [bar], 1;", 3),
                       4),
            (Words{0, 1, 1, 0}));
}

TEST(Mbarrier, EveryFormOfAWait) {
  for (const char* name : {"test_wait", "try_wait"}) {
    for (const char* semantics : {"", ".acquire.cta", ".acquire.cluster", ".relaxed.cluster"}) {
      for (const char* space : {".shared", ".shared::cta", ""}) {
        for (bool parity : {false, true}) {
          std::string form = std::string("mbarrier.") + name + (parity ? ".parity" : "") +
                             semantics + space + ".b64 %p0, [%d5], " + (parity ? "0" : "%d1");
          SCOPED_TRACE(form);
          std::string address =
              *space == '\0' ? "mov.u64 %d5, bar; cvta.shared.u64 %d5, %d5;" : "mov.u64 %d5, bar;";
          std::string hint = std::string(name) == "try_wait" ? ", 100;" : ";";
          EXPECT_EQ(one_thread(address + "mbarrier.init.shared.b64 [bar], 1;" +
                                   "mbarrier.arrive.shared.b64 %d1, [bar];" + test(form + ";", 0) +
                                   test(form + hint, 1),
                               2),
                    (Words{1, 1}));
        }
      }
    }
  }
}

TEST(Mbarrier, EveryFormOfAnArrival) {
  // Of four arrivals `form` makes two, or one and 16 bytes.
  struct {
    const char* form;
    bool bytes;
  } cases[] = {
      {"mbarrier.arrive.shared.b64 %d1, [%r0], 2;", false},
      {"mbarrier.arrive.shared.b64 _, [%r0], 2;", false},
      {"mbarrier.arrive.release.cta.shared::cta.b64 %d1, [%r0], 2;", false},
      {"mbarrier.arrive.release.cluster.shared::cta.b64 _, [%r0], 2;", false},
      {"mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r0], 2;", false},
      {"mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%r0], 2;", false},
      {"mbarrier.arrive.noComplete.shared.b64 %d1, [%r0], 2;", false},
      {"mbarrier.arrive.noComplete.release.cta.shared::cta.b64 %d1, [%r0], 2;", false},
      {"mbarrier.arrive.shared.b64 %d1, [%r0]; mbarrier.arrive.shared.b64 %d1, [%r0];", false},
      {"mbarrier.arrive.expect_tx.shared.b64 %d1, [%r0], 16;", true},
      {"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r0], 16;", true},
      {"mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%r0], 16;", true},
      {"mbarrier.arrive.expect_tx.relaxed.cluster.shared::cluster.b64 _, [%r0], 16;", true},
      {"mbarrier.expect_tx.shared.b64 [%r0], 16; mbarrier.arrive.shared.b64 _, [%r0];", true},
      {"mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r0], 16;"
       "mbarrier.arrive.shared.b64 _, [%r0];",
       true},
      {"mbarrier.expect_tx.relaxed.cluster.shared::cluster.b64 [%r0], 16;"
       "mbarrier.arrive.shared.b64 _, [%r0];",
       true},
  };
  for (const auto& t : cases) {
    SCOPED_TRACE(t.form);
    std::string body = std::string("mbarrier.init.shared.b64 [%r0], 4;") + t.form;
    body += "mbarrier.arrive.shared.b64 %d2, [%r0];";
    if (t.bytes) {
      body += "mbarrier.arrive.shared.b64 _, [%r0]; mbarrier.arrive.shared.b64 _, [%r0];";
      body += test("mbarrier.test_wait.shared.b64 %p0, [%r0], %d2;", 0);
      body += "mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%r0], 8;";
      body += test("mbarrier.test_wait.shared.b64 %p0, [%r0], %d2;", 1);
      body += "mbarrier.complete_tx.shared.b64 [%r0], 8;";
    } else {
      body += test("mbarrier.test_wait.shared.b64 %p0, [%r0], %d2;", 0);
      body += test("mbarrier.test_wait.shared.b64 %p0, [%r0], %d2;", 1);
      body += "mbarrier.arrive.shared.b64 _, [%r0];";
    }
    body += test("mbarrier.test_wait.shared.b64 %p0, [%r0], %d2;", 2);
    EXPECT_EQ(one_thread(body, 3), (Words{0, 0, 1}));
  }
}

TEST(Mbarrier, BytesMayCompleteBeforeTheyAreExpected) {
  EXPECT_EQ(one_thread("mbarrier.init.shared.b64 [bar], 1;"
                       "mbarrier.complete_tx.shared.b64 [bar], 32;" +
                           test("mbarrier.test_wait.parity.shared.b64 %p0, [bar], 0;", 0) +
                           "mbarrier.arrive.expect_tx.shared.b64 _, [bar], 32;" +
                           test("mbarrier.test_wait.parity.shared.b64 %p0, [bar], 0;", 1),
                       2),
            (Words{0, 1}));
}

TEST(Mbarrier, WhoDropsOutIsNotWaitedForAgain) {
  for (const char* drop : {"mbarrier.arrive_drop.shared.b64 %d1, [bar];",
                           "mbarrier.arrive_drop.shared.b64 _, [bar], 1;",
                           "mbarrier.arrive_drop.release.cluster.shared::cluster.b64 _, [bar];",
                           "mbarrier.arrive_drop.expect_tx.shared.b64 %d1, [bar], 0;",
                           "mbarrier.arrive_drop.noComplete.shared.b64 %d1, [bar], 1;"}) {
    SCOPED_TRACE(drop);
    EXPECT_EQ(one_thread("mbarrier.init.shared.b64 [bar], 2;" + std::string(drop) +
                             "mbarrier.arrive.shared.b64 _, [bar];" +
                             test("mbarrier.test_wait.parity.shared.b64 %p0, [bar], 0;", 0) +
                             "mbarrier.arrive.shared.b64 _, [bar];" +
                             test("mbarrier.test_wait.parity.shared.b64 %p0, [bar], 1;", 1),
                         2),
              (Words{1, 1}));
  }
}

TEST(Mbarrier, MisuseIsAFaultThatSaysWhat) {
  struct {
    const char* body;
    const char* report;
  } cases[] = {
      {"mbarrier.arrive.shared.b64 _, [bar];", "mbarrier 0x400: not initialised"},
      {"mbarrier.test_wait.parity.shared.b64 %p0, [bar], 0;", "not initialised"},
      {"mbarrier.init.shared.b64 [bar], 0;", "count that is not 1 to"},
      {"mbarrier.init.shared.b64 [bar], 2; mbarrier.arrive.shared.b64 _, [bar], 3;",
       "arrival of 3, but the phase waits for 2 only"},
      {"mbarrier.init.shared.b64 [bar], 1; mbarrier.arrive.noComplete.shared.b64 %d1, [bar], 1;",
       ".noComplete completes the phase"},
      {"mbarrier.init.shared.b64 [bar], 1; mbarrier.inval.shared.b64 [bar];"
       "mbarrier.arrive.shared.b64 _, [bar];",
       "not initialised"},
      {"mbarrier.init.shared.b64 [bar], 1; mbarrier.expect_tx.shared.b64 [bar], 0x100000;",
       "the limit is 1048575"},
      {"mbarrier.init.shared.b64 [bar+4], 1;", "misaligned access to an mbarrier"},
      {"mbarrier.init.shared.b64 [bar+8], 1;", "out-of-bounds access to an mbarrier"},
      {"mbarrier.init.shared.b64 [bar], 1; mov.u64 %d1, 5;"
       "mbarrier.test_wait.shared.b64 %p0, [bar], %d1;",
       "a state that no mbarrier instruction returned"},
      {"mbarrier.init.b64 [%d0], 1;", "out-of-bounds access to an mbarrier"},
  };
  for (const auto& t : cases) {
    SCOPED_TRACE(t.body);
    Machine machine(
        entry(".shared .b64 bar; ld.param.u64 %d0, [p0];" + std::string(t.body) + "ret;"));
    ASSERT_TRUE(machine.ok()) << machine.error().message;
    auto out = machine.buffer(Words(4, 0));
    Outcome outcome = machine.run({1, 1, 1}, {1, 1, 1}, out);
    ASSERT_TRUE(outcome.fault);
    EXPECT_THAT(outcome.fault->report, HasSubstr(t.report));
  }
}

/// Warp 0 produces 8 values, one per phase, warps 1 to 3 take them: full and empty mbarriers.
std::string pipeline(const std::string& wait) {
  return entry(R"(
.shared .b64 full; .shared .b64 empty; .shared .b32 cell;
ld.param.u64 %d0, [p0];
mov.u32 %r0, %tid.x;
setp.eq.u32 %p0, %r0, 0;
@!%p0 bra READY;
mbarrier.init.shared.b64 [full], 1;
mbarrier.init.shared.b64 [empty], 96;
READY:
bar.sync 0;
mov.u32 %r1, 0; mov.u32 %r5, 0;
setp.lt.u32 %p0, %r0, 32;
@%p0 bra PRODUCER;
CONSUME:
and.b32 %r2, %r1, 1;
)" + wait + R"((full, %r2, A)
ld.shared.u32 %r3, [cell]; add.u32 %r5, %r5, %r3;
mbarrier.arrive.shared.b64 _, [empty];
add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 8; @%p1 bra CONSUME;
mul.wide.u32 %d1, %r0, 4; add.u64 %d1, %d0, %d1; st.global.u32 [%d1], %r5;
ret;
PRODUCER:
setp.ne.u32 %p1, %r0, 0; @%p1 ret;
PRODUCE:
and.b32 %r2, %r1, 1; xor.b32 %r2, %r2, 1;
)" + wait + R"((empty, %r2, B)
mul.lo.u32 %r3, %r1, %r1; add.u32 %r3, %r3, 1;
st.shared.u32 [cell], %r3;
mbarrier.arrive.shared.b64 _, [full];
add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 8; @%p1 bra PRODUCE;
ret;)");
}

/// Replaces `@wait(bar, parity, label)` by a loop.
std::string with_loops(std::string text, const std::string& instruction) {
  for (std::size_t at; (at = text.find("WAIT(")) != std::string::npos;) {
    std::size_t end = text.find(')', at);
    std::string arguments = text.substr(at + 5, end - at - 5);
    std::size_t c1 = arguments.find(", "), c2 = arguments.rfind(", ");
    std::string bar = arguments.substr(0, c1), parity = arguments.substr(c1 + 2, c2 - c1 - 2),
                label = arguments.substr(c2 + 2);
    text.replace(at, end - at + 1,
                 label + ": mbarrier." + instruction + ".parity.shared.b64 %p2, [" + bar + "], " +
                     parity + "; @!%p2 bra " + label + ";");
  }
  return text;
}

TEST(Mbarrier, ProducersAndConsumersTakeTurns) {
  for (const char* instruction : {"try_wait", "test_wait"}) {
    for (std::uint64_t seed : {0, 1, 2, 3, 4, 5}) {
      SCOPED_TRACE(std::string(instruction) + ", seed " + std::to_string(seed));
      Machine machine(with_loops(pipeline("WAIT"), instruction));
      ASSERT_TRUE(machine.ok()) << machine.error().message;
      auto out = machine.buffer(Words(128, 0));
      Launch launch = machine.launch({2, 1, 1}, {128, 1, 1}, out);
      launch.schedule_seed = seed;
      Outcome outcome = machine.run(launch);
      ASSERT_FALSE(outcome.fault) << outcome.fault->report;
      Words got = machine.read<std::uint32_t>(out, 128);
      for (std::size_t i = 0; i < 128; ++i) EXPECT_EQ(got[i], i < 32 ? 0u : 148u) << i;
    }
  }
}

TEST(Mbarrier, AWaitForAPhaseThatNeverEndsIsADeadlock) {
  for (const char* instruction : {"try_wait", "test_wait"}) {
    SCOPED_TRACE(instruction);
    Machine machine(with_loops(entry(".shared .b64 bar; mbarrier.init.shared.b64 [bar], 33;"
                                     "mbarrier.arrive.shared.b64 _, [bar]; WAIT(bar, 0, A) ret;",
                                     0),
                               instruction));
    ASSERT_TRUE(machine.ok()) << machine.error().message;
    Launch launch = machine.launch({1, 1, 1}, {1, 1, 1});
    launch.deadline_s = 0;
    Outcome outcome = machine.run(launch);
    ASSERT_TRUE(outcome.fault);
    EXPECT_EQ(outcome.fault->kind, FaultKind::kBarrier);
    EXPECT_THAT(outcome.fault->report, HasSubstr("mbarrier."));
    if (std::string(instruction) == "try_wait") {
      EXPECT_THAT(outcome.fault->report, HasSubstr("in phase 0: 32 of 33 arrivals and 0 bytes"));
    }
  }
}

TEST(Mbarrier, TryWaitGivesUpSoThatAProgramMayDoSomethingElse) {
  // Its own loop breaks out after ten attempts and arrives itself.
  EXPECT_EQ(one_thread(R"(
mbarrier.init.shared.b64 [bar], 1;
mov.u32 %r2, 0;
LOOP:
mbarrier.try_wait.parity.shared.b64 %p0, [bar], 0;
@%p0 bra DONE;
add.u32 %r2, %r2, 1;
setp.eq.u32 %p1, %r2, 10;
@%p1 mbarrier.arrive.shared.b64 _, [bar];
bra LOOP;
DONE:
st.global.u32 [%d0], %r2;)",
                       1),
            (Words{10}));
}

TEST(Mbarrier, BlocksOfAClusterArriveAtEachOthers) {
  // Each thread of each block arrives at the mbarrier of block 0, which waits.
  Machine machine(entry(R"(
.shared .b64 bar; .shared .b32 sum;
ld.param.u64 %d0, [p0];
mov.u32 %r0, %tid.x; mov.u32 %r1, %cluster_ctarank;
mov.u32 %r2, bar; mov.u32 %r3, sum;
or.b32 %r4, %r0, %r1; setp.ne.u32 %p0, %r4, 0;
@%p0 bra READY;
mbarrier.init.shared.b64 [bar], 96; st.shared.u32 [sum], 0;
fence.mbarrier_init.release.cluster;
READY:
barrier.cluster.arrive.release; barrier.cluster.wait.acquire;
mapa.shared::cluster.u32 %r5, %r2, 0; mapa.shared::cluster.u32 %r6, %r3, 0;
red.shared::cluster.add.u32 [%r6], %r1;
mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r5];
setp.ne.u32 %p0, %r1, 0;
@%p0 bra END;
WAIT: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p1, [bar], 0;
@!%p1 bra WAIT;
ld.shared.u32 %r7, [sum];
mul.wide.u32 %d1, %r0, 4; add.u64 %d1, %d0, %d1; st.global.u32 [%d1], %r7;
END:
barrier.cluster.arrive; barrier.cluster.wait;
ret;)",
                        1, "", ".reqnctapercluster 3, 1, 1"));
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  for (std::uint64_t seed : {0, 7, 8, 9}) {
    auto out = machine.buffer(Words(32, 0));
    Launch launch = machine.launch({3, 1, 1}, {32, 1, 1}, out);
    launch.schedule_seed = seed;
    Outcome outcome = machine.run(launch);
    ASSERT_FALSE(outcome.fault) << outcome.fault->report;
    EXPECT_EQ(machine.read<std::uint32_t>(out, 32), Words(32, 96));
  }
}

}  // namespace
}  // namespace tilewright::vgpu
