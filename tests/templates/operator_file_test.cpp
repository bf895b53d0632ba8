// The shipped operators: they parse, print and parse again to the same, in every dtype, at the
// sizes of every model that they name.
#include <gtest/gtest.h>

#include <filesystem>

#include "templates/operator/parse.h"

namespace tilewright::templates {
namespace {

std::filesystem::path operator_file(const std::string& name) {
  return std::filesystem::path(TILEWRIGHT_SOURCE_DIR) / "configs/operators" / (name + ".yaml");
}

class ShippedOperator : public testing::TestWithParam<const char*> {};

TEST_P(ShippedOperator, PrintsToTextThatParsesToTheSame) {
  auto op = load_operator(operator_file(GetParam()));
  ASSERT_TRUE(op) << op.error().message;
  auto again = parse_operator(print(*op), "printed");
  ASSERT_TRUE(again) << again.error().message << "\n" << print(*op);
  EXPECT_EQ(print(*again), print(*op));
  EXPECT_EQ(canonical_text(*again), canonical_text(*op));
  EXPECT_EQ(digest(*again), digest(*op));
}

TEST_P(ShippedOperator, ParsesInEveryDTypeAtEveryModelsSizes) {
  auto models = operator_models(operator_file(GetParam()));
  ASSERT_TRUE(models) << models.error().message;
  EXPECT_GE(models->size(), 3u);
  for (auto [name, overrides] : *models) {
    for (const char* dtype : {"f32", "f16", "bf16"}) {
      overrides["T"] = dtype;
      auto op = load_operator(operator_file(GetParam()), overrides);
      ASSERT_TRUE(op) << name << ": " << op.error().message;
      EXPECT_EQ(to_string(op->outputs[0].dtype), dtype);
      EXPECT_EQ(op->intermediate, op->outputs[0].dtype);
    }
  }
}

TEST_P(ShippedOperator, TakesEverySizeAsADynamicDimension) {
  Overrides overrides;
  auto fixed = load_operator(operator_file(GetParam()));
  ASSERT_TRUE(fixed) << fixed.error().message;
  for (const char* name : {"N", "K"}) {
    auto split = split_shape_arguments(operator_file(GetParam()), std::string(name) + "=7");
    if (split) overrides[name] = "dynamic";
  }
  auto op = load_operator(operator_file(GetParam()), overrides);
  ASSERT_TRUE(op) << op.error().message;
  EXPECT_EQ(op->dimensions.size(), 1 + overrides.size());
  EXPECT_NE(digest(*op), digest(*fixed));
}

INSTANTIATE_TEST_SUITE_P(All, ShippedOperator,
                         testing::Values("add_rmsnorm", "attn_out", "bias_gelu", "layernorm",
                                         "linear", "mlp_up", "pointwise_chain", "softmax",
                                         "swiglu"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tilewright::templates
