// Groups of statements as operators of their own.
#include <gtest/gtest.h>

#include "templates/operator/group.h"
#include "templates/operator/parse.h"

namespace tilewright::templates {
namespace {

Operator parsed(const std::string& text) {
  auto op = parse_operator(text, "test");
  EXPECT_TRUE(op) << op.error().message << "\n" << text;
  return op ? *op : Operator{};
}

/// Everything of a group's printed form but what all groups have in common.
std::string group_text(const Operator& op, const std::vector<int>& statements) {
  Operator group = extract_group(op, statements);
  auto verified = verify(group);
  EXPECT_TRUE(verified) << verified.error().message << "\n" << print(group);
  std::string text = print(group);
  return text.substr(0, text.find("intermediate:"));
}

constexpr const char* kAttnOut = R"(operator: attn_out
dimensions: [M, ldr]
inputs:
  x: {dtype: bf16, shape: [M, 64]}
  w: {dtype: bf16, shape: [32, 64]}
  residual: {dtype: bf16, shape: [M, 32]}
  gain: {dtype: f32, shape: [32]}
body:
  - h = matmul(x, w, transpose_b=true)
  - r = add(h, residual)
  - y = mul(rmsnorm(r, gain, eps=1e-05), 0.5)
outputs:
  r: {dtype: bf16, strides: [ldr, 1]}
  y: {dtype: f16}
intermediate: f32
)";
// statements: 0 h, 1 r, 2 t0 = rmsnorm, 3 c0 = 0.5, 4 y

TEST(ExtractGroup, OfAllStatementsIsTheOperator) {
  Operator op = parsed(kAttnOut);
  Operator group = extract_group(op, {0, 1, 2, 3, 4});
  EXPECT_EQ(print(group), print(op));
  EXPECT_EQ(digest(group), digest(op));
  EXPECT_EQ(digest(extract_group(op, {0, 1, 2, 4})), digest(op)) << "constants come along";
}

TEST(ExtractGroup, StoresWhatLeavesItInTheIntermediateDType) {
  EXPECT_EQ(group_text(parsed(kAttnOut), {0}), R"(operator: attn_out.h
dimensions: [M]
inputs:
  x: {shape: [M, 64], dtype: bf16}
  w: {shape: [32, 64], dtype: bf16}
body:
  - h = matmul(x, w, transpose_b=true)
outputs:
  h: {dtype: f32}
)");
}

TEST(ExtractGroup, ReadsOutputsOfTheOperatorAsTheyAreStored) {
  EXPECT_EQ(group_text(parsed(kAttnOut), {2, 4}), R"(operator: attn_out.y
dimensions: [M, ldr]
inputs:
  r: {shape: [M, 32], dtype: bf16, strides: [ldr, 1]}
  gain: {shape: [32], dtype: f32}
body:
  - t0 = rmsnorm(r, gain, eps=1e-05)
  - y = mul(t0, 0.5)
outputs:
  y: {dtype: f16}
)");
}

TEST(ExtractGroup, KeepsOutputsThatItAlsoReads) {
  EXPECT_EQ(group_text(parsed(kAttnOut), {1, 2}), R"(operator: attn_out.t0
dimensions: [M, ldr]
inputs:
  h: {shape: [M, 32], dtype: f32}
  residual: {shape: [M, 32], dtype: bf16}
  gain: {shape: [32], dtype: f32}
body:
  - r = add(h, residual)
  - t0 = rmsnorm(r, gain, eps=1e-05)
outputs:
  r: {dtype: bf16, strides: [ldr, 1]}
  t0: {dtype: f32}
)");
}

TEST(ExtractGroup, StoresACastValueInTheDTypeOfTheCast) {
  Operator op = parsed(R"(operator: casts
dimensions: [M]
inputs:
  x: {dtype: f32, shape: [M, 8]}
body:
  - c = cast(exp(x), dtype=f16)
  - y = mul(c, 3)
outputs:
  y: {dtype: f32}
)");
  EXPECT_EQ(group_text(op, {0, 1}), R"(operator: casts.c
dimensions: [M]
inputs:
  x: {shape: [M, 8], dtype: f32}
body:
  - t0 = exp(x)
  - c = cast(t0, dtype=f16)
outputs:
  c: {dtype: f16}
)");
}

TEST(ExtractGroup, GivesEqualDigestsToEqualGroupsOfDifferentOperators) {
  Operator norm = parsed(R"(operator: norm
dimensions: [T]
inputs:
  weight: {dtype: f32, shape: [32]}
  other: {dtype: bf16, shape: [T, 32]}
  v: {dtype: bf16, shape: [T, 32]}
body:
  - sum = add(v, other)
  - n = rmsnorm(v, weight, eps=1e-05)
outputs:
  sum: {dtype: bf16}
  n: {dtype: f32}
intermediate: f32
)");
  Operator attn = parsed(R"(operator: attn
dimensions: [M]
inputs:
  x: {dtype: bf16, shape: [M, 32]}
  gain: {dtype: f32, shape: [32]}
body:
  - y = exp(rmsnorm(x, gain, eps=1e-05))
outputs:
  y: {dtype: bf16}
intermediate: f32
)");
  EXPECT_EQ(digest(extract_group(norm, {1})), digest(extract_group(attn, {0})));
}

TEST(ExtractGroup, ThatCutsAtAComparisonIsRefusedByVerify) {
  Operator op = parsed(R"(operator: masked
dimensions: [M]
inputs:
  x: {dtype: f32, shape: [M, 8]}
body:
  - c = less(x, 0)
  - y = select(c, 0, x)
outputs:
  y: {dtype: f32}
)");
  // statements: 0 the constant, 1 c, 2 the constant, 3 y
  auto refused = verify(extract_group(op, {1}));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "test:6: output 'c' is bool, expected a number: a comparison is never stored");
}

}  // namespace
}  // namespace tilewright::templates
