#include "jit/virtual_gpu/machine.h"

#include <gtest/gtest.h>

#include <cstring>

namespace tilewright::vgpu {
namespace {

constexpr std::string_view kSaxpy = R"(
.version 8.0
.target sm_80
.address_size 64
.visible .entry saxpy(.param .u32 n, .param .f32 a, .param .u64 x, .param .u64 y)
{
  .reg .pred %p<2>;
  .reg .f32 %f<5>;
  .reg .b32 %r<6>;
  .reg .b64 %rd<8>;
  ld.param.u32 %r1, [n];
  ld.param.f32 %f1, [a];
  ld.param.u64 %rd1, [x];
  ld.param.u64 %rd2, [y];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r2, %r3, %r4;
  setp.ge.s32 %p1, %r5, %r1;
  @%p1 bra DONE;
  cvta.to.global.u64 %rd3, %rd1;
  cvta.to.global.u64 %rd4, %rd2;
  mul.wide.s32 %rd5, %r5, 4;
  add.s64 %rd6, %rd3, %rd5;
  add.s64 %rd7, %rd4, %rd5;
  ld.global.f32 %f2, [%rd6];
  ld.global.f32 %f3, [%rd7];
  fma.rn.f32 %f4, %f1, %f2, %f3;
  st.global.f32 [%rd7], %f4;
DONE:
  ret;
}
)";

TEST(Machine, RunsSaxpyWithARaggedTail) {
  auto memory = Memory::create(1 << 20);
  auto program = Program::load(kSaxpy, *memory);
  ASSERT_TRUE(program) << program.error().message;
  constexpr int kCount = 1000;
  std::uint64_t x = *memory->allocate(kCount * 4), y = *memory->allocate(kCount * 4);
  auto* host_x = static_cast<float*>(memory->at(x, kCount * 4));
  auto* host_y = static_cast<float*>(memory->at(y, kCount * 4));
  for (int i = 0; i < kCount; ++i) {
    host_x[i] = static_cast<float>(i);
    host_y[i] = 1.0f;
  }
  Launch launch;
  launch.program = program->get();
  launch.kernel = "saxpy";
  launch.grid = {8, 1, 1};
  launch.block = {128, 1, 1};
  launch.parameters.resize(24);
  int n = kCount;
  float a = 2;
  std::memcpy(launch.parameters.data(), &n, 4);
  std::memcpy(launch.parameters.data() + 4, &a, 4);
  std::memcpy(launch.parameters.data() + 8, &x, 8);
  std::memcpy(launch.parameters.data() + 16, &y, 8);
  Outcome outcome = execute(*memory, launch);
  ASSERT_FALSE(outcome.fault) << outcome.fault->report;
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(host_y[i], 2.0f * static_cast<float>(i) + 1.0f);
  EXPECT_EQ(outcome.counters.blocks_executed, 8u);
  EXPECT_EQ(outcome.counters.distinct_store_sectors, 125u);
}

}  // namespace
}  // namespace tilewright::vgpu
