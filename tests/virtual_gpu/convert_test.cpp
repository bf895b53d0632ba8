// cvt between integers and floats.
#include <algorithm>
#include <cmath>

#include "tests/virtual_gpu/conformance.h"

namespace tilewright::vgpu {
namespace {

using U32 = std::uint32_t;
using U64 = std::uint64_t;
using S64 = std::int64_t;

double f32(U64 bits) { return static_cast<double>(std::bit_cast<float>(U32(bits))); }

std::vector<Row> numbers() {
  std::vector<Row> rows = float_rows(300, 1);
  for (double x :
       {0.5, -0.5, 1.5, 2.5, -2.5, 0.49999997, 8388607.5, 2147483520.0, 2147483648.0, -2147483648.0,
        -2147483904.0, 4294967040.0, 4294967296.0, 1e20, -1e20, 254.5, 255.5, -128.5, 32767.5})
    rows.push_back({bits_of(static_cast<float>(x)), 0, 0, 0});
  return rows;
}

double rounded(double x, char mode) {
  switch (mode) {
    case 'z':
      return std::trunc(x);
    case 'm':
      return std::floor(x);
    case 'p':
      return std::ceil(x);
    default:
      return std::nearbyint(x);
  }
}

TEST(Convert, FloatsToIntegersRoundAndSaturate) {
  struct Target {
    const char* type;
    double low, high;
    const char* reg;
  };
  const Target targets[] = {{"s32", -2147483648.0, 2147483647.0, "b32"},
                            {"u32", 0, 4294967295.0, "b32"},
                            {"s16", -32768, 32767, "b16"},
                            {"u16", 0, 65535, "b16"}};
  for (const auto& t : targets)
    for (char mode : {'n', 'z', 'm', 'p'})
      expect_reference(
          {std::string("cvt.r") + mode + "i." + t.type + ".f32 D, A", t.reg, "f32", "", ""},
          numbers(), [&](const Row& r) {
            double x = f32(r.a);
            if (std::isnan(x)) return U64{0};
            double v = std::clamp(rounded(x, mode), t.low, t.high);
            U64 bits = static_cast<U64>(static_cast<S64>(v));
            return t.reg[1] == '1' ? bits & 0xffff : bits & 0xffffffff;
          });
  expect_rows({"cvt.rzi.s64.f32 D, A", "s64", "f32", "", ""},
              {{bits_of(-1.5e10f), 0, 0, static_cast<U64>(static_cast<S64>(-1.5e10f))},
               {bits_of(1e30f), 0, 0, 0x7fffffffffffffff},
               {0x7fc00000, 0, 0, 0x8000000000000000}});
  expect_rows({"cvt.rni.s32.f64 D, A", "s32", "f64", "", ""},
              {{bits_of(2.5), 0, 0, 2}, {bits_of(-3.5), 0, 0, 0xfffffffc}});
  expect_rows({"cvt.rzi.u8.f32 D, A", "b32", "f32", "", ""},
              {{bits_of(300.0f), 0, 0, 255}, {bits_of(-3.0f), 0, 0, 0}});
  expect_rows({"cvt.rzi.s8.f32 D, A", "b32", "f32", "", ""},
              {{bits_of(-300.0f), 0, 0, 0xffffff80}, {bits_of(5.9f), 0, 0, 5}});
}

TEST(Convert, FloatsToIntegralFloatsKeepTheSignOfZero) {
  for (char mode : {'n', 'z', 'm', 'p'})
    expect_reference({std::string("cvt.r") + mode + "i.f32.f32 D, A", "f32", "f32", "", ""},
                     numbers(), [&](const Row& r) {
                       double x = f32(r.a);
                       if (std::isnan(x)) return U64{0x7fffffff};
                       return bits_of(static_cast<float>(std::copysign(rounded(x, mode), x)));
                     });
}

TEST(Convert, IntegersToFloatsRoundToNearest) {
  expect_reference(
      {"cvt.rn.f32.s32 D, A", "f32", "s32", "", ""}, integer_rows(4, 300, 2),
      [](const Row& r) { return bits_of(static_cast<float>(static_cast<std::int32_t>(r.a))); });
  expect_reference({"cvt.rn.f32.u32 D, A", "f32", "u32", "", ""}, integer_rows(4, 300, 2),
                   [](const Row& r) { return bits_of(static_cast<float>(U32(r.a))); });
  expect_reference({"cvt.rn.f32.u64 D, A", "f32", "u64", "", ""}, integer_rows(8, 300, 2),
                   [](const Row& r) { return bits_of(static_cast<float>(r.a)); });
  expect_reference({"cvt.rn.f64.s64 D, A", "f64", "s64", "", ""}, integer_rows(8, 300, 2),
                   [](const Row& r) { return bits_of(static_cast<double>(S64(r.a))); });
  expect_rows({"cvt.rz.f32.s32 D, A", "f32", "s32", "", ""},
              {{16777219, 0, 0, bits_of(16777218.0f)}});
  expect_rows({"cvt.rn.f16.s32 D, A", "b16", "s32", "", ""},
              {{3, 0, 0, 0x4200}, {0xfffffffd, 0, 0, 0xc200}, {100000, 0, 0, 0x7c00}});
  expect_rows({"cvt.rn.f32.u16 D, A", "f32", "u16", "", ""}, {{65535, 0, 0, bits_of(65535.0f)}});
}

TEST(Convert, IntegersExtendTruncateAndSaturate) {
  struct {
    const char* instruction;
    const char *d, *a;
    std::vector<Row> rows;
  } cases[] = {
      {"cvt.s64.s32 D, A", "s64", "s32", {{0x80000000, 0, 0, 0xffffffff80000000}}},
      {"cvt.u64.u32 D, A", "u64", "u32", {{0x80000000, 0, 0, 0x80000000}}},
      {"cvt.u32.u64 D, A", "u32", "u64", {{0x123456789abcdef0, 0, 0, 0x9abcdef0}}},
      {"cvt.u16.u32 D, A", "u16", "u32", {{0x12345678, 0, 0, 0x5678}}},
      {"cvt.s32.s16 D, A", "s32", "s16", {{0x8000, 0, 0, 0xffff8000}}},
      {"cvt.u32.u16 D, A", "u32", "u16", {{0x8000, 0, 0, 0x8000}}},
      {"cvt.s32.s8 D, A", "s32", "b32", {{0x1ff80, 0, 0, 0xffffff80}}},
      {"cvt.u32.u8 D, A", "u32", "b16", {{0xff80, 0, 0, 0x80}}},
      {"cvt.s8.s32 D, A", "b32", "s32", {{0x180, 0, 0, 0xffffff80}}},
      {"cvt.u8.u32 D, A", "b16", "u32", {{0x1ff, 0, 0, 0xff}}},
      {"cvt.s64.s8 D, A", "s64", "b16", {{0x80, 0, 0, 0xffffffffffffff80}}},
      {"cvt.sat.u8.s32 D, A", "b32", "s32", {{300, 0, 0, 255}, {0xfffffff0, 0, 0, 0}}},
      {"cvt.sat.s8.s32 D, A", "b32", "s32", {{300, 0, 0, 127}, {0xffffff00, 0, 0, 0xffffff80}}},
      {"cvt.sat.s32.u32 D, A", "s32", "u32", {{0xffffffff, 0, 0, 0x7fffffff}}},
  };
  for (const auto& t : cases) expect_rows({t.instruction, t.d, t.a, "", ""}, t.rows);
}

TEST(Convert, FloatsToFloats) {
  expect_reference({"cvt.f64.f32 D, A", "f64", "f32", "", ""}, float_rows(200, 3),
                   [](const Row& r) {
                     double x = f32(r.a);
                     return std::isnan(x) ? U64{0xfff8000000000000} : bits_of(x);
                   });
  expect_reference({"cvt.rn.f32.f64 D, A", "f32", "f64", "", ""}, double_rows(200, 3),
                   [](const Row& r) {
                     auto f = static_cast<float>(std::bit_cast<double>(r.a));
                     return std::isnan(f) ? U64{0x7fffffff} : bits_of(f);
                   });
  expect_rows({"cvt.sat.f32.f32 D, A", "f32", "f32", "", ""},
              {{bits_of(2.0f), 0, 0, bits_of(1.0f)},
               {bits_of(-2.0f), 0, 0, 0},
               {bits_of(0.25f), 0, 0, bits_of(0.25f)},
               {0x7fc00000, 0, 0, 0}});
  expect_rows({"cvt.ftz.f32.f32 D, A", "f32", "f32", "", ""},
              {{1, 0, 0, 0}, {0x80000001, 0, 0, 0x80000000}});
  expect_rows({"cvt.rp.f32.f64 D, A", "f32", "f64", "", ""},
              {{bits_of(1.0 + 1e-12), 0, 0, bits_of(std::nextafterf(1.0f, 2.0f))}});
}

/// The value of an fp8 code, by the formats' definition.
double fp8(U32 code, bool e5m2) {
  const int mantissa_bits = e5m2 ? 2 : 3, bias = e5m2 ? 15 : 7;
  const int exponent = int(code & 0x7f) >> mantissa_bits;
  const int mantissa = int(code) & ((1 << mantissa_bits) - 1);
  double value = exponent == 0
                     ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                     : std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
  if (e5m2 && exponent == 31) value = mantissa == 0 ? INFINITY : NAN;
  if (!e5m2 && (code & 0x7f) == 0x7f) value = NAN;
  return (code & 0x80) != 0 ? -value : value;
}

/// The nearest finite code of all, the even one of two: NaN is 0x7f.
U32 nearest_fp8(double x, bool e5m2) {
  if (std::isnan(x)) return 0x7f;
  const double magnitude = std::min(std::fabs(x), fp8(e5m2 ? 0x7b : 0x7e, e5m2));
  U32 best = 0;
  double least = INFINITY;
  for (U32 code = 0; code < 0x7f; ++code) {
    const double value = fp8(code, e5m2);
    if (!std::isfinite(value)) continue;
    const double distance = std::fabs(magnitude - value);
    if (distance < least || (distance == least && code % 2 == 0)) {
      least = distance;
      best = code;
    }
  }
  return best | (std::signbit(x) ? 0x80 : 0);
}

TEST(Convert, ToFp8IsTheNearestCode) {
  for (bool e5m2 : {false, true}) {
    const std::string type = e5m2 ? "e5m2x2" : "e4m3x2";
    std::vector<Row> rows = numbers();
    for (U32 code = 0; code < 0x7e; ++code) {  // codes, and what lies between two of them
      const auto x = float(fp8(code, e5m2)), y = float(fp8(code + 1, e5m2));
      rows.push_back({bits_of(x), bits_of(-x), 0, 0});
      rows.push_back({bits_of((x + y) / 2), bits_of(std::nextafterf((x + y) / 2, 0.0f)), 0, 0});
    }
    expect_reference({"cvt.rn.satfinite." + type + ".f32 D, A, B", "b16", "f32", "f32", ""}, rows,
                     [&](const Row& r) {
                       return U64{nearest_fp8(f32(r.a), e5m2)} << 8 | nearest_fp8(f32(r.b), e5m2);
                     });
    expect_rows({"cvt.rn.satfinite.relu." + type + ".f32 D, A, B", "b16", "f32", "f32", ""},
                {{bits_of(-1.0f), bits_of(1.0f), 0, nearest_fp8(1.0, e5m2)},
                 {0x7fc00000, bits_of(-1e9f), 0, 0x7f00}});
  }
  // 1.0625 is a tie between 1 and 1.125 in e4m3; 57344 the largest of e5m2.
  expect_rows({"cvt.rn.satfinite.e4m3x2.f16x2 D, A", "b16", "b32", "", ""},
              {{0x3c403c00, 0, 0, 0x3838}, {0x7c00fc00, 0, 0, 0x7efe}, {0x7e005f00, 0, 0, 0x7f7e}});
  expect_rows({"cvt.rn.satfinite.e5m2x2.f16x2 D, A", "b16", "b32", "", ""},
              {{0x7bff3c00, 0, 0, 0x7b3c}, {0x00018001, 0, 0, 0x0080}});
}

TEST(Convert, FromFp8IsExact) {
  for (bool e5m2 : {false, true}) {
    std::vector<Row> rows;
    for (U32 code = 0; code < 256; ++code) {
      auto half = [&](U32 c) -> U32 {
        const double x = fp8(c, e5m2);
        if (std::isnan(x)) return 0x7fff;
        if (std::isinf(x)) return x > 0 ? 0x7c00 : 0xfc00;
        int exponent = 0;
        const double fraction = std::frexp(std::fabs(x), &exponent);  // in [0.5, 1)
        const U32 sign = (c & 0x80) != 0 ? 0x8000 : 0;
        if (x == 0) return sign;
        if (exponent < -13) return sign | U32(std::ldexp(std::fabs(x), 24));
        return sign | (U32(exponent + 14) << 10) | (U32(fraction * 2048) - 1024);
      };
      rows.push_back({code << 8 | (255 - code), 0, 0, U64{half(code)} << 16 | half(255 - code)});
    }
    expect_rows({std::string("cvt.rn.f16x2.") + (e5m2 ? "e5m2x2" : "e4m3x2") + " D, A", "b32",
                 "b16", "", ""},
                rows);
  }
}

TEST(Convert, ToTf32KeepsTenBitsOfTheMantissa) {
  expect_rows({"cvt.rna.tf32.f32 D, A", "b32", "f32", "", ""}, {{0x3f800fff, 0, 0, 0x3f800000},
                                                                {0x3f801000, 0, 0, 0x3f802000},
                                                                {0xbf803000, 0, 0, 0xbf804000},
                                                                {0x7f7fffff, 0, 0, 0x7f800000},
                                                                {0x7fc12345, 0, 0, 0x7fffffff}});
  expect_rows({"cvt.rn.tf32.f32 D, A", "b32", "f32", "", ""},
              {{0x3f801000, 0, 0, 0x3f800000}, {0x3f803000, 0, 0, 0x3f804000}});
  expect_rows({"cvt.rz.relu.tf32.f32 D, A", "b32", "f32", "", ""},
              {{0x3f801fff, 0, 0, 0x3f800000}, {0xbf800000, 0, 0, 0}});
  expect_rows({"cvt.rna.satfinite.tf32.f32 D, A", "b32", "f32", "", ""},
              {{0x7f7fffff, 0, 0, 0x7f7fe000}});
}

}  // namespace
}  // namespace tilewright::vgpu
