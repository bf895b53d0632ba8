// Loads and stores of every space and width, atomics, asynchronous copies, variables; and the
// allocator.
#include "jit/virtual_gpu/memory.h"

#include <algorithm>
#include <numeric>

#include "tests/virtual_gpu/run_ptx.h"

namespace tilewright::vgpu {
namespace {

TEST(Allocator, GapsAreNeverValid) {
  auto memory = Memory::create(1 << 20);
  std::uint64_t a = *memory->allocate(1000), b = *memory->allocate(1);
  EXPECT_EQ(a % 512, 0u);
  EXPECT_EQ(b % 512, 0u);
  EXPECT_NE(memory->at(a, 1000), nullptr);
  EXPECT_NE(memory->at(a + 999, 1), nullptr);
  EXPECT_EQ(memory->at(a, 1001), nullptr);
  EXPECT_EQ(memory->at(a - 1, 1), nullptr);
  EXPECT_EQ(memory->at(b + 1, 1), nullptr);
  EXPECT_GE(b, a + 1000 + 4096);
  EXPECT_EQ(memory->used(), 1001u);
}

TEST(Allocator, CapacityIsKeptAndComesBack) {
  auto memory = Memory::create(1 << 20);
  std::uint64_t a = *memory->allocate(1 << 19);
  auto refused = memory->allocate((1 << 19) + 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(refused.error().message, "allocation of 524289 bytes, 524288 of 1048576 are free");
  static_cast<unsigned char*>(memory->at(a, 1))[0] = 1;
  EXPECT_TRUE(memory->free(a));
  EXPECT_FALSE(memory->free(a));
  EXPECT_EQ(memory->at(a, 1), nullptr);
  for (int i = 0; i < 100; ++i) {
    auto again = memory->allocate(1 << 20);
    ASSERT_TRUE(again) << i;
    EXPECT_EQ(static_cast<unsigned char*>(memory->at(*again, 1))[0], 0);
    EXPECT_TRUE(memory->free(*again));
  }
  EXPECT_EQ(memory->allocate(0).error().code, ErrorCode::kInvalidArgument);
}

/// Lanes copy elements through registers of a form; `stride` 1: in order, else scattered.
void copy(const std::string& space, const std::string& type, int vector, int bytes, unsigned mask,
          const Level& level) {
  SCOPED_TRACE(space + " v" + std::to_string(vector) + "." + type + " level " + level.name +
               " mask " + std::to_string(mask));
  std::string v = vector == 1 ? "" : ".v" + std::to_string(vector);
  std::string reg = bytes == 8 ? "%d" : bytes == 4 ? "%r" : "%h";
  std::string data = "{";
  for (int i = 0; i < vector; ++i) data += (i > 0 ? ", " : "") + reg + std::to_string(8 + i);
  data = vector == 1 ? reg + "8" : data + "}";
  int chunk = bytes * vector;
  // p0: from, p1: to, p2: permutation of lanes. Lanes of the mask copy.
  std::string body = R"(
    .shared .align 16 .b8 buffer[2048];
    ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1]; ld.param.u64 %d2, [p2];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %d3, %r0, 4; add.u64 %d3, %d2, %d3;
    ld.global.u32 %r1, [%d3];
    mul.wide.u32 %d4, %r1, )" +
                     std::to_string(chunk) + R"(;
    add.u64 %d5, %d0, %d4; add.u64 %d6, %d1, %d4;
    mov.u32 %r2, 1; shl.b32 %r2, %r2, %r0; and.b32 %r2, %r2, )" +
                     std::to_string(mask) + R"(;
    setp.eq.u32 %p0, %r2, 0;
    @%p0 bra END;
    )";
  std::string l = v + "." + type + " ";
  if (space == "shared") {
    body += "ld.global" + l + data + ", [%d5];\ncvt.u32.u64 %r3, %d4;\nmov.u32 %r4, buffer;\n" +
            "add.u32 %r3, %r3, %r4;\nst.shared" + l + "[%r3], " + data + ";\n";
    for (int i = 0; i < vector; ++i)
      body += "mov.b" + std::to_string(8 * bytes) + " " + reg + std::to_string(8 + i) + ", 0;\n";
    body += "ld.shared" + l + data + ", [%r3+0];\nst.global" + l + "[%d6], " + data + ";\n";
  } else {
    std::string s = space.empty() ? "" : "." + space;
    body += "ld" + s + l + data + ", [%d5];\nst" + s + l + "[%d6], " + data + ";\n";
  }
  Machine machine(entry(body + "END: ret;", 3), level);
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  std::vector<std::uint8_t> from(static_cast<std::size_t>(32 * chunk));
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::uint8_t>(i * 7 + 1);
  for (int shape = 0; shape < 3; ++shape) {
    std::vector<std::uint32_t> order(32);
    std::iota(order.begin(), order.end(), 0);
    if (shape == 1) std::reverse(order.begin(), order.end());
    if (shape == 2) std::fill(order.begin(), order.end(), 5);
    auto a = machine.buffer(from);
    auto b = machine.buffer(std::vector<std::uint8_t>(from.size(), 0));
    auto p = machine.buffer(order);
    Outcome outcome = machine.run({1, 1, 1}, {32, 1, 1}, a, b, p);
    ASSERT_FALSE(outcome.fault) << outcome.fault->report;
    std::vector<std::uint8_t> want(from.size(), 0);
    for (std::size_t lane = 0; lane < 32; ++lane)
      if ((mask >> lane & 1) != 0)
        std::copy_n(from.begin() + order[lane] * chunk, chunk, want.begin() + order[lane] * chunk);
    EXPECT_EQ(machine.read<std::uint8_t>(b, from.size()), want) << "shape " << shape;
  }
}

TEST(Access, EveryWidthInOrderScatteredAndUniform) {
  for (const Level* level : host_levels())
    for (const char* space : {"global", "shared", ""})
      for (int vector : {1, 2, 4})
        for (auto [type, bytes] : {std::pair{"u16", 2}, {"f32", 4}, {"b64", 8}})
          for (unsigned mask : {0xffffffffu, 0x00f0a5c3u})
            if (vector * bytes <= 16) copy(space, type, vector, bytes, mask, *level);
}

TEST(Access, NarrowElementsAreExtended) {
  auto results = lane_results<std::uint64_t>(R"(
    st.global.u64 [%d1], 0x8182838485868788;
    ld.global.s8 %r1, [%d1]; ld.global.u8 %r2, [%d1+1];
    ld.global.s16 %r3, [%d1+2]; ld.global.u16 %r4, [%d1+4];
    ld.global.s8 %h1, [%d1+6]; cvt.s32.s16 %r5, %h1;
    ld.global.s32 %d3, [%d1]; ld.global.u8 %d4, [%d1+7];
    ld.global.v4.u8 {%r6, %r7, %r8, %r9}, [%d1];
    add.u32 %r1, %r1, %r2; add.u32 %r1, %r1, %r3; add.u32 %r1, %r1, %r4; add.u32 %r1, %r1, %r5;
    add.u32 %r1, %r1, %r9;
    cvt.s64.s32 %d2, %r1; add.u64 %d2, %d2, %d3; add.u64 %d2, %d2, %d4;
    st.global.u8 [%d1+3], %r9;
    st.global.u64 [%d1], %d2; ret;)");
  std::int64_t want = -0x78 + 0x87 + static_cast<std::int16_t>(0x8586) + 0x8384 - 0x7e + 0x85;
  want += static_cast<std::int32_t>(0x85868788) + 0x81;
  EXPECT_EQ(results, std::vector<std::uint64_t>(32, static_cast<std::uint64_t>(want)));
}

TEST(Access, AVectorOfOneIsTheRegister) {
  auto results = lane_results<std::uint32_t>(R"(
    .shared .align 4 .b32 place;
    st.shared.b32 [place], { %r0 };
    st.global.b32 [%d1], { %r0 };
    ld.global.b32 { %r1 }, [%d1];
    atom.global.add.u32 { %r2 }, [%d1], { %r1 };
    ld.global.b16 { %h1 }, [%d1];
    cvt.u32.u16 %r3, %h1; mad.lo.u32 %r3, %r2, 100, %r3;
    st.global.b32 [%d1], %r3; ret;)");
  for (std::uint32_t i = 0; i < 32; ++i) EXPECT_EQ(results[i], 102 * i);
}

TEST(Access, GenericAddressesReachEverySpace) {
  auto results = lane_results<std::uint32_t>(R"(
    .shared .align 4 .b32 in_shared[32];
    .local .align 4 .b8 depot[16];
    mov.u64 %d2, in_shared; cvta.shared.u64 %d3, %d2;
    mul.wide.u32 %d4, %r0, 4; add.u64 %d3, %d3, %d4;
    st.u32 [%d3], %r0;
    mov.u64 %d5, depot; cvta.local.u64 %d6, %d5;
    add.u32 %r1, %r0, 100;
    st.u32 [%d6+8], %r1;
    ld.local.u32 %r2, [depot+8];
    cvta.to.shared.u64 %d7, %d3; cvt.u32.u64 %r3, %d7; ld.shared.u32 %r4, [%r3];
    isspacep.shared %p0, %d3; isspacep.local %p1, %d6; isspacep.global %p2, %d1;
    add.u32 %r2, %r2, %r4;
    @%p0 add.u32 %r2, %r2, 1000; @%p1 add.u32 %r2, %r2, 2000; @%p2 add.u32 %r2, %r2, 4000;
    st.u32 [%d1], %r2; ret;)");
  for (std::uint32_t i = 0; i < 32; ++i) EXPECT_EQ(results[i], 7100 + 2 * i);
}

TEST(Access, VariablesHaveInitialValuesAndAddresses) {
  constexpr std::string_view kVariables = R"(
.global .align 4 .u32 counter = 41;
.const .align 4 .f32 table[4] = {0f3F800000, 2.0, 0f40400000};
.global .align 8 .u64 pointers[2] = {table, generic(counter)+0};
.extern .shared .align 16 .b8 dynamic[];
)";
  Machine machine(entry(R"(
    ld.param.u64 %d0, [p0];
    ld.global.u32 %r1, [counter]; add.u32 %r1, %r1, 1; st.global.u32 [counter], %r1;
    ld.const.f32 %f1, [table+4]; ld.const.f32 %f2, [table+12];
    ld.global.u64 %d1, [pointers]; ld.f32 %f3, [%d1+8];
    ld.global.u64 %d2, [pointers+8]; ld.u32 %r2, [%d2];
    mov.u32 %r3, dynamic; st.shared.u32 [%r3+60], %r2; ld.shared.u32 %r2, [dynamic+60];
    mov.u32 %r4, %dynamic_smem_size;
    st.global.u32 [%d0], %r2; st.global.f32 [%d0+4], %f1; st.global.f32 [%d0+8], %f2;
    st.global.f32 [%d0+12], %f3; st.global.u32 [%d0+16], %r4; ret;)",
                        1, kVariables));
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  auto out = machine.buffer(std::vector<std::uint32_t>(5, 9));
  Launch launch = machine.launch({1, 1, 1}, {1, 1, 1}, out);
  launch.dynamic_shared_bytes = 64;
  Outcome outcome = machine.run(launch);
  ASSERT_FALSE(outcome.fault) << outcome.fault->report;
  EXPECT_EQ(machine.read<std::uint32_t>(out, 5),
            (std::vector<std::uint32_t>{42, 0x40000000, 0, 0x40400000, 64}));
  auto variable = machine.program().variable("counter");
  ASSERT_TRUE(variable);
  EXPECT_EQ(variable->bytes, 4u);
  EXPECT_EQ(machine.read<std::uint32_t>(variable->address, 1)[0], 42u);
}

TEST(Access, ParametersAreLaidOutByAlignment) {
  std::string ptx = R"(
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u8 a, .param .align 8 .b8 s[24], .param .f32 b, .param .u64 out)
{ .reg .b16 %h<3>; .reg .b32 %r<4>; .reg .f32 %f<2>; .reg .b64 %d<5>;
  ld.param.u8 %h1, [a]; ld.param.v2.u32 {%r1, %r2}, [s+8]; ld.param.f32 %f1, [b];
  ld.param.u64 %d1, [out]; ld.param.u64 %d2, [s+16];
  mov.b64 %d3, s; ld.param.u32 %r3, [%d3+8];
  cvt.u64.u16 %d4, %h1; st.global.u64 [%d1], %d4; st.global.v2.u32 [%d1+8], {%r1, %r2};
  st.global.f32 [%d1+16], %f1; st.global.u32 [%d1+20], %r3; st.global.u64 [%d1+24], %d2; ret; })";
  Machine machine(ptx);
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  const KernelInfo* info = machine.program().find("k");
  ASSERT_EQ(info->parameters.size(), 4u);
  EXPECT_EQ(info->parameters[1].offset, 8);
  EXPECT_EQ(info->parameters[1].size, 24);
  EXPECT_EQ(info->parameters[2].offset, 32);
  EXPECT_EQ(info->parameters[3].offset, 40);
  EXPECT_EQ(info->parameter_bytes, 48);
  struct {
    std::uint64_t x;
    std::uint32_t y, z;
    std::uint64_t w;
  } s{1, 2, 3, 4};
  auto out = machine.buffer(std::vector<std::uint64_t>(4, 0));
  std::uint8_t a = 200;
  float b = 1.5f;
  Outcome outcome = machine.run({1, 1, 1}, {1, 1, 1}, a, s, b, out);
  ASSERT_FALSE(outcome.fault) << outcome.fault->report;
  EXPECT_EQ(machine.read<std::uint64_t>(out, 4),
            (std::vector<std::uint64_t>{200, std::uint64_t{3} << 32 | 2,
                                        std::uint64_t{2} << 32 | 0x3fc00000, 4}));
}

/// One atomic by 32 lanes on one place: its final value, and the old values that were returned.
struct Atomic {
  const char* instruction;  ///< D, [%d3], then sources of %r0 (lane), %r1..3
  std::uint64_t before, after;
};

TEST(Atomics, UpdateOnePlaceLaneByLane) {
  const Atomic cases[] = {
      {"atom.global.add.u32 %r8, [%d3], %r0", 5, 501},
      {"atom.global.min.s32 %r8, [%d3], %r0", 0xfffffff0, 0xfffffff0},
      {"atom.global.max.s32 %r8, [%d3], %r0", 3, 31},
      {"atom.global.and.b32 %r8, [%d3], %r0", 0xff, 0},
      {"atom.global.or.b32 %r8, [%d3], %r0", 0x100, 0x11f},
      {"atom.global.xor.b32 %r8, [%d3], %r0", 1, 1},
      {"atom.global.exch.b32 %r8, [%d3], %r0", 9, 31},
      {"atom.global.inc.u32 %r8, [%d3], 9", 0, 2},
      {"atom.global.dec.u32 %r8, [%d3], 9", 0, 8},
      {"atom.global.cas.b32 %r8, [%d3], %r0, 77", 12, 77},
      {"atom.global.add.u64 %d8, [%d3], 4294967296", 1, 0x2000000001},
      {"atom.global.add.f32 %f8, [%d3], 0f3F800000", 0x3f800000, 0x42040000},
      {"atom.global.add.f64 %x8, [%d3], 0d3FE0000000000000", 0x3ff0000000000000,
       0x4031000000000000},
      {"red.global.add.u32 [%d3], 2", 5, 69},
      {"atom.add.noftz.f16x2 %r8, [%d3], 0x3c003800", 0, 0x50004c00},
      {"atom.global.add.noftz.bf16x2 %r8, [%d3], 0x3f803f80", 0, 0x42004200},
      {"atom.relaxed.gpu.global.cas.b16 %h8, [%d3], 5, 6", 5, 6},
      {"red.relaxed.gpu.global.max.u64 [%d3], 7", 3, 7},
  };
  for (const auto& t : cases) {
    for (bool shared : {false, true}) {
      std::string instruction = t.instruction;
      if (shared) {
        if (instruction.find("global") == std::string::npos) continue;
        instruction.replace(instruction.find("global"), 6, "shared");
      }
      SCOPED_TRACE(instruction);
      std::string body = R"(
    .shared .align 8 .b64 place;
    ld.param.u64 %d0, [p0]; mov.u32 %r0, %tid.x;
    ld.global.u64 %d2, [%d0];
    mov.u64 %d3, )" + std::string(shared ? "place" : "%d0") +
                         ";\n" + (shared ? "st.shared.u64 [place], %d2;\nbar.sync 0;\n" : "") +
                         instruction + ";\n" +
                         (shared ? "bar.sync 0;\nld.shared.u64 %d4, [place];\nst.global.u64 [%d0], "
                                   "%d4;\n"
                                 : "") +
                         "ret;";
      Machine machine(entry(body));
      ASSERT_TRUE(machine.ok()) << machine.error().message;
      auto place = machine.buffer(std::vector<std::uint64_t>{t.before});
      Outcome outcome = machine.run({1, 1, 1}, {32, 1, 1}, place);
      ASSERT_FALSE(outcome.fault) << outcome.fault->report;
      EXPECT_EQ(machine.read<std::uint64_t>(place, 1)[0], t.after);
      EXPECT_EQ(outcome.counters.atomics, 1u);
    }
  }
}

TEST(Atomics, ReturnTheOldValueToEachLane) {
  auto results = lane_results<std::uint32_t>(R"(
    .shared .align 4 .b32 place;
    mov.u32 %r1, 100; st.shared.u32 [place], %r1;
    atom.shared.add.u32 %r2, [place], 3;
    st.global.u32 [%d1], %r2; ret;)");
  for (std::uint32_t i = 0; i < 32; ++i) EXPECT_EQ(results[i], 100 + 3 * i);
}

TEST(Atomics, VectorsOfFloats) {
  Machine machine(entry(R"(
    ld.param.u64 %d0, [p0];
    mov.f32 %f1, 0f3F800000; mov.f32 %f2, 0f40000000;
    atom.global.add.v2.f32 {%f3, %f4}, [%d0], {%f1, %f2};
    red.global.add.v2.f32 [%d0+8], {%f1, %f2};
    ret;)"));
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  auto place = machine.buffer(std::vector<float>(4, 0));
  Outcome outcome = machine.run({1, 1, 1}, {32, 1, 1}, place);
  ASSERT_FALSE(outcome.fault) << outcome.fault->report;
  EXPECT_EQ(machine.read<float>(place, 4), (std::vector<float>{32, 64, 32, 64}));
}

TEST(AsyncCopies, LandWhenWaitedForAndFillWithZeros) {
  Machine machine(entry(R"(
    .shared .align 16 .b8 buffer[1024];
    ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1];
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, buffer; shl.b32 %r2, %r0, 4; add.u32 %r3, %r1, %r2;
    cvt.u64.u32 %d2, %r2; add.u64 %d3, %d0, %d2; add.u64 %d4, %d1, %d2;
    mov.u32 %r4, 7; st.shared.v4.u32 [%r3], {%r4, %r4, %r4, %r4};
    cp.async.cg.shared.global.L2::128B [%r3], [%d3], 16, 8;
    cp.async.commit_group;
    ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r3];
    cp.async.wait_group 0;
    ld.shared.v4.u32 {%r8, %r9, %r10, %r11}, [%r3];
    add.u32 %r8, %r8, %r4;
    st.global.v4.u32 [%d4], {%r8, %r9, %r10, %r11}; ret;)",
                        2));
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  std::vector<std::uint32_t> from(128);
  std::iota(from.begin(), from.end(), 1000);
  auto a = machine.buffer(from), b = machine.buffer(std::vector<std::uint32_t>(128, 0));
  Outcome outcome = machine.run({1, 1, 1}, {32, 1, 1}, a, b);
  ASSERT_FALSE(outcome.fault) << outcome.fault->report;
  auto results = machine.read<std::uint32_t>(b, 128);
  for (std::uint32_t i = 0; i < 128; ++i)
    EXPECT_EQ(results[i], i % 4 == 0 ? 1000 + i + 7 : i % 4 == 1 ? 1000 + i : 0) << i;
}

TEST(AsyncCopies, GroupsLandInOrder) {
  // Two groups are committed, one may stay in flight.
  auto results = lane_results<std::uint32_t>(R"(
    .shared .align 16 .b8 buffer[256];
    mov.u32 %r1, buffer; shl.b32 %r2, %r0, 2; add.u32 %r3, %r1, %r2; add.u32 %r4, %r3, 128;
    mov.u32 %r5, 1; st.shared.u32 [%r3], %r5; st.shared.u32 [%r4], %r5;
    mov.u32 %r6, 20; st.global.u32 [%d1], %r6;
    cp.async.ca.shared.global [%r3], [%d1], 4; cp.async.commit_group;
    cp.async.ca.shared.global [%r4], [%d1], 4; cp.async.commit_group;
    cp.async.wait_group 1;
    ld.shared.u32 %r7, [%r3]; ld.shared.u32 %r8, [%r4];
    cp.async.wait_all;
    ld.shared.u32 %r9, [%r4];
    mad.lo.u32 %r7, %r7, 100, %r8; mad.lo.u32 %r7, %r7, 100, %r9;
    st.global.u32 [%d1], %r7; ret;)");
  EXPECT_EQ(results, std::vector<std::uint32_t>(32, 200120));
}

}  // namespace
}  // namespace tilewright::vgpu
