// Where special values are: all of them, at corners too, and no more of them than leave something
// to see.
#include "search/verify/adversarial.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "templates/operator/parse.h"

namespace tilewright::search {
namespace {

templates::Operator parsed(const std::string& text) {
  auto op = templates::parse_operator(text, "adversarial", {});
  EXPECT_TRUE(op) << op.error().message;
  return op ? *op : templates::Operator{};
}

constexpr char kGate[] = R"(operator: gate
dimensions: [M]
inputs:
  x: {dtype: f32, shape: [M, 32]}
  w: {dtype: f32, shape: [24, 32]}
  v: {dtype: f32, shape: [32, 24]}
  bias: {dtype: f32, shape: [24]}
  factor: {dtype: f32, shape: [M, 1]}
  residual: {dtype: f32, shape: [M, 24]}
body:
  - left = mul(matmul(x, w, transpose_b=true), matmul(x, v))
  - y = mul(add(add(left, bias), residual), factor)
outputs:
  y: {dtype: f32}
)";

TEST(Spreads, FollowWhatAnElementReaches) {
  const Spread none{}, row{true, false}, column{false, true}, all{true, true};
  EXPECT_EQ(spreads(parsed(kGate)), (std::vector<Spread>{row, column, column, column, row, none}));
  EXPECT_EQ(spreads(parsed("operator: norm\ndimensions: [M]\ninputs:\n"
                           "  x: {dtype: f32, shape: [M, 8]}\n  w: {dtype: f32, shape: [8, 8]}\n"
                           "  gain: {dtype: f32, shape: [8]}\n  s: {dtype: f32, shape: [1]}\n"
                           "body:\n  - n = rmsnorm(mul(x, s), gain, eps=1e-5)\n"
                           "  - y = rmsnorm(matmul(n, w), gain, eps=1e-5)\n"
                           "outputs:\n  y: {dtype: f32}\n")),
            (std::vector<Spread>{row, all, all, all}));
}

std::string kind_of(float value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  if (value == 0) return std::signbit(value) ? "-0" : "0";
  if (std::abs(value) < std::numeric_limits<float>::min()) return "subnormal";
  return std::abs(value) > 1e37f ? "large" : "other";
}

std::set<std::string> kinds(const TestData& data, std::size_t input, std::int64_t rows,
                            std::int64_t columns) {
  std::set<std::string> found;
  std::vector<float> row(static_cast<std::size_t>(columns));
  for (std::int64_t r = 0; r < rows; ++r) {
    data.row(input, r, row.data());
    for (const float value : row) found.insert(kind_of(value));
  }
  return found;
}

TEST(AdversarialData, HasEverySpecialValue) {
  const std::set<std::string> all = {"nan", "inf",       "-inf",  "0",
                                     "-0",  "subnormal", "large", "other"};
  const auto add = parsed(
      "operator: a\ndimensions: [M]\ninputs:\n  x: {dtype: f32, shape: [M, 32]}\n  z: {dtype: f32, "
      "shape: [M, 32]}\nbody:\n  - y = add(x, z)\noutputs:\n  y: {dtype: f32}\n");
  const TestData sum(add, {{64, 32}, {64, 32}}, DataKind::kAdversarial, 1);
  EXPECT_EQ(kinds(sum, 0, 64, 32), all);
  EXPECT_EQ(kinds(sum, 1, 64, 32), all);
  const auto rows = parsed(
      "operator: s\ndimensions: [M]\ninputs:\n  x: {dtype: f32, shape: [M, 32]}\nbody:\n  - y = "
      "softmax(x)\noutputs:\n  y: {dtype: f32}\n");
  EXPECT_EQ(kinds(TestData(rows, {{14, 32}}, DataKind::kAdversarial, 1), 0, 14, 32), all);
  const TestData gate(parsed(kGate), {{24, 32}, {24, 32}, {32, 24}, {24}, {24, 1}, {24, 24}},
                      DataKind::kAdversarial, 1);
  EXPECT_EQ(kinds(gate, 0, 24, 32), all);
  // What meets large values has none, and what meets subnormal ones.
  std::set<std::string> weight = all;
  weight.erase("large");
  weight.erase("subnormal");
  EXPECT_EQ(kinds(gate, 1, 24, 32), weight);
  EXPECT_EQ(kinds(gate, 2, 32, 24), weight);
}

TEST(AdversarialData, MasksRowsInPartAndInFull) {
  const auto rows = parsed(
      "operator: s\ndimensions: [M]\ninputs:\n  x: {dtype: f32, shape: [M, 32]}\nbody:\n  - y = "
      "softmax(x)\noutputs:\n  y: {dtype: f32}\n");
  const TestData data(rows, {{14, 32}}, DataKind::kAdversarial, 1);
  int part = 0, full = 0;
  std::vector<float> row(32);
  for (std::int64_t r = 0; r < 14; ++r) {
    data.row(0, r, row.data());
    const auto masked = std::count(row.begin(), row.end(), -std::numeric_limits<float>::infinity());
    full += masked == 32;
    part += masked > 4 && masked < 32;
  }
  EXPECT_EQ(full, 1);
  EXPECT_EQ(part, 1);
}

TEST(AdversarialData, IsTheSameInParts) {
  const TestData gate(parsed(kGate), {{24, 32}, {24, 32}, {32, 24}, {24}, {24, 1}, {24, 24}},
                      DataKind::kAdversarial, 7);
  std::vector<float> whole(32), part(32);
  for (const std::size_t input : {0u, 1u, 5u})
    for (std::int64_t r = 0; r < 24; ++r) {
      const std::int64_t columns = input == 5 ? 24 : 32;
      gate.row(input, r, whole.data());
      for (std::int64_t begin = 0; begin < columns; begin += 8)
        gate.part(input, r, begin, begin + 8, part.data() + begin);
      EXPECT_EQ(std::memcmp(whole.data(), part.data(), std::size_t(columns) * 4), 0);
    }
}

// A matrix that reaches every output would leave nothing to see but NaN.
TEST(AdversarialData, LeavesSomethingToSee) {
  const auto norm = parsed(
      "operator: norm\ndimensions: [M]\ninputs:\n  x: {dtype: f32, shape: [M, 32]}\n"
      "  w: {dtype: f32, shape: [32, 32]}\n  gain: {dtype: f32, shape: [32]}\nbody:\n"
      "  - y = rmsnorm(matmul(x, w), gain, eps=1e-5)\noutputs:\n  y: {dtype: f32}\n");
  const TestData data(norm, {{16, 32}, {32, 32}, {32}}, DataKind::kAdversarial, 1);
  const std::set<std::string> weight = kinds(data, 1, 32, 32);
  EXPECT_EQ(weight.count("nan") + weight.count("inf") + weight.count("-inf"), 0u);
  EXPECT_EQ(weight.count("-0"), 1u);
}

}  // namespace
}  // namespace tilewright::search
