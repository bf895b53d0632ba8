// Plans by the conditions that they were measured under.
#include "tests/daemon/service_fixture.h"

namespace tilewright::daemon {
namespace {

using namespace std::chrono_literals;
using namespace testing;         // NOLINT: the fakes of this folder
using namespace cache::testing;  // NOLINT: and the samples of the cache's

/// The sample problem, as somebody asks for it who launches plans in this way.
protocol::Problem asked(std::int64_t rows, jit::Wishes wishes) {
  protocol::Problem problem = sample_problem(rows);
  problem.wishes = std::move(wishes);
  return problem;
}

TEST_F(ServiceTest, TunesUnderOtherConditionsAreFoundEachUnderItsOwn) {
  config_.tune.background = false;
  restart();
  auto tune = [&](const jit::Wishes& wishes) {
    protocol::Tune request;
    request.problem = asked(16, wishes);
    value_of(service_->tune(request, {nullptr, [](const auto&) {}}));
    ASSERT_TRUE(drain());
  };
  const jit::Wishes eager{"latency", false, false}, served{"throughput", true, true};
  tune(eager);
  const protocol::Plan first = plan(asked(16, eager));
  tune(served);  // its time is another quantity: neither is lost
  const protocol::Plan second = plan(asked(16, served));
  EXPECT_NE(second.plan_version, first.plan_version);
  EXPECT_EQ(second.source, protocol::Source::kHit);
  EXPECT_EQ(second.conditions, (jit::Conditions{jit::Objective::kThroughput, true, true}));
  for (const jit::Wishes& wishes : {eager, jit::Wishes{}}) {
    const protocol::Plan again = plan(asked(16, wishes));
    EXPECT_EQ(again.plan_version, first.plan_version);
    EXPECT_EQ(again.source, protocol::Source::kHit);
    EXPECT_EQ(again.conditions, jit::Conditions());
  }
  restart();  // from the store, too
  EXPECT_EQ(plan(asked(16, served)).plan_version, second.plan_version);
  EXPECT_EQ(plan(asked(16, eager)).plan_version, first.plan_version);
  EXPECT_EQ(planner_.fallbacks, 0);
}

TEST_F(ServiceTest, APlanOfOtherConditionsServesUntilThereIsOneOfTheWanted) {
  value_of(get(sample_problem(16)));
  ASSERT_TRUE(drain());
  const protocol::Plan eager = plan(sample_problem(16));
  planner_.close_gate();
  std::vector<std::uint64_t> told;
  const protocol::Problem wanted = asked(16, {"", true, std::nullopt});
  const protocol::Plan other = plan(wanted);
  EXPECT_EQ(other.source, protocol::Source::kOther);
  EXPECT_EQ(other.plan_version, eager.plan_version);
  EXPECT_EQ(other.conditions, jit::Conditions()) << "those that it was tuned under";
  EXPECT_EQ(planner_.fallbacks, 1) << "only of the very first";
  EXPECT_EQ(counter("other_conditions"), 1);
  value_of(service_->subscribe({wanted, other.plan_version},
                               [&](std::uint64_t version) { told.push_back(version); }));
  planner_.open_gate();
  ASSERT_TRUE(drain());
  const protocol::Plan graph = plan(wanted);
  EXPECT_EQ(graph.source, protocol::Source::kHit);
  EXPECT_EQ(graph.conditions, (jit::Conditions{jit::Objective::kLatency, true, false}));
  EXPECT_NE(graph.plan_version, eager.plan_version);
  EXPECT_EQ(told, std::vector<std::uint64_t>{graph.plan_version});
  EXPECT_EQ(plan(sample_problem(16)).plan_version, eager.plan_version);
  EXPECT_EQ(planner_.tunes, 2);
}

TEST_F(ServiceTest, BackgroundTunesAndGetsWithoutWishesAreAsTheDaemonIsConfigured) {
  config_.tune.conditions = {jit::Objective::kThroughput, true, false};
  restart();
  value_of(get(sample_problem(16)));
  ASSERT_TRUE(drain());
  EXPECT_EQ(planner_.last_conditions, config_.tune.conditions);
  const protocol::Plan served = plan(sample_problem(16));
  EXPECT_EQ(served.source, protocol::Source::kHit);
  EXPECT_EQ(served.conditions, config_.tune.conditions);
  EXPECT_EQ(service_->welcome().conditions, config_.tune.conditions);
  // A wish replaces what it says, and no more.
  EXPECT_EQ(plan(asked(16, {"", true, std::nullopt})).source, protocol::Source::kHit);
  EXPECT_EQ(plan(asked(16, {"p99", std::nullopt, true})).source, protocol::Source::kOther);
  ASSERT_TRUE(drain());
  EXPECT_EQ(planner_.last_conditions, (jit::Conditions{jit::Objective::kTail, true, true}));
}

TEST_F(ServiceTest, WishesThatNobodyCanMeetAreOneError) {
  auto unknown = get(asked(16, {"speed", {}, {}}));
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(unknown.error().message,
            "objective is 'speed', expected latency, throughput, p99 or energy");
  planner_.served.virtual_gpu = true;
  auto energy = get(asked(16, {"energy", {}, {}}));
  ASSERT_FALSE(energy);
  EXPECT_EQ(energy.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(energy.error().message,
            "objective is energy on NVIDIA H200, which is virtual, expected a real device");
  EXPECT_EQ(planner_.fallbacks, 0);
}

}  // namespace
}  // namespace tilewright::daemon
