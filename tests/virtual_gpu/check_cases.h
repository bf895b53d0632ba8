/// Kernels with one defect each, and their corrected twins. `// HERE` stands behind the instruction
/// that is to be reported, `// OTHER` behind the one that it is reported with.
#pragma once

#include <string>
#include <vector>

namespace tilewright::vgpu {

struct CheckCase {
  const char* name;
  const char* check;
  std::array<unsigned, 3> grid, block;
  const char* declarations;
  const char*
      body;  ///< lines between `// BAD` and `// GOOD` are the defect's, then up to `// END` the twin's
  std::array<unsigned, 3> cluster{};
  const char* attributes = "";
};

/// p0: a buffer of 4096 words that are 0 to 4095; p1: one of 4096 words that nobody has written.
inline const std::vector<CheckCase>& check_cases() {
  static const std::vector<CheckCase> cases = {
      {"ADroppedBarrier", "shared-race", {2, 1, 1}, {64, 1, 1}, ".shared .align 4 .b8 s[256];", R"(
mov.u32 %r0, %tid.x; mov.u32 %r1, s; shl.b32 %r2, %r0, 2; add.u32 %r3, %r1, %r2;
xor.b32 %r4, %r2, 252; add.u32 %r4, %r1, %r4;
st.shared.u32 [%r3], %r0; // OTHER
// BAD
// GOOD
bar.sync 0;
// END
ld.shared.u32 %r5, [%r4]; // HERE
ret;)"},
      {"ADroppedWarpSync", "shared-race", {1, 1, 1}, {32, 1, 1}, ".shared .align 4 .b8 s[128];", R"(
mov.u32 %r0, %tid.x; mov.u32 %r1, s; shl.b32 %r2, %r0, 2; add.u32 %r3, %r1, %r2;
xor.b32 %r4, %r2, 4; add.u32 %r4, %r1, %r4;
st.shared.u32 [%r3], %r0; // OTHER
// BAD
// GOOD
bar.warp.sync -1;
// END
ld.shared.u32 %r5, [%r4]; // HERE
ret;)"},
      {"TwoWarpsThatStoreDifferentValues",
       "shared-race",
       {1, 1, 1},
       {64, 1, 1},
       ".shared .align 4 .b8 s[128];",
       R"(
mov.u32 %r0, %tid.x; mov.u32 %r1, s; and.b32 %r2, %r0, 31; shl.b32 %r3, %r2, 2;
add.u32 %r3, %r1, %r3;
// BAD
mov.u32 %r4, %r0;
// GOOD
mov.u32 %r4, %r2;
// END
st.shared.u32 [%r3], %r4; // HERE
ret;)"},
      {"ABarrierMissingAfterTheReads",
       "shared-race",
       {1, 1, 1},
       {64, 1, 1},
       ".shared .align 4 .b8 s[256];",
       R"(
mov.u32 %r0, %tid.x; mov.u32 %r1, s; shl.b32 %r2, %r0, 2; add.u32 %r3, %r1, %r2;
xor.b32 %r4, %r2, 128; add.u32 %r4, %r1, %r4;
st.shared.u32 [%r3], %r0;
bar.sync 0;
ld.shared.u32 %r5, [%r4]; // OTHER
// BAD
// GOOD
bar.sync 0;
// END
st.shared.u32 [%r3], %r5; // HERE
ret;)"},
      {"TheWrongNamedBarrier",
       "shared-race",
       {1, 1, 1},
       {64, 1, 1},
       ".shared .align 4 .b8 s[256];",
       R"(
mov.u32 %r0, %tid.x; mov.u32 %r1, s; shl.b32 %r2, %r0, 2; add.u32 %r3, %r1, %r2;
setp.ge.u32 %p0, %r0, 32;
@%p0 bra CONSUMER;
st.shared.u32 [%r3+128], %r0; // OTHER
// BAD
bar.arrive 2, 64;
bar.arrive 1, 64;
// GOOD
bar.arrive 1, 64;
bar.arrive 2, 64;
// END
ret;
CONSUMER:
// BAD
bar.sync 3, 32;
// GOOD
bar.sync 1, 64;
// END
ld.shared.u32 %r5, [%r3]; // HERE
bar.sync 2, 64;
ret;)"},
      {"BytesOfOneWordAreApart",
       "shared-race",
       {1, 1, 1},
       {64, 1, 1},
       ".shared .align 4 .b8 s[256];",
       R"(
mov.u32 %r0, %tid.x; mov.u32 %r1, s;
// BAD
shr.u32 %r2, %r0, 1;
// GOOD
mov.u32 %r2, %r0;
// END
add.u32 %r3, %r1, %r2;
st.shared.u8 [%r3], %r0; // HERE // OTHER
ret;)"},
      {"BlocksThatWriteTheSamePlace", "global-race", {4, 1, 1}, {32, 1, 1}, "", R"(
ld.param.u64 %d0, [p0]; mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x;
// BAD
mov.u32 %r2, %r0;
// GOOD
mad.lo.u32 %r2, %r1, 32, %r0;
// END
mul.wide.u32 %d1, %r2, 4; add.u64 %d1, %d0, %d1;
st.global.u32 [%d1], %r1; // HERE // OTHER
ret;)"},
      {"AFlagWithoutAFence", "global-race", {2, 1, 1}, {32, 1, 1}, "", R"(
ld.param.u64 %d0, [p0]; mov.u32 %r1, %ctaid.x; mov.u32 %r0, %tid.x;
setp.ne.u32 %p0, %r0, 0; @%p0 ret;
setp.ne.u32 %p1, %r1, 0; @%p1 bra CONSUMER;
st.global.u32 [%d0+64], %r0; // OTHER
// BAD
// GOOD
fence.acq_rel.gpu;
// END
st.relaxed.gpu.global.u32 [%d0], 77;
ret;
CONSUMER:
ld.relaxed.gpu.global.u32 %r2, [%d0];
setp.ne.u32 %p1, %r2, 77; @%p1 bra CONSUMER;
// BAD
// GOOD
fence.acq_rel.gpu;
// END
ld.global.u32 %r3, [%d0+64]; // HERE
ret;)"},
      {"AReleaseOfTooNarrowAScope", "global-race", {2, 1, 1}, {32, 1, 1}, "", R"(
ld.param.u64 %d0, [p0]; mov.u32 %r1, %ctaid.x; mov.u32 %r0, %tid.x;
setp.ne.u32 %p0, %r0, 0; @%p0 ret;
setp.ne.u32 %p1, %r1, 0; @%p1 bra CONSUMER;
st.global.u32 [%d0+64], %r0; // OTHER
// BAD
fence.acq_rel.cta;
st.relaxed.gpu.global.u32 [%d0], 77;
// GOOD
st.release.gpu.global.u32 [%d0], 77;
// END
ret;
CONSUMER:
ld.acquire.gpu.global.u32 %r2, [%d0];
setp.ne.u32 %p1, %r2, 77; @%p1 bra CONSUMER;
ld.global.u32 %r3, [%d0+64]; // HERE
ret;)"},
      {"AWeakCounter", "global-race", {4, 1, 1}, {32, 1, 1}, "", R"(
ld.param.u64 %d0, [p0];
// BAD
ld.global.u32 %r0, [%d0]; // OTHER
add.u32 %r0, %r0, 1;
st.global.u32 [%d0], %r0; // HERE
// GOOD
atom.global.add.u32 %r0, [%d0], 1;
// END
ret;)"},
      {"ACounterResetByNotTheLast",
       "global-race",
       {6, 1, 1},
       {32, 1, 1},
       "",
       R"(
ld.param.u64 %d0, [p0]; mov.u32 %r0, %tid.x; setp.ne.u32 %p0, %r0, 0; @%p0 ret;
fence.acq_rel.gpu;
atom.global.add.u32 %r1, [%d0], 1; // OTHER
fence.acq_rel.gpu;
// BAD
setp.ne.u32 %p1, %r1, 2;
// GOOD
setp.ne.u32 %p1, %r1, 5;
// END
@%p1 ret;
st.global.u32 [%d0], 0; // HERE
ret;)"},
      {"AnUninitialisedBuffer", "uninitialised-read", {1, 1, 1}, {32, 1, 1}, "", R"(
ld.param.u64 %d0, [p1]; mov.u32 %r0, %tid.x; mul.wide.u32 %d1, %r0, 4; add.u64 %d1, %d0, %d1;
// BAD
// GOOD
st.global.u32 [%d1], %r0;
// END
ld.global.u32 %r1, [%d1]; // HERE
ret;)"},
      {"AnUninitialisedTail",
       "uninitialised-read",
       {1, 1, 1},
       {64, 1, 1},
       ".shared .align 4 .b8 s[256];",
       R"(
mov.u32 %r0, %tid.x; mov.u32 %r1, s; shl.b32 %r2, %r0, 2; add.u32 %r3, %r1, %r2;
// BAD
setp.lt.u32 %p0, %r0, 63;
// GOOD
setp.lt.u32 %p0, %r0, 64;
// END
@%p0 st.shared.u32 [%r3], %r0;
bar.sync 0;
ld.shared.u32 %r5, [%r1+252]; // HERE
ret;)"},
      {"UninitialisedLocalMemory", "uninitialised-read", {1, 1, 1}, {32, 1, 1}, "", R"(
.local .align 4 .b8 l[16];
mov.u64 %d0, l; mov.u32 %r0, 3;
// BAD
st.local.u32 [%d0+4], %r0;
// GOOD
st.local.u32 [%d0+8], %r0;
// END
ld.local.u32 %r1, [%d0+8]; // HERE
ret;)"},
      {"OneElementTooMany", "out-of-bounds", {1, 1, 1}, {32, 1, 1}, "", R"(
ld.param.u64 %d0, [p0]; mov.u32 %r0, %tid.x;
// BAD
add.u32 %r0, %r0, 4065;
// GOOD
add.u32 %r0, %r0, 4064;
// END
mul.wide.u32 %d1, %r0, 4; add.u64 %d1, %d0, %d1;
st.global.u32 [%d1], %r0; // HERE
ret;)"},
      {"AMisalignedVector", "misaligned", {1, 1, 1}, {32, 1, 1}, "", R"(
ld.param.u64 %d0, [p0]; mov.u32 %r0, %tid.x;
// BAD
mul.wide.u32 %d1, %r0, 8; add.u64 %d1, %d0, %d1;
// GOOD
mul.wide.u32 %d1, %r0, 16; add.u64 %d1, %d0, %d1;
// END
ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%d1]; // HERE
ret;)"},
      {"ACopyInFlightIsRead",
       "async-read",
       {1, 1, 1},
       {32, 1, 1},
       ".shared .align 16 .b8 s[512];",
       R"(
ld.param.u64 %d0, [p0]; mov.u32 %r0, %tid.x; mul.wide.u32 %d1, %r0, 16; add.u64 %d1, %d0, %d1;
mov.u32 %r1, s; shl.b32 %r2, %r0, 4; add.u32 %r3, %r1, %r2;
cp.async.cg.shared.global [%r3], [%d1], 16; // OTHER
cp.async.commit_group;
// BAD
cp.async.wait_group 1;
// GOOD
cp.async.wait_group 0;
// END
ld.shared.u32 %r5, [%r3]; // HERE
ret;)"},
      {"ACopyOfAnotherWarpWithoutABarrier",
       "shared-race",
       {1, 1, 1},
       {64, 1, 1},
       ".shared .align 16 .b8 s[1024];",
       R"(
ld.param.u64 %d0, [p0]; mov.u32 %r0, %tid.x; mul.wide.u32 %d1, %r0, 16; add.u64 %d1, %d0, %d1;
mov.u32 %r1, s; shl.b32 %r2, %r0, 4; add.u32 %r3, %r1, %r2;
xor.b32 %r4, %r2, 512; add.u32 %r4, %r1, %r4;
cp.async.cg.shared.global [%r3], [%d1], 16; // OTHER
cp.async.commit_group;
cp.async.wait_group 0;
// BAD
nanosleep.u32 1;
// GOOD
bar.sync 0;
// END
ld.shared.u32 %r5, [%r4]; // HERE
ret;)"},
      {"TheTargetOfACopyIsOverwritten",
       "source-overwritten",
       {1, 1, 1},
       {32, 1, 1},
       ".shared .align 16 .b8 s[512];",
       R"(
ld.param.u64 %d0, [p0]; mov.u32 %r0, %tid.x; mul.wide.u32 %d1, %r0, 16; add.u64 %d1, %d0, %d1;
mov.u32 %r1, s; shl.b32 %r2, %r0, 4; add.u32 %r3, %r1, %r2;
cp.async.cg.shared.global [%r3], [%d1], 16; // OTHER
cp.async.commit_group;
// BAD
// GOOD
cp.async.wait_all;
// END
st.shared.u32 [%r3], %r0; // HERE
cp.async.wait_all;
ret;)"},
      {"TheSourceOfABulkStoreIsOverwritten",
       "source-overwritten",
       {1, 1, 1},
       {32, 1, 1},
       ".shared .align 128 .b8 s[128];",
       R"(
ld.param.u64 %d0, [p0]; mov.u32 %r0, %tid.x; mov.u32 %r1, s; shl.b32 %r2, %r0, 2;
add.u32 %r3, %r1, %r2;
st.shared.u32 [%r3], %r0;
fence.proxy.async.shared::cta;
bar.warp.sync -1;
setp.ne.u32 %p0, %r0, 0; @%p0 bra DONE;
cp.async.bulk.global.shared::cta.bulk_group [%d0], [%r1], 128; // OTHER
cp.async.bulk.commit_group;
// BAD
// GOOD
cp.async.bulk.wait_group.read 0;
// END
DONE: bar.warp.sync -1;
st.shared.u32 [%r3], 5; // HERE
ret;)"},
      {"ABulkStoreWithoutAProxyFence",
       "missing-proxy-fence",
       {1, 1, 1},
       {64, 1, 1},
       ".shared .align 128 .b8 s[256];",
       R"(
ld.param.u64 %d0, [p0]; mov.u32 %r0, %tid.x; mov.u32 %r1, s; shl.b32 %r2, %r0, 2;
add.u32 %r3, %r1, %r2;
st.shared.u32 [%r3], %r0; // OTHER
// BAD
// GOOD
fence.proxy.async.shared::cta;
// END
bar.sync 0;
setp.ne.u32 %p0, %r0, 0; @%p0 ret;
cp.async.bulk.global.shared::cta.bulk_group [%d0], [%r1], 256; // HERE
cp.async.bulk.commit_group;
cp.async.bulk.wait_group.read 0;
ret;)"},
      {"ABulkCopyReadBeforeItsPhaseEnds",
       "async-read",
       {1, 1, 1},
       {32, 1, 1},
       ".shared .align 128 .b8 s[256];\n.shared .align 8 .b8 m[8];",
       R"(
ld.param.u64 %d0, [p0]; mov.u32 %r0, %tid.x; mov.u32 %r1, s; shl.b32 %r2, %r0, 2;
add.u32 %r3, %r1, %r2; mov.u32 %r4, m;
setp.ne.u32 %p0, %r0, 0;
@!%p0 mbarrier.init.shared::cta.b64 [%r4], 1;
@!%p0 fence.mbarrier_init.release.cluster;
bar.sync 0;
@%p0 bra WAIT;
mbarrier.arrive.expect_tx.shared::cta.b64 %d2, [%r4], 256;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%d0], 256, [%r4]; // OTHER
WAIT: bar.warp.sync -1;
TRY:
// BAD
mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r4], 1;
// GOOD
mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r4], 0;
// END
@!%p1 bra TRY;
ld.shared.u32 %r5, [%r3]; // HERE
ret;)"},
      {"AnMbarrierUsedBeforeItsInitIsOrdered",
       "mbarrier-misuse",
       {1, 1, 1},
       {64, 1, 1},
       ".shared .align 8 .b8 m[8];",
       R"(
mov.u32 %r0, %tid.x; mov.u32 %r4, m;
setp.ne.u32 %p0, %r0, 0;
@!%p0 mbarrier.init.shared::cta.b64 [%r4], 64; // OTHER
// BAD
bar.warp.sync -1;
// GOOD
bar.sync 0;
// END
mbarrier.arrive.shared::cta.b64 %d2, [%r4]; // HERE
ret;)"},
      {"AnMbarrierInitialisedTwice",
       "mbarrier-misuse",
       {1, 1, 1},
       {1, 1, 1},
       ".shared .align 8 .b8 m[8];",
       R"(
mov.u32 %r4, m;
mbarrier.init.shared::cta.b64 [%r4], 1;
// BAD
// GOOD
mbarrier.inval.shared::cta.b64 [%r4];
// END
mbarrier.init.shared::cta.b64 [%r4], 2; // HERE
ret;)"},
      {"MoreArrivalsThanExpected",
       "mbarrier-misuse",
       {1, 1, 1},
       {1, 1, 1},
       ".shared .align 8 .b8 m[8];",
       R"(
mov.u32 %r4, m;
mbarrier.init.shared::cta.b64 [%r4], 2;
// BAD
mbarrier.arrive.shared::cta.b64 %d2, [%r4], 3; // HERE
// GOOD
mbarrier.arrive.shared::cta.b64 %d2, [%r4], 2;
// END
ret;)"},
      {"ABarrierInDivergentCode", "barrier-divergence", {1, 1, 1}, {32, 1, 1}, "", R"(
mov.u32 %r0, %tid.x;
setp.lt.u32 %p0, %r0, 16;
// BAD
@%p0 bar.sync 0; // HERE
@!%p0 bar.sync 0;
// GOOD
bar.sync 0;
// END
ret;)"},
      {"AShuffleOfLanesThatHaveExited", "shuffle-divergence", {1, 1, 1}, {32, 1, 1}, "", R"(
mov.u32 %r0, %tid.x;
setp.ge.u32 %p0, %r0, 16; @%p0 ret;
// BAD
shfl.sync.bfly.b32 %r1, %r0, 8, 31, -1; // HERE
// GOOD
shfl.sync.bfly.b32 %r1, %r0, 8, 31, 0xffff;
// END
ret;)"},
      {"AShuffleFromALaneThatIsElsewhere", "shuffle-divergence", {1, 1, 1}, {32, 1, 1}, "", R"(
mov.u32 %r0, %tid.x;
setp.ge.u32 %p0, %r0, 16; @%p0 bra DONE;
// BAD
shfl.sync.idx.b32 %r1, %r0, 20, 31, 0xffff; // HERE
// GOOD
shfl.sync.idx.b32 %r1, %r0, 12, 31, 0xffff;
// END
DONE: ret;)"},
      {"APhaseThatNobodyEnds", "deadlock", {1, 1, 1}, {32, 1, 1}, ".shared .align 8 .b8 m[8];", R"(
mov.u32 %r0, %tid.x; mov.u32 %r4, m;
setp.ne.u32 %p0, %r0, 0;
// BAD
@!%p0 mbarrier.init.shared::cta.b64 [%r4], 33;
// GOOD
@!%p0 mbarrier.init.shared::cta.b64 [%r4], 32;
// END
bar.sync 0;
mbarrier.arrive.shared::cta.b64 %d2, [%r4];
TRY: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r4], 0; // HERE
@!%p1 bra TRY;
ret;)"},
      {"AnExitWhileAPeerReads",
       "cluster-exit",
       {2, 1, 1},
       {32, 1, 1},
       ".shared .align 4 .b8 s[128];",
       R"(
mov.u32 %r0, %tid.x; mov.u32 %r1, s; shl.b32 %r2, %r0, 2; add.u32 %r3, %r1, %r2;
st.shared.u32 [%r3], %r0;
barrier.cluster.arrive; barrier.cluster.wait;
mov.u32 %r4, %cluster_ctarank; xor.b32 %r4, %r4, 1;
mapa.shared::cluster.u32 %r5, %r3, %r4;
ld.shared::cluster.u32 %r6, [%r5]; // HERE
// BAD
// GOOD
barrier.cluster.arrive; barrier.cluster.wait;
// END
ret;)",
       {2, 1, 1}},
      {"ARelaxedClusterBarrier",
       "shared-race",
       {2, 1, 1},
       {32, 1, 1},
       ".shared .align 4 .b8 s[128];",
       R"(
mov.u32 %r0, %tid.x; mov.u32 %r1, s; shl.b32 %r2, %r0, 2; add.u32 %r3, %r1, %r2;
st.shared.u32 [%r3], %r0; // OTHER
// BAD
barrier.cluster.arrive.relaxed; barrier.cluster.wait;
// GOOD
barrier.cluster.arrive; barrier.cluster.wait;
// END
mov.u32 %r4, %cluster_ctarank; xor.b32 %r4, %r4, 1;
mapa.shared::cluster.u32 %r5, %r3, %r4;
ld.shared::cluster.u32 %r6, [%r5]; // HERE
barrier.cluster.arrive; barrier.cluster.wait;
ret;)",
       {2, 1, 1}},
      {"LanesThatWriteDifferentValues",
       "shared-race",
       {1, 1, 1},
       {32, 1, 1},
       ".shared .align 4 .b8 s[128];",
       R"(
mov.u32 %r0, %tid.x; mov.u32 %r1, s;
// BAD
st.shared.u32 [%r1], %r0; // HERE // OTHER
// GOOD
st.shared.u32 [%r1], 7;
// END
ret;)"},
  };
  return cases;
}

}  // namespace tilewright::vgpu
