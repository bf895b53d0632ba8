#include "search/failed_trials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "samples.h"
#include "search/journal.h"

namespace tilewright::search {
namespace {

std::string rendered(const std::vector<FailedTrial>& trials) {
  std::string text;
  for (const FailedTrial& trial : trials) {
    text += trial.id + " " + std::string(to_string(trial.report.failure->code)) +
            (trial.has_replay ? " replay" : "") +
            (trial.report.replay.empty() ? "" : " and its text") + "\n";
  }
  return text;
}

/// Trials of a store: one that is sound, two that failed, one that was begun, and one that cannot be read.
std::unique_ptr<cache::Store> store() {
  auto store = cache::memory_store();
  const TuneReport report = samples::report();
  const auto put = [&](const std::string& id, const std::string& body) {
    EXPECT_TRUE(store->put_trial({id, body, {}, false}));
  };
  CandidateReport candidate = report.candidates.front();
  put("aa1", trial_body(candidate));
  candidate.failure = Error{ErrorCode::kWrongResult, "y[0] is 1, expected 2", "elements"};
  candidate.replay = R"({"trial": {}})";
  put("aa2", trial_body(candidate));
  candidate.replay.clear();
  candidate.failure = Error{ErrorCode::kCompile, "before \xff after", "log\nof two lines"};
  put("ab3", trial_body(candidate));
  candidate.begun = 2;
  put("ab4", trial_body(candidate));
  put("ac5", "torn");
  return store;
}

TEST(FailedTrials, AreThoseOfAStoreWithoutTheirReplays) {
  const auto trials = store();
  const auto all = failed_trials(*trials, "");
  ASSERT_TRUE(all) << all.error().message;
  EXPECT_EQ(rendered(*all), "aa2 wrong_result replay\nab3 compile\nab4 crash\n");
  EXPECT_EQ(rendered(*failed_trials(*trials, "ab")), "ab3 compile\nab4 crash\n");
  EXPECT_EQ(rendered(*failed_trials(*trials, "b")), "");
}

TEST(FailedTrials, AreTheSameAfterTheirWayAsLines) {
  const auto all = failed_trials(*store(), "");
  ASSERT_TRUE(all) << all.error().message;
  const std::string lines = to_lines(*all);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 3);
  const auto back = parse_failed_trials(lines);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(rendered(*back), rendered(*all));
  EXPECT_EQ(to_lines(*back), lines);
  EXPECT_TRUE(parse_failed_trials("")->empty());
}

TEST(FailedTrials, ALineThatIsNoneIsNamed) {
  const std::string lines = to_lines(*failed_trials(*store(), "aa2"));
  const std::string sound = trial_body(samples::report().candidates.front());  // which did not fail
  for (const std::string& wrong :
       {std::string("torn"), std::string("{}"), std::string(R"({"id": 3, "replay": true})"),
        R"({"id": "x", "replay": false, "body": )" + sound + "}"}) {
    const auto read = parse_failed_trials(lines + wrong + "\n");
    ASSERT_FALSE(read) << wrong;
    EXPECT_EQ(read.error().code, ErrorCode::kCorrupt);
    EXPECT_THAT(read.error().message, testing::StartsWith("line 2 of the failed trials: "));
  }
}

}  // namespace
}  // namespace tilewright::search
