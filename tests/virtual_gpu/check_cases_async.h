/// Defects of what runs beside a warp, and their corrected twins: phases of mbarriers, proxies,
/// named barriers, registers of wgmma, setmaxnreg.
#pragma once

#include "tests/virtual_gpu/check_cases.h"

namespace tilewright::vgpu {

/// 128 threads; %d1, %d2 describe A (64 x 16) and B (8 x 16) in shared memory, which are zeros; %p1
/// is false; %f0 to %f3 is the accumulator, %r6 to %r9 a fragment of A.
inline std::string of_wgmma(const char* body) {
  return std::string(R"(
mov.u32 %r0, %tid.x; mov.u32 %r1, s; shl.b32 %r2, %r0, 4; add.u32 %r3, %r1, %r2; mov.u32 %r4, 0;
st.shared.v4.b32 [%r3], {%r4, %r4, %r4, %r4};
setp.lt.u32 %p0, %r0, 16;
@%p0 st.shared.v4.b32 [%r3+2048], {%r4, %r4, %r4, %r4};
fence.proxy.async;
bar.sync 0;
shr.u32 %r5, %r1, 4; cvt.u64.u32 %d0, %r5; or.b64 %d1, %d0, 0x1000080000; add.u64 %d2, %d1, 128;
setp.ne.u32 %p1, %r0, %r0;
mov.f32 %f0, 0f00000000; mov.f32 %f1, 0f00000000; mov.f32 %f2, 0f00000000; mov.f32 %f3, 0f00000000;
mov.u32 %r6, 0; mov.u32 %r7, 0; mov.u32 %r8, 0; mov.u32 %r9, 0;
)") + body +
         "\nret;";
}

#define VGPU_WGMMA                                                                 \
  "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, %d1," \
  " %d2, %p1, 1, 1, 0, 0;"
#define VGPU_WGMMA_A_IN_REGISTERS                                                              \
  "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, {%r6, %r7, %r8, " \
  "%r9}, %d2, %p1, 1, 1, 0;"

inline const std::vector<CheckCase>& async_check_cases() {
  constexpr const char* kTile = ".shared .align 128 .b8 s[2304];";
  constexpr std::array<unsigned, 3> kOne{1, 1, 1}, kGroup{128, 1, 1};
  static const std::string bodies[] = {
      of_wgmma("wgmma.fence.sync.aligned;\n" VGPU_WGMMA R"(
wgmma.commit_group.sync.aligned;
mov.f32 %f4, %f0;
// BAD
add.f32 %f5, %f4, %f1; // HERE
// GOOD
// END
wgmma.wait_group.sync.aligned 0;
add.f32 %f5, %f4, %f1;)"),
      of_wgmma("wgmma.fence.sync.aligned;\n" VGPU_WGMMA R"(
wgmma.commit_group.sync.aligned;
// BAD
wgmma.wait_group.sync.aligned 1;
// GOOD
wgmma.wait_group.sync.aligned 0;
// END
cvt.rn.bf16.f32 %h0, %f2; // HERE)"),
      of_wgmma("wgmma.fence.sync.aligned;\n" VGPU_WGMMA R"(
wgmma.commit_group.sync.aligned;
mov.f32 %f0, %f0;
// BAD
cvt.rn.f32.u32 %f0, %r0; // HERE
// GOOD
// END
wgmma.wait_group.sync.aligned 0;
cvt.rn.f32.u32 %f0, %r0;)"),
      of_wgmma("wgmma.fence.sync.aligned;\n" VGPU_WGMMA_A_IN_REGISTERS R"(
wgmma.commit_group.sync.aligned;
// BAD
add.u32 %r7, %r0, 1; // HERE
// GOOD
// END
wgmma.wait_group.sync.aligned 0;
add.u32 %r7, %r0, 1;)"),
      of_wgmma(R"(
// BAD
// GOOD
wgmma.fence.sync.aligned;
// END
)" VGPU_WGMMA R"( // HERE
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;)"),
      of_wgmma("wgmma.fence.sync.aligned;\n" VGPU_WGMMA R"(
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;
mul.f32 %f4, %f3, 0f3f000000; mov.f32 %f3, %f4;
// BAD
// GOOD
wgmma.fence.sync.aligned;
// END
)" VGPU_WGMMA R"( // HERE
wgmma.commit_group.sync.aligned;
)" VGPU_WGMMA R"(
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;)"),
  };
  static const std::vector<CheckCase> cases = {
      {"AnAccumulatorReadBeforeTheWait", "wgmma-register", kOne, kGroup, kTile, bodies[0].c_str()},
      {"AnAccumulatorConvertedAfterALaxWait", "wgmma-register", kOne, kGroup, kTile,
       bodies[1].c_str()},
      {"AnAccumulatorWrittenUnderWay", "wgmma-register", kOne, kGroup, kTile, bodies[2].c_str()},
      {"AFragmentOfAWrittenUnderWay", "wgmma-register", kOne, kGroup, kTile, bodies[3].c_str()},
      {"AWgmmaWithoutAnyFence", "wgmma-register", kOne, kGroup, kTile, bodies[4].c_str()},
      {"AnAccumulatorScaledWithoutAFence", "wgmma-register", kOne, kGroup, kTile,
       bodies[5].c_str()},
      {"MoreRegistersThanThereAre",
       "deadlock",
       kOne,
       {384, 1, 1},
       "",
       R"(
mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 128;
@%p0 bra PRODUCER;
setmaxnreg.inc.sync.aligned.u32 240; // HERE
ret;
PRODUCER:
// BAD
setmaxnreg.dec.sync.aligned.u32 40;
// GOOD
setmaxnreg.dec.sync.aligned.u32 24;
// END
ret;)",
       {},
       ".maxntid 384, 1, 1"},
      {"SetmaxnregByOneWarp",
       "register-budget",
       kOne,
       kGroup,
       "",
       R"(
mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 32;
// BAD
@%p0 setmaxnreg.dec.sync.aligned.u32 40; // HERE
// GOOD
setmaxnreg.dec.sync.aligned.u32 40;
// END
ret;)",
       {},
       ".maxntid 128, 1, 1"},
      {"AnIncreaseThatDecreases",
       "register-budget",
       kOne,
       kGroup,
       "",
       R"(
// BAD
setmaxnreg.inc.sync.aligned.u32 104; // HERE
// GOOD
setmaxnreg.inc.sync.aligned.u32 128;
// END
ret;)",
       {},
       ".maxntid 128, 1, 1 .maxnreg 128"},
      {"AStaleParity",
       "mbarrier-misuse",
       kOne,
       {32, 1, 1},
       ".shared .align 128 .b8 s[256];\n.shared .align 8 .b8 m[8];",
       R"(
ld.param.u64 %d0, [p0]; mov.u32 %r0, %tid.x; mov.u32 %r1, s; shl.b32 %r2, %r0, 2;
add.u32 %r3, %r1, %r2; mov.u32 %r4, m;
setp.ne.u32 %p0, %r0, 0;
@!%p0 mbarrier.init.shared::cta.b64 [%r4], 1;
@!%p0 fence.mbarrier_init.release.cluster;
bar.sync 0;
@%p0 bra FIRST;
mbarrier.arrive.expect_tx.shared::cta.b64 %d2, [%r4], 256;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%d0], 256, [%r4];
FIRST: bar.warp.sync -1;
A: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r4], 0;
@!%p1 bra A;
ld.shared.u32 %r5, [%r3];
bar.warp.sync -1;
@%p0 bra SECOND;
mbarrier.arrive.expect_tx.shared::cta.b64 %d2, [%r4], 256;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%d0+512], 256, [%r4];
SECOND: bar.warp.sync -1;
B:
// BAD
mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r4], 0; // HERE
// GOOD
mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r4], 1;
// END
@!%p1 bra B;
ld.shared.u32 %r5, [%r3];
ret;)"},
      {"AnOwnArrivalAndAStaleWait",
       "mbarrier-misuse",
       kOne,
       {64, 1, 1},
       ".shared .align 8 .b8 m[8];",
       R"(
mov.u32 %r0, %tid.x; mov.u32 %r4, m; setp.ne.u32 %p0, %r0, 0;
@!%p0 mbarrier.init.shared::cta.b64 [%r4], 64;
bar.sync 0;
mbarrier.arrive.shared::cta.b64 %d2, [%r4];
A: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r4], 0;
@!%p1 bra A;
mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r4], 0;
bar.sync 0;
mbarrier.arrive.shared::cta.b64 %d2, [%r4];
B:
// BAD
mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r4], 0; // HERE
// GOOD
mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r4], 1;
// END
@!%p1 bra B;
ret;)"},
      {"AnMbarrierOfAPeerThatTheAsyncProxyMayNotSee",
       "missing-proxy-fence",
       {2, 1, 1},
       {1, 1, 1},
       ".shared .align 128 .b8 s[256];\n.shared .align 8 .b8 m[8];",
       R"(
mov.u32 %r1, s; mov.u32 %r4, m;
mbarrier.init.shared::cta.b64 [%r4], 1; // OTHER
mbarrier.arrive.expect_tx.shared::cta.b64 %d2, [%r4], 16;
// BAD
// GOOD
fence.mbarrier_init.release.cluster;
// END
barrier.cluster.arrive; barrier.cluster.wait;
mov.u32 %r5, %cluster_ctarank; xor.b32 %r5, %r5, 1;
mapa.shared::cluster.u32 %r6, %r4, %r5;
add.u32 %r2, %r1, 128; mapa.shared::cluster.u32 %r5, %r2, %r5;
cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r5], [%r1], 16, [%r6]; // HERE
A: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r4], 0;
@!%p1 bra A;
barrier.cluster.arrive; barrier.cluster.wait;
ret;)",
       {2, 1, 1}},
      {"AnMbarrierThatPeersMayNotSee",
       "mbarrier-misuse",
       {2, 1, 1},
       {1, 1, 1},
       ".shared .align 8 .b8 m[8];",
       R"(
mov.u32 %r4, m;
mbarrier.init.shared::cta.b64 [%r4], 1; // OTHER
// BAD
// GOOD
fence.mbarrier_init.release.cluster;
// END
barrier.cluster.arrive.relaxed; barrier.cluster.wait;
mov.u32 %r5, %cluster_ctarank; xor.b32 %r5, %r5, 1; mapa.shared::cluster.u32 %r5, %r4, %r5;
mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r5]; // HERE
A: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r4], 0;
@!%p1 bra A;
barrier.cluster.arrive; barrier.cluster.wait;
ret;)",
       {2, 1, 1}},
      {"AFenceBeforeARelaxedClusterBarrier",
       "shared-race",
       {2, 1, 1},
       {32, 1, 1},
       ".shared .align 4 .b8 s[128];",
       R"(
mov.u32 %r0, %tid.x; mov.u32 %r1, s; shl.b32 %r2, %r0, 2; add.u32 %r3, %r1, %r2;
st.shared.u32 [%r3], %r0; // OTHER
// BAD
// GOOD
fence.acq_rel.cluster;
// END
barrier.cluster.arrive.relaxed; barrier.cluster.wait;
mov.u32 %r4, %cluster_ctarank; xor.b32 %r4, %r4, 1; mapa.shared::cluster.u32 %r5, %r3, %r4;
ld.shared::cluster.u32 %r6, [%r5]; // HERE
barrier.cluster.arrive; barrier.cluster.wait;
ret;)",
       {2, 1, 1}},
      {"ABulkCopyOverGenericWrites",
       "missing-proxy-fence",
       kOne,
       {32, 1, 1},
       ".shared .align 128 .b8 s[256];\n.shared .align 8 .b8 m[8];",
       R"(
ld.param.u64 %d0, [p0]; mov.u32 %r0, %tid.x; mov.u32 %r1, s; mov.u32 %r4, m; shl.b32 %r2, %r0, 2;
add.u32 %r3, %r1, %r2;
setp.ne.u32 %p0, %r0, 0;
@!%p0 mbarrier.init.shared::cta.b64 [%r4], 1;
@!%p0 fence.mbarrier_init.release.cluster;
st.shared.u32 [%r3], %r0; // OTHER
bar.sync 0;
@%p0 ret;
// BAD
// GOOD
fence.proxy.async.shared::cta;
// END
mbarrier.arrive.expect_tx.shared::cta.b64 %d2, [%r4], 256;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%d0], 256, [%r4]; // HERE
A: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r4], 0;
@!%p1 bra A;
ret;)"},
      {"ABarrierOfTwoNumbersOfThreads",
       "barrier-misuse",
       kOne,
       {64, 1, 1},
       "",
       R"(
mov.u32 %r0, %tid.x; setp.ge.u32 %p0, %r0, 32;
@%p0 bra SECOND;
bar.sync 1, 64; // OTHER
ret;
SECOND:
// BAD
bar.sync 1, 96; // HERE
// GOOD
bar.sync 1, 64;
// END
ret;)"},
      {"AWarpThatArrivesTwice",
       "barrier-misuse",
       kOne,
       {64, 1, 1},
       "",
       R"(
mov.u32 %r0, %tid.x; setp.ge.u32 %p0, %r0, 32;
@%p0 bra SECOND;
bar.arrive 1, 64; // OTHER
// BAD
bar.arrive 1, 64; // HERE
// GOOD
bar.sync 2, 64;
bar.arrive 1, 64;
// END
ret;
SECOND:
// BAD
// GOOD
bar.sync 1, 64;
bar.sync 2, 64;
// END
bar.sync 1, 64;
ret;)"},
  };
  return cases;
}

#undef VGPU_WGMMA
#undef VGPU_WGMMA_A_IN_REGISTERS

}  // namespace tilewright::vgpu
