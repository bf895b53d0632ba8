// Sizes that no memory holds are refused where they are bound, by name, value and limit.
#include <gtest/gtest.h>

#include <limits>

#include "templates/operator/parse.h"

namespace tilewright::templates {
namespace {

constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();

Operator outer() {
  auto op = parse_operator(R"(operator: outer
parameters: {T: bf16, N: 4096}
dimensions: [M, B, ld]
inputs:
  x: {dtype: T, shape: [M, N], strides: [ld, 1]}
  w: {dtype: T, shape: [B, N]}
body:
  - y = matmul(x, w, transpose_b=true)
outputs:
  y: {dtype: T}
)",
                           "outer.yaml");
  EXPECT_TRUE(op) << op.error().message;
  return *op;
}

TEST(OperatorSizes, AreRefusedByDimensionValueAndLimit) {
  struct Case {
    Bindings bindings;
    const char* message;  ///< empty: they fit
  };
  const Case cases[] = {
      {{}, ""},
      {{{"M", 16}, {"B", 8}, {"ld", 4096}}, ""},
      {{{"M", 0}, {"B", 0}, {"ld", 0}}, ""},
      {{{"M", std::int64_t{1} << 36}}, ""},
      {{{"M", -1}}, "dimension M is -1, expected at least 0"},
      {{{"M", kLargest}},
       "dimension M is 9223372036854775807, expected at most 2^48 = 281474976710656"},
      {{{"M", (std::int64_t{1} << 36) + 1}},
       "dimension M is 68719476737, expected at most 68719476736: a tensor of shape [M, 4096] has "
       "at most 2^48 elements"},
      // Inputs fit, the result does not.
      {{{"M", 1 << 30}, {"B", 1 << 20}},
       "dimension B is 1048576, expected at most 262144: a tensor of shape [M, B] has at most 2^48 "
       "elements"},
      {{{"ld", kLargest}},
       "dimension ld is 9223372036854775807, expected at most 2^48 = 281474976710656"},
  };
  const Operator op = outer();
  for (const Case& test : cases) {
    const auto fits = check_sizes(op, test.bindings);
    EXPECT_EQ(fits ? "" : fits.error().message, test.message);
  }
}

TEST(OperatorSizes, OfAnEmptyTensorCountItsOtherAxes) {
  const Shape shape = {{{}, "M"}, {0, {}}, {{}, "B"}};
  const auto large = extents(shape, {{"M", std::int64_t{1} << 40}, {"B", 1 << 9}});
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().message,
            "dimension B is 512, expected at most 256: a tensor of shape [M, 0, B] has at most "
            "2^48 elements");
}

// Both factors are at most 2^48, their product is no number of 64 bits.
TEST(OperatorSizes, StridesOfAnOutputWhoseProductOverflowsAreRefused) {
  const auto op = parse_operator(R"(operator: strided
dimensions: [M]
inputs:
  x: {dtype: f32, shape: [1, 281474976710656, 1]}
body:
  - y = neg(x)
outputs:
  y: {dtype: f32, strides: [281474976710656, 281474976710656, 1]}
)",
                                 "strided.yaml");
  ASSERT_FALSE(op);
}

}  // namespace
}  // namespace tilewright::templates
