// The f64 evaluator: values against plain loops, special values against the table of
// docs/numerics.md, errors against what they are to be zero, small or large for.
#include "templates/operator/evaluate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "templates/operator/parse.h"

namespace tilewright::templates {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Operator parsed(const std::string& text, const Overrides& overrides = {}) {
  auto op = parse_operator(text, "test", overrides);
  EXPECT_TRUE(op) << op.error().message << "\n" << text;
  return op ? *op : Operator{};
}

/// A tensor that owns its storage.
struct Tensor {
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape, strides;
  std::vector<std::byte> bytes;

  Tensor(DType dtype, std::vector<std::int64_t> shape, std::vector<std::int64_t> strides = {})
      : dtype(dtype), shape(shape), strides(strides) {
    if (strides.empty()) {
      this->strides.assign(shape.size(), 1);
      for (std::size_t i = shape.size() - 1; i-- > 0;) {
        this->strides[i] = this->strides[i + 1] * shape[i + 1];
      }
    }
    std::int64_t elements = 1;
    for (std::size_t i = 0; i < shape.size(); ++i) {
      elements = shape[i] == 0 ? 0 : elements + (shape[i] - 1) * this->strides[i];
      if (elements == 0) break;
    }
    bytes.resize(bytes_for(dtype, static_cast<std::size_t>(elements)), std::byte{0xff});
  }

  std::size_t index(std::vector<std::int64_t> at) const {
    std::int64_t index = 0;
    for (std::size_t i = 0; i < at.size(); ++i) index += at[i] * strides[i];
    return static_cast<std::size_t>(index);
  }
  double get(std::vector<std::int64_t> at) const {
    return read_element(dtype, bytes.data(), index(at));
  }
  Tensor& fill(const std::function<double()>& next) {
    std::vector<std::int64_t> at(shape.size(), 0);
    std::int64_t total = 1;
    for (std::int64_t extent : shape) total *= extent;
    for (std::int64_t i = 0; i < total; ++i) {
      write_element(dtype, bytes.data(), index(at), next());
      for (std::size_t axis = shape.size(); axis-- > 0;) {
        if (++at[axis] < shape[axis]) break;
        at[axis] = 0;
      }
    }
    return *this;
  }
  Tensor& fill(std::vector<double> values) {
    std::size_t i = 0;
    return fill([&] { return values[i++ % values.size()]; });
  }
  HostTensor host() const { return {dtype, shape, strides, bytes.data()}; }
};

std::function<double()> normal(int seed) {
  return [random = std::mt19937(static_cast<unsigned>(seed)),
          distribution = std::normal_distribution<double>()]() mutable {
    return distribution(random);
  };
}
std::function<double()> integers(int seed) {
  return [random = std::mt19937(static_cast<unsigned>(seed)),
          distribution = std::uniform_int_distribution<int>(-2, 2)]() mutable {
    return distribution(random);
  };
}

std::vector<Reference> evaluated(const Operator& op, const Bindings& bindings,
                                 const std::vector<Tensor>& tensors, std::size_t output = 0) {
  std::vector<HostTensor> inputs;
  for (const Tensor& tensor : tensors) inputs.push_back(tensor.host());
  auto evaluator = Evaluator::create(op, bindings, inputs);
  EXPECT_TRUE(evaluator) << evaluator.error().message;
  if (!evaluator) return {};
  auto result = evaluator->whole(output);
  EXPECT_TRUE(result) << result.error().message;
  return result ? *result : std::vector<Reference>{};
}

std::vector<double> values_of(const std::vector<Reference>& references) {
  std::vector<double> values;
  for (const Reference& reference : references) values.push_back(reference.value);
  return values;
}

// ---- one op at a time

struct SpecialCase {
  const char* expression;    ///< of x (and y)
  std::vector<double> x, y;  ///< one row
  std::vector<double> wanted;
};

/// "nan", "-0", "inf", "1.5": so that -0 differs from 0 and NaN equals NaN.
std::string text(double value) {
  if (std::isnan(value)) return "nan";
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%.9g", value);
  return buffer;
}
std::vector<std::string> texts(const std::vector<double>& values) {
  std::vector<std::string> result;
  for (double value : values) result.push_back(text(value));
  return result;
}

TEST(Evaluator, TreatsSpecialValuesAsTheTableOfNumericsSays) {
  const SpecialCase cases[] = {
      {"add(x, y)", {kInf, kInf, kNan, -0.0}, {-kInf, 1, 1, -0.0}, {kNan, kInf, kNan, -0.0}},
      {"mul(x, y)", {kInf, 0, -0.0, kNan}, {0, -1, -1, 0}, {kNan, -0.0, 0, kNan}},
      {"div(x, y)", {1, -1, 0, kInf}, {0, 0, 0, kInf}, {kInf, -kInf, kNan, kNan}},
      {"max(x, y)", {kNan, 1, 0, -0.0}, {1, kNan, -0.0, 0}, {kNan, kNan, 0, 0}},
      {"min(x, y)", {kNan, 1, 0, -0.0}, {1, kNan, -0.0, 0}, {kNan, kNan, -0.0, -0.0}},
      {"relu(x)", {kNan, -1, -0.0, kInf, -kInf}, {}, {kNan, 0, 0, kInf, 0}},
      {"clamp(x, low=-1, high=2)", {kNan, -5, 5, kInf, 1}, {}, {kNan, -1, 2, 2, 1}},
      {"neg(x)", {kNan, 0, -kInf}, {}, {kNan, -0.0, kInf}},
      {"exp(x)", {kNan, -kInf, kInf, 0, 89, -200}, {}, {kNan, 0, kInf, 1, kInf, 1.3838965267e-87}},
      {"log(x)", {kNan, 0, -0.0, -1, kInf, 1}, {}, {kNan, -kInf, -kInf, kNan, kInf, 0}},
      {"sqrt(x)", {kNan, -1, -0.0, kInf, 4}, {}, {kNan, kNan, -0.0, kInf, 2}},
      {"rsqrt(x)", {kNan, -1, 0, -0.0, kInf, 4}, {}, {kNan, kNan, kInf, -kInf, 0, 0.5}},
      {"tanh(x)", {kNan, kInf, -kInf, 0}, {}, {kNan, 1, -1, 0}},
      {"sigmoid(x)", {kNan, kInf, -kInf, 0}, {}, {kNan, 1, 0, 0.5}},
      {"silu(x)", {kNan, kInf, -kInf, 0}, {}, {kNan, kInf, kNan, 0}},
      {"gelu_erf(x)", {kNan, kInf, -kInf, 0}, {}, {kNan, kInf, kNan, 0}},
      {"gelu_tanh(x)", {kNan, kInf, -kInf, 0}, {}, {kNan, kInf, kNan, 0}},
      {"select(less(x, y), 1, 2)", {kNan, 1, -0.0, 1}, {1, kNan, 0, 2}, {2, 2, 2, 1}},
      {"select(not_equal(x, y), 1, 2)", {kNan, 1, -0.0, 1}, {1, kNan, 0, 1}, {1, 1, 2, 2}},
      {"select(greater_equal(x, y), x, y)", {3, 1, 2}, {1, 3, 2}, {3, 3, 2}},
      {"cast(x, dtype=bf16)",
       {kNan, kInf, 1.00390625, 3.4e38, -0.0},
       {},
       {kNan, kInf, 1, kInf, -0.0}},
      {"cast(x, dtype=f16)", {65519, 65520, 0x1p-25, 0x1.8p-25}, {}, {65504, kInf, 0, 0x1p-24}},
      {"mul(x, y)", {1e30}, {1e30}, {kInf}},
      {"reduce_sum(x)", {1, kNan, 2}, {}, {kNan}},
      {"reduce_sum(x)", {kInf, 1, -kInf}, {}, {kNan}},
      {"reduce_max(x)", {1, kNan, 2}, {}, {kNan}},
      {"reduce_max(x)", {-kInf, -kInf}, {}, {-kInf}},
      {"reduce_mean(x)", {1, 2, 6}, {}, {3}},
      {"softmax(x)", {0, kNan, 0}, {}, {kNan, kNan, kNan}},
      {"softmax(x)", {0, kInf, 0}, {}, {kNan, kNan, kNan}},
      {"softmax(x)", {-kInf, -kInf}, {}, {kNan, kNan}},
      {"softmax(x)", {0, -kInf, 0}, {}, {0.5, 0, 0.5}},
      {"rmsnorm(x, y, eps=0)", {0, 0}, {1, 1}, {kNan, kNan}},
      {"rmsnorm(x, y, eps=0)", {3, 4}, {1, -2}, {0.848528137, -2.2627417}},
      {"rmsnorm(x, y, eps=1)", {kInf, 1}, {1, 1}, {kNan, 0}},
      {"layernorm(x, y, 0, eps=0)", {1, 3}, {1, 2}, {-1, 2}},
      {"layernorm(x, y, 0, eps=0)", {2, 2}, {1, 2}, {kNan, kNan}},
  };
  for (const SpecialCase& c : cases) {
    std::string columns = std::to_string(c.x.size());
    std::string expression = c.expression;
    bool binary = !c.y.empty();
    // layernorm's bias has to be a tensor: take it away again
    std::string body = "  - result = " + expression + "\n";
    std::string inputs = "  x: {dtype: f32, shape: [M, " + columns + "]}\n";
    if (binary) inputs += "  y: {dtype: f32, shape: [" + columns + "]}\n";
    if (auto at = expression.find("y, 0, eps"); at != std::string::npos) {
      body = "  - zero = sub(y, y)\n  - result = " + expression.replace(at, 4, "y, zero") + "\n";
    }
    SCOPED_TRACE(expression);
    Operator op = parsed("operator: one\ndimensions: [M]\ninputs:\n" + inputs + "body:\n" + body +
                         "outputs:\n  result: {dtype: f32}\n");
    std::vector<Tensor> tensors;
    tensors.push_back(Tensor(DType::kF32, {1, static_cast<std::int64_t>(c.x.size())}).fill(c.x));
    if (binary) {
      tensors.push_back(Tensor(DType::kF32, {static_cast<std::int64_t>(c.y.size())}).fill(c.y));
    }
    EXPECT_EQ(texts(values_of(evaluated(op, {{"M", 1}}, tensors))), texts(c.wanted));
  }
}

TEST(Evaluator, AgreesWithTheDefinitionsOfTheFunctions) {
  const std::pair<const char*, double (*)(double)> cases[] = {
      {"exp", [](double x) { return std::exp(x); }},
      {"tanh", [](double x) { return std::tanh(x); }},
      {"sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }},
      {"silu", [](double x) { return x / (1 + std::exp(-x)); }},
      {"gelu_erf", [](double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }},
      {"gelu_tanh",
       [](double x) {
         return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
       }},
  };
  for (const auto& [name, f] : cases) {
    Operator op = parsed(std::string("operator: one\ndimensions: [M]\ninputs:\n"
                                     "  x: {dtype: f32, shape: [M, 8]}\nbody:\n  - y = ") +
                         name + "(x)\noutputs:\n  y: {dtype: f32}\n");
    Tensor x = Tensor(DType::kF32, {4, 8}).fill(normal(1));
    auto result = evaluated(op, {{"M", 4}}, {x});
    for (std::int64_t i = 0; i < 32; ++i) {
      double wanted = f(x.get({i / 8, i % 8}));
      EXPECT_NEAR(result[static_cast<std::size_t>(i)].value, wanted, 1e-14) << name;
      EXPECT_LT(result[static_cast<std::size_t>(i)].error(), 3e-6 * std::abs(wanted) + 1e-30);
      EXPECT_GT(result[static_cast<std::size_t>(i)].error(), 0);
    }
  }
}

// ---- whole operators against plain loops

TEST(Evaluator, MultipliesMatricesInEveryOrientationAndBatch) {
  for (bool transpose_a : {false, true}) {
    for (bool transpose_b : {false, true}) {
      for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
        std::string a_shape = transpose_a ? "[B, 7, M]" : "[B, M, 7]";
        std::string b_shape = transpose_b ? "[1, 5, 7]" : "[7, 5]";
        Operator op = parsed(
            "operator: mm\nparameters: {T: f32}\ndimensions: [B, M, la]\ninputs:\n  a: {dtype: T, "
            "shape: " +
                a_shape + ", strides: [1000, la, 1]}\n  b: {dtype: T, shape: " + b_shape +
                "}\nbody:\n  - y = matmul(a, b" + (transpose_a ? ", transpose_a=true" : "") +
                (transpose_b ? ", transpose_b=true" : "") + ")\noutputs:\n  y: {dtype: f32}\n",
            {{"T", std::string(to_string(dtype))}});
        Tensor a = Tensor(dtype,
                          transpose_a ? std::vector<std::int64_t>{2, 7, 3}
                                      : std::vector<std::int64_t>{2, 3, 7},
                          {1000, 11, 1})
                       .fill(normal(1));
        Tensor b = Tensor(dtype, transpose_b ? std::vector<std::int64_t>{1, 5, 7}
                                             : std::vector<std::int64_t>{7, 5})
                       .fill(normal(2));
        auto y = evaluated(op, {{"B", 2}, {"M", 3}, {"la", 11}}, {a, b});
        ASSERT_EQ(y.size(), 30u);
        for (std::int64_t batch = 0; batch < 2; ++batch) {
          for (std::int64_t m = 0; m < 3; ++m) {
            for (std::int64_t n = 0; n < 5; ++n) {
              double sum = 0, size = 0;
              for (std::int64_t k = 0; k < 7; ++k) {
                double x = transpose_a ? a.get({batch, k, m}) : a.get({batch, m, k});
                double w = transpose_b ? b.get({0, n, k}) : b.get({k, n});
                sum += x * w;
                size += std::abs(x * w);
              }
              const Reference& got = y[static_cast<std::size_t>((batch * 3 + m) * 5 + n)];
              EXPECT_NEAR(got.value, sum, 1e-12);
              EXPECT_NEAR(got.magnitude, std::sqrt(7.0) * size, 1e-12);
              EXPECT_EQ(got.rounding, 0);
            }
          }
        }
      }
    }
  }
}

constexpr const char* kAttnOut = R"(operator: attn_out
parameters: {T: bf16}
dimensions: [M]
inputs:
  x: {dtype: T, shape: [M, 24]}
  w: {dtype: T, shape: [10, 24]}
  residual: {dtype: T, shape: [M, 10]}
  gain: {dtype: T, shape: [10]}
body:
  - h = matmul(x, w, transpose_b=true)
  - r = add(h, residual)
  - y = rmsnorm(r, gain, eps=1e-5)
outputs:
  r: {dtype: T}
  y: {dtype: T}
)";

TEST(Evaluator, ComputesSeveralOutputsOfAttnOut) {
  Operator op = parsed(kAttnOut);
  std::vector<Tensor> in{
      Tensor(DType::kBF16, {3, 24}).fill(normal(1)), Tensor(DType::kBF16, {10, 24}).fill(normal(2)),
      Tensor(DType::kBF16, {3, 10}).fill(normal(3)), Tensor(DType::kBF16, {10}).fill(normal(4))};
  auto r = evaluated(op, {{"M", 3}}, in, 0), y = evaluated(op, {{"M", 3}}, in, 1);
  for (std::int64_t m = 0; m < 3; ++m) {
    std::vector<double> row(10);
    double squares = 0;
    for (std::int64_t n = 0; n < 10; ++n) {
      double& value = row[static_cast<std::size_t>(n)];
      value = in[2].get({m, n});
      for (std::int64_t k = 0; k < 24; ++k) value += in[0].get({m, k}) * in[1].get({n, k});
      squares += value * value;
    }
    for (std::int64_t n = 0; n < 10; ++n) {
      double value = row[static_cast<std::size_t>(n)];
      auto index = static_cast<std::size_t>(m * 10 + n);
      EXPECT_NEAR(r[index].value, value, 1e-12);
      double eps = static_cast<float>(1e-5);
      EXPECT_NEAR(y[index].value, value / std::sqrt(squares / 10 + eps) * in[3].get({n}), 1e-12);
      EXPECT_LT(y[index].error(), 1e-4);
    }
  }
}

TEST(Evaluator, ComputesChosenElementsAsItComputesAll) {
  Operator op = parsed(kAttnOut);
  std::vector<Tensor> in{
      Tensor(DType::kBF16, {9, 24}).fill(normal(1)), Tensor(DType::kBF16, {10, 24}).fill(normal(2)),
      Tensor(DType::kBF16, {9, 10}).fill(normal(3)), Tensor(DType::kBF16, {10}).fill(normal(4))};
  std::vector<HostTensor> inputs;
  for (const Tensor& tensor : in) inputs.push_back(tensor.host());
  auto evaluator = Evaluator::create(op, {{"M", 9}}, inputs);
  ASSERT_TRUE(evaluator);
  std::vector<std::int64_t> chosen{89, 3, 3, 40, 41, 7, 0};
  for (std::size_t output : {0u, 1u}) {
    auto some = evaluator->elements(output, chosen);
    auto all = evaluator->whole(output);
    ASSERT_TRUE(some && all);
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      EXPECT_EQ((*some)[i].value, (*all)[static_cast<std::size_t>(chosen[i])].value);
      EXPECT_EQ((*some)[i].magnitude, (*all)[static_cast<std::size_t>(chosen[i])].magnitude);
    }
  }
  auto beyond = evaluator->elements(0, std::vector<std::int64_t>{90});
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.error().message, "element 90 of output 'r' is asked for, expected 0 to 89");
}

TEST(Evaluator, BroadcastsRowsColumnsAndBatches) {
  Operator op = parsed(R"(operator: b
dimensions: [B, M]
inputs:
  x: {dtype: f32, shape: [B, M, 3]}
  column: {dtype: f32, shape: [M, 1]}
  row: {dtype: f32, shape: [3]}
  batch: {dtype: f32, shape: [B, 1, 1]}
body:
  - y = add(mul(x, column), add(row, batch))
  - z = sub(x, reduce_mean(x))
outputs:
  y: {dtype: f32}
  z: {dtype: f32}
)");
  Tensor x = Tensor(DType::kF32, {2, 4, 3}).fill(normal(1));
  Tensor column = Tensor(DType::kF32, {4, 1}).fill({1, 2, 3, 4});
  Tensor row = Tensor(DType::kF32, {3}).fill({10, 20, 30});
  Tensor batch = Tensor(DType::kF32, {2, 1, 1}).fill({100, 200});
  auto y = evaluated(op, {{"B", 2}, {"M", 4}}, {x, column, row, batch});
  auto z = evaluated(op, {{"B", 2}, {"M", 4}}, {x, column, row, batch}, 1);
  std::size_t i = 0;
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t m = 0; m < 4; ++m) {
      for (std::int64_t n = 0; n < 3; ++n, ++i) {
        EXPECT_DOUBLE_EQ(y[i].value, x.get({b, m, n}) * static_cast<double>(m + 1) +
                                         static_cast<double>(10 * (n + 1)) +
                                         static_cast<double>(100 * (b + 1)));
        double mean = (x.get({b, m, 0}) + x.get({b, m, 1}) + x.get({b, m, 2})) / 3;
        EXPECT_NEAR(z[i].value, x.get({b, m, n}) - mean, 1e-14);
      }
    }
  }
}

TEST(Evaluator, GivesEmptySumsForEmptyAxes) {
  Operator op = parsed(R"(operator: empty
dimensions: [M, K]
inputs:
  x: {dtype: f32, shape: [M, K]}
  w: {dtype: f32, shape: [4, K]}
body:
  - y = matmul(x, w, transpose_b=true)
  - s = reduce_sum(x)
  - m = reduce_max(x)
  - a = reduce_mean(x)
outputs:
  y: {dtype: f32}
  s: {dtype: f32}
  m: {dtype: f32}
  a: {dtype: f32}
)");
  Tensor x(DType::kF32, {2, 0}), w(DType::kF32, {4, 0});
  Bindings bindings{{"M", 2}, {"K", 0}};
  EXPECT_EQ(values_of(evaluated(op, bindings, {x, w}, 0)), std::vector<double>(8, 0.0));
  EXPECT_EQ(values_of(evaluated(op, bindings, {x, w}, 1)), (std::vector<double>{0, 0}));
  EXPECT_EQ(values_of(evaluated(op, bindings, {x, w}, 2)), (std::vector<double>{-kInf, -kInf}));
  EXPECT_EQ(texts(values_of(evaluated(op, bindings, {x, w}, 3))),
            (std::vector<std::string>{"nan", "nan"}));
  Tensor none(DType::kF32, {0, 5}), weights(DType::kF32, {4, 5});
  EXPECT_TRUE(evaluated(op, {{"M", 0}, {"K", 5}}, {none, weights}, 0).empty());
}

TEST(Evaluator, ChainsMatricesThroughSoftmax) {
  Operator op = parsed(R"(operator: attention
dimensions: [H, M, L]
inputs:
  q: {dtype: f16, shape: [H, M, 8]}
  k: {dtype: f16, shape: [H, L, 8]}
  v: {dtype: f16, shape: [H, L, 6]}
body:
  - p = softmax(mul(matmul(q, k, transpose_b=true), 0.35))
  - y = matmul(p, v)
outputs:
  y: {dtype: f16}
)");
  Tensor q = Tensor(DType::kF16, {2, 3, 8}).fill(normal(1));
  Tensor k = Tensor(DType::kF16, {2, 5, 8}).fill(normal(2));
  Tensor v = Tensor(DType::kF16, {2, 5, 6}).fill(normal(3));
  auto y = evaluated(op, {{"H", 2}, {"M", 3}, {"L", 5}}, {q, k, v});
  for (std::int64_t h = 0; h < 2; ++h) {
    for (std::int64_t m = 0; m < 3; ++m) {
      double weights[5], sum = 0;
      for (std::int64_t l = 0; l < 5; ++l) {
        double score = 0;
        for (std::int64_t d = 0; d < 8; ++d) score += q.get({h, m, d}) * k.get({h, l, d});
        sum += weights[l] = std::exp(score * static_cast<double>(0.35f));
      }
      for (std::int64_t d = 0; d < 6; ++d) {
        double wanted = 0;
        for (std::int64_t l = 0; l < 5; ++l) wanted += weights[l] / sum * v.get({h, l, d});
        const Reference& got = y[static_cast<std::size_t>((h * 3 + m) * 6 + d)];
        EXPECT_NEAR(got.value, wanted, 1e-12);
        EXPECT_GT(got.error(), 0);
        EXPECT_LT(got.error(), 1e-4);
      }
    }
  }
}

// ---- errors

TEST(Evaluator, IsExactOnSmallIntegersUntilSomethingRounds) {
  Operator op = parsed(kAttnOut);
  std::vector<Tensor> in{Tensor(DType::kBF16, {3, 24}).fill(integers(1)),
                         Tensor(DType::kBF16, {10, 24}).fill(integers(2)),
                         Tensor(DType::kBF16, {3, 10}).fill(integers(3)),
                         Tensor(DType::kBF16, {10}).fill(integers(4))};
  for (const Reference& r : evaluated(op, {{"M", 3}}, in, 0)) EXPECT_EQ(r.error(), 0);
  for (const Reference& y : evaluated(op, {{"M", 3}}, in, 1)) {
    EXPECT_LE(y.error(), 16 * kF32Unit * std::abs(y.value)) << "a few units of the norm alone";
  }
}

TEST(Evaluator, CountsAnIntegerSumAsInexactOnceItMayPassTwoToThe24) {
  Operator op = parsed(R"(operator: big
dimensions: [M]
inputs:
  x: {dtype: f32, shape: [M, 4]}
body:
  - y = reduce_sum(x)
outputs:
  y: {dtype: f32}
)");
  auto error = [&](double value) {
    return evaluated(op, {{"M", 1}}, {Tensor(DType::kF32, {1, 4}).fill({value})})[0].error();
  };
  EXPECT_EQ(error(4194304), 0);
  EXPECT_GT(error(4194305), 0);
  EXPECT_GT(error(0.3), 0);
}

TEST(Evaluator, LetsACastTipOnlyWhereTheErrorReachesItsRoundingPoint) {
  Operator op = parsed(R"(operator: tip
dimensions: [M]
inputs:
  x: {dtype: f32, shape: [M, 1]}
body:
  - y = cast(exp(x), dtype=bf16)
outputs:
  y: {dtype: f32}
)");
  auto at = [&](double x) {
    return evaluated(op, {{"M", 1}}, {Tensor(DType::kF32, {1, 1}).fill({x})})[0];
  };
  // e^x just at the middle of 1 and 1 + 2^-7, and far from it
  EXPECT_EQ(at(std::log1p(0x1p-8)).rounding, 0x1p-7);
  EXPECT_EQ(at(std::log1p(0x1.8p-9)).rounding, 0);
  EXPECT_EQ(at(std::log1p(0x1.8p-9)).magnitude, 0);
}

TEST(Evaluator, MakesAComparisonUnsureOnlyWhereRoundingMayDecideIt) {
  Operator op = parsed(R"(operator: unsure
dimensions: [M]
inputs:
  x: {dtype: f32, shape: [M, 1]}
body:
  - y = select(less(exp(x), 1), 10, 20)
outputs:
  y: {dtype: f32}
)");
  auto at = [&](double x) {
    return evaluated(op, {{"M", 1}}, {Tensor(DType::kF32, {1, 1}).fill({x})})[0];
  };
  EXPECT_EQ(at(0).error(), 10) << "e^0 may come out below 1";
  EXPECT_EQ(at(1).error(), 0);
  EXPECT_EQ(at(-1).value, 10);
}

/// The bound has to hold for what f32 does, and to be of use.
TEST(Evaluator, BoundsWhatF32DoesWithoutBeingLoose) {
  Operator op = parsed(R"(operator: bound
dimensions: [M]
inputs:
  x: {dtype: f32, shape: [M, 1024]}
  w: {dtype: f32, shape: [64, 1024]}
body:
  - y = silu(matmul(x, w, transpose_b=true))
outputs:
  y: {dtype: f32}
)");
  Tensor x = Tensor(DType::kF32, {8, 1024}).fill(normal(1));
  Tensor w = Tensor(DType::kF32, {64, 1024}).fill(normal(2));
  auto y = evaluated(op, {{"M", 8}}, {x, w});
  double worst = 0;
  for (std::int64_t m = 0; m < 8; ++m) {
    for (std::int64_t n = 0; n < 64; ++n) {
      float sum = 0;
      for (std::int64_t k = 0; k < 1024; ++k) {
        sum = std::fma(static_cast<float>(x.get({m, k})), static_cast<float>(w.get({n, k})), sum);
      }
      float got = sum / (1 + std::exp(-sum));
      const Reference& wanted = y[static_cast<std::size_t>(m * 64 + n)];
      double ratio = std::abs(got - wanted.value) / wanted.error();
      EXPECT_LE(ratio, 1) << got << " " << wanted.value;
      worst = std::max(worst, ratio);
    }
  }
  EXPECT_GT(worst, 0.01);
}

// ---- refusals and speed

TEST(Evaluator, RefusesTensorsThatDoNotFit) {
  Operator op = parsed(kAttnOut);
  Tensor x(DType::kBF16, {3, 24}), w(DType::kBF16, {10, 24}), r(DType::kBF16, {3, 10}),
      g(DType::kBF16, {10});
  auto message = [&](std::vector<HostTensor> inputs, Bindings bindings = {{"M", 3}}) {
    auto evaluator = Evaluator::create(op, bindings, inputs);
    return evaluator ? std::string("accepted") : evaluator.error().message;
  };
  EXPECT_EQ(message({x.host(), w.host()}), "operator 'attn_out' gets 2 inputs, expected 4");
  EXPECT_EQ(message({x.host(), w.host(), r.host(), g.host()}, {}),
            "'x': dimension M has no value, expected one for every dimension of [M, 24]");
  EXPECT_EQ(message({x.host(), w.host(), r.host(), g.host()}, {{"M", 4}}),
            "input 'x' has shape [3, 24], expected [4, 24]");
  Tensor f32(DType::kF32, {10});
  EXPECT_EQ(message({x.host(), w.host(), r.host(), f32.host()}),
            "input 'gain' is f32, expected bf16");
  HostTensor gone = g.host();
  gone.data = nullptr;
  EXPECT_EQ(message({x.host(), w.host(), r.host(), gone}),
            "input 'gain' has no data, expected 10 elements");
  HostTensor strided = x.host();
  strided.strides = {48, 2};
  EXPECT_EQ(message({strided, w.host(), r.host(), g.host()}),
            "input 'x' has the last stride 2, expected 1");
}

TEST(Evaluator, RemembersValuesThatAreReadTwice) {
  // 2^60 evaluations if it did not.
  std::string body = "  - v0 = exp(x)\n  - s0 = reduce_sum(x)\n";
  for (int i = 1; i <= 60; ++i) {
    std::string before = std::to_string(i - 1), now = std::to_string(i);
    body += "  - v" + now + " = mul(add(v" + before + ", v" + before + "), 0.5)\n";
    body += "  - s" + now + " = mul(add(s" + before + ", s" + before + "), 0.5)\n";
  }
  body += "  - y = add(v60, s60)\n";
  Operator op = parsed(
      "operator: deep\ndimensions: [M]\ninputs:\n  x: {dtype: f32, shape: [M, 4]}\n"
      "body:\n" +
      body + "outputs:\n  y: {dtype: f32}\n");
  auto y = evaluated(op, {{"M", 1}}, {Tensor(DType::kF32, {1, 4}).fill(std::vector<double>{0})});
  EXPECT_EQ(y[3].value, 1);
}

TEST(Evaluator, TakesRowsAndColumnsOfLargeMatricesQuickly) {
  auto op = load_operator(std::string(TILEWRIGHT_SOURCE_DIR) + "/configs/operators/swiglu.yaml",
                          {{"N", "2048"}});
  ASSERT_TRUE(op);
  Tensor x(DType::kBF16, {16, 4096}), w(DType::kBF16, {2048, 4096});
  x.fill(normal(1));
  for (std::size_t i = 0; i < w.bytes.size() / 2; ++i) {
    write_element(DType::kBF16, w.bytes.data(), i, static_cast<double>(i % 17) - 8);
  }
  std::vector<HostTensor> inputs{x.host(), w.host(), w.host()};
  auto evaluator = Evaluator::create(*op, {{"M", 16}}, inputs);
  ASSERT_TRUE(evaluator);
  std::vector<std::int64_t> chosen;
  for (std::int64_t m = 0; m < 16; ++m) {
    for (std::int64_t n = 0; n < 256; ++n) chosen.push_back(m * 2048 + n * 8);
  }
  auto start = std::chrono::steady_clock::now();
  auto result = evaluator->elements(0, chosen);
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  ASSERT_TRUE(result);
  RecordProperty("milliseconds", static_cast<int>(seconds * 1000));
  EXPECT_EQ(evaluator->cost(0).per_element, 2 * 4096 + 3);
}

}  // namespace
}  // namespace tilewright::templates
