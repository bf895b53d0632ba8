// Canonical text: equal for operators that compute the same in the same way, different for all
// that a generated kernel may depend on.
#include <gtest/gtest.h>

#include "templates/operator/parse.h"

namespace tilewright::templates {
namespace {

Operator parsed(const std::string& text, const Overrides& overrides = {}) {
  auto op = parse_operator(text, "test", overrides);
  EXPECT_TRUE(op) << op.error().message << "\n" << text;
  return op ? *op : Operator{};
}

constexpr const char* kSwiglu = R"(operator: swiglu
parameters: {T: bf16, N: 14336, K: 4096}
dimensions: [M]
inputs:
  x: {dtype: T, shape: [M, K]}
  wg: {dtype: T, shape: [N, K]}
  wu: {dtype: T, shape: [N, K]}
body:
  - gate = matmul(x, wg, transpose_b=true)
  - up = matmul(x, wu, transpose_b=true)
  - y = mul(silu(gate), up)
outputs:
  y: {dtype: T}
)";

TEST(CanonicalText, OfSwigluIsThis) {
  EXPECT_EQ(canonical_text(parsed(kSwiglu)), R"(tilewright operator 1
dimensions 1
input bf16 [d0,4096] strides dense row_major
input bf16 [14336,4096] strides dense row_major
input bf16 [14336,4096] strides dense row_major
v3 = matmul(v0, v1) transpose_b
v4 = silu(v3)
v5 = matmul(v0, v2) transpose_b
v6 = mul(v4, v5)
output v6 bf16 strides dense
intermediate bf16
numerics default deterministic batch_variant
)");
}

TEST(CanonicalText, WritesAttributesConstantsStridesAndLayouts) {
  EXPECT_EQ(canonical_text(parsed(R"(operator: everything
dimensions: [M, ld]
inputs:
  x: {dtype: f16, shape: [M, 8], strides: [ld, 1]}
  g: {dtype: f32, shape: [8]}
body:
  - a = clamp(mul(x, 0.5), low=-inf, high=6)
  - b = rmsnorm(cast(a, dtype=bf16), g, eps=1e-06)
outputs:
  a: {dtype: f32, strides: [16, 1]}
  b: {dtype: bf16}
intermediate: f32
numerics: {accuracy: fast, deterministic: false, batch_invariant: true}
)")),
            R"(tilewright operator 1
dimensions 2
input f16 [d0,8] strides [d1,1] row_major
input f32 [8] strides dense row_major
v2 = constant() value=0.5
v3 = mul(v2, v0)
v4 = clamp(v3) low=-inf high=6
v5 = cast(v4) dtype=bf16
v6 = rmsnorm(v5, v1) eps=1e-06
output v4 f32 strides [16,1]
output v6 bf16 strides dense
intermediate f32
numerics fast nondeterministic batch_invariant
)");
}

/// Each writes the operator of the first in other words.
TEST(CanonicalText, IgnoresNamesOrderAndRepetition) {
  const char* same[] = {
      kSwiglu,
      // other names, other order of statements, of commutative operands, everything in one line
      R"(operator: gated
dimensions: [tokens]
inputs:
  a: {dtype: bf16, shape: [tokens, 4096]}
  b: {dtype: bf16, shape: [14336, 4096]}
  c: {dtype: bf16, shape: [14336, 4096]}
body:
  - out = mul(matmul(a, c, transpose_b=true), silu(matmul(a, b, transpose_b=true)))
outputs:
  out: {dtype: bf16}
intermediate: bf16
numerics: {accuracy: default, deterministic: true, batch_invariant: false}
)",
      // the same matmul written twice
      R"(operator: twice
dimensions: [M]
inputs:
  x: {dtype: bf16, shape: [M, 4096]}
  wg: {dtype: bf16, shape: [14336, 4096]}
  wu: {dtype: bf16, shape: [14336, 4096]}
body:
  - up = matmul(x, wu, transpose_b=true, transpose_a=false)
  - z = mul(up, silu(matmul(x, wg, transpose_b=true)))
outputs:
  z: {dtype: bf16}
)"};
  for (const char* text : same) {
    EXPECT_EQ(canonical_text(parsed(text)), canonical_text(parsed(kSwiglu))) << text;
    EXPECT_EQ(digest(parsed(text)), digest(parsed(kSwiglu)));
  }
}

TEST(CanonicalText, MergesEqualStatementsAndDropsDeadOnes) {
  Operator once = parsed(R"(operator: once
dimensions: [M]
inputs:
  x: {dtype: f32, shape: [M, 8]}
body:
  - e = exp(x)
  - y = add(e, e)
outputs:
  y: {dtype: f32}
)");
  Operator twice = parsed(R"(operator: twice
dimensions: [M]
inputs:
  x: {dtype: f32, shape: [M, 8]}
body:
  - y = add(exp(x), exp(x))
outputs:
  y: {dtype: f32}
)");
  EXPECT_EQ(canonical_text(once), canonical_text(twice));
  Operator dead = once;
  dead.values.push_back({"dead", DType::kF32, dead.values[0].shape});
  dead.statements.push_back({.result = 3, .op = Op::kLog, .operands = {0}, .attributes = {}});
  EXPECT_EQ(canonical_text(dead), canonical_text(once));
  auto refused = verify(dead);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "operator 'once': value 'dead' is never used, expected a statement that reads it or an "
            "output");
}

TEST(CanonicalText, SortsCommutativeOperandsWithoutLookingAtNames) {
  // The sorting must not follow names: swapping the names of two values leaves the text alone.
  std::string one = R"(operator: o
dimensions: [M]
inputs:
  x: {dtype: f32, shape: [M, 8]}
body:
  - a = exp(x)
  - b = tanh(x)
  - y = add(a, b)
outputs:
  y: {dtype: f32}
)";
  std::string other = one;
  for (auto [from, to] : {std::pair{"- a = exp", "- b = exp"}, {"- b = tanh", "- a = tanh"}}) {
    other.replace(other.find(from), std::string(from).size(), to);
  }
  EXPECT_EQ(canonical_text(parsed(one)), canonical_text(parsed(other)));
}

TEST(Digest, DependsOnAllThatAKernelMayDependOn) {
  struct {
    const char* replace;
    const char* with;
  } changes[] = {
      {"T: bf16", "T: f16"},
      {"N: 14336", "N: 14337"},
      {"mul(silu(gate), up)", "mul(silu(up), gate)"},
      {"silu", "sigmoid"},
      {" mul(", " sub("},
      {"y: {dtype: T}", "y: {dtype: f32}\nintermediate: bf16"},
      {"y: {dtype: T}", "y: {dtype: T}\nintermediate: f32"},
      {"y: {dtype: T}", "y: {dtype: T, strides: [20000, 1]}"},
      {"y: {dtype: T}", "y: {dtype: T}\n  up: {dtype: T}"},
      {"y: {dtype: T}", "y: {dtype: T}\nnumerics: {batch_invariant: true}"},
      {"y: {dtype: T}", "y: {dtype: T}\nnumerics: {accuracy: exact}"},
      {"[M, K]}", "[M, K], strides: [8192, 1]}"},
  };
  std::vector<Digest> seen{digest(parsed(kSwiglu)), digest(parsed(kSwiglu, {{"N", "dynamic"}}))};
  for (const auto& change : changes) {
    std::string text = kSwiglu;
    text.replace(text.find(change.replace), std::string(change.replace).size(), change.with);
    Digest changed = digest(parsed(text));
    EXPECT_EQ(std::count(seen.begin(), seen.end(), changed), 0) << change.with;
    seen.push_back(changed);
  }
}

TEST(Digest, DependsOnHowAnOperandOfTheSameShapeLies) {
  // Square, so that only the flag says which way.
  const auto product = [](const char* flags) {
    return digest(parsed(std::string(R"(operator: square
dimensions: [M]
inputs:
  x: {dtype: bf16, shape: [M, 64]}
  w: {dtype: bf16, shape: [64, 64]}
body:
  - y = matmul(x, w)") + flags +
                         R"()
outputs:
  y: {dtype: bf16}
)"));
  };
  EXPECT_NE(product(", transpose_b=true"), product(", transpose_b=false"));
  EXPECT_EQ(product(", transpose_b=false"), product(""));
}

TEST(Print, WritesNestedCallsAsStatementsOfTheirOwn) {
  EXPECT_EQ(print(parsed(R"(operator: nested
parameters: {T: f16, limit: 6}
dimensions: [M, ldy]
inputs:
  x: {dtype: T, shape: [M, 8]}
  t0: {dtype: f32, shape: [M, 1]}
body:
  - y = min(select(less(x, t0), 0, mul(x, 0.1)), limit)
outputs:
  y: {dtype: T, strides: [ldy, 1]}
)")),
            R"(operator: nested
dimensions: [M, ldy]
inputs:
  x: {shape: [M, 8], dtype: f16}
  t0: {shape: [M, 1], dtype: f32}
body:
  - t2 = less(x, t0)
  - t3 = mul(x, 0.1)
  - t1 = select(t2, 0, t3)
  - y = min(t1, 6)
outputs:
  y: {dtype: f16, strides: [ldy, 1]}
intermediate: f16
numerics: {accuracy: default, deterministic: true, batch_invariant: false}
)");
}

TEST(Extents, AreTakenFromTheBindings) {
  Operator op = parsed(kSwiglu);
  auto shape = extents(op.value(0).shape, {{"M", 7}});
  ASSERT_TRUE(shape);
  EXPECT_EQ(*shape, (std::vector<std::int64_t>{7, 4096}));
  auto missing = extents(op.value(0).shape, {});
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().message,
            "dimension M has no value, expected one for every dimension of [M, 4096]");
  auto negative = extents(op.value(0).shape, {{"M", -2}});
  ASSERT_FALSE(negative);
  EXPECT_EQ(negative.error().message, "dimension M is -2, expected at least 0");
}

TEST(PlanTensors, AreInputsThenOutputs) {
  std::string text;
  for (const jit::PlanTensor& tensor : plan_tensors(parsed(kSwiglu))) {
    text += tensor.name + (tensor.role == jit::TensorRole::kInput ? " in" : " out");
    for (const std::string& dim : tensor.shape) text += " " + dim;
    text += "\n";
  }
  EXPECT_EQ(text, "x in M 4096\nwg in 14336 4096\nwu in 14336 4096\ny out M 14336\n");
}

}  // namespace
}  // namespace tilewright::templates
