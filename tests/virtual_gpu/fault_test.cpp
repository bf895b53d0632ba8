// What is reported when a kernel does what it must not.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/virtual_gpu/run_ptx.h"

namespace tilewright::vgpu {
namespace {

using testing::HasSubstr;

/// Thread 5 of block (2, 1, 0) accesses p0 + p1; the others p0.
std::string access(const std::string& instruction) {
  return entry(R"(
ld.param.u64 %d0, [p0];
ld.param.u64 %d1, [p1];
mov.u32 %r0, %tid.x;
mov.u32 %r1, %ctaid.x;
mov.u32 %r2, %ctaid.y;
setp.eq.u32 %p0, %r0, 5;
setp.eq.and.u32 %p0, %r1, 2, %p0;
setp.eq.and.u32 %p0, %r2, 1, %p0;
@%p0 add.u64 %d0, %d0, %d1;
)" + instruction + "\nret;",
               2);
}

TEST(Faults, OutOfBoundsNamesEverything) {
  Machine machine(access("ld.global.f32 %f1, [%d0+4];"));
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  auto buffer = machine.buffer(std::vector<float>(256, 0));
  Outcome outcome = machine.run({4, 2, 1}, {64, 1, 1}, buffer, std::uint64_t{1024});
  ASSERT_TRUE(outcome.fault);
  const Fault& fault = *outcome.fault;
  EXPECT_EQ(fault.kind, FaultKind::kOutOfBounds);
  EXPECT_EQ(fault.kernel, "k");
  EXPECT_EQ(fault.ptx_line, 24);
  EXPECT_EQ(fault.block, (std::array<unsigned, 3>{2, 1, 0}));
  EXPECT_EQ(fault.thread, (std::array<unsigned, 3>{5, 0, 0}));
  EXPECT_EQ(fault.address, buffer + 1028);
  EXPECT_EQ(fault.report,
            fmt::format("kernel k: out-of-bounds read of 4 bytes of global memory at {:#x}\n"
                        "  ptx line 24: ld.global.f32 %f1, [%d0+4]\n"
                        "  block (2, 1, 0), thread (5, 0, 0)\n"
                        "  4 bytes past the end of the nearest allocation, 1024 bytes at {:#x}",
                        buffer + 1028, buffer));
}

TEST(Faults, EachKindIsTold) {
  struct {
    const char* instruction;
    std::uint64_t offset;
    FaultKind kind;
    const char* report;
  } cases[] = {
      {"st.global.u32 [%d0], %r0;", 0 - std::uint64_t{8}, FaultKind::kOutOfBounds,
       "write of 4 bytes"},
      {"st.global.u32 [%d0], %r0;", 0 - std::uint64_t{8}, FaultKind::kOutOfBounds,
       "8 bytes before the beginning"},
      {"ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%d0];", 1008 + 8, FaultKind::kMisaligned,
       "misaligned read of 16 bytes"},
      {"ld.global.u64 %d2, [%d0];", 1020, FaultKind::kMisaligned, "misaligned read of 8 bytes"},
      {"atom.global.add.u32 %r1, [%d0], 1;", 4096, FaultKind::kOutOfBounds,
       "atomic access to 4 bytes"},
      {"ld.u32 %r1, [%d0];", 1024, FaultKind::kOutOfBounds, "generic memory"},
      {"ld.global.u32 %r1, [%d0];", 0x7000000000000000, FaultKind::kOutOfBounds, "out-of-bounds"},
      {"@%p0 trap;", 0, FaultKind::kTrap, "kernel k: trap"},
      {".shared .b32 s[4]; @%p0 ld.shared.u32 %r1, [s+16];", 0, FaultKind::kOutOfBounds,
       "read of 4 bytes of shared memory at 0x410"},
      {".shared .b32 s[4]; @%p0 st.shared.u32 [0], %r1;", 0, FaultKind::kOutOfBounds,
       "write of 4 bytes of shared memory at 0x0"},
      {".local .b8 l[8]; @%p0 ld.local.u32 %r1, [l+8];", 0, FaultKind::kOutOfBounds,
       "local memory"},
      {"@%p0 bar.sync 16;", 0, FaultKind::kIllegalInstruction, "a barrier beyond 15"},
  };
  for (const auto& t : cases) {
    SCOPED_TRACE(t.instruction);
    Machine machine(access(t.instruction));
    ASSERT_TRUE(machine.ok()) << machine.error().message;
    auto buffer = machine.buffer(std::vector<float>(256, 0));
    Outcome outcome = machine.run({4, 2, 1}, {64, 1, 1}, buffer, t.offset);
    ASSERT_TRUE(outcome.fault);
    EXPECT_EQ(outcome.fault->kind, t.kind);
    EXPECT_THAT(outcome.fault->report, HasSubstr(t.report));
    EXPECT_THAT(outcome.fault->report, HasSubstr("block (2, 1, 0), thread (5, 0, 0)"));
  }
}

TEST(Faults, AFailedAssertEndsTheLaunch) {
  Machine machine(entry(R"(
    .param .b64 message; .param .b32 line;
    ld.param.u64 %d0, [p0]; st.param.b64 [message], %d0; st.param.b32 [line], 7;
    call.uni __assertfail, (message, line);
    trap;)",
                        1, ".extern .func __assertfail(.param .b64 m, .param .b32 l)\n.noreturn;"));
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  Outcome outcome = machine.run({1, 1, 1}, {1, 1, 1}, std::uint64_t{0});
  ASSERT_TRUE(outcome.fault);
  EXPECT_EQ(outcome.fault->kind, FaultKind::kTrap);
  EXPECT_THAT(outcome.fault->report, HasSubstr("call.uni __assertfail"));
}

TEST(Faults, EveryLevelAndAnyNumberOfThreadsReportTheSame) {
  std::string first;
  for (const Level* level : host_levels()) {
    for (int threads : {1, 3}) {
      Machine machine(access("ld.global.f32 %f1, [%d0];"), *level);
      auto buffer = machine.buffer(std::vector<float>(256, 0));
      Launch launch = machine.launch({4, 2, 1}, {64, 1, 1}, buffer, std::uint64_t{1024});
      launch.threads = threads;
      Outcome outcome = machine.run(launch);
      ASSERT_TRUE(outcome.fault);
      if (first.empty()) first = outcome.fault->report;
      EXPECT_EQ(outcome.fault->report, first);
    }
  }
}

TEST(Faults, FreedMemoryIsNotValid) {
  Machine machine(access("ld.global.f32 %f1, [%d0];"));
  auto buffer = machine.buffer(std::vector<float>(256, 0));
  ASSERT_TRUE(machine.memory().free(buffer));
  Outcome outcome = machine.run({1, 1, 1}, {32, 1, 1}, buffer, std::uint64_t{0});
  ASSERT_TRUE(outcome.fault);
  EXPECT_EQ(outcome.fault->kind, FaultKind::kOutOfBounds);
}

TEST(Faults, EndlessLoopsEndAtTheDeadline) {
  Machine machine(entry("LOOP: bra LOOP;", 0));
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  Launch launch = machine.launch({1, 1, 1}, {32, 1, 1});
  launch.deadline_s = 0.05;
  Outcome outcome = machine.run(launch);
  ASSERT_TRUE(outcome.fault);
  EXPECT_EQ(outcome.fault->kind, FaultKind::kTimeout);
  EXPECT_THAT(outcome.fault->report, HasSubstr("still running after 0.05 s"));
}

TEST(Faults, BarriersThatCannotOpenSayWhoWaits) {
  // Half of the threads of warp 0 wait for barrier 1, the others for barrier 2.
  Machine machine(entry(R"(
mov.u32 %r0, %tid.x;
setp.lt.u32 %p0, %r0, 16;
@%p0 bra LOW;
bar.sync 1;
ret;
LOW:
bar.sync 2;
ret;)",
                        0));
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  Outcome outcome = machine.run({1, 1, 1}, {64, 1, 1});
  ASSERT_TRUE(outcome.fault);
  EXPECT_EQ(outcome.fault->kind, FaultKind::kBarrier);
  EXPECT_THAT(outcome.fault->report, HasSubstr("0 of 2 warps have exited"));
  EXPECT_THAT(outcome.fault->report,
              HasSubstr("warp 0 (lanes 0x0000ffff) waits at barrier 2, ptx line 21"));
  EXPECT_THAT(outcome.fault->report,
              HasSubstr("warp 1 (lanes 0xffffffff) waits at barrier 1, ptx line 18"));
}

TEST(Faults, ShufflesWithoutTheirMembers) {
  Machine machine(entry(R"(
mov.u32 %r0, %tid.x;
setp.lt.u32 %p0, %r0, 16;
@%p0 bra OTHER;
shfl.sync.idx.b32 %r1, %r0, 0, 31, 0xffffffff;
ret;
OTHER:
bar.sync 0;
ret;)",
                        0));
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  Outcome outcome = machine.run({1, 1, 1}, {32, 1, 1});
  ASSERT_TRUE(outcome.fault);
  EXPECT_EQ(outcome.fault->kind, FaultKind::kBarrier);
  EXPECT_THAT(outcome.fault->report,
              HasSubstr("warp 0 (lanes 0xffff0000) waits at 'shfl.sync.idx.b32 %r1, %r0, 0, 31, "
                        "0xffffffff' for lanes 0x0000ffff, ptx line 18"));
}

TEST(Faults, LaunchesThatCannotBeAreRefused) {
  Machine machine(entry("ret;", 0));
  Outcome outcome = machine.run({1, 1, 1}, {2048, 1, 1});
  ASSERT_TRUE(outcome.fault);
  EXPECT_EQ(outcome.fault->report, "kernel k: a block has 2048 threads, expected 1 to 1024");
}

}  // namespace
}  // namespace tilewright::vgpu
