#include "search/journal.h"

#include <gtest/gtest.h>

#include <set>

namespace tilewright::search {
namespace {

CandidateReport candidate() {
  CandidateReport report;
  report.group = digest_of("group");
  report.family = "gemm";
  report.config = {{"block_m", 64}, {"stages", 2}};
  report.images = {digest_of("image")};
  report.resources = {{"gemm", 120, 4096, 8, 16, 24, 256}};
  report.shared_bytes = 32768;
  report.compile_ms = 165.5;
  report.sample = {12.25, 0.25, 3, {12, 12.25, 13}, true, true, false, true, "dram", 0.875};
  report.verification = {true, 4096, 65536, 0.001, 0.01, 0.1, true};
  return report;
}

void expect_same(const CandidateReport& a, const CandidateReport& b) {
  EXPECT_EQ(a.group, b.group);
  EXPECT_EQ(a.family, b.family);
  EXPECT_EQ(a.config, b.config);
  EXPECT_EQ(a.images, b.images);
  EXPECT_EQ(a.failure, b.failure);
  EXPECT_EQ(a.resources, b.resources);
  EXPECT_EQ(a.shared_bytes, b.shared_bytes);
  EXPECT_EQ(a.compile_ms, b.compile_ms);
  EXPECT_EQ(a.sample.time_us, b.sample.time_us);
  EXPECT_EQ(a.sample.spread_us, b.sample.spread_us);
  EXPECT_EQ(a.sample.count, b.sample.count);
  EXPECT_EQ(a.sample.times_us, b.sample.times_us);
  EXPECT_EQ(a.sample.cut_off, b.sample.cut_off);
  EXPECT_EQ(a.sample.modelled, b.sample.modelled);
  EXPECT_EQ(a.sample.cold_l2, b.sample.cold_l2);
  EXPECT_EQ(a.sample.graph, b.sample.graph);
  EXPECT_EQ(a.sample.bound_by, b.sample.bound_by);
  EXPECT_EQ(a.sample.bound_fraction, b.sample.bound_fraction);
  EXPECT_EQ(a.verification.verified, b.verification.verified);
  EXPECT_EQ(a.verification.elements, b.verification.elements);
  EXPECT_EQ(a.verification.total_elements, b.verification.total_elements);
  EXPECT_EQ(a.verification.error, b.verification.error);
  EXPECT_EQ(a.verification.tolerance, b.verification.tolerance);
  EXPECT_EQ(a.verification.worst_ratio, b.verification.worst_ratio);
  EXPECT_EQ(a.verification.sampled, b.verification.sampled);
}

TEST(TrialBody, OfASampleReadsBackAsItWas) {
  const auto read = parse_trial_body(trial_body(candidate()));
  ASSERT_TRUE(read) << read.error().message;
  expect_same(*read, candidate());
}

TEST(TrialBody, OfAFailureReadsBackAsItWas) {
  CandidateReport failed = candidate();
  failed.sample = {};
  failed.verification = {};
  failed.failure = Error{ErrorCode::kWrongResult, "y[3] is 4, expected 5", "line 1\nline 2"};
  const auto read = parse_trial_body(trial_body(failed));
  ASSERT_TRUE(read) << read.error().message;
  expect_same(*read, failed);
}

TEST(TrialBody, ALogThatIsNoUtf8IsKeptAsFarAsItIs) {
  CandidateReport failed = candidate();
  failed.failure = Error{ErrorCode::kCompile, "error", "before \xff after"};
  const auto read = parse_trial_body(trial_body(failed));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->failure->detail, "before \xef\xbf\xbd after");
}

TEST(TrialBody, AFailureHasAnyOfTheCodesAndNoOther) {
  CandidateReport failed = candidate();
  failed.failure = Error{kLastErrorCode, "no memory", {}};
  std::string body = trial_body(failed);
  const auto read = parse_trial_body(body);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->failure, failed.failure);
  const std::string last = "\"code\":" + std::to_string(int(kLastErrorCode));
  ASSERT_NE(body.find(last), std::string::npos);
  body.replace(body.find(last), last.size(), "\"code\":99");
  const auto unknown = parse_trial_body(body);
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().message, "the failure of a trial has code 99, expected 1 to 18");
}

TEST(TrialBody, WhatIsNoneIsCorrupt) {
  const std::string whole = trial_body(candidate());
  for (const std::string& body :
       {std::string(), std::string("[]"), std::string("{}"), whole.substr(0, whole.size() / 2),
        std::string(R"({"version": 1})"), std::string(R"({"version": "2"})")}) {
    const auto read = parse_trial_body(body);
    ASSERT_FALSE(read) << body;
    EXPECT_EQ(read.error().code, ErrorCode::kCorrupt) << body;
  }
}

TEST(TrialId, DependsOnAllThatTheOutcomeDependsOnAndNotOnTheSeed) {
  TuneRequest request;
  request.bindings = {{"M", 16}};
  jit::DeviceInfo device;
  device.name = "a";
  const Digest group = digest_of("g");
  const templates::Config config{{"width", 4}};
  std::set<std::string> ids;
  const auto add = [&] {
    return ids.insert(trial_id(request, device, group, "gemm", config)).second;
  };
  EXPECT_TRUE(add());
  request.seed = 99;
  request.budget.evaluations = 3;
  request.measure.repeats = 7;
  EXPECT_FALSE(add());
  request.bindings["M"] = 17;
  EXPECT_TRUE(add());
  request.generator = digest_of("templates");
  EXPECT_TRUE(add());
  request.measure.graph = true;
  EXPECT_TRUE(add());
  request.measure.cold_l2 = false;
  EXPECT_TRUE(add());
  request.verify.adversarial = false;
  EXPECT_TRUE(add());
  device.sm_count = 5;
  EXPECT_TRUE(add());
  EXPECT_TRUE(ids.insert(trial_id(request, device, digest_of("h"), "gemm", config)).second);
  EXPECT_TRUE(ids.insert(trial_id(request, device, group, "rows", config)).second);
  EXPECT_TRUE(ids.insert(trial_id(request, device, group, "gemm", {{"width", 8}})).second);
  EXPECT_EQ(ids.begin()->size(), 32u);
}

}  // namespace
}  // namespace tilewright::search
