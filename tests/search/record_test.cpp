#include "search/record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "samples.h"

namespace tilewright::search {
namespace {

TuneRequest request() {
  TuneRequest request;
  request.op = samples::two_step_operator();
  request.bindings = {{"M", 16}};
  request.seed = 7;
  request.generator = digest_of("templates");
  return request;
}

TEST(Entry, HoldsPlansAndEvidenceOfTheChoice) {
  TuneReport report = samples::report();
  report.partitions[0].groups[0].indices = {0, 1};
  report.choice_sample.p99_us = 5;
  report.choice_sample.energy_uj = 700;
  report.choice_sample.launch_overhead_us = 2.5;
  report.choice_sample.sm_clock_mhz = 1980;
  report.choice_sample.temperature_c = 45;
  const auto entry = to_entry(report, request());
  ASSERT_TRUE(entry) << entry.error().message;
  EXPECT_EQ(entry->plan, samples::report().plan);
  EXPECT_EQ(entry->narrow, samples::report().narrow);
  EXPECT_EQ(entry->groups, std::vector<std::string>{"pointwise threads=256 width=8 of 0+1"});
  EXPECT_EQ(entry->evidence.time_us, 4);
  EXPECT_EQ(entry->evidence.conditions, jit::Conditions());
  EXPECT_EQ(entry->evidence.p99_us, 5);
  EXPECT_EQ(entry->evidence.energy_uj, 700);
  EXPECT_EQ(entry->evidence.launch_overhead_us, 2.5);
  EXPECT_EQ(entry->evidence.sm_clock_mhz, 1980u);
  EXPECT_EQ(entry->evidence.temperature_c, 45u);
  EXPECT_EQ(entry->evidence.baseline_us, 10);
  EXPECT_EQ(entry->evidence.margin, 0.6);
  EXPECT_TRUE(entry->evidence.modelled);
  EXPECT_TRUE(entry->evidence.verified);
  EXPECT_EQ(entry->evidence.seed, 7u);
  EXPECT_EQ(entry->evidence.tried, 4);
  EXPECT_EQ(entry->evidence.failed, 1);
  EXPECT_EQ(entry->evidence.created.size(), std::string("2026-01-01T00:00:00Z").size());
}

TEST(Entry, SaysWhereItWasMeasured) {
  TuneReport report = samples::report();
  report.plan.chosen_for = report.narrow.chosen_for = {{"M", {9, 16}}};
  report.probes = {{{{"M", 9}}, true, true, "", samples::sample(3), 9},
                   {{{"M", 17}}, true, false, "fault", {}, 0},
                   {{{"M", 32}}, false, false, "skipped: no time was left", {}, 0}};
  const auto entry = to_entry(report, request());
  ASSERT_TRUE(entry) << entry.error().message;
  EXPECT_EQ(entry->plan.chosen_for, report.plan.chosen_for);
  EXPECT_EQ(entry->evidence.sizes, (templates::Bindings{{"M", 16}}));
  EXPECT_EQ(entry->evidence.probes,
            (std::vector<cache::Probe>{{{{"M", 9}}, true, 3, 0, 9}, {{{"M", 17}}, false, 0, 0, 0}}))
      << "what was skipped is no evidence";
}

TEST(Entry, SaysHowItsGroupsWereMade) {
  const GroupChoice choice{"simt_gemm", {{"block_k", 16}, {"split_k", -1}}, {0, 2, 11}};
  EXPECT_EQ(to_text(choice), "simt_gemm block_k=16 split_k=-1 of 0+2+11");
  EXPECT_EQ(parse_group(to_text(choice)), choice);
  const GroupChoice without{"pointwise", {}, {3}};
  EXPECT_EQ(parse_group(to_text(without)), without);
  for (const char* text :
       {"", "pointwise", "pointwise of", "pointwise width=8", "pointwise width of 1",
        "pointwise width=x of 1", "pointwise of 1+", "pointwise of x", "pointwise of 1 2"}) {
    const auto parsed = parse_group(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().message, "group is '" + std::string(text) +
                                          "', expected FAMILY TUNABLE=VALUE... of STATEMENT+...");
  }
}

TEST(Entry, IsOfAVerifiedChoiceOnly) {
  TuneReport report = samples::report();
  report.choice_verified = false;
  EXPECT_EQ(to_entry(report, request()).error().code, ErrorCode::kInvalidArgument);
  report.choice = -1;
  EXPECT_EQ(to_entry(report, request()).error().code, ErrorCode::kNotFound);
}

TEST(StoredReport, IsFoundBesideOtherShapesAndItsImages) {
  const auto store = cache::memory_store();
  TuneReport report = samples::report();
  ASSERT_TRUE(store_report(*store, report, request()));
  report.plan.chosen_for["M"] = report.narrow.chosen_for["M"] = {256, 256};
  TuneRequest larger = request();
  larger.bindings = {{"M", 256}};
  ASSERT_TRUE(store_report(*store, report, larger));

  const auto record = store->get(cache::Key::of(*request().op, report.device));
  ASSERT_TRUE(record && *record);
  EXPECT_EQ((*record)->generator, request().generator);
  EXPECT_EQ((*record)->entries.size(), 2u);
  ASSERT_NE((*record)->find({{"M", 256}}, {}), nullptr);
  EXPECT_EQ((*record)->find({{"M", 17}}, {}), nullptr);
  for (const Digest& digest : (*record)->images()) {
    const auto image = store->image(digest);
    EXPECT_TRUE(image && *image) << digest.hex();
  }
}

TEST(StoredReport, OfAnotherObjectiveIsKeptBesideTheOneBefore) {
  const auto store = cache::memory_store();
  TuneReport report = samples::report();
  ASSERT_TRUE(store_report(*store, report, request()));
  TuneRequest served = request();
  served.measure.objective = Objective::kThroughput;
  served.measure.graph = true;
  served.measure.cold_l2 = false;
  report.choice_sample.time_us /= 4;
  ASSERT_TRUE(store_report(*store, report, served));
  const auto record = store->get(cache::Key::of(*request().op, report.device));
  ASSERT_TRUE(record && *record);
  ASSERT_EQ((*record)->entries.size(), 2u);
  const jit::Conditions engine{Objective::kThroughput, true, true};
  EXPECT_EQ((*record)->find({{"M", 16}}, {})->evidence.time_us, 4);
  EXPECT_EQ((*record)->find({{"M", 16}}, engine)->evidence.time_us, 1);
  EXPECT_EQ((*record)->find({{"M", 16}}, engine)->evidence.conditions, engine);
}

TEST(StoredReport, OfAnotherGeneratorReplacesWhatWasThere) {
  const auto store = cache::memory_store();
  TuneReport report = samples::report();
  ASSERT_TRUE(store_report(*store, report, request()));
  report.plan.chosen_for["M"] = {256, 256};
  TuneRequest newer = request();
  newer.generator = digest_of("templates, mended");
  ASSERT_TRUE(store_report(*store, report, newer));
  const auto record = store->get(cache::Key::of(*request().op, report.device));
  ASSERT_TRUE(record && *record);
  EXPECT_EQ((*record)->generator, newer.generator);
  EXPECT_EQ((*record)->entries.size(), 1u);
}

TEST(StoredReport, TakesThePlaceOfABetterOneThatLostItsImages) {
  const auto store = cache::memory_store(2'000);
  TuneReport report = samples::report();
  for (auto& image : report.images) {
    jit::Image larger = *image;
    larger.ptx.resize(200, ' ');
    image = std::make_shared<const jit::Image>(std::move(larger));
  }
  ASSERT_TRUE(store_report(*store, report, request()));
  report.choice_sample.time_us *= 2;
  const cache::Key key = cache::Key::of(*request().op, report.device);
  ASSERT_TRUE(store_report(*store, report, request()));
  EXPECT_EQ((*store->get(key))->entries[0].evidence.time_us, 4) << "the better one stands";
  jit::Image large;
  large.digest = digest_of("large");
  large.ptx = std::string(1'860, 'x');
  ASSERT_TRUE(store->put_image(large));
  for (const auto& image : report.images) ASSERT_FALSE(*store->image(image->digest));
  ASSERT_TRUE(store_report(*store, report, request()));
  const auto record = store->get(key);
  EXPECT_EQ((*record)->entries.size(), 1u);
  EXPECT_EQ((*record)->entries[0].evidence.time_us, 8);
  EXPECT_TRUE(*cache::has_images(*store, (*record)->entries[0]));
}

TEST(StoredReport, OfAnInterruptedTuneIsNone) {
  const auto store = cache::memory_store();
  TuneReport report = samples::report();
  report.choice_verified = false;
  ASSERT_TRUE(store_report(*store, report, request()));
  report.choice = -1;
  ASSERT_TRUE(store_report(*store, report, request()));
  const auto record = store->get(cache::Key::of(*request().op, report.device));
  ASSERT_TRUE(record);
  EXPECT_FALSE(*record);
}

TEST(JournalInAStore, RecallsWhatItJournaledAndNothingElse) {
  const auto store = cache::memory_store();
  const TuneReport report = samples::report();
  const TuneHooks hooks = journal_in(*store, request(), report.device);
  const CandidateReport& good = report.candidates.front();
  const CandidateReport& failed = report.candidates.back();
  EXPECT_FALSE(hooks.recall(good.group, good.family, good.config));
  ASSERT_TRUE(hooks.journal(good));
  ASSERT_TRUE(hooks.journal(failed));
  const auto recalled = hooks.recall(good.group, good.family, good.config);
  ASSERT_TRUE(recalled);
  EXPECT_EQ(recalled->sample.time_us, good.sample.time_us);
  EXPECT_EQ(hooks.recall(failed.group, failed.family, failed.config)->failure, failed.failure);
  EXPECT_FALSE(hooks.recall(good.group, good.family, {{"width", 3}}));
  // Another shape, another device, another generator: other trials.
  TuneRequest other = request();
  other.bindings["M"] = 17;
  EXPECT_FALSE(
      journal_in(*store, other, report.device).recall(good.group, good.family, good.config));
  jit::DeviceInfo device = report.device;
  device.sm_count = 1;
  EXPECT_FALSE(journal_in(*store, request(), device).recall(good.group, good.family, good.config));
  // A body that cannot be read is no error: the trial is run again.
  ASSERT_TRUE(store->put_trial(
      {trial_id(request(), report.device, good.group, good.family, good.config), "torn"}));
  EXPECT_FALSE(hooks.recall(good.group, good.family, good.config));
}

TEST(Record, WhatTheMachineMayBeToBlameForIsTriedAgain) {
  const auto store = cache::memory_store();
  const TuneReport report = samples::report();
  const TuneHooks hooks = journal_in(*store, request(), report.device);
  CandidateReport candidate = report.candidates.back();
  std::string remembered;
  for (int value = 1; const auto code = error_code_of(value); ++value) {
    candidate.failure = Error{*code, "as it came", {}};
    ASSERT_TRUE(hooks.journal(candidate));
    if (hooks.recall(candidate.group, candidate.family, candidate.config))
      remembered += std::string(to_string(*code)) + " ";
  }
  EXPECT_EQ(remembered, "invalid_argument unsupported compile fault hang wrong_result crash ");
}

TEST(Record, ATrialThatTookTheProcessDownTwiceIsNotBegunAThirdTime) {
  const auto store = cache::memory_store();
  const TuneReport report = samples::report();
  const TuneHooks hooks = journal_in(*store, request(), report.device);
  const CandidateReport& candidate = report.candidates.front();
  const auto recalled = [&] {
    return hooks.recall(candidate.group, candidate.family, candidate.config);
  };
  ASSERT_TRUE(hooks.begin(candidate));
  EXPECT_FALSE(recalled()) << "it may have been killed";
  ASSERT_TRUE(hooks.begin(candidate));
  ASSERT_TRUE(recalled());
  EXPECT_EQ(recalled()->failure->code, ErrorCode::kCrash);
  EXPECT_THAT(recalled()->failure->message, testing::HasSubstr("begun 2 times and never ended"));

  // One that was stopped, or ended after all, begins from nothing.
  ASSERT_TRUE(hooks.stopped(candidate));
  EXPECT_FALSE(recalled());
  ASSERT_TRUE(hooks.begin(candidate));
  EXPECT_FALSE(recalled());
  ASSERT_TRUE(hooks.journal(candidate));
  ASSERT_TRUE(recalled());
  EXPECT_FALSE(recalled()->failure);
  EXPECT_EQ(recalled()->begun, 0);
}

}  // namespace
}  // namespace tilewright::search
