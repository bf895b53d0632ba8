// f16 and bf16: conversions over all inputs, arithmetic against f64 rounded once.
#include <cmath>

#include "tests/virtual_gpu/conformance.h"

namespace tilewright::vgpu {
namespace {

using U16 = std::uint16_t;
using U32 = std::uint32_t;
using U64 = std::uint64_t;

/// A format of `mantissa` stored bits and the least exponent of a normal number.
struct Format {
  int mantissa, least, most;
  bool bf16;
};
constexpr Format kF16{10, -14, 15, false};
constexpr Format kBf16{7, -126, 127, true};

double value(const Format& f, U64 h) {
  int exponent_bits = 15 - f.mantissa;
  int e = static_cast<int>(h >> f.mantissa & ((1u << exponent_bits) - 1));
  double m = static_cast<double>(h & ((1u << f.mantissa) - 1));
  double sign = (h & 0x8000) != 0 ? -1 : 1;
  if (e == (1 << exponent_bits) - 1) return m != 0 ? NAN : sign * INFINITY;
  if (e == 0) return sign * std::ldexp(m, f.least - f.mantissa);
  return sign * std::ldexp(m + (1 << f.mantissa), e - 1 + f.least - f.mantissa);
}

/// The half nearest to `exact + tail`, |tail| far below the last place of exact; ties to even.
U16 nearest(const Format& f, double exact, double tail = 0) {
  if (std::isnan(exact)) return 0x7fff;
  U16 sign = std::signbit(exact) ? 0x8000 : 0;
  double magnitude = std::fabs(exact);
  if (sign != 0) tail = -tail;
  int exponent_bits = 15 - f.mantissa;
  auto infinity = static_cast<U16>(((1 << exponent_bits) - 1) << f.mantissa);
  if (std::isinf(magnitude)) return sign | infinity;
  if (magnitude == 0) return sign;
  int e = std::max(std::ilogb(magnitude), f.least);
  double unit = std::ldexp(1.0, e - f.mantissa);
  double below = std::floor(magnitude / unit), rest = magnitude - below * unit;
  double twice = 2 * rest;
  bool up =
      twice > unit || (twice == unit && (tail > 0 || (tail == 0 && std::fmod(below, 2) == 1)));
  double units = below + (up ? 1 : 0);
  double rounded = units * unit;
  if (rounded >= std::ldexp(1.0, f.most + 1)) return sign | infinity;
  int re = rounded == 0 ? f.least : std::max(std::ilogb(rounded), f.least);
  double m = rounded / std::ldexp(1.0, re - f.mantissa);
  bool subnormal = m < (1 << f.mantissa);
  auto stored = static_cast<U16>(m) & ((1 << f.mantissa) - 1);
  auto biased = subnormal ? 0 : re - f.least + 1;
  return static_cast<U16>(sign | biased << f.mantissa | stored);
}

TEST(Half, EveryHalfWidensExactly) {
  std::vector<Row> rows;
  for (U64 h = 0; h < 65536; ++h) rows.push_back({h, 0, 0, 0});
  auto check = [&](const char* instruction, const Format& f) {
    expect_reference({instruction, "f32", "b16", "", ""}, rows, [&](const Row& r) {
      double v = value(f, r.a);
      return std::isnan(v) ? U64{0x7fffffff} : bits_of(static_cast<float>(v));
    });
  };
  check("cvt.f32.f16 D, A", kF16);
  check("cvt.f32.bf16 D, A", kBf16);
}

std::vector<Row> floats_near_halves(const Format& f) {
  // Each half, the points in the middle between two, and their neighbours.
  std::vector<Row> rows = float_rows(2000, 7);
  for (U64 h = 0; h < 0x8000; h += 37) {
    double v = value(f, h), next = value(f, h + 1);
    if (!std::isfinite(v) || !std::isfinite(next)) continue;
    auto middle = static_cast<float>((v + next) / 2);
    for (float x : {static_cast<float>(v), middle, std::nextafterf(middle, 0),
                    std::nextafterf(middle, INFINITY), -middle})
      rows.push_back({bits_of(x), 0, 0, 0});
  }
  return rows;
}

TEST(Half, FloatsRoundToNearestEven) {
  auto f32 = [](U64 bits) { return static_cast<double>(std::bit_cast<float>(U32(bits))); };
  expect_reference({"cvt.rn.f16.f32 D, A", "b16", "f32", "", ""}, floats_near_halves(kF16),
                   [&](const Row& r) { return nearest(kF16, f32(r.a)); });
  expect_reference({"cvt.rn.bf16.f32 D, A", "b16", "f32", "", ""}, floats_near_halves(kBf16),
                   [&](const Row& r) { return nearest(kBf16, f32(r.a)); });
  expect_reference(
      {"cvt.rn.f16x2.f32 D, A, B", "b32", "f32", "f32", ""}, float_rows(500, 8),
      [&](const Row& r) { return U64{nearest(kF16, f32(r.a))} << 16 | nearest(kF16, f32(r.b)); });
  expect_reference(
      {"cvt.rn.bf16x2.f32 D, A, B", "b32", "f32", "f32", ""}, float_rows(500, 9),
      [&](const Row& r) { return U64{nearest(kBf16, f32(r.a))} << 16 | nearest(kBf16, f32(r.b)); });
  expect_rows({"cvt.rz.f16.f32 D, A", "b16", "f32", "", ""}, {{bits_of(1.0009f), 0, 0, 0x3c00},
                                                              {bits_of(-1.0009f), 0, 0, 0xbc00},
                                                              {bits_of(1e9f), 0, 0, 0x7bff}});
  expect_rows({"cvt.rn.relu.bf16.f32 D, A", "b16", "f32", "", ""},
              {{bits_of(-2.0f), 0, 0, 0}, {bits_of(2.0f), 0, 0, 0x4000}});
}

/// fma of halves, rounded once: the product is exact in a double, the sum's error is kept.
U16 fused(const Format& f, U64 a, U64 b, U64 c) {
  double product = value(f, a) * value(f, b), addend = value(f, c), sum = product + addend;
  if (!std::isfinite(sum)) return nearest(f, sum);
  double part = sum - product, error = (product - (sum - part)) + (addend - part);
  return nearest(f, sum, error);
}

TEST(Half, ArithmeticIsRoundedOnce) {
  for (const Format& f : {kF16, kBf16}) {
    std::string t = f.bf16 ? "bf16" : "f16";
    auto rows = half_rows(3000, 11);
    auto binary = [&](const std::string& op, auto function) {
      expect_reference(
          {op + "." + t + " D, A, B", "b16", "b16", "b16", ""}, rows,
          [&](const Row& r) { return U64{nearest(f, function(value(f, r.a), value(f, r.b)))}; });
    };
    binary("add", [](double x, double y) { return x + y; });
    binary("sub", [](double x, double y) { return x - y; });
    binary("mul", [](double x, double y) { return x * y; });
    expect_reference({"fma.rn." + t + " D, A, B, C", "b16", "b16", "b16", "b16"}, rows,
                     [&](const Row& r) { return U64{fused(f, r.a, r.b, r.c)}; });
    // Two at a time: the same in each half.
    std::vector<Row> pairs;
    for (std::size_t i = 0; i + 1 < rows.size(); i += 2)
      pairs.push_back({rows[i].a | rows[i + 1].a << 16, rows[i].b | rows[i + 1].b << 16,
                       rows[i].c | rows[i + 1].c << 16, 0});
    expect_reference(
        {"fma.rn." + t + "x2 D, A, B, C", "b32", "b32", "b32", "b32"}, pairs, [&](const Row& r) {
          auto half = [&](int s) {
            return U64{fused(f, r.a >> s & 0xffff, r.b >> s & 0xffff, r.c >> s & 0xffff)};
          };
          return half(16) << 16 | half(0);
        });
  }
}

TEST(Half, FusedProductsAreNotRoundedTwice) {
  // 1.00390625^2 in bf16 lies on a tie once rounded to f32 or f64; the tiny addend breaks it.
  U64 a = 0x3f80 | 1;  // 1 + 2^-7
  double tie = value(kBf16, a) * value(kBf16, a);
  ASSERT_GT(tie, 1);
  for (U64 c : {0x0001ull, 0x8001ull})
    EXPECT_EQ(evaluate({"fma.rn.bf16 D, A, B, C", "b16", "b16", "b16", "b16"},
                       {{0x3fc0, 0x3f81, c, 0}}, best_level(), false)[0],
              U64{fused(kBf16, 0x3fc0, 0x3f81, c)});
}

TEST(Half, MinMaxAndComparisonsKnowNan) {
  expect_rows({"min.f16 D, A, B", "b16", "b16", "b16", ""}, {{0x3c00, 0x4000, 0, 0x3c00},
                                                             {0x8000, 0x0000, 0, 0x8000},
                                                             {0x7e00, 0x4000, 0, 0x4000},
                                                             {0x7e00, 0x7e01, 0, 0x7fff}});
  expect_rows({"max.NaN.bf16 D, A, B", "b16", "b16", "b16", ""},
              {{0x3f80, 0x4000, 0, 0x4000}, {0x7fc0, 0x4000, 0, 0x7fff}});
  expect_rows({"max.f16x2 D, A, B", "b32", "b32", "b32", ""},
              {{0x3c004000, 0x40003c00, 0, 0x40004000}});
  expect_rows({"setp.lt.f16 D, A, B", "pred", "b16", "b16", ""},
              {{0x3c00, 0x4000, 0, 1}, {0x4000, 0x3c00, 0, 0}, {0x7e00, 0x3c00, 0, 0}});
  expect_rows({"set.eq.f16x2.f16x2 D, A, B", "b32", "b32", "b32", ""},
              {{0x3c004000, 0x3c003c00, 0, 0x3c000000}});
  expect_rows({"neg.f16x2 D, A", "b32", "b32", "", ""}, {{0x3c00c000, 0, 0, 0xbc004000}});
  expect_rows({"abs.bf16 D, A", "b16", "b16", "", ""}, {{0xbf80, 0, 0, 0x3f80}});
  expect_rows({"fma.rn.relu.f16 D, A, B, C", "b16", "b16", "b16", "b16"},
              {{0xbc00, 0x3c00, 0, 0}, {0x3c00, 0x3c00, 0x3c00, 0x4000}});
  expect_rows({"add.sat.f16 D, A, B", "b16", "b16", "b16", ""},
              {{0x3c00, 0x3c00, 0, 0x3c00}, {0xbc00, 0, 0, 0}});
}

}  // namespace
}  // namespace tilewright::vgpu
