// Test data: the same everywhere, small where it is to be exact, and such that every term counts.
#include "search/verify/test_data.h"

#include <gtest/gtest.h>

#include <cmath>

#include "templates/operator/parse.h"

namespace tilewright::search {
namespace {

templates::Operator parsed(const std::string& text) {
  auto op = templates::parse_operator(text, "test");
  EXPECT_TRUE(op) << op.error().message;
  return op ? *op : templates::Operator{};
}

constexpr char kSwiglu[] = R"(operator: swiglu
dimensions: [M]
inputs:
  x: {dtype: bf16, shape: [M, 513]}
  wg: {dtype: f16, shape: [12, 513]}
  wu: {dtype: f32, shape: [513, 12]}
body:
  - y = mul(silu(matmul(x, wg, transpose_b=true)), matmul(x, wu))
outputs:
  y: {dtype: bf16}
)";

std::vector<double> row_of(const TestData& data, std::size_t input, DType dtype, std::int64_t row,
                           std::int64_t columns) {
  std::vector<std::byte> bytes(bytes_for(dtype, static_cast<std::size_t>(columns)));
  data.row(input, row, bytes.data());
  std::vector<double> values;
  for (std::int64_t i = 0; i < columns; ++i) {
    values.push_back(read_element(dtype, bytes.data(), static_cast<std::size_t>(i)));
  }
  return values;
}

TEST(TestData, MakesDenseIntegerProductsWhoseSumsStaySmall) {
  templates::Operator op = parsed(kSwiglu);
  TestData data(op, {{16, 513}, {12, 513}, {513, 12}}, DataKind::kInteger, 7);
  double squares = 0, largest = 0, terms = 0;
  for (std::int64_t m = 0; m < 16; ++m) {
    std::vector<double> x = row_of(data, 0, DType::kBF16, m, 513);
    for (std::int64_t n = 0; n < 12; ++n) {
      std::vector<double> gate = row_of(data, 1, DType::kF16, n, 513);
      double sum = 0;
      for (std::size_t k = 0; k < 513; ++k) {
        EXPECT_EQ(gate[k], std::trunc(gate[k]));
        EXPECT_LE(std::abs(gate[k]), 2);
        EXPECT_LE(std::abs(x[k]), 2);
        sum += x[k] * gate[k];
        terms += x[k] * gate[k] != 0;
      }
      squares += sum * sum;
      largest = std::max(largest, std::abs(sum));
    }
  }
  EXPECT_GT(terms / (16 * 12 * 513), 0.5) << "most terms show when they are dropped";
  EXPECT_GT(std::sqrt(squares / 192), 1) << "sums are not all 0";
  EXPECT_LT(largest, 64) << "and bf16 holds them";
}

TEST(TestData, PairsTheContractedAxisOfEitherOrientation) {
  templates::Operator op = parsed(kSwiglu);
  TestData data(op, {{16, 513}, {12, 513}, {513, 12}}, DataKind::kInteger, 7);
  std::vector<double> x = row_of(data, 0, DType::kBF16, 3, 513);
  std::vector<double> sums(12, 0.0);
  for (std::int64_t k = 0; k < 513; ++k) {
    std::vector<double> up = row_of(data, 2, DType::kF32, k, 12);
    for (std::size_t n = 0; n < 12; ++n) sums[n] += x[static_cast<std::size_t>(k)] * up[n];
  }
  for (double sum : sums) EXPECT_LT(std::abs(sum), 64);
}

TEST(TestData, IsRandomNormalWithProductsOfUnitVariance) {
  templates::Operator op = parsed(kSwiglu);
  TestData data(op, {{400, 513}, {12, 513}, {513, 12}}, DataKind::kNormal, 7);
  double sum = 0, squares = 0, fourth = 0, count = 0;
  for (std::int64_t m = 0; m < 400; ++m) {
    for (double x : row_of(data, 0, DType::kBF16, m, 513)) {
      sum += x;
      squares += x * x;
      fourth += x * x * x * x;
      ++count;
    }
  }
  EXPECT_NEAR(sum / count, 0, 0.01);
  EXPECT_NEAR(squares / count, 1, 0.02);
  EXPECT_NEAR(fourth / count, 3, 0.15);
  double gate = 0;
  for (double x : row_of(data, 1, DType::kF16, 5, 513)) gate += x * x;
  EXPECT_NEAR(gate, 1, 0.3) << "scaled by 1 / sqrt(K)";
}

TEST(TestData, DependsOnSeedInputAndRow) {
  templates::Operator op = parsed(kSwiglu);
  for (DataKind kind : {DataKind::kInteger, DataKind::kNormal}) {
    TestData one(op, {{16, 513}, {12, 513}, {513, 12}}, kind, 7);
    TestData same(op, {{16, 513}, {12, 513}, {513, 12}}, kind, 7);
    TestData other(op, {{16, 513}, {12, 513}, {513, 12}}, kind, 8);
    auto row = row_of(one, 0, DType::kBF16, 3, 513);
    EXPECT_EQ(row, row_of(same, 0, DType::kBF16, 3, 513));
    EXPECT_NE(row, row_of(other, 0, DType::kBF16, 3, 513));
    EXPECT_NE(row, row_of(one, 0, DType::kBF16, 4, 513));
  }
}

// The first values for good: bundles name their data by digest across machines.
TEST(TestData, HasTheseValuesOnEveryMachine) {
  templates::Operator op = parsed(kSwiglu);
  auto first = [&](DataKind kind, std::size_t input, DType dtype) {
    TestData data(op, {{16, 513}, {12, 513}, {513, 12}}, kind, 1);
    std::int64_t columns = input == 2 ? 12 : 513;
    std::vector<std::byte> bytes(bytes_for(dtype, static_cast<std::size_t>(columns)));
    data.row(input, 1, bytes.data());
    return digest_of({reinterpret_cast<const char*>(bytes.data()), bytes.size()}).hex();
  };
  EXPECT_EQ(first(DataKind::kInteger, 0, DType::kBF16), "c474502afc2aba8844f5a816b7476905");
  EXPECT_EQ(first(DataKind::kInteger, 1, DType::kF16), "1d51090ab33a1edab4707fb1ea4e2289");
  EXPECT_EQ(first(DataKind::kNormal, 0, DType::kBF16), "6cc07d703f021f5725fc5457bc6d3095");
  EXPECT_EQ(first(DataKind::kNormal, 2, DType::kF32), "ee3f65577181c982950f42aacb5e788e");
}

TEST(DataRoles, FollowWhatTheOperatorDoesWithAnInput) {
  templates::Operator op = parsed(R"(operator: roles
dimensions: [M]
inputs:
  a: {dtype: f32, shape: [M, 8]}
  b: {dtype: f32, shape: [8, 8]}
  c: {dtype: f32, shape: [M, 8]}
  d: {dtype: f32, shape: [8]}
  e: {dtype: f32, shape: [8, 8]}
  f: {dtype: f32, shape: [M, 8]}
  g: {dtype: f32, shape: [M, 8]}
body:
  - h = matmul(a, b)
  - n = rmsnorm(add(c, d), d, eps=1e-5)
  - p = softmax(mul(f, 0.5))
  - q = matmul(add(h, n), e)
  - y = add(add(q, p), div(1, g))
outputs:
  y: {dtype: f32}
)");
  std::vector<DataRole> roles =
      data_roles(op, {{3, 8}, {8, 8}, {3, 8}, {8}, {8, 8}, {3, 8}, {3, 8}});
  using Kind = DataRole::Kind;
  const Kind wanted[] = {Kind::kLeft,   Kind::kRight,  Kind::kReduced, Kind::kPlain,
                         Kind::kSparse, Kind::kPeaked, Kind::kPlain};
  for (std::size_t i = 0; i < roles.size(); ++i) EXPECT_EQ(roles[i].kind, wanted[i]) << i;
  EXPECT_TRUE(roles[0].along_rows);
  EXPECT_FALSE(roles[1].along_rows);
  EXPECT_TRUE(roles[6].positive);
  EXPECT_DOUBLE_EQ(roles[1].scale, 1 / std::sqrt(8.0));
}

TEST(TestData, MakesFewValuesOfAReducedRowCount) {
  templates::Operator op = parsed(R"(operator: rows
dimensions: [M]
inputs:
  x: {dtype: f32, shape: [M, 4096]}
  z: {dtype: f32, shape: [M, 4096]}
body:
  - y = add(reduce_sum(x), reduce_max(z))
outputs:
  y: {dtype: f32}
)");
  TestData data(op, {{4, 4096}, {4, 4096}}, DataKind::kInteger, 3);
  auto count = [&](std::size_t input, std::int64_t row, double above) {
    int result = 0;
    for (double value : row_of(data, input, DType::kF32, row, 4096)) {
      result += std::abs(value) > 0 && value > above;
    }
    return result;
  };
  EXPECT_LT(count(0, 0, -100), 60);
  EXPECT_GT(count(0, 1, -100), 3000);
  EXPECT_GT(count(1, 0, -10), 4);
  EXPECT_LT(count(1, 0, -10), 60);
}

}  // namespace
}  // namespace tilewright::search
