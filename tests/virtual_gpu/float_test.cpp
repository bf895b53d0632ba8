// Floating-point arithmetic: bits for what IEEE 754 defines, bounds for approximations.
#include <cfenv>
#include <cmath>

#include "tests/virtual_gpu/conformance.h"

namespace tilewright::vgpu {
namespace {

using U32 = std::uint32_t;
using U64 = std::uint64_t;

float f32(std::uint64_t bits) { return std::bit_cast<float>(static_cast<U32>(bits)); }
double f64(std::uint64_t bits) { return std::bit_cast<double>(bits); }
std::uint64_t out(float f) { return std::isnan(f) ? 0x7fffffff : bits_of(f); }
std::uint64_t out(double d) { return std::isnan(d) ? 0xfff8000000000000 : bits_of(d); }
float flush(float f) { return std::fpclassify(f) == FP_SUBNORMAL ? std::copysign(0.0f, f) : f; }

struct Reference {
  const char* instruction;
  int operands;
  std::uint64_t (*function)(const Row&);
};

void check(const char* type, const std::vector<Row>& rows, const std::vector<Reference>& cases) {
  for (const auto& t : cases)
    expect_reference(
        {t.instruction, type, type, t.operands > 1 ? type : "", t.operands > 2 ? type : ""}, rows,
        t.function);
}

TEST(Float, ArithmeticOfF32IsExactlyRounded) {
  check("f32", float_rows(500, 1),
        {
            {"add.f32 D, A, B", 2, [](const Row& r) { return out(f32(r.a) + f32(r.b)); }},
            {"add.rn.f32 D, A, B", 2, [](const Row& r) { return out(f32(r.a) + f32(r.b)); }},
            {"sub.f32 D, A, B", 2, [](const Row& r) { return out(f32(r.a) - f32(r.b)); }},
            {"mul.f32 D, A, B", 2, [](const Row& r) { return out(f32(r.a) * f32(r.b)); }},
            {"div.rn.f32 D, A, B", 2, [](const Row& r) { return out(f32(r.a) / f32(r.b)); }},
            {"fma.rn.f32 D, A, B, C", 3,
             [](const Row& r) { return out(std::fma(f32(r.a), f32(r.b), f32(r.c))); }},
            {"fma.rn.ftz.f32 D, A, B, C", 3,
             [](const Row& r) {
               return out(flush(std::fma(flush(f32(r.a)), flush(f32(r.b)), flush(f32(r.c)))));
             }},
            {"mul.ftz.f32 D, A, B", 2,
             [](const Row& r) { return out(flush(flush(f32(r.a)) * flush(f32(r.b)))); }},
            {"add.sat.f32 D, A, B", 2,
             [](const Row& r) {
               float sum = f32(r.a) + f32(r.b);
               return out(std::isnan(sum) || sum <= 0 ? 0.0f : std::min(sum, 1.0f));
             }},
            {"sqrt.rn.f32 D, A", 1, [](const Row& r) { return out(std::sqrt(f32(r.a))); }},
            {"rcp.rn.f32 D, A", 1, [](const Row& r) { return out(1.0f / f32(r.a)); }},
            {"neg.f32 D, A", 1, [](const Row& r) { return out(-f32(r.a)); }},
            {"abs.f32 D, A", 1, [](const Row& r) { return out(std::fabs(f32(r.a))); }},
            {"copysign.f32 D, A, B", 2,
             [](const Row& r) { return (r.a & 0x80000000) | (r.b & 0x7fffffff); }},
        });
}

template <int kMode, class F>
auto rounded(F f) {
  std::fesetround(kMode);
  volatile auto result = f();
  std::fesetround(FE_TONEAREST);
  return static_cast<decltype(f())>(result);
}
volatile float x32, y32, z32;
template <int kMode>
std::uint64_t sum(const Row& r) {
  x32 = f32(r.a);
  y32 = f32(r.b);
  return out(rounded<kMode>([] { return x32 + y32; }));
}
template <int kMode>
std::uint64_t fused(const Row& r) {
  x32 = f32(r.a);
  y32 = f32(r.b);
  z32 = f32(r.c);
  return out(rounded<kMode>([] { return std::fma(x32, y32, z32); }));
}

TEST(Float, DirectedRoundingFollowsTheModifier) {
  check("f32", float_rows(300, 2),
        {
            {"add.rz.f32 D, A, B", 2, sum<FE_TOWARDZERO>},
            {"add.rm.f32 D, A, B", 2, sum<FE_DOWNWARD>},
            {"add.rp.f32 D, A, B", 2, sum<FE_UPWARD>},
            {"fma.rz.f32 D, A, B, C", 3, fused<FE_TOWARDZERO>},
            {"fma.rm.f32 D, A, B, C", 3, fused<FE_DOWNWARD>},
            {"fma.rp.f32 D, A, B, C", 3, fused<FE_UPWARD>},
        });
}

TEST(Float, ArithmeticOfF64IsExactlyRounded) {
  check("f64", double_rows(300, 3),
        {
            {"add.f64 D, A, B", 2, [](const Row& r) { return out(f64(r.a) + f64(r.b)); }},
            {"sub.f64 D, A, B", 2, [](const Row& r) { return out(f64(r.a) - f64(r.b)); }},
            {"mul.rn.f64 D, A, B", 2, [](const Row& r) { return out(f64(r.a) * f64(r.b)); }},
            {"div.rn.f64 D, A, B", 2, [](const Row& r) { return out(f64(r.a) / f64(r.b)); }},
            {"fma.rn.f64 D, A, B, C", 3,
             [](const Row& r) { return out(std::fma(f64(r.a), f64(r.b), f64(r.c))); }},
            {"sqrt.rn.f64 D, A", 1, [](const Row& r) { return out(std::sqrt(f64(r.a))); }},
            {"min.f64 D, A, B", 2,
             [](const Row& r) {
               double a = f64(r.a), b = f64(r.b);
               if (a == b) return std::signbit(a) ? r.a : r.b;
               return out(std::fmin(a, b));
             }},
        });
}

/// -0 below +0, a number before a NaN.
float smaller(float a, float b) {
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}
float larger(float a, float b) { return -smaller(-a, -b); }

TEST(Float, MinAndMaxKnowZerosAndNan) {
  check("f32", float_rows(300, 4),
        {
            {"min.f32 D, A, B", 2, [](const Row& r) { return out(smaller(f32(r.a), f32(r.b))); }},
            {"max.f32 D, A, B", 2, [](const Row& r) { return out(larger(f32(r.a), f32(r.b))); }},
            {"max.NaN.f32 D, A, B", 2,
             [](const Row& r) {
               bool nan = std::isnan(f32(r.a)) || std::isnan(f32(r.b));
               return nan ? U64{0x7fffffff} : out(larger(f32(r.a), f32(r.b)));
             }},
            {"min.ftz.f32 D, A, B", 2,
             [](const Row& r) { return out(smaller(flush(f32(r.a)), flush(f32(r.b)))); }},
            {"min.xorsign.abs.f32 D, A, B", 2,
             [](const Row& r) {
               float m = smaller(std::fabs(f32(r.a)), std::fabs(f32(r.b)));
               if (std::isnan(m)) return U64{0x7fffffff};
               return (out(m) & 0x7fffffff) | ((r.a ^ r.b) & 0x80000000);
             }},
        });
}

TEST(Float, ComparisonsAreOrderedOrUnordered) {
  struct {
    const char* name;
    bool (*test)(float, float);
  } cases[] = {
      {"eq", [](float a, float b) { return a == b; }},
      {"ne", [](float a, float b) { return a < b || a > b; }},
      {"lt", [](float a, float b) { return a < b; }},
      {"ge", [](float a, float b) { return a >= b; }},
      {"equ", [](float a, float b) { return !(a < b || a > b); }},
      {"neu", [](float a, float b) { return a != b; }},
      {"ltu", [](float a, float b) { return !(a >= b); }},
      {"leu", [](float a, float b) { return !(a > b); }},
      {"gtu", [](float a, float b) { return !(a <= b); }},
      {"geu", [](float a, float b) { return !(a < b); }},
      {"num", [](float a, float b) { return !std::isnan(a) && !std::isnan(b); }},
      {"nan", [](float a, float b) { return std::isnan(a) || std::isnan(b); }},
  };
  for (const auto& t : cases)
    expect_reference({std::string("setp.") + t.name + ".f32 D, A, B", "pred", "f32", "f32", ""},
                     float_rows(50, 5),
                     [&](const Row& r) { return U64{t.test(f32(r.a), f32(r.b))}; });
}

TEST(Float, ClassesAreTested) {
  std::vector<Row> rows = float_rows(0, 1);
  expect_reference({"testp.finite.f32 D, A", "pred", "f32", "", ""}, rows,
                   [](const Row& r) { return U64{std::isfinite(f32(r.a))}; });
  expect_reference({"testp.subnormal.f32 D, A", "pred", "f32", "", ""}, rows,
                   [](const Row& r) { return U64{std::fpclassify(f32(r.a)) == FP_SUBNORMAL}; });
}

/// Worst relative (or, below `floor`, absolute) error of an approximation over a range.
double worst(const std::string& instruction, double from, double to,
             const std::function<double(double)>& exact, double floor = 0) {
  std::vector<Row> rows;
  constexpr int kCount = 20000;
  for (int i = 0; i < kCount; ++i) {
    Row row;
    row.a = bits_of(static_cast<float>(from + (to - from) * i / kCount));
    rows.push_back(row);
  }
  double error = 0;
  std::vector<std::uint64_t> first;
  for (const Level* level : host_levels()) {
    auto results = evaluate({instruction, "f32", "f32", "", ""}, rows, *level, false);
    if (first.empty()) first = results;
    EXPECT_EQ(results, first) << instruction << " differs at level " << level->name;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      double want = exact(f32(rows[i].a)), got = f32(results[i]);
      double scale = std::max(std::fabs(want), floor);
      if (scale > 0) error = std::max(error, std::fabs(got - want) / scale);
    }
  }
  return error;
}

TEST(Float, ApproximationsStayWithinTheDocumentedErrors) {
  // Bounds of the PTX ISA, in the section of each instruction.
  auto ex2 = [](double x) { return std::exp2(x); };
  EXPECT_LT(worst("ex2.approx.f32 D, A", -120, 120, ex2), std::ldexp(1, -22.5 + 0.25));
  EXPECT_LT(worst("ex2.approx.f32 D, A", -2, 2, ex2), std::ldexp(1, -22));
  auto lg2 = [](double x) { return std::log2(x); };
  EXPECT_LT(worst("lg2.approx.f32 D, A", 1e-3, 0.5, lg2), std::ldexp(1, -22));
  EXPECT_LT(worst("lg2.approx.f32 D, A", 0.5, 2, lg2, 1.0), std::ldexp(1, -22));
  EXPECT_LT(worst("lg2.approx.f32 D, A", 2, 1e6, lg2), std::ldexp(1, -22));
  EXPECT_LT(worst("rcp.approx.ftz.f32 D, A", 0.1, 50, [](double x) { return 1 / x; }),
            std::ldexp(1, -23));
  EXPECT_LT(worst("rsqrt.approx.f32 D, A", 0.01, 90, [](double x) { return 1 / std::sqrt(x); }),
            std::ldexp(1, -22.9 + 0.02));
  EXPECT_LT(worst("sqrt.approx.f32 D, A", 0, 90, [](double x) { return std::sqrt(x); }),
            std::ldexp(1, -23));
  EXPECT_LT(worst(
                "sin.approx.f32 D, A", -3.1, 3.1, [](double x) { return std::sin(x); }, 1.0),
            std::ldexp(1, -20.5));
  EXPECT_LT(worst(
                "cos.approx.f32 D, A", -3.1, 3.1, [](double x) { return std::cos(x); }, 1.0),
            std::ldexp(1, -20.5));
  EXPECT_LT(worst("tanh.approx.f32 D, A", -10, 10, [](double x) { return std::tanh(x); }),
            std::ldexp(1, -11));
}

TEST(Float, ApproximationsKnowTheSpecialValues) {
  const U64 kInf = 0x7f800000, kMinusInf = 0xff800000, kNan = 0x7fffffff;
  expect_rows({"ex2.approx.f32 D, A", "f32", "f32", "", ""}, {{0, 0, 0, bits_of(1.0f)},
                                                              {bits_of(3.0f), 0, 0, bits_of(8.0f)},
                                                              {bits_of(-149.0f), 0, 0, 1},
                                                              {bits_of(128.0f), 0, 0, kInf},
                                                              {kMinusInf, 0, 0, 0},
                                                              {kInf, 0, 0, kInf},
                                                              {0x7fc00000, 0, 0, kNan}});
  expect_rows({"ex2.approx.ftz.f32 D, A", "f32", "f32", "", ""}, {{bits_of(-130.0f), 0, 0, 0}});
  expect_rows({"lg2.approx.f32 D, A", "f32", "f32", "", ""}, {{bits_of(8.0f), 0, 0, bits_of(3.0f)},
                                                              {bits_of(1.0f), 0, 0, 0},
                                                              {0, 0, 0, kMinusInf},
                                                              {0x80000000, 0, 0, kMinusInf},
                                                              {1, 0, 0, bits_of(-149.0f)},
                                                              {kInf, 0, 0, kInf},
                                                              {bits_of(-1.0f), 0, 0, kNan}});
  expect_rows({"rsqrt.approx.f32 D, A", "f32", "f32", "", ""},
              {{bits_of(4.0f), 0, 0, bits_of(0.5f)}, {0, 0, 0, kInf}, {kInf, 0, 0, 0}});
  expect_rows({"tanh.approx.f32 D, A", "f32", "f32", "", ""}, {{0, 0, 0, 0},
                                                               {0x80000000, 0, 0, 0x80000000},
                                                               {kInf, 0, 0, bits_of(1.0f)},
                                                               {kMinusInf, 0, 0, bits_of(-1.0f)},
                                                               {0x7fc00000, 0, 0, kNan}});
}

}  // namespace
}  // namespace tilewright::vgpu
