// What failed once: it is known to the tunes that come after, and neither compiled nor run again.
#include <gmock/gmock.h>

#include <set>

#include "search/journal.h"
#include "search/record.h"
#include "tuner_fixture.h"

namespace tilewright::search {
namespace {

using testing::IsEmpty;
using testing::Not;

class Quarantine : public Tuner {
 protected:
  TuneReport journaled() { return tuned(journal_in(*store_, request_, measurer_.device())); }
  /// Sources that were compiled since, by their text's first line.
  int compiles_since(std::size_t before) const {
    return static_cast<int>(pool_.compiles() - before);
  }
  static std::set<std::string> failures(const TuneReport& report) {
    std::set<std::string> texts;
    for (const CandidateReport& candidate : report.candidates)
      if (candidate.failure)
        texts.insert(candidate.family + " " + templates::to_string(candidate.config) + " " +
                     std::string(to_string(candidate.failure->code)) + " " +
                     candidate.failure->message);
    return texts;
  }

  std::unique_ptr<cache::Store> store_ = cache::memory_store();
};

TEST_F(Quarantine, WhatFaultedHungLiedCrashedOrDidNotCompileIsNotTriedByTheNextTune) {
  request_.budget.evaluations = 60;
  const auto fails = [](const fakes::Kernel& kernel) -> std::optional<Error> {
    if (kernel.width == 4) return Error{ErrorCode::kFault, "misaligned address", ""};
    if (kernel.width == 8) return Error{ErrorCode::kHang, "no end", ""};
    if (kernel.depth == 2) return Error{ErrorCode::kWrongResult, "y[0] is 1, expected 2", ""};
    if (kernel.depth == 3) return Error{ErrorCode::kCrash, "process died of signal 11", ""};
    return std::nullopt;
  };
  measurer_.failure = [&](const Trial&, const std::vector<fakes::Kernel>& kernels) {
    return kernels.size() == 1 ? fails(kernels.front()) : std::nullopt;
  };
  pool_.broken = [](const std::string& text) -> std::optional<Error> {
    if (text.find("width=2") == std::string::npos) return std::nullopt;
    return Error{ErrorCode::kCompile, "k.cu:3: no", "log"};
  };
  const TuneReport first = journaled();
  ASSERT_EQ(first.failed.size(), 5u) << "one of each";
  const std::size_t trials = measurer_.trials.size(), compiles = pool_.compiles();
  const TuneReport second = journaled();
  EXPECT_EQ(failures(second), failures(first));
  EXPECT_EQ(second.plan, first.plan);
  for (std::size_t i = trials; i < measurer_.trials.size(); ++i)
    EXPECT_TRUE(measurer_.trials[i].id.starts_with("whole")) << measurer_.trials[i].id;
  EXPECT_LE(compiles_since(compiles), 10) << "of the plans that are measured whole";
}

TEST_F(Quarantine, WhatTheMachineMayBeToBlameForIsTriedAgain) {
  for (const ErrorCode code : {ErrorCode::kOutOfMemory, ErrorCode::kDeviceLost, ErrorCode::kBusy}) {
    store_ = cache::memory_store();
    measurer_.failure = [&](const Trial&,
                            const std::vector<fakes::Kernel>& kernels) -> std::optional<Error> {
      if (kernels.size() != 1 || kernels.front().width == 1) return std::nullopt;
      return Error{code, "not now", ""};
    };
    ASSERT_THAT(failures(journaled()), Not(IsEmpty()));
    measurer_.failure = {};
    EXPECT_THAT(failures(journaled()), IsEmpty()) << to_string(code);
  }
}

TEST_F(Quarantine, ASourceThatDoesNotCompileIsNotCompiledForAnotherKey) {
  request_.budget.evaluations = 60;
  std::multiset<std::string> refused;
  pool_.broken = [&](const std::string& text) -> std::optional<Error> {
    if (text.find("width=1 ") != std::string::npos) return std::nullopt;
    refused.insert(text);
    return Error{ErrorCode::kCompile, "k.cu:3: no", "log"};
  };
  const TuneReport first = journaled();
  const std::set<std::string> known(refused.begin(), refused.end());
  ASSERT_GT(known.size(), 10u);
  EXPECT_EQ(refused.size(), known.size());
  // Other sizes, another way of measuring: other trials of the same sources.
  request_.bindings = {{"M", 48}};
  request_.measure.graph = true;
  const TuneReport second = journaled();
  EXPECT_EQ(second.tried, first.tried) << "they take a place of the budget all the same";
  for (const std::string& text : known) EXPECT_EQ(refused.count(text), 1u) << text;
  int told = 0;
  for (const CandidateReport& candidate : second.candidates) {
    EXPECT_FALSE(candidate.recalled);
    if (!candidate.failure) continue;
    EXPECT_EQ(candidate.failure, (Error{ErrorCode::kCompile, "k.cu:3: no", "log"}));
    EXPECT_THAT(candidate.replay, Not(IsEmpty())) << "tilewright repro shows it";
    ++told;
  }
  EXPECT_GT(told, 10);
}

TEST_F(Quarantine, AnImageThatTheMachineCouldNotCompileIsCompiledForAnotherKey) {
  struct Case {
    ErrorCode code;
    bool remembered;
  };
  for (const Case& c : {Case{ErrorCode::kCompile, true},
                        {ErrorCode::kHang, true},
                        {ErrorCode::kOutOfMemory, false},
                        {ErrorCode::kCrash, false},
                        {ErrorCode::kCancelled, false}}) {
    store_ = cache::memory_store();
    pool_.broken = [&](const std::string& text) -> std::optional<Error> {
      if (text.find("width=1 ") != std::string::npos) return std::nullopt;
      return Error{c.code, "no", ""};
    };
    request_.bindings = {{"M", 16}};
    ASSERT_THAT(failures(journaled()), Not(IsEmpty()));
    pool_.broken = {};
    request_.bindings = {{"M", 48}};
    EXPECT_EQ(failures(journaled()).empty(), !c.remembered) << to_string(c.code);
    TuneHooks fresh = journal_in(*store_, request_, measurer_.device());
    fresh.recall = nullptr;
    fresh.recall_compile = nullptr;
    EXPECT_THAT(failures(tuned(fresh)), IsEmpty()) << "asked for afresh";
  }
}

TEST(FailureCodes, SurviveTheJournalEachAsItIs) {
  for (int value = 1;; ++value) {
    const auto code = static_cast<ErrorCode>(value);
    if (to_string(code) == to_string(static_cast<ErrorCode>(9999))) {
      EXPECT_GT(value, 16);
      break;
    }
    CandidateReport failed;
    failed.family = "gemm";
    failed.failure = Error{code, "why", "log"};
    const auto read = parse_trial_body(trial_body(failed));
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(read->failure, failed.failure);
    EXPECT_THAT(trial_body(failed), testing::HasSubstr(to_string(code)));
  }
}

}  // namespace
}  // namespace tilewright::search
