#include "jit/conditions.h"

#include <gtest/gtest.h>

namespace tilewright::jit {
namespace {

TEST(Conditions, AreSaidWhole) {
  EXPECT_EQ(to_text(Conditions()), "latency, stream, cold L2");
  EXPECT_EQ(to_text({Objective::kTail, true, true}), "p99, graph, warm L2");
}

TEST(Conditions, EveryObjectiveHasANameAndANumber) {
  for (int number = 0; number <= 255; ++number) {
    const auto objective = objective_numbered(static_cast<std::uint8_t>(number));
    ASSERT_EQ(objective.has_value(), number >= 1 && number <= 4) << number;
    if (!objective) continue;
    EXPECT_EQ(objective_named(to_string(*objective)), objective);
  }
  EXPECT_EQ(objective_named("speed"), std::nullopt);
  EXPECT_EQ(objective_named(""), std::nullopt);
}

TEST(Conditions, DifferencesAreCounted) {
  EXPECT_EQ(differences({}, {}), 0);
  EXPECT_EQ(differences({}, {Objective::kTail, false, false}), 1);
  EXPECT_EQ(differences({}, {Objective::kTail, true, true}), 3);
}

TEST(Wishes, ReplaceWhatTheySayAndNoMore) {
  const Conditions configured{Objective::kThroughput, true, true};
  struct Case {
    Wishes wishes;
    std::string text;
    bool met;  ///< by what is configured
  };
  for (const Case& c : {Case{{}, "throughput, graph, warm L2", true},
                        Case{{"throughput", true, true}, "throughput, graph, warm L2", true},
                        Case{{"p99", {}, {}}, "p99, graph, warm L2", false},
                        Case{{"", false, {}}, "throughput, stream, warm L2", false},
                        Case{{"", {}, false}, "throughput, graph, cold L2", false}}) {
    const auto over = c.wishes.over(configured);
    ASSERT_TRUE(over) << c.text;
    EXPECT_EQ(to_text(*over), c.text);
    EXPECT_EQ(c.wishes.met_by(configured), c.met) << c.text;
    EXPECT_TRUE(c.wishes.met_by(*over)) << c.text;
    EXPECT_EQ(wishes_for(*over).over({}).value(), *over);
  }
}

TEST(Wishes, ForAnUnknownObjectiveAreRefusedWithTheValue) {
  const auto over = Wishes{"speed", {}, {}}.over({});
  ASSERT_FALSE(over);
  EXPECT_EQ(over.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(over.error().message,
            "objective is 'speed', expected latency, throughput, p99 or energy");
}

}  // namespace
}  // namespace tilewright::jit
