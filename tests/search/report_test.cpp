#include "search/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "samples.h"

namespace tilewright::search {
namespace {

using ::testing::HasSubstr;

TEST(ReportText, ShowsWhatWasFoundAndWhatFailed) {
  EXPECT_EQ(to_text(samples::report()),
            R"(step M=16 on NVIDIA H200 (virtual)
tuned for latency, stream, cold L2
the device is virtual: times are modelled, not measured

partition 0: 1 kernel, 4.00 us modelled as a whole, moves 4096 B, saves 4096 B  <- choice
    h = exp(x)
    y = neg(h)
      pointwise threads=256 width=8
      4.00 us modelled, dram binds at 75 % of its ceiling
      32 registers, 1024 B shared, 12 B spilled; error 0.0015 of 0.004 allowed (128 of 1024 elements)
      moves 4096 B, fusion saves 4096 B
partition 1: 2 kernels, 10.00 us modelled as a whole, moves 8192 B  <- baseline
    h = exp(x)
      pointwise threads=256 width=1
      5.00 us modelled, dram binds at 75 % of its ceiling
      32 registers, 1024 B shared, 12 B spilled; error 0.0015 of 0.004 allowed (128 of 1024 elements)
      moves 4096 B
    y = neg(h)
      pointwise threads=256 width=1
      5.00 us modelled, dram binds at 75 % of its ceiling
      32 registers, 1024 B shared, 12 B spilled; error 0.0015 of 0.004 allowed (128 of 1024 elements)
      moves 4096 B

choice: partition 0, 4.00 us modelled, verified
baseline: unfused defaults, 10.00 us modelled
margin: 60.0 % less time than the baseline
candidates: 4 tried, 1 failed: 1 compile
  pointwise width=16 compile: step.cu:3: no such width
1.5 s
)");
}

TEST(ReportText, ShowsFiveFailuresOfAKindAtMost) {
  TuneReport report = samples::report();
  for (int i = 0; i < 10; ++i) report.candidates.push_back(report.candidates.back());
  report.failed["compile"] = 11;
  EXPECT_THAT(to_text(report), HasSubstr("  and 6 more of compile\n"));
}

TEST(ReportText, NamesTrialsThatFailedByTheirIds) {
  TuneReport report = samples::report();
  for (CandidateReport& candidate : report.candidates)
    if (candidate.failure) candidate.id = "0123456789abcdef";
  EXPECT_THAT(
      to_text(report),
      HasSubstr("\n  0123456789ab  pointwise width=16 compile: step.cu:3: no such width\n"));
  EXPECT_EQ(to_json(report)["candidates"]["failures"][0]["trial"], "0123456789abcdef");
}

TuneReport with_range() {
  TuneReport report = samples::report();
  report.sizes = {{"M", 12}};
  report.range = {{"M", {9, 12}}};
  report.probes = {
      {{{"M", 9}}, true, true, "", samples::sample(3), 9, 3},
      {{{"M", 16}}, true, false, "another plan takes 2.00 us", samples::sample(5), 0, 2}};
  return report;
}

TEST(ReportText, ShowsTheRangeAndWhereItWasProbed) {
  TuneReport report = with_range();
  EXPECT_THAT(to_text(report), HasSubstr("\nrange: M=9..12; probed: M=9 3.00 us modelled, holds; "
                                         "M=16 5.00 us modelled, another plan takes 2.00 us\n"));
  report.range = {{"M", {12, 12}}};
  report.probes = {{{{"M", 9}}, false, false, "skipped: no time was left", {}, 0}};
  EXPECT_THAT(to_text(report), HasSubstr("\nrange: M=12; probed: M=9 skipped: no time was left\n"));
}

TEST(ReportJson, HasTheRangeAndThePoints) {
  const nlohmann::json json = to_json(with_range());
  EXPECT_EQ(json["chosen_for"], nlohmann::json::parse(R"({"M": [9, 12]})"));
  EXPECT_EQ(json["points"], nlohmann::json::parse(R"([
    {"sizes": {"M": 12}, "held": true, "time_us": 4.0, "spread_us": 0.0, "baseline_us": 10.0,
     "regret": 0.0, "time_kind": "modelled"},
    {"sizes": {"M": 9}, "held": true, "time_us": 3.0, "spread_us": 0.0, "baseline_us": 9.0,
     "regret": 0.0, "time_kind": "modelled"},
    {"sizes": {"M": 16}, "held": false, "reason": "another plan takes 2.00 us", "time_us": 5.0,
     "spread_us": 0.0, "baseline_us": null, "regret": 1.5, "time_kind": "modelled"}])"));
}

TEST(Regret, IsWhatTheChoiceLosesToTheBestMeasuredAtTheSameSizes) {
  TuneReport report = with_range();
  EXPECT_EQ(regret(report), 0.0) << "it is the best of the whole plans";
  EXPECT_EQ(regret(report.probes[0]), 0.0);
  EXPECT_EQ(regret(report.probes[1]), 1.5);
  EXPECT_EQ(worst_regret(report), 0) << "where it does not hold it is not served";
  EXPECT_THAT(to_text(report), HasSubstr("\nregret: M=12 0.0 %; M=9 0.0 %; M=16 150.0 %, against "
                                         "the best plan measured there\n"));
  report.probes[0].best = 2.4;
  EXPECT_NEAR(worst_regret(report), 0.25, 1e-12);
  // The baseline was kept beside a plan that was nominally faster.
  report.partitions[1].whole = samples::sample(3.2);
  EXPECT_NEAR(*regret(report), 0.25, 1e-12);
  report.partitions[1].failure = Error{ErrorCode::kWrongResult, "y[0] is 1, expected 2", ""};
  EXPECT_EQ(regret(report), 0.0) << "what is wrong is not to be had";
  // What was not measured has none.
  report.probes[0].sample = {};
  EXPECT_EQ(regret(report.probes[0]), std::nullopt);
  report.choice = -1;
  EXPECT_EQ(regret(report), std::nullopt);
  EXPECT_EQ(worst_regret(report), 0);
}

TEST(ReportText, AMeasuredMarginHasItsInterval) {
  TuneReport report = samples::report();
  report.margin_interval = {0.55, 0.65};
  report.choice_sample.modelled = false;
  report.choice_sample.spread_us = 0.125;
  EXPECT_THAT(to_text(report),
              HasSubstr("choice: partition 0, 4.00 us +- 0.12 measured, verified"));
  EXPECT_THAT(to_text(report),
              HasSubstr("margin: 60.0 % less time than the baseline (55.0 to 65.0 %)"));
}

TEST(ReportJson, HasTheFieldsThatProgramsRead) {
  const nlohmann::json json = to_json(samples::report());
  EXPECT_EQ(json["problem"], "step M=16");
  EXPECT_EQ(json["conditions"],
            (nlohmann::json{{"objective", "latency"}, {"graph", false}, {"warm_l2", false}}));
  EXPECT_EQ(json["device"]["name"], "NVIDIA H200 (virtual)");
  EXPECT_EQ(json["device"]["virtual"], true);
  ASSERT_EQ(json["partitions"].size(), 2u);
  const nlohmann::json& group = json["partitions"][0]["groups"][0];
  EXPECT_EQ(group["family"], "pointwise");
  EXPECT_EQ(group["config"], (nlohmann::json{{"threads", 256}, {"width", 8}}));
  EXPECT_EQ(group["registers"], 32);
  EXPECT_EQ(group["shared_bytes"], 1024);
  EXPECT_EQ(group["spill_bytes"], 12);
  EXPECT_EQ(group["time_us"], 4.0);
  EXPECT_EQ(group["error"], 1.5e-3);
  EXPECT_EQ(group["tolerance"], 4e-3);
  EXPECT_EQ(json["choice"]["partition"], 0);
  EXPECT_EQ(json["choice"]["time_us"], 4.0);
  EXPECT_EQ(json["choice"]["spread_us"], 0.0);
  EXPECT_EQ(json["choice"]["time_kind"], "modelled");
  EXPECT_EQ(json["choice"]["verified"], true);
  EXPECT_EQ(json["baseline"]["name"], "unfused defaults");
  EXPECT_EQ(json["margin"], 0.6);
  EXPECT_EQ(json["candidates"]["tried"], 4);
  EXPECT_EQ(json["candidates"]["failed"], (nlohmann::json{{"compile", 1}}));
  EXPECT_EQ(json["seconds"], 1.5);
}

TEST(ReportJson, AFailedGroupHasItsReasonAndNoTime) {
  TuneReport report = samples::report();
  report.choice = -1;
  report.partitions[0].groups[0].best.failure = Error{ErrorCode::kHang, "no end", ""};
  const nlohmann::json json = to_json(report);
  EXPECT_TRUE(json["choice"].is_null());
  EXPECT_EQ(json["partitions"][0]["groups"][0]["failure"]["reason"], "hang");
  EXPECT_FALSE(json["partitions"][0]["groups"][0].contains("time_us"));
}

}  // namespace
}  // namespace tilewright::search
