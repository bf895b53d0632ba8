#include "search/bundle_make.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>
#include <set>
#include <string>

#include "fakes.h"
#include "search/failed_trials.h"
#include "search/journal.h"
#include "search/record.h"
#include "search/replay.h"
#include "templates/operator/parse.h"
#include "tests/search/tuner_fixture.h"

namespace tilewright::search {
namespace {

class BundleMakeTest : public testing::Test {
 protected:
  BundleMakeTest() {
    std::string name = testing::TempDir() + "tilewright_make_XXXXXX";
    root_ = ::mkdtemp(name.data());
    std::filesystem::create_directory(root_ / "spaces");
    for (const templates::Family* family : fakes::families())
      std::ofstream(root_ / "spaces" / (std::string(family->name()) + ".yaml"))
          << "family: " << family->name()
          << "\ntunables:\n  width: [1, 2, 4]\n  depth: [1, 2]\nconstraints: []\n";
    request_.title = "swiglu bf16";
    request_.tune.op = std::make_shared<const templates::Operator>(
        templates::parse_operator(kSwiglu, "swiglu.yaml").value());
    request_.tune.bindings = {{"M", 16}};
    request_.tune.families = fakes::families();
    request_.tune.spaces = root_ / "spaces";
    request_.tune.generator = digest_of("generator");
    info_.architecture = measurer_.device().architecture();
    measurer_.time = [](const fakes::Kernel& kernel) {
      return 5 + 100.0 / static_cast<double>(kernel.width);
    };
  }
  ~BundleMakeTest() override { std::filesystem::remove_all(root_); }

  BundleCandidates make() {
    auto made = make_candidates(request_, measurer_.device(), pool_);
    EXPECT_TRUE(made) << made.error().message;
    return made ? std::move(*made) : BundleCandidates();
  }

  std::filesystem::path root_;
  BundleRequest request_;
  BundleInfo info_;
  fakes::Pool pool_;
  fakes::Measurer measurer_;
};

TEST_F(BundleMakeTest, EachArmGivesItsSafeConfigAndDrawnOnes) {
  request_.candidates = 3;
  const BundleCandidates made = make();
  EXPECT_TRUE(made.failed.empty());
  std::map<std::string, int> by_arm;
  std::set<std::string> ids;
  for (const BundleTrial& item : made.trials) {
    EXPECT_TRUE(ids.insert(item.trial.id).second) << item.trial.id;
    ++by_arm[item.trial.id.substr(0, item.trial.id.find(" depth"))];
    EXPECT_FALSE(item.trial.inputs.empty());
    EXPECT_TRUE(item.trial.displacement.empty());
  }
  EXPECT_GE(by_arm.size(), 4u);
  for (const auto& [arm, count] : by_arm) EXPECT_EQ(count, 3) << arm;
}

TEST_F(BundleMakeTest, OnlyTheLeadingPartitionsGroupsIfAsked) {
  const std::size_t all = make().trials.size();
  request_.leading_only = true;
  const std::size_t leading = make().trials.size();
  EXPECT_GT(leading, 0u);
  EXPECT_LT(leading, all);
}

TEST_F(BundleMakeTest, UnalignedTrialsHaveCodeForThat) {
  request_.unaligned = true;
  for (const BundleTrial& item : make().trials) {
    EXPECT_EQ(item.trial.displacement.begin()->second, 2);  // one bf16
    EXPECT_FALSE(fakes::Kernel::of(*item.trial.images[0]).aligned);
  }
}

TEST_F(BundleMakeTest, ShapesShareImages) {
  const BundleCandidates one = make();
  request_.more_shapes = {{{"M", 1}}, {{"M", 7}}};
  const BundleCandidates three = make();
  EXPECT_EQ(three.trials.size(), 3 * one.trials.size());
  EXPECT_EQ(three.images, one.images);
  std::set<std::int64_t> rows;
  for (const BundleTrial& item : three.trials) rows.insert(item.trial.bindings.at("M"));
  EXPECT_EQ(rows, (std::set<std::int64_t>{1, 7, 16}));
}

TEST_F(BundleMakeTest, WhatDoesNotCompileIsReportedAndLeftOut) {
  pool_.broken = [](const std::string& text) -> std::optional<Error> {
    if (text.find("width=4") == std::string::npos) return std::nullopt;
    return Error{ErrorCode::kCompile, "too wide", ""};
  };
  const BundleCandidates made = make();
  ASSERT_FALSE(made.failed.empty());
  EXPECT_EQ(made.failed[0].second.message, "too wide");
  for (const BundleTrial& item : made.trials)
    EXPECT_EQ(item.trial.id.find("width=4"), std::string::npos) << item.trial.id;
}

TEST_F(BundleMakeTest, ATuneRecallsWhatABundleMeasured) {
  request_.candidates = 100;
  ASSERT_TRUE(write_bundle(root_ / "bundle", info_, make().trials));
  const auto bundle = Bundle::open(root_ / "bundle");
  ASSERT_TRUE(bundle) << bundle.error().message;
  ASSERT_TRUE(run_bundle(*bundle, measurer_, {.journal = root_ / "journal"}));
  const auto results = read_results(*bundle, root_ / "journal");
  ASSERT_TRUE(results) << results.error().message;
  const auto store = cache::memory_store();
  const auto imported = import_results(*store, *results);
  ASSERT_TRUE(imported) << imported.error().message;
  EXPECT_EQ(*imported, bundle->trials().size());

  request_.tune.strategy = "exhaustive";
  request_.tune.budget.evaluations = 1000;
  const auto report =
      tune(request_.tune, pool_, measurer_, journal_in(*store, request_.tune, measurer_.device()));
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->candidates.size(), bundle->trials().size());
  for (const CandidateReport& candidate : report->candidates)
    EXPECT_TRUE(candidate.recalled) << candidate.family;
}

TEST_F(BundleMakeTest, WhatFailedInABundleCanBeReplayed) {
  measurer_.failure = [](const Trial&, const auto&) {
    return Error{ErrorCode::kWrongResult, "y[0] is 1, expected 2", ""};
  };
  ASSERT_TRUE(write_bundle(root_ / "bundle", info_, make().trials));
  const auto bundle = Bundle::open(root_ / "bundle");
  ASSERT_TRUE(bundle) << bundle.error().message;
  ASSERT_TRUE(run_bundle(*bundle, measurer_, {.journal = root_ / "journal"}));
  const auto results = read_results(*bundle, root_ / "journal");
  ASSERT_TRUE(results) << results.error().message;
  const auto store = cache::memory_store();
  ASSERT_TRUE(import_results(*store, *results));
  const auto failed = failed_trials(*store, "");
  ASSERT_TRUE(failed) << failed.error().message;
  EXPECT_EQ(failed->size(), bundle->trials().size());
  for (const FailedTrial& trial : *failed) {
    ASSERT_TRUE(trial.has_replay);
    const auto whole = parse_trial_body((*store->trial(trial.id))->body);
    ASSERT_TRUE(whole) << whole.error().message;
    const auto replay = parse_replay(whole->replay);
    ASSERT_TRUE(replay) << replay.error().message;
    EXPECT_EQ(replay->trial.id, trial.id);
    EXPECT_EQ(replay->config, trial.report.config);
    EXPECT_EQ(replay->device.key(), measurer_.device().key());
  }
}

}  // namespace
}  // namespace tilewright::search
