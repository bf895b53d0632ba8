/// PTX of the kernels that the tests of the driver launch, written by hand: what is tested here is
/// launching, not the instructions.
#pragma once

#include <string>

namespace tilewright::vgpu::testing {

/// set(out, value, n): out[i] = value, i in [0, n).
/// increment(data, n): data[i] += 1.
/// poke(address): *address = 7.
/// spin(): never ends.
/// stop(): traps.
/// stuck(): waits at a barrier for 64 threads.
/// bounded(): does nothing, at most 64 threads.
/// hungry(): does nothing, with 255 registers.
/// strided(out, in, stride): out[i] = in[i * stride], i the thread's index in the grid.
/// banks(out, stride): each thread writes and reads shared word (thread * stride) % 1024, 64 times.
inline const std::string kKernels =
    R"ptx(// tilewright: resources kernel=set registers=16 static_shared=0 spill_store=0 spill_load=0 stack=0 max_threads=0
// tilewright: resources kernel=increment registers=16 static_shared=0 spill_store=0 spill_load=0 stack=0 max_threads=0
// tilewright: resources kernel=hungry registers=255 static_shared=0 spill_store=0 spill_load=0 stack=0 max_threads=0
// tilewright: resources kernel=banks registers=32 static_shared=4096 spill_store=0 spill_load=0 stack=0 max_threads=0
// tilewright: resources kernel=bounded registers=16 static_shared=0 spill_store=0 spill_load=0 stack=0 max_threads=64
.version 8.0
.target sm_80
.address_size 64

.visible .entry set(.param .u64 out, .param .f32 value, .param .u32 n)
{
  .reg .pred %p<2>;
  .reg .b32 %r<6>;
  .reg .f32 %f<2>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [out];
  ld.param.f32 %f1, [value];
  ld.param.u32 %r5, [n];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.s32 %r4, %r1, %r2, %r3;
  setp.ge.u32 %p1, %r4, %r5;
  @%p1 bra $done;
  cvta.to.global.u64 %rd1, %rd1;
  mul.wide.u32 %rd2, %r4, 4;
  add.s64 %rd3, %rd1, %rd2;
  st.global.f32 [%rd3], %f1;
$done:
  ret;
}

.visible .entry increment(.param .u64 data, .param .u32 n)
{
  .reg .pred %p<2>;
  .reg .b32 %r<6>;
  .reg .f32 %f<3>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [data];
  ld.param.u32 %r5, [n];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.s32 %r4, %r1, %r2, %r3;
  setp.ge.u32 %p1, %r4, %r5;
  @%p1 bra $done;
  mul.wide.u32 %rd2, %r4, 4;
  add.s64 %rd3, %rd1, %rd2;
  ld.global.f32 %f1, [%rd3];
  add.f32 %f2, %f1, 0f3F800000;
  st.global.f32 [%rd3], %f2;
$done:
  ret;
}

.visible .entry poke(.param .u64 address)
{
  .reg .b32 %r<3>;
  .reg .pred %p<3>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [address];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %tid.x;
  setp.ne.u32 %p1, %r1, 1;
  @%p1 bra $done;
  setp.ne.u32 %p2, %r2, 5;
  @%p2 bra $done;
  st.global.u32 [%rd1], 7;
$done:
  ret;
}

.visible .entry spin()
{
$again:
  bra $again;
}

.visible .entry stop()
{
  trap;
}

.visible .entry stuck()
{
  bar.sync 0, 64;
  ret;
}

.visible .entry bounded()
.maxntid 64, 1, 1
{
  ret;
}

.visible .entry hungry()
{
  ret;
}

.visible .entry strided(.param .u64 out, .param .u64 in, .param .u32 stride)
{
  .reg .b32 %r<7>;
  .reg .f32 %f<2>;
  .reg .b64 %rd<7>;
  ld.param.u64 %rd1, [out];
  ld.param.u64 %rd2, [in];
  ld.param.u32 %r5, [stride];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.s32 %r4, %r1, %r2, %r3;
  mul.lo.s32 %r6, %r4, %r5;
  mul.wide.u32 %rd3, %r6, 4;
  add.s64 %rd4, %rd2, %rd3;
  ld.global.f32 %f1, [%rd4];
  mul.wide.u32 %rd5, %r4, 4;
  add.s64 %rd6, %rd1, %rd5;
  st.global.f32 [%rd6], %f1;
  ret;
}

.visible .entry banks(.param .u64 out, .param .u32 stride)
{
  .shared .align 4 .b8 words[4096];
  .reg .pred %p<2>;
  .reg .b32 %r<12>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [stride];
  mov.u32 %r2, %tid.x;
  mul.lo.s32 %r3, %r2, %r1;
  and.b32 %r4, %r3, 1023;
  shl.b32 %r5, %r4, 2;
  mov.u32 %r6, words;
  add.s32 %r7, %r6, %r5;
  mov.u32 %r8, 0;
  mov.u32 %r9, 0;
$again:
  st.shared.u32 [%r7], %r2;
  ld.shared.u32 %r10, [%r7];
  add.s32 %r9, %r9, %r10;
  add.s32 %r8, %r8, 1;
  setp.lt.u32 %p1, %r8, 64;
  @%p1 bra $again;
  mul.wide.u32 %rd2, %r2, 4;
  add.s64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r9;
  ret;
}
)ptx";

}  // namespace tilewright::vgpu::testing
