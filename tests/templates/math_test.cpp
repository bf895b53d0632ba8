// The errors that templates/device/math.cuh claims, measured on the virtual GPU: in units in the
// last place over bit patterns of all sizes; and what functions make of NaN, infinities and zeros.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "tests/integration/kernel_bench.h"
#include "tests/templates/family_cases.h"

namespace tilewright::templates {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class Math : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto opened = integration::KernelBench::open();
    ASSERT_TRUE(opened) << opened.error().message << "\n" << opened.error().detail;
    bench_ = std::make_unique<integration::KernelBench>(std::move(*opened));
    ASSERT_TRUE(bench_->context().activate());
  }
  static void TearDownTestSuite() { bench_.reset(); }

  /// `expression` of x, in f32, as a pointwise kernel computes it.
  static std::vector<float> computed(const std::string& expression, const std::vector<float>& x) {
    const Operator group = parsed(operator_yaml(
        "  x: {dtype: f32, shape: [M]}\n", "  - y = " + expression + "\n", "  y: {dtype: f32}\n"));
    const Family& family = *find_family("pointwise");
    auto candidate = bench_->start(family, group, family.safe_config(group, {}), {});
    EXPECT_TRUE(candidate) << candidate.error().message;
    auto plan = bench_->load(*candidate);
    EXPECT_TRUE(plan) << plan.error().message << plan.error().detail;
    const std::size_t bytes = x.size() * sizeof(float);
    auto in = jit::DeviceBuffer::allocate(bench_->context(), bytes);
    auto out = jit::DeviceBuffer::allocate(bench_->context(), bytes);
    EXPECT_TRUE(in->upload(x.data(), bytes));
    const auto count = static_cast<std::int64_t>(x.size());
    const jit::TensorArgument arguments[] = {{in->address(), {count}, {}},
                                             {out->address(), {count}, {}}};
    auto prepared = plan->prepare(arguments);
    EXPECT_TRUE(prepared) << prepared.error().message;
    auto stream = jit::Stream::create(bench_->context());
    const auto launched = prepared->launch(0, *stream);
    EXPECT_TRUE(launched) << launched.error().message;
    EXPECT_TRUE(stream->synchronize());
    std::vector<float> y(x.size());
    EXPECT_TRUE(out->download(y.data(), bytes));
    return y;
  }

  static inline std::unique_ptr<integration::KernelBench> bench_;
};

/// Floats of all sizes up to `limit`, of both signs or the positive ones only.
std::vector<float> arguments(float limit, bool positive) {
  std::vector<float> x;
  std::mt19937 random(11);
  for (int exponent = -140; exponent <= 127; ++exponent) {
    for (int i = 0; i < 200; ++i) {
      const float value = std::ldexp(1.f + static_cast<float>(random() >> 9) * 0x1p-23f, exponent);
      if (value <= limit) x.push_back(i % 2 == 0 || positive ? value : -value);
    }
  }
  // Most of what matters lies here.
  for (int i = 0; i < 40000; ++i) {
    const float value = static_cast<float>(random() >> 8) * 0x1p-24f * std::min(limit, 20.f);
    x.push_back(i % 2 == 0 || positive ? value : -value);
  }
  return x;
}

double sigmoid(double x) {
  return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x));
}
double cdf(double x) { return 0.5 * std::erfc(-x * M_SQRT1_2); }

struct Function {
  const char* expression;
  std::function<double(double)> exact;
  double ulp;  ///< as math.cuh says
  float limit = kInfinity;
  bool positive = false;
};

TEST_F(Math, ErrorsAreWithinWhatTheHeaderSays) {
  const Function functions[] = {
      {"exp(x)", [](double x) { return std::exp(x); }, 3, 89},
      {"log(x)", [](double x) { return std::log(x); }, 2, kInfinity, true},
      {"sqrt(x)", [](double x) { return std::sqrt(x); }, 0.5, kInfinity, true},
      {"rsqrt(x)", [](double x) { return 1 / std::sqrt(x); }, 2, kInfinity, true},
      {"tanh(x)", [](double x) { return std::tanh(x); }, 3},
      {"sigmoid(x)", sigmoid, 5},
      {"silu(x)", [](double x) { return x * sigmoid(x); }, 5},
      {"gelu_erf(x)", [](double x) { return x * cdf(x); }, 6, 12},
      {"div(1, x)", [](double x) { return 1 / x; }, 0.5},
  };
  for (const Function& function : functions) {
    const std::vector<float> x = arguments(function.limit, function.positive);
    const std::vector<float> y = computed(function.expression, x);
    double worst = 0;
    float at = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double want = function.exact(x[i]);
      const double size = std::abs(want);
      if (size >= 0x1.fffffep127) {
        ASSERT_GE(std::abs(y[i]), 0x1.ffffep127) << function.expression << " of " << x[i];
        continue;
      }
      if (size < 0x1p-126) {  // may be flushed
        ASSERT_LE(std::abs(y[i]), 0x1.1p-126) << function.expression << " of " << x[i];
        continue;
      }
      const double ulp = std::ldexp(1, std::ilogb(size) - 23);
      const double error = std::max(std::abs(y[i] - want) - 0x1p-126, 0.0) / ulp;
      if (error > worst) worst = error, at = x[i];
      ASSERT_FALSE(std::isnan(y[i])) << function.expression << " of " << x[i];
    }
    RecordProperty(function.expression, std::to_string(worst));
    EXPECT_LE(worst, function.ulp) << function.expression << " of " << at;
  }
}

TEST_F(Math, GeluTanhIsOffByItsArgumentsRoundingInTheTail) {
  std::vector<float> x = arguments(12, false);
  const std::vector<float> y = computed("gelu_tanh(x)", x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double v = x[i], argument = 2 * std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v);
    const double want = v * sigmoid(argument);
    const double allowed = (6 + 3 * std::abs(argument) * (1 - sigmoid(argument))) * std::abs(want);
    ASSERT_LE(std::abs(y[i] - want), allowed * 0x1p-23 + 0x1p-126) << x[i];
  }
}

TEST_F(Math, SpecialValuesAreAsTheEvaluatorsAre) {
  const std::vector<float> x = {kNan, kInfinity, -kInfinity, 0.f, -0.f};
  const auto text = [&](const char* expression) {
    std::string result;
    for (float y : computed(expression, x)) {
      result += (result.empty() ? "" : " ") +
                (std::isnan(y) ? std::string("nan")
                               : (std::signbit(y) ? "-" : "") +
                                     (std::isinf(y) ? "inf"
                                      : y == 0      ? "0"
                                                    : std::to_string(std::abs(y)).substr(0, 3)));
    }
    return result;
  };
  //                                  nan  inf  -inf 0   -0
  EXPECT_EQ(text("exp(x)"), "nan inf 0 1.0 1.0");
  EXPECT_EQ(text("log(x)"), "nan inf nan -inf -inf");
  EXPECT_EQ(text("sqrt(x)"), "nan inf nan 0 -0");
  EXPECT_EQ(text("rsqrt(x)"), "nan 0 nan inf -inf");
  EXPECT_EQ(text("tanh(x)"), "nan 1.0 -1.0 0 -0");
  EXPECT_EQ(text("sigmoid(x)"), "nan 1.0 0 0.5 0.5");
  EXPECT_EQ(text("silu(x)"), "nan inf nan 0 -0");
  EXPECT_EQ(text("gelu_erf(x)"), "nan inf nan 0 -0");
  EXPECT_EQ(text("gelu_tanh(x)"), "nan inf nan 0 -0");
  EXPECT_EQ(text("relu(x)"), "nan inf 0 0 0");
  EXPECT_EQ(text("max(x, 1)"), "nan inf 1.0 1.0 1.0");
  EXPECT_EQ(text("min(x, 1)"), "nan 1.0 -inf 0 -0");
  EXPECT_EQ(text("clamp(x, low=-1, high=2)"), "nan 2.0 -1.0 0 -0");
  EXPECT_EQ(text("select(less(x, 1), x, 2)"), "2.0 2.0 -inf 0 -0");
}

}  // namespace
}  // namespace tilewright::templates
