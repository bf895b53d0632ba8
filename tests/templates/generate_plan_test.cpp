// Plans: grids, tiles, limits, and what facts and dynamic dimensions do to them.
#include <chrono>

#include "jit/expression.h"
#include "tests/templates/family_cases.h"

namespace tilewright::templates {
namespace {

using Values = std::map<std::string, std::int64_t>;

std::int64_t value(const std::string& expression, const Values& values) {
  const auto parsed = jit::Expression::parse(expression);
  EXPECT_TRUE(parsed) << expression;
  const auto result = parsed->evaluate([&](std::string_view name) -> std::optional<std::int64_t> {
    const auto found = values.find(std::string(name));
    return found == values.end() ? std::nullopt : std::optional(found->second);
  });
  EXPECT_TRUE(result) << expression << ": " << (result ? "" : result.error().message);
  return result ? *result : -1;
}

Generated made(const char* family, const Operator& group, const Config& set,
               const Facts& facts = {}) {
  const Result<Generated> result =
      find_family(family)->generate(group, config_of(family, group, set), facts);
  EXPECT_TRUE(result) << (result ? "" : result.error().message);
  return result ? *result : Generated{};
}

/// Every element of the output [rows, columns] lies in the tile of exactly one block.
void expect_tiling(const jit::PlanLaunch& launch, Values values, std::int64_t rows,
                   std::int64_t columns) {
  std::vector<int> covered(static_cast<std::size_t>(rows * columns), 0);
  const std::int64_t blocks = value(launch.grid[0], values);
  for (std::int64_t block = 0; block < blocks; ++block) {
    values["block.x"] = block;
    const std::int64_t row = value(launch.tile[0], values), height = value(launch.tile[1], values);
    const std::int64_t column = value(launch.tile[2], values),
                       width = value(launch.tile[3], values);
    ASSERT_GE(row, 0);
    ASSERT_GT(height, 0);
    ASSERT_GT(width, 0);
    ASSERT_LE(row + height, rows);
    ASSERT_LE(column + width, columns);
    for (std::int64_t r = row; r < row + height; ++r) {
      for (std::int64_t c = column; c < column + width; ++c) ++covered[r * columns + c];
    }
  }
  for (std::size_t i = 0; i < covered.size(); ++i) ASSERT_EQ(covered[i], 1) << i;
}

TEST(Plans, TilesOfAProductCoverItOnce) {
  for (std::int64_t group : {1, 4, 8}) {
    const Generated plain = made("simt_gemm", shipped("mlp_up", {{"N", "200"}, {"K", "64"}}),
                                 {{"block_m", 32}, {"group_m", group}});
    for (std::int64_t m : {0, 1, 31, 32, 33, 160, 331}) {
      expect_tiling(plain.plan.launches[0], {{"M", m}}, m, 200);
    }
  }
}

const std::string kBatched =
    operator_yaml("  x: {dtype: f32, shape: [B, M, 8]}\n  w: {dtype: f32, shape: [B, 8, N]}\n",
                  "  - y = matmul(x, w)\n", "  y: {dtype: f32}\n", "B, M, N");

TEST(Plans, TilesOfABatchedProductCoverIt) {
  for (std::int64_t split : {1, 3}) {
    for (std::int64_t group : {1, 2}) {
      const Generated batched = made("simt_gemm", parsed(kBatched),
                                     {{"block_m", 16},
                                      {"block_n", 32},
                                      {"thread_n", 2},
                                      {"split_k", split},
                                      {"group_m", group}});
      for (std::int64_t m : {0, 1, 15, 50}) {
        for (std::int64_t n : {0, 1, 33, 70}) {
          expect_tiling(batched.plan.launches.back(), {{"B", 3}, {"M", m}, {"N", n}}, 3 * m, n);
        }
      }
    }
  }
}

TEST(Plans, BatchesAreNoGridDimensionOfTheirOwn) {
  const Generated batched = made("simt_gemm", parsed(kBatched), {});
  const jit::PlanLaunch& launch = batched.plan.launches[0];
  EXPECT_EQ(value(launch.grid[0], {{"B", 65537}, {"M", 65}, {"N", 1}}), 65537 * 2);
  EXPECT_EQ(launch.grid[1], "1");
  EXPECT_EQ(launch.grid[2], "1");
}

TEST(Plans, BatchesOfOneWeightAreRowsOfOneProduct) {
  const Operator group = parsed(
      operator_yaml("  x: {dtype: f32, shape: [B, M, 8]}\n  w: {dtype: f32, shape: [8, 48]}\n",
                    "  - y = matmul(x, w)\n", "  y: {dtype: f32}\n", "B, M"));
  const Generated product = made("simt_gemm", group, {});
  EXPECT_EQ(product.plan.launches[0].grid[0], "ceil_div(B * M, 64)");
}

TEST(Plans, TilesOfPointwiseAndRowKernelsCoverTheOutput) {
  const Generated chain = made("pointwise", shipped("pointwise_chain", {{"N", "dynamic"}}),
                               {{"rows_per_thread", 2}, {"items", 2}});
  const Generated norm =
      made("row_reduction", shipped("layernorm", {{"N", "dynamic"}}), {{"rows_per_block", 4}});
  for (std::int64_t m : {0, 1, 7, 16}) {
    for (std::int64_t n : {0, 1, 300, 1025}) {
      expect_tiling(chain.plan.launches[0], {{"M", m}, {"N", n}}, m, n);
      if (n > 0) expect_tiling(norm.plan.launches[0], {{"M", m}, {"N", n}}, m, n);
    }
  }
}

TEST(Plans, EmptyExtentsAreGridsOfZero) {
  for (const char* name : {"mlp_up", "swiglu"}) {
    const Generated product = made("simt_gemm", shipped(name, {{"N", "dynamic"}}), {});
    EXPECT_EQ(value(product.plan.launches[0].grid[0], {{"M", 0}, {"N", 5}}), 0);
    EXPECT_EQ(value(product.plan.launches[0].grid[0], {{"M", 5}, {"N", 0}}), 0);
  }
}

TEST(Plans, RestateTheAlignmentThatTheSourceReliesOn) {
  const Operator op = shipped("mlp_up", {{"N", "4096"}, {"K", "1024"}});
  const Facts facts = Facts::of_allocation(op, {{"M", 16}});
  const auto legal = [&](std::int64_t width) {
    std::string text;
    for (const std::string& item :
         made("simt_gemm", op, {{"width", width}, {"thread_n", 8}}, facts).plan.legal) {
      text += item + "; ";
    }
    return text;
  };
  EXPECT_EQ(
      legal(8),
      "bias.align >= 16; w.align >= 16; x.align >= 16; y.align >= 16; ceil_div(M, 64) * 64 <= "
      "2147483647; ");
  EXPECT_EQ(legal(2),
            "bias.align >= 4; w.align >= 4; x.align >= 4; y.align >= 4; ceil_div(M, 64) * 64 <= "
            "2147483647; ");
  EXPECT_EQ(legal(1), "ceil_div(M, 64) * 64 <= 2147483647; ");
}

TEST(Plans, TrustStaticStridesMoreThanFacts) {
  const Operator op = shipped("mlp_up", {{"N", "4097"}, {"K", "1026"}});
  Facts facts;
  for (const char* name : {"x", "w", "bias", "y"}) facts.alignment[name] = 256;
  std::string text;
  for (const std::string& item :
       made("simt_gemm", op, {{"width", 8}, {"thread_n", 8}}, facts).plan.legal) {
    text += item + "; ";
  }
  EXPECT_EQ(text, "w.align >= 4; x.align >= 4; ceil_div(M, 64) * 65 <= 2147483647; ");
}

TEST(Facts, OfAllocationFollowStridesAsTheyAreBound) {
  const Operator op = shipped("mlp_up", {{"N", "dynamic"}, {"K", "dynamic"}, {"T", "f16"}});
  const Facts facts = Facts::of_allocation(op, {{"M", 4}, {"N", 12}, {"K", 7}});
  EXPECT_EQ(facts.alignment.at("x"), 2);
  EXPECT_EQ(facts.alignment.at("w"), 2);
  EXPECT_EQ(facts.alignment.at("bias"), 16);
  EXPECT_EQ(facts.alignment.at("y"), 8);
  EXPECT_EQ(Facts::of_allocation(op, {{"M", 1}, {"N", 12}, {"K", 7}}).alignment.at("x"), 16);
  EXPECT_TRUE(Facts::unaligned(op).alignment.empty());
}

TEST(Plans, OfShapesThatDifferInDynamicDimensionsShareTheirSource) {
  const Operator op = shipped("mlp_up", {{"N", "dynamic"}, {"K", "dynamic"}});
  const auto source = [&](std::int64_t n, std::int64_t k) {
    return made("simt_gemm", op, {}, Facts::of_allocation(op, {{"M", 8}, {"N", n}, {"K", k}}))
        .source.text;
  };
  EXPECT_EQ(source(64, 128), source(4096, 24));
  EXPECT_NE(source(64, 128), source(63, 128));
}

TEST(Generate, TakesFarLessThanACompile) {
  const Operator op = shipped("swiglu");
  const Facts facts = Facts::of_allocation(op, {{"M", 16}});
  const auto start = std::chrono::steady_clock::now();
  constexpr int kTimes = 200;
  for (int i = 0; i < kTimes; ++i) (void)made("simt_gemm", op, {{"split_k", 4}}, facts);
  const double ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count() /
      kTimes;
  RecordProperty("ms_per_candidate", std::to_string(ms));
  EXPECT_LT(ms, 10) << "two orders above what it takes: something has become quadratic";
}

}  // namespace
}  // namespace tilewright::templates
