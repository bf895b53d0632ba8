// Which blocks run for which: facts of plans, and the choice of blocks backwards through them.
#include "search/verify/coverage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "templates/operator/parse.h"

namespace tilewright::search {
namespace {

using testing::ElementsAre;

templates::Operator parsed(const std::string& text) {
  auto op = templates::parse_operator(text, "test");
  EXPECT_TRUE(op) << op.error().message;
  return op ? *op : templates::Operator{};
}

constexpr char kOperator[] = R"(operator: chain
dimensions: [M]
inputs:
  x: {dtype: f32, shape: [M, 8]}
  w: {dtype: f32, shape: [64, 8]}
  v: {dtype: f32, shape: [16, 64]}
body:
  - h = matmul(x, w, transpose_b=true)
  - g = relu(h)
  - n = softmax(g)
  - y = matmul(n, v, transpose_b=true)
outputs:
  y: {dtype: f32}
)";

TEST(Reach, IsTheWidestOnTheWay) {
  templates::Operator op = parsed(kOperator);
  auto from_to = [&](const char* source, const char* target) {
    return reach(op, *op.find(source), *op.find(target));
  };
  EXPECT_EQ(from_to("h", "g"), Reach::kSame);
  EXPECT_EQ(from_to("h", "n"), Reach::kRows);
  EXPECT_EQ(from_to("n", "y"), Reach::kRows);
  EXPECT_EQ(from_to("h", "y"), Reach::kRows);
  EXPECT_EQ(from_to("v", "y"), Reach::kAll);
  EXPECT_EQ(from_to("y", "h"), Reach::kNone);
}

/// Launches that write g, n and y, in tiles of 4 rows by 16, 64 and 16 columns.
struct Chain {
  templates::Operator op = parsed(kOperator);
  jit::Plan plan;
  templates::Bindings bindings{{"M", 40}};

  Chain() {
    plan.dimensions = {"M"};
    plan.tensors = templates::plan_tensors(op);
    auto launch = [&](const char* reads, const char* writes, const char* columns,
                      const char* width) {
      jit::PlanLaunch one;
      one.kernel = writes;
      one.grid = {columns, "ceil_div(M, 4)", "1"};
      one.arguments = {{jit::ArgumentKind::kTensor, reads, {}},
                       {jit::ArgumentKind::kTensor, writes, {}}};
      one.tile = {"block.y * 4", "min(4, M - block.y * 4)", std::string("block.x * ") + width,
                  width};
      plan.launches.push_back(one);
    };
    for (const char* name : {"g", "n"}) {
      plan.tensors.push_back({.name = name,
                              .dtype = DType::kF32,
                              .role = jit::TensorRole::kIntermediate,
                              .shape = {"M", "64"},
                              .strides = {},
                              .workspace_offset = "0"});
    }
    launch("x", "g", "4", "16");
    launch("g", "n", "1", "64");
    launch("n", "y", "1", "16");
  }

  std::vector<LaunchFacts> facts() const {
    auto result = plan_facts(plan, bindings, {});
    EXPECT_TRUE(result) << result.error().message;
    return result ? *result : std::vector<LaunchFacts>{};
  }
  Coverage coverage(std::uint64_t sample_blocks) const {
    std::map<std::string, Rect> extents{
        {"g", {0, 40, 0, 64}}, {"n", {0, 40, 0, 64}}, {"y", {0, 40, 0, 16}}};
    std::vector<LaunchFacts> launches = facts();
    auto result = choose_coverage(op, launches, extents, sample_blocks, 1);
    EXPECT_TRUE(result) << result.error().message;
    return result ? *result : Coverage{};
  }
};

TEST(PlanFacts, TellWritersFromReaders) {
  Chain chain;
  std::vector<LaunchFacts> facts = chain.facts();
  ASSERT_EQ(facts.size(), 3u);
  EXPECT_THAT(facts[0].writes, ElementsAre("g"));
  EXPECT_THAT(facts[0].reads, ElementsAre());
  EXPECT_THAT(facts[1].writes, ElementsAre("n"));
  EXPECT_THAT(facts[1].reads, ElementsAre("g"));
  EXPECT_EQ(facts[0].grid, (std::array<std::uint64_t, 3>{4, 10, 1}));
  auto tile = facts[0].tile->tile(39, facts[0].grid);
  ASSERT_TRUE(tile);
  EXPECT_EQ(*tile, (Rect{36, 4, 48, 16}));
}

TEST(PlanFacts, LeaveOutLaunchesWithNothingToDo) {
  Chain chain;
  chain.bindings = {{"M", 0}};
  EXPECT_TRUE(chain.facts().empty());
}

TEST(Coverage, IsEverythingWhereBlocksAreNotSampled) {
  Chain chain;
  Coverage coverage = chain.coverage(0);
  EXPECT_FALSE(coverage.sampled);
  for (const auto& launch : coverage.launches) EXPECT_TRUE(launch.all);
  EXPECT_THAT(coverage.written.at("y"), ElementsAre(Rect{0, 40, 0, 16}));
}

TEST(Coverage, RunsTheBlocksThatFeedTheChosenOnes) {
  Chain chain;
  Coverage coverage = chain.coverage(1);
  EXPECT_TRUE(coverage.sampled);
  // The last rows of y need those rows of n whole, and they those of g, four blocks wide.
  EXPECT_THAT(coverage.launches[2].blocks, ElementsAre(9));
  EXPECT_THAT(coverage.launches[1].blocks, ElementsAre(9));
  EXPECT_THAT(coverage.launches[0].blocks, ElementsAre(36, 37, 38, 39));
  EXPECT_THAT(coverage.written.at("y"), ElementsAre(Rect{36, 4, 0, 16}));
}

TEST(Coverage, RunsAllBlocksOfALaunchWithoutATile) {
  Chain chain;
  chain.plan.launches[1].tile = {};
  Coverage coverage = chain.coverage(1);
  EXPECT_TRUE(coverage.launches[1].all);
  EXPECT_TRUE(coverage.launches[0].all || coverage.launches[0].blocks.size() == 40);
}

TEST(Coverage, RunsAllBlocksOfSplitKFirstPassesThatAreForAChosenTile) {
  templates::Operator op = parsed(R"(operator: one
dimensions: [M]
inputs:
  x: {dtype: f32, shape: [M, 8]}
  w: {dtype: f32, shape: [64, 8]}
body:
  - y = matmul(x, w, transpose_b=true)
outputs:
  y: {dtype: f32}
)");
  jit::Plan plan;
  plan.dimensions = {"M"};
  plan.tensors = templates::plan_tensors(op);
  jit::PlanLaunch first, second;
  first.grid = {"4", "3", "1"};
  first.arguments = {{jit::ArgumentKind::kWorkspace, {}, "0"}};
  first.tile = {"0", "M", "block.x * 16", "16"};
  second.grid = {"8", "1", "1"};
  second.arguments = {{jit::ArgumentKind::kTensor, "y", {}}};
  second.tile = {"0", "M", "block.x * 8", "8"};
  plan.launches = {first, second};
  auto facts = plan_facts(plan, {{"M", 2}}, {});
  ASSERT_TRUE(facts);
  auto coverage = choose_coverage(op, *facts, {{"y", {0, 2, 0, 64}}}, 1, 1);
  ASSERT_TRUE(coverage);
  EXPECT_THAT(coverage->launches[1].blocks, ElementsAre(0));
  EXPECT_THAT(coverage->launches[0].blocks, ElementsAre(0, 4, 8)) << "one block of each split";
}

TEST(Coverage, TakesTheCornersOfAGridFirst) {
  Chain chain;
  chain.plan.launches.resize(1);
  chain.plan.launches[0].arguments[1].name = "y";
  chain.plan.launches[0].tile = {"block.y * 4", "4", "block.x * 4", "4"};
  std::vector<LaunchFacts> facts = chain.facts();
  auto coverage = choose_coverage(chain.op, facts, {{"y", {0, 40, 0, 16}}}, 4, 1);
  ASSERT_TRUE(coverage);
  EXPECT_THAT(coverage->launches[0].blocks, ElementsAre(0, 3, 36, 39));
}

}  // namespace
}  // namespace tilewright::search
