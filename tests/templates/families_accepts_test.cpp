// Which groups are one kernel of which family; and why others are not.
#include "tests/templates/family_cases.h"

namespace tilewright::templates {
namespace {

struct Case {
  const char* name;
  std::string yaml;
  std::string pointwise, row_reduction, simt_gemm;  ///< "accepted", or the reason
};

const std::string kAccepted = "accepted";
const std::string kNoReduction = "no statement reduces rows";
const std::string kNoMatmul = "no statement is a matmul";

const Case kCases[] = {
    {"a_chain_is_pointwise",
     operator_yaml("  x: {dtype: f32, shape: [M, 8]}\n  b: {dtype: bf16, shape: [8]}\n",
                   "  - y = relu(add(x, b))\n", "  y: {dtype: f16}\n"),
     kAccepted, kNoReduction, kNoMatmul},
    {"outputs_of_two_shapes_are_two_kernels",
     operator_yaml("  x: {dtype: f32, shape: [M, 8]}\n  s: {dtype: f32, shape: [M, 1]}\n",
                   "  - t = exp(s)\n  - y = mul(x, t)\n", "  y: {dtype: f32}\n  t: {dtype: f32}\n"),
     "output t has shape [M, 1], expected [M, 8] as output y has", kNoReduction, kNoMatmul},
    {"softmax_reduces_rows",
     operator_yaml("  x: {dtype: f32, shape: [M, 8]}\n", "  - y = softmax(x)\n",
                   "  y: {dtype: f32}\n"),
     "y = softmax(x) is not pointwise", kAccepted,
     "y = softmax(x) is neither a matmul nor pointwise"},
    {"a_sum_beside_its_row_is_one_kernel",
     operator_yaml("  x: {dtype: f32, shape: [B, M, 8]}\n",
                   "  - h = mul(x, 2)\n  - s = reduce_sum(h)\n",
                   "  h: {dtype: f32}\n  s: {dtype: f32}\n", "B, M"),
     "s = reduce_sum(h) is not pointwise", kAccepted,
     "s = reduce_sum(h) is neither a matmul nor pointwise"},
    {"reductions_of_different_rows_are_two_kernels",
     operator_yaml("  x: {dtype: f32, shape: [M, 8]}\n  z: {dtype: f32, shape: [M, 4]}\n",
                   "  - s = reduce_sum(x)\n  - t = reduce_max(z)\n  - y = add(s, t)\n",
                   "  y: {dtype: f32}\n"),
     "s = reduce_sum(x) is not pointwise",
     "t = reduce_max(z) reduces [M, 4], expected [M, 8] as s = reduce_sum(x) does",
     "s = reduce_sum(x) is neither a matmul nor pointwise"},
    {"what_is_wider_than_the_reduced_row_is_another_kernel",
     operator_yaml("  x: {dtype: f32, shape: [M, 8]}\n  z: {dtype: f32, shape: [M, 4]}\n",
                   "  - s = reduce_sum(x)\n  - y = add(s, z)\n", "  y: {dtype: f32}\n"),
     "s = reduce_sum(x) is not pointwise",
     "z has shape [M, 4], expected one that stretches to the group's [M, 8]",
     "s = reduce_sum(x) is neither a matmul nor pointwise"},
    {"a_matmul_and_what_follows_is_one_kernel",
     operator_yaml("  x: {dtype: f16, shape: [M, 8]}\n  w: {dtype: f16, shape: [8, 4]}\n"
                   "  r: {dtype: f32, shape: [M, 4]}\n",
                   "  - p = matmul(x, w)\n  - y = add(p, r)\n",
                   "  p: {dtype: f32}\n  y: {dtype: f16}\n"),
     "p = matmul(x, w) is not pointwise",
     "p = matmul(x, w) is neither pointwise nor a row reduction", kAccepted},
    {"a_matmul_of_what_is_computed_is_two_kernels",
     operator_yaml("  x: {dtype: f16, shape: [M, 8]}\n  w: {dtype: f16, shape: [8, 4]}\n",
                   "  - h = relu(x)\n  - y = matmul(h, w)\n", "  y: {dtype: f16}\n"),
     "y = matmul(h, w) is not pointwise",
     "y = matmul(h, w) is neither pointwise nor a row reduction",
     "y = matmul(h, w): operand h is computed in the group, expected an input"},
    {"two_matmuls_that_share_their_first_operand_are_one_kernel",
     operator_yaml("  x: {dtype: f16, shape: [M, 8]}\n  u: {dtype: f16, shape: [8, 4]}\n"
                   "  v: {dtype: f16, shape: [8, 4]}\n",
                   "  - a = matmul(x, u)\n  - b = matmul(x, v)\n  - y = mul(a, b)\n",
                   "  y: {dtype: f16}\n"),
     "a = matmul(x, u) is not pointwise",
     "a = matmul(x, u) is neither pointwise nor a row reduction", kAccepted},
    {"two_matmuls_of_different_layouts_are_two_kernels",
     operator_yaml(
         "  x: {dtype: f16, shape: [M, 8]}\n  u: {dtype: f16, shape: [8, 4]}\n"
         "  v: {dtype: f16, shape: [4, 8]}\n",
         "  - a = matmul(x, u)\n  - b = matmul(x, v, transpose_b=true)\n  - y = mul(a, b)\n",
         "  y: {dtype: f16}\n"),
     "a = matmul(x, u) is not pointwise",
     "a = matmul(x, u) is neither pointwise nor a row reduction",
     "b = matmul(x, v, transpose_b=true): v differs from u in shape, dtype or transposition"},
    {"two_matmuls_of_different_inputs_are_two_kernels",
     operator_yaml("  x: {dtype: f16, shape: [M, 8]}\n  z: {dtype: f16, shape: [M, 8]}\n"
                   "  u: {dtype: f16, shape: [8, 4]}\n",
                   "  - a = matmul(x, u)\n  - b = matmul(z, u)\n  - y = mul(a, b)\n",
                   "  y: {dtype: f16}\n"),
     "a = matmul(x, u) is not pointwise",
     "a = matmul(x, u) is neither pointwise nor a row reduction",
     "b = matmul(z, u) does not share its first operand with a = matmul(x, u)"},
    {"three_matmuls_are_too_many",
     operator_yaml("  x: {dtype: f16, shape: [M, 8]}\n  u: {dtype: f16, shape: [8, 4]}\n"
                   "  v: {dtype: f16, shape: [8, 4]}\n  w: {dtype: f16, shape: [8, 4]}\n",
                   "  - a = matmul(x, u)\n  - b = matmul(x, v)\n  - c = matmul(x, w)\n"
                   "  - y = add(mul(a, b), c)\n",
                   "  y: {dtype: f16}\n"),
     "a = matmul(x, u) is not pointwise",
     "a = matmul(x, u) is neither pointwise nor a row reduction",
     "c = matmul(x, w) is a third matmul, expected at most two"},
    {"the_norm_of_a_product_is_another_kernel",
     operator_yaml("  x: {dtype: f16, shape: [M, 8]}\n  w: {dtype: f16, shape: [8, 4]}\n"
                   "  g: {dtype: f16, shape: [4]}\n",
                   "  - h = matmul(x, w)\n  - y = rmsnorm(h, g, eps=1e-5)\n",
                   "  y: {dtype: f16}\n"),
     "h = matmul(x, w) is not pointwise",
     "h = matmul(x, w) is neither pointwise nor a row reduction",
     "y = rmsnorm(h, g, eps=1e-05) is neither a matmul nor pointwise"},
    {"rows_longer_than_an_int_are_refused",
     operator_yaml("  x: {dtype: f16, shape: [M, 2147483648]}\n", "  - y = relu(x)\n",
                   "  y: {dtype: f16}\n"),
     "the last axis of test is 2147483648, expected at most 2147418112", kNoReduction, kNoMatmul},
};

class Accepts : public testing::TestWithParam<Case> {};

TEST_P(Accepts, OrSaysWhyNot) {
  const Operator group = parsed(GetParam().yaml);
  EXPECT_EQ(reason("pointwise", group), GetParam().pointwise);
  EXPECT_EQ(reason("row_reduction", group), GetParam().row_reduction);
  EXPECT_EQ(reason("simt_gemm", group), GetParam().simt_gemm);
}

INSTANTIATE_TEST_SUITE_P(Families, Accepts, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Families, EveryStatementOfAShippedOperatorAloneIsAccepted) {
  for (const char* name : {"linear", "mlp_up", "swiglu", "attn_out", "add_rmsnorm", "layernorm",
                           "softmax", "bias_gelu", "pointwise_chain"}) {
    const Operator op = shipped(name);
    for (int i = 0; i < static_cast<int>(op.statements.size()); ++i) {
      const Statement& statement = op.statements[static_cast<std::size_t>(i)];
      if (statement.op == Op::kConstant) continue;
      const Operator group = extract_group(op, {i});
      bool accepted = false;
      for (const Family* family : families()) accepted |= family->accepts(group).has_value();
      EXPECT_TRUE(accepted) << name << ": " << print(op, statement);
    }
  }
}

TEST(Families, AreFoundByName) {
  EXPECT_EQ(find_family("simt_gemm")->name(), "simt_gemm");
  EXPECT_EQ(find_family("hgemm"), nullptr);
  EXPECT_EQ(families().size(), 3u);
}

}  // namespace
}  // namespace tilewright::templates
