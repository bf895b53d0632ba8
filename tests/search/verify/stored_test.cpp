// What a plan of several launches computes: rounded where a launch reads what another has stored.
#include "search/verify/stored.h"

#include <gtest/gtest.h>

#include "templates/operator/parse.h"

namespace tilewright::search {
namespace {

TEST(AsStored, RoundsWhatALaunchReadsAndNothingElse) {
  auto op = templates::parse_operator(R"(operator: two
dimensions: [M]
inputs:
  x: {dtype: f32, shape: [M, 8]}
body:
  - h = exp(x)
  - a = tanh(h)
  - b = mul(h, a)
outputs:
  a: {dtype: f16}
  b: {dtype: f32}
intermediate: bf16
)",
                                      "test");
  ASSERT_TRUE(op);
  // The first launch stores h and a; a is made of the unrounded h. The second reads both.
  LaunchFacts first, second;
  first.writes = {"h", "a"};
  second.reads = {"h", "a"};
  second.writes = {"b"};
  const LaunchFacts launches[] = {first, second};
  templates::Operator stored = as_stored(*op, launches);
  std::string text = print(stored);
  EXPECT_EQ(text.substr(text.find("body:")), R"(body:
  - h = exp(x)
  - a = tanh(h)
  - h.stored = cast(h, dtype=bf16)
  - a.stored = cast(a, dtype=f16)
  - b = mul(h.stored, a.stored)
outputs:
  a: {dtype: f16}
  b: {dtype: f32}
intermediate: bf16
numerics: {accuracy: default, deterministic: true, batch_invariant: false}
)");
}

TEST(AsStored, LeavesAFusedPlanAlone) {
  auto op = templates::parse_operator(R"(operator: one
dimensions: [M]
inputs:
  x: {dtype: f32, shape: [M, 8]}
body:
  - h = exp(x)
  - y = mul(h, 0.5)
outputs:
  y: {dtype: f16}
)",
                                      "test");
  ASSERT_TRUE(op);
  LaunchFacts only;
  only.writes = {"y"};
  EXPECT_EQ(canonical_text(as_stored(*op, {&only, 1})), canonical_text(*op));
}

}  // namespace
}  // namespace tilewright::search
