// Instructions that are promised: each is named by a case of these tests, and those that the other
// files have no case of their own for have one here, operands in, result out.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <utility>

#include "tests/virtual_gpu/conformance.h"

namespace tilewright::vgpu {
namespace {

using U32 = std::uint32_t;
using U64 = std::uint64_t;

constexpr U64 kOne = 0x3f800000, kTwo = 0x40000000, kMinusOne = 0xbf800000, kNan = 0x7fffffff,
              kQuiet = 0x7fc00000, kInfinity = 0x7f800000;

struct Case {
  Form1 form;
  std::vector<Row> rows;
};

std::vector<Case> arithmetic_cases() {
  return {
      {{"neg.s32 D, A", "s32", "s32", "", ""}, {{5, 0, 0, 0xfffffffb}, {1u << 31, 0, 0, 1u << 31}}},
      {{"sub.s64 D, A, B", "s64", "s64", "s64", ""}, {{1, 2, 0, ~U64{0}}}},
      {{"dp4a.s32.s32 D, A, B, C", "s32", "b32", "b32", "s32"},
       {{0xff02fe01, 0x03030303, 10, 10}, {0x80808080, 0x80808080, 1, 65537}}},
      {{"div.approx.f32 D, A, B", "f32", "f32", "f32", ""},
       {{bits_of(6.0f), bits_of(2.0f), 0, bits_of(3.0f)},
        {kOne, 0, 0, kInfinity},
        {0, 0, 0, kNan}}},
      {{"abs.f16 D, A", "b16", "b16", "", ""}, {{0xbc00, 0, 0, 0x3c00}, {0xfe00, 0, 0, 0x7fff}}},
      {{"add.f16x2 D, A, B", "b32", "b32", "b32", ""}, {{0x3c003c00, 0x4000bc00, 0, 0x42000000}}},
      {{"sub.f16x2 D, A, B", "b32", "b32", "b32", ""}, {{0x3c003c00, 0x4000bc00, 0, 0xbc004000}}},
      {{"mul.f16x2 D, A, B", "b32", "b32", "b32", ""}, {{0x3c004200, 0x4000c000, 0, 0x4000c600}}},
      {{"min.f16x2 D, A, B", "b32", "b32", "b32", ""}, {{0x3c007e00, 0x4000c000, 0, 0x3c00c000}}},
      {{"fma.rn.f16x2 D, A, B, C", "b32", "b32", "b32", "b32"},
       {{0x3c004200, 0x4000c000, 0x3c000000, 0x4200c600}}},
      {{"add.bf16x2 D, A, B", "b32", "b32", "b32", ""}, {{0x3f803f80, 0x4000bf80, 0, 0x40400000}}},
      {{"sub.bf16x2 D, A, B", "b32", "b32", "b32", ""}, {{0x3f803f80, 0x4000bf80, 0, 0xbf804000}}},
      {{"mul.bf16x2 D, A, B", "b32", "b32", "b32", ""}, {{0x3f804040, 0x4000c000, 0, 0x4000c0c0}}},
      {{"max.bf16x2 D, A, B", "b32", "b32", "b32", ""}, {{0x3f807fc0, 0x4000c000, 0, 0x4000c000}}},
      {{"fma.rn.bf16x2 D, A, B, C", "b32", "b32", "b32", "b32"},
       {{0x3f804040, 0x4000c000, 0x3f800000, 0x4040c0c0}}},
      {{"lg2.approx.ftz.f32 D, A", "f32", "f32", "", ""},
       {{bits_of(8.0f), 0, 0, bits_of(3.0f)}, {1, 0, 0, 0xff800000}}},
      {{"rsqrt.approx.ftz.f32 D, A", "f32", "f32", "", ""},
       {{bits_of(4.0f), 0, 0, bits_of(0.5f)},
        {1, 0, 0, kInfinity},
        {0x80000001, 0, 0, 0xff800000}}},
      {{"mad24.hi.sat.s32 D, A, B, C", "s32", "s32", "s32", "s32"},
       {{0x7fffff, 0x7fffff, 0x7fffffff, 0x7fffffff}, {0x10000, 0x10000, 7, 0x10007}}},
      {{"mad24.lo.u32 D, A, B, C", "u32", "u32", "u32", "u32"}, {{0xff000003, 5, 2, 17}}},
      {{"mul24.hi.s32 D, A, B", "s32", "s32", "s32", ""}, {{0xffffff, 0x10000, 0, 0xffffffff}}},
  };
}

std::vector<Case> bit_cases() {
  return {
      {{"and.b64 D, A, B", "b64", "b64", "b64", ""},
       {{~U64{0}, 0x8000000000000001, 0, 0x8000000000000001}}},
      {{"xor.b64 D, A, B", "b64", "b64", "b64", ""}, {{~U64{0}, 1, 0, ~U64{1}}}},
      {{"and.pred D, A, B", "pred", "pred", "pred", ""}, {{1, 1, 0, 1}, {1, 0, 0, 0}}},
      {{"or.pred D, A, B", "pred", "pred", "pred", ""}, {{0, 1, 0, 1}, {0, 0, 0, 0}}},
      {{"not.pred D, A", "pred", "pred", "", ""}, {{0, 0, 0, 1}, {1, 0, 0, 0}}},
      {{"shr.u64 D, A, B", "u64", "u64", "u32", ""}, {{1ull << 63, 63, 0, 1}, {~U64{0}, 64, 0, 0}}},
      {{"bfi.b64 D, A, B, 60, 8", "b64", "b64", "b64", ""},
       {{0xff, 0, 0, 0xf000000000000000}, {0, ~U64{0}, 0, 0x0fffffffffffffff}}},
      {{"bfi.b32 D, A, B, C, 0", "b32", "b32", "b32", "u32"}, {{0xff, 0x1234, 3, 0x1234}}},
      {{"bfe.s32 D, A, B, C", "s32", "s32", "u32", "u32"},
       {{0x80, 4, 4, 0xfffffff8},
        {0x80, 4, 0, 0},
        {0x80000000, 30, 40, 0xfffffffe},
        {0x80000000, 200, 4, 0xffffffff}}},
      {{"bfe.u64 D, A, B, C", "u64", "u64", "u32", "u32"}, {{~U64{0}, 60, 60, 15}, {1, 64, 4, 0}}},
      {{"bfind.shiftamt.u32 D, A", "u32", "u32", "", ""}, {{1, 0, 0, 31}, {0, 0, 0, 0xffffffff}}},
      {{"bmsk.clamp.b32 D, A, B", "b32", "b32", "u32", ""},
       {{4, 4, 0, 0xf0}, {30, 8, 0, 0xc0000000}, {40, 8, 0, 0}}},
      {{"bmsk.wrap.b32 D, A, B", "b32", "b32", "u32", ""}, {{36, 4, 0, 0xf0}}},
      {{"szext.wrap.u32 D, A, B", "u32", "u32", "u32", ""}, {{0xffff, 36, 0, 0xf}}},
      {{"fns.b32 D, A, B, C", "b32", "b32", "b32", "b32"},
       {{0xaaaaaaaa, 0, 1, 1},
        {0xaaaaaaaa, 4, 2, 7},
        {0xaaaaaaaa, 31, 0xffffffff, 31},
        {0, 3, 1, 0xffffffff}}},
      {{"{.reg .b32 %q; lop3.or.b32 %q|D, A, B, C, 0x80, !%p1; }", "pred", "b32", "b32", "b32"},
       {{3, 6, 2, 1}, {1, 2, 4, 1}}},
      {{"{.reg .b32 %q; lop3.and.b32 %q|D, A, B, C, 0x80, %p0; }", "pred", "b32", "b32", "b32"},
       {}},
      {{"selp.f32 D, A, B, C", "f32", "f32", "f32", "pred"},
       {{kOne, kTwo, 1, kOne}, {kOne, kTwo, 0, kTwo}}},
      {{"selp.u16 D, A, B, C", "u16", "u16", "u16", "pred"}, {{3, 4, 1, 3}, {3, 4, 0, 4}}},
      {{"mov.b16 D, A", "b16", "b16", "", ""}, {{0xabcd, 0, 0, 0xabcd}}},
      {{"prmt.b32.f4e D, A, B, C", "b32", "b32", "b32", "b32"},
       {{0x33221100, 0x77665544, 1, 0x44332211}}},
      {{"prmt.b32.b4e D, A, B, C", "b32", "b32", "b32", "b32"},
       {{0x33221100, 0x77665544, 1, 0x66770011}}},
      {{"prmt.b32.rc8 D, A, B, C", "b32", "b32", "b32", "b32"},
       {{0x33221100, 0x77665544, 2, 0x22222222}}},
      {{"prmt.b32.ecl D, A, B, C", "b32", "b32", "b32", "b32"},
       {{0x33221100, 0x77665544, 1, 0x33221111}}},
      {{"prmt.b32.ecr D, A, B, C", "b32", "b32", "b32", "b32"},
       {{0x33221100, 0x77665544, 1, 0x11111100}}},
      {{"prmt.b32.rc16 D, A, B, C", "b32", "b32", "b32", "b32"},
       {{0x33221100, 0x77665544, 1, 0x33223322}}},
  };
}

std::vector<Case> comparison_cases() {
  const std::vector<Row> numbers = {{kOne, kTwo, 0, 0},   {kTwo, kOne, 0, 0},
                                    {kOne, kOne, 0, 0},   {0, 0x80000000, 0, 0},
                                    {kQuiet, kOne, 0, 0}, {kOne, kQuiet, 0, 0}};
  auto with = [](std::vector<Row> rows, std::vector<U64> want) {
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i].want = want[i];
    return rows;
  };
  const std::vector<Row> integers = {
      {1, 2, 0, 0}, {2, 1, 0, 0}, {7, 7, 0, 0}, {0xffffffff, 0, 0, 0}};
  return {
      {{"setp.eq.f32 D, A, B", "pred", "f32", "f32", ""}, with(numbers, {0, 0, 1, 1, 0, 0})},
      {{"setp.lt.f32 D, A, B", "pred", "f32", "f32", ""}, with(numbers, {1, 0, 0, 0, 0, 0})},
      {{"setp.gt.f32 D, A, B", "pred", "f32", "f32", ""}, with(numbers, {0, 1, 0, 0, 0, 0})},
      {{"setp.ge.f32 D, A, B", "pred", "f32", "f32", ""}, with(numbers, {0, 1, 1, 1, 0, 0})},
      {{"setp.ltu.f32 D, A, B", "pred", "f32", "f32", ""}, with(numbers, {1, 0, 0, 0, 1, 1})},
      {{"setp.leu.f32 D, A, B", "pred", "f32", "f32", ""}, with(numbers, {1, 0, 1, 1, 1, 1})},
      {{"setp.gtu.f32 D, A, B", "pred", "f32", "f32", ""}, with(numbers, {0, 1, 0, 0, 1, 1})},
      {{"setp.geu.f32 D, A, B", "pred", "f32", "f32", ""}, with(numbers, {0, 1, 1, 1, 1, 1})},
      {{"setp.neu.f32 D, A, B", "pred", "f32", "f32", ""}, with(numbers, {1, 1, 0, 0, 1, 1})},
      {{"setp.num.f32 D, A, B", "pred", "f32", "f32", ""}, with(numbers, {1, 1, 1, 1, 0, 0})},
      {{"setp.eq.b32 D, A, B", "pred", "b32", "b32", ""}, with(integers, {0, 0, 1, 0})},
      {{"setp.ne.b32 D, A, B", "pred", "b32", "b32", ""}, with(integers, {1, 1, 0, 1})},
      {{"setp.ne.s32 D, A, B", "pred", "s32", "s32", ""}, with(integers, {1, 1, 0, 1})},
      {{"setp.gt.s32 D, A, B", "pred", "s32", "s32", ""}, with(integers, {0, 1, 0, 0})},
      {{"setp.ge.s32 D, A, B", "pred", "s32", "s32", ""}, with(integers, {0, 1, 1, 0})},
      {{"setp.le.s32 D, A, B", "pred", "s32", "s32", ""}, with(integers, {1, 0, 1, 1})},
      {{"setp.eq.s16 D, A, B", "pred", "s16", "s16", ""}, {{0x8000, 0x8000, 0, 1}, {1, 2, 0, 0}}},
      {{"setp.lt.ftz.f16 D, A, B", "pred", "b16", "b16", ""}, {{1, 2, 0, 0}, {0, 0x0400, 0, 1}}},
      {{"set.lt.ftz.f16x2.f16x2 D, A, B", "b32", "b32", "b32", ""},
       {{0x00010000, 0x00020400, 0, 0x3c00}}},
  };
}

std::vector<Case> conversion_cases() {
  auto f = [](float x) { return bits_of(x); };
  return {
      {{"cvt.rni.f32.f32 D, A", "f32", "f32", "", ""},
       {{f(2.5f), 0, 0, f(2)}, {f(-0.5f), 0, 0, 0x80000000}}},
      {{"cvt.rzi.f32.f32 D, A", "f32", "f32", "", ""}, {{f(-2.5f), 0, 0, f(-2)}}},
      {{"cvt.rmi.f32.f32 D, A", "f32", "f32", "", ""}, {{f(-2.5f), 0, 0, f(-3)}}},
      {{"cvt.rni.s32.f32 D, A", "s32", "f32", "", ""},
       {{f(2.5f), 0, 0, 2}, {f(3e9f), 0, 0, 0x7fffffff}}},
      {{"cvt.rmi.s32.f32 D, A", "s32", "f32", "", ""}, {{f(-2.5f), 0, 0, 0xfffffffd}}},
      {{"cvt.rzi.s32.f32 D, A", "s32", "f32", "", ""},
       {{f(-2.5f), 0, 0, 0xfffffffe}, {kQuiet, 0, 0, 0}}},
      {{"cvt.rzi.u32.f32 D, A", "u32", "f32", "", ""},
       {{f(-2.5f), 0, 0, 0}, {f(5e9f), 0, 0, 0xffffffff}}},
      {{"cvt.rn.satfinite.e4m3x2.f32 D, A, B", "b16", "f32", "f32", ""},
       {{kOne, f(-448), 0, 0x38fe}}},
      {{"cvt.rn.satfinite.e5m2x2.f32 D, A, B", "b16", "f32", "f32", ""},
       {{kOne, f(1e9f), 0, 0x3c7b}}},
      {{"cvt.rn.f16x2.e4m3x2 D, A", "b32", "b16", "", ""}, {{0x38fe, 0, 0, 0x3c00df00}}},
      {{"cvt.rn.satfinite.e2m1x2.f32 D, A, B", "b8", "f32", "f32", ""},
       {{f(6), f(-0.5f), 0, 0x79},
        {f(100), f(0.25f), 0, 0x70},
        {f(0.75f), f(5), 0, 0x26},
        {kQuiet, f(2.5f), 0, 0x74}}},
      {{"cvt.rn.f16x2.e2m1x2 D, A", "b32", "b8", "", ""}, {{0x79, 0, 0, 0x4600b800}}},
      {{"cvt.rn.satfinite.e2m3x2.f32 D, A, B", "b16", "f32", "f32", ""},
       {{f(7.5f), f(-0.125f), 0, 0x1f21}, {f(99), f(1), 0, 0x1f08}}},
      {{"cvt.rn.f16x2.e2m3x2 D, A", "b32", "b16", "", ""}, {{0x1f21, 0, 0, 0x4780b000}}},
      {{"cvt.rn.satfinite.e3m2x2.f32 D, A, B", "b16", "f32", "f32", ""},
       {{f(28), f(-0.0625f), 0, 0x1f21}, {f(99), f(1), 0, 0x1f0c}}},
      {{"cvt.rn.f16x2.e3m2x2 D, A", "b32", "b16", "", ""}, {{0x1f21, 0, 0, 0x4f00ac00}}},
      {{"cvt.rp.satfinite.ue8m0x2.f32 D, A, B", "b16", "f32", "f32", ""},
       {{f(1.5f), f(1), 0, 0x807f}, {kInfinity, 0, 0, 0xfe00}, {kQuiet, 1, 0, 0xff00}}},
      {{"cvt.rz.ue8m0x2.f32 D, A, B", "b16", "f32", "f32", ""},
       {{f(1.5f), f(-4), 0, 0x7f81}, {kInfinity, 0, 0, 0xff00}}},
      {{"cvt.rz.satfinite.ue8m0x2.bf16x2 D, A", "b16", "b32", "", ""},
       {{0x3fc04080, 0, 0, 0x7f81}}},
      {{"cvt.rn.bf16x2.ue8m0x2 D, A", "b32", "b16", "", ""},
       {{0x7f00, 0, 0, 0x3f800040}, {0xff81, 0, 0, 0x7fff4080}}},
      {{"cvt.pack.sat.u16.s32 D, A, B", "b32", "s32", "s32", ""},
       {{70000, 0xffffffff, 0, 0xffff0000}, {3, 4, 0, 0x00030004}}},
      {{"cvt.pack.sat.s8.s32.b32 D, A, B, C", "b32", "s32", "s32", "b32"},
       {{200, 0xffffff00, 0x12345678, 0x56787f80}}},
      {{"cvt.pack.sat.u4.s32.b32 D, A, B, C", "b32", "s32", "s32", "b32"},
       {{20, 3, 0x12345678, 0x345678f3}}},
  };
}

std::vector<Case> packed_cases() {
  const U64 one_two = kTwo << 32 | kOne, ones = kOne << 32 | kOne;
  auto f = [](float x) { return bits_of(x); };
  return {
      {{"add.rn.f32x2 D, A, B", "b64", "b64", "b64", ""}, {{one_two, ones, 0, f(3) << 32 | kTwo}}},
      {{"sub.rn.f32x2 D, A, B", "b64", "b64", "b64", ""}, {{one_two, ones, 0, kOne << 32}}},
      {{"mul.rz.ftz.f32x2 D, A, B", "b64", "b64", "b64", ""},
       {{one_two, U64{1} << 32 | kTwo, 0, kTwo},
        {U64{0x3f800001} << 32, U64{0x3f800001} << 32, 0, U64{0x3f800002} << 32}}},
      {{"fma.rp.f32x2 D, A, B, C", "b64", "b64", "b64", "b64"},
       {{one_two, ones, U64{1} << 32 | 1, U64{0x40000001} << 32 | 0x3f800001}}},
      {{"add.f32.f16 D, A, B", "f32", "b16", "f32", ""},
       {{0x3c00, kTwo, 0, f(3)}, {0x0001, 0, 0, f(0x1p-24f)}}},
      {{"sub.rz.sat.f32.bf16 D, A, B", "f32", "b16", "f32", ""},
       {{0x3f80, f(0.25f), 0, f(0.75f)}, {0x3f80, kTwo, 0, 0}}},
      {{"fma.rn.f32.f16 D, A, B, C", "f32", "b16", "b16", "f32"}, {{0x4000, 0x4200, kOne, f(7)}}},
      {{"min.f32 D, A, B, C", "f32", "f32", "f32", "f32"},
       {{kTwo, kOne, kMinusOne, kMinusOne}, {kQuiet, kTwo, kQuiet, kTwo}}},
      {{"max.NaN.f32 D, A, B, C", "f32", "f32", "f32", "f32"}, {{kTwo, kOne, kQuiet, kNan}}},
      {{"max.ftz.abs.f32 D, A, B, C", "f32", "f32", "f32", "f32"},
       {{kMinusOne, 1, 0x80000001, kOne}, {1, 2, 3, 0}}},
      {{"min.xorsign.abs.f32 D, A, B", "f32", "f32", "f32", ""},
       {{kMinusOne, kTwo, 0, kMinusOne},
        {0xffc00000, kQuiet, 0, kNan},
        {0xffc00000, kOne, 0, kMinusOne}}},
      {{"max.ftz.xorsign.abs.f32 D, A, B", "f32", "f32", "f32", ""},
       {{0x80000001, 2, 0, 0x80000000}}},
      {{"max.xorsign.abs.f16 D, A, B", "b16", "b16", "b16", ""},
       {{0xbc00, 0x4000, 0, 0xc000}, {0xfe00, 0x7e00, 0, 0x7fff}}},
      {{"min.NaN.xorsign.abs.bf16x2 D, A, B", "b32", "b32", "b32", ""},
       {{0xbf807fc0, 0x40003f80, 0, 0xbf807fff}}},
      {{"add.u16x2 D, A, B", "b32", "b32", "b32", ""}, {{0xffff0001, 0x0001ffff, 0, 0}}},
      {{"min.s16x2 D, A, B", "b32", "b32", "b32", ""}, {{0xffff0001, 0x00017fff, 0, 0xffff0001}}},
      {{"max.u16x2 D, A, B", "b32", "b32", "b32", ""}, {{0xffff0001, 0x00017fff, 0, 0xffff7fff}}},
      {{"min.relu.s16x2 D, A, B", "b32", "b32", "b32", ""}, {{0xffff0001, 0x00017fff, 0, 1}}},
      {{"max.relu.s32 D, A, B", "s32", "s32", "s32", ""},
       {{0xffffffff, 0xfffffffe, 0, 0}, {1, 2, 0, 2}}},
      {{"vabsdiff4.u32.u32.u32 D, A, B, C", "u32", "u32", "u32", "u32"},
       {{0xff000510, 0x01000a10, 7, 0xfe000500}}},
      {{"vabsdiff4.u32.u32.u32.add D, A, B, C", "u32", "u32", "u32", "u32"},
       {{0xff000510, 0x01000a10, 7, 0xfe + 5 + 7}}},
      {{"vabsdiff2.u32.s32.s32.add D, A, B, C", "u32", "u32", "u32", "u32"},
       {{0xffff0001, 0x00010003, 1, 5}}},
      {{"vadd4.s32.s32.s32.sat D, A, B, C", "u32", "u32", "u32", "u32"},
       {{0x7f80ff01, 0x01ff0101, 0, 0x7f800002}}},
      {{"neg.ftz.f16x2 D, A", "b32", "b32", "", ""}, {{0x00013c00, 0, 0, 0x8000bc00}}},
      {{"abs.ftz.f16 D, A", "b16", "b16", "", ""}, {{0x8001, 0, 0, 0}, {0xbc00, 0, 0, 0x3c00}}},
  };
}

void run(const std::vector<Case>& cases) {
  for (const Case& c : cases)
    if (!c.rows.empty()) expect_rows(c.form, c.rows);
}

TEST(Opcodes, Arithmetic) { run(arithmetic_cases()); }
TEST(Opcodes, Bits) { run(bit_cases()); }
TEST(Opcodes, Comparisons) { run(comparison_cases()); }
TEST(Opcodes, Conversions) { run(conversion_cases()); }
TEST(Opcodes, PackedAndMixed) { run(packed_cases()); }

TEST(Opcodes, AllTablesOfThreeInputs) {
  // The operands enumerate the eight combinations of three bits: the result is the table itself.
  for (int table = 0; table < 256; ++table)
    expect_rows(
        {"lop3.b32 D, A, B, C, " + std::to_string(table), "b32", "b32", "b32", "b32"},
        {{0xf0, 0xcc, 0xaa,
          static_cast<U64>((table & 1) != 0 ? 0xffffff00u : 0u) | static_cast<U64>(table)}});
}

/// Instructions that are more than a function of registers: `body` finds 100 + its lane at [%d1],
/// the first of 32 words of 64 bits being at %d0, and leaves its result in %d2.
struct Body {
  const char* text;
  U64 (*want)(U64 lane);
};

U64 own(U64 lane) { return 100 + lane; }

TEST(Opcodes, MemoryLanesAndAtomics) {
  const Body bodies[] = {
      {"ld.global.ca.f32 %f1, [%d1]; mov.b32 %r1, %f1;", own},
      {"ld.global.cg.f32 %f1, [%d1]; mov.b32 %r1, %f1;", own},
      {"ld.global.cs.f32 %f1, [%d1]; mov.b32 %r1, %f1;", own},
      {"ld.global.nc.f32 %f1, [%d1]; mov.b32 %r1, %f1;", own},
      {"ld.global.f64 %x1, [%d1]; mov.b64 %d2, %x1; cvt.u32.u64 %r1, %d2;", own},
      {"ld.global.nc.u16 %h1, [%d1]; cvt.u32.u16 %r1, %h1;", own},
      {"ld.global.nc.u32 %r1, [%d1];", own},
      {"ld.global.nc.L1::no_allocate.L2::128B.u32 %r1, [%d1];", own},
      {"ld.mmio.relaxed.sys.global.u32 %r1, [%d1];", own},
      {"ld.acquire.gpu.global.u32 %r1, [%d1];", own},
      {"ld.volatile.global.u32 %r1, [%d1];", own},
      {"ldu.global.u32 %r1, [%d1];", own},
      {"ld.global.nc.v2.u32 {%r1, %r2}, [%d1]; add.u32 %r1, %r1, %r2;", own},
      {"ld.global.nc.v2.f32 {%f1, _}, [%d1]; mov.b32 %r1, %f1;", own},
      {"ld.global.nc.v4.u32 {%r1, _, %r2, _}, [%d0+32]; add.u32 %r1, %r1, %r2;",
       [](U64) { return U64{104 + 105}; }},
      {"ld.global.nc.v4.f32 {_, _, %f1, %f2}, [%d0+32]; mov.b64 %d2, {%f1, %f2};"
       "cvt.u32.u64 %r1, %d2;",
       [](U64) { return U64{105}; }},
      {"ld.global.v8.b32 {%r1, _, _, _, _, _, %r2, %r3}, [%d0+64]; add.u32 %r1, %r1, %r2;"
       "add.u32 %r1, %r1, %r3;",
       [](U64) { return U64{108 + 111}; }},
      {"ld.param.s32 %r1, [p0]; cvt.u32.u64 %r2, %d0; sub.u32 %r1, %r1, %r2;",
       [](U64) { return U64{0}; }},
      {"mov.b32 %f1, %r0; st.global.cs.f32 [%d1], %f1; ld.global.u32 %r1, [%d1];",
       [](U64 lane) { return lane; }},
      {"mov.f64 %x1, 0d0000000000000009; st.global.f64 [%d1], %x1; ld.global.u32 %r1, [%d1];",
       [](U64) { return U64{9}; }},
      {"mov.u16 %h1, 7; st.global.u16 [%d1+2], %h1; ld.global.u32 %r1, [%d1];",
       [](U64 lane) { return 100 + lane + (U64{7} << 16); }},
      {"mov.b32 %f1, %r0; st.global.v2.f32 [%d1], {%f1, %f1}; ld.global.u32 %r1, [%d1+4];",
       [](U64 lane) { return lane; }},
      {"mov.b32 %f1, 5; mov.b32 %f2, 6; st.global.v4.f32 [%d0], {%f1, %f1, %f1, %f2};"
       "ld.global.u32 %r1, [%d0+12];",
       [](U64) { return U64{6}; }},
      {".shared .align 16 .b8 s[512]; mul.lo.u32 %r2, %r0, 8; mov.u32 %r3, s; add.u32 %r2, %r2, "
       "%r3;"
       "mov.b32 %f1, %r0; st.shared.v2.f32 [%r2], {%f1, %f1}; ld.shared.f32 %f2, [%r2+4];"
       "mov.b32 %r1, %f2;",
       [](U64 lane) { return lane; }},
      {".shared .align 16 .b8 s[512]; mul.lo.u32 %r2, %r0, 4; mov.u32 %r3, s; add.u32 %r2, %r2, "
       "%r3;"
       "or.b32 %r4, %r0, 0xff00; st.shared.u32 [%r2], %r4; ld.shared.u8 %r1, [%r2+1];",
       [](U64) { return U64{0xff}; }},
      {".shared .align 16 .b8 s[512]; mul.lo.u32 %r2, %r0, 4; mov.u32 %r3, s; add.u32 %r2, %r2, "
       "%r3;"
       "st.shared.u32 [%r2], %r0; ld.shared::cluster.f32 %f1, [%r2]; mov.b32 %r1, %f1;",
       [](U64 lane) { return lane; }},
      {"shfl.sync.up.b32 %r1|%p1, %r0, 3, 0, -1; @!%p1 add.u32 %r1, %r1, 1000;",
       [](U64 lane) { return lane < 3 ? lane + 1000 : lane - 3; }},
      {"shfl.sync.down.b32 %r1|%p1, %r0, 3, 0x1807, -1; @!%p1 add.u32 %r1, %r1, 1000;",
       [](U64 lane) { return lane % 8 < 5 ? lane + 3 : lane + 1000; }},
      {"mov.u64 %d3, 110; atom.global.max.u64 %d2, [%d1], %d3; ld.global.u32 %r1, [%d1];",
       [](U64 lane) { return lane < 10 ? 110 : 100 + lane; }},
      {"add.u32 %r2, %r0, 100; atom.relaxed.global.cas.b32 %r1, [%d1], %r2, 1;"
       "ld.global.u32 %r2, [%d1]; mad.lo.u32 %r1, %r2, 1000, %r1;",
       [](U64 lane) { return 1100 + lane; }},
      {"mov.u32 %r2, 0x3f803f80; st.global.u32 [%d1], %r2;"
       "atom.add.noftz.bf16x2 %r1, [%d1], %r2; ld.global.u32 %r1, [%d1];",
       [](U64) { return U64{0x40004000}; }},
      {".reg .b128 %q<3>; and.b64 %d4, %d1, -16; mov.b128 %q0, {5, 6};"
       "and.b32 %r2, %r0, 1; setp.eq.u32 %p1, %r2, 0; mov.u32 %r1, 0;"
       "@%p1 atom.global.exch.b128 %q1, [%d4], %q0; @%p1 mov.b128 {%d2, %d3}, %q1;"
       "@%p1 cvt.u32.u64 %r1, %d3; ld.global.u64 %d3, [%d1]; cvt.u32.u64 %r2, %d3;"
       "mad.lo.u32 %r1, %r2, 1000, %r1;",
       [](U64 lane) { return lane % 2 == 0 ? 5000 + 101 + lane : 6000; }},
      {".reg .b128 %q<4>; and.b64 %d4, %d1, -16; mov.b128 %q0, {5, 6}; st.global.b128 [%d4], %q0;"
       "mov.b128 %q1, {7, 8}; atom.global.cas.b128 %q2, [%d4], %q0, %q1;"
       "ld.global.b128 %q3, [%d4]; mov.b128 {%d2, %d3}, %q3; mad.lo.u64 %d2, %d2, 10, %d3;"
       "cvt.u32.u64 %r1, %d2;",
       [](U64) { return U64{78}; }},
      {"cvt.rn.f32.u32 %f1, %r0; neg.f32 %f2, %f1; redux.sync.min.f32 %f3, %f2, -1;"
       "cvt.rni.s32.f32 %r1, %f3;",
       [](U64) { return U64{static_cast<U32>(-31)}; }},
      {"cvt.rn.f32.u32 %f1, %r0; neg.f32 %f2, %f1; redux.sync.max.abs.f32 %f3, %f2, -1;"
       "cvt.rni.s32.f32 %r1, %f3;",
       [](U64) { return U64{31}; }},
      {"mov.b32 %f1, 0x7fc00000; setp.ne.u32 %p1, %r0, 4; @%p1 mov.f32 %f1, 0f3F800000;"
       "redux.sync.max.NaN.f32 %f3, %f1, -1; mov.b32 %r1, %f3;",
       [](U64) { return U64{0x7fffffff}; }},
      {"mov.b32 %f1, 0x7fc00000; setp.ne.u32 %p1, %r0, 4; @%p1 mov.f32 %f1, 0f3F800000;"
       "redux.sync.min.f32 %f3, %f1, -1; mov.b32 %r1, %f3;",
       [](U64) { return kOne; }},
  };
  for (const Body& body : bodies) {
    for (const Level* level : host_levels()) {
      SCOPED_TRACE(body.text);
      const std::string text = std::string("cvt.u64.u32 %d3, %r0; add.u64 %d3, %d3, 100;\n") +
                               "st.global.u64 [%d1], %d3; bar.warp.sync -1;\n" + body.text +
                               "\nbar.warp.sync -1; cvt.u64.u32 %d2, %r1;\n"
                               "st.global.u64 [%d1], %d2; ret;";
      auto results = lane_results<U64>(text, *level);
      for (U64 lane = 0; lane < results.size(); ++lane)
        ASSERT_EQ(results[lane], body.want(lane)) << "lane " << lane;
    }
  }
}

/// Opcodes whose cases put them together from parts: where.
struct Composed {
  const char *opcode, *file, *part;
};
constexpr Composed kComposed[] = {
    {"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster",
     "async_test.cpp", "multicast::cluster"},
    {"cp.async.bulk.tensor.2d.global.shared::cta.bulk_group", "tensor_copy_test.cpp", "bulk_group"},
    {"mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", "mma_test.cpp", "e4m3"},
    {"mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32", "mma_test.cpp", "satfinite"},
    {"stmatrix.sync.aligned.m8n8.x4.shared.b16", "matrix_test.cpp", "stmatrix"},
};

/// Source without comments.
std::string code_of(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::string text, line;
  while (std::getline(stream, line)) text += line.substr(0, line.find("//")) + "\n";
  return text;
}

TEST(Opcodes, EveryPromisedOneIsNamedByACase) {
  const std::filesystem::path folder = TILEWRIGHT_SOURCE_DIR "/tests/virtual_gpu";
  std::set<std::string> named;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const auto& path = entry.path();
    if (path.extension() != ".cpp" && path.extension() != ".h") continue;
    std::string token;
    for (char c : code_of(path) + " ") {
      if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == ':') {
        token += c;
        continue;
      }
      named.insert(std::exchange(token, {}));
    }
  }
  for (const Composed& composed : kComposed) {
    EXPECT_NE(code_of(folder / composed.file).find(composed.part), std::string::npos)
        << composed.opcode;
    named.insert(composed.opcode);
  }
  std::ifstream list(folder / "promised_opcodes.txt");
  int promised = 0;
  for (std::string opcode; std::getline(list, opcode); ++promised)
    EXPECT_TRUE(named.contains(opcode)) << opcode << " has no case";
  EXPECT_GE(promised, 267);
}

}  // namespace
}  // namespace tilewright::vgpu
