#include "search/measure/bundle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "search/measure/bundle_run.h"
#include "search/measure/journal.h"
#include "tests/search/measure/planted.h"

namespace tilewright::search {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

jit::DeviceInfo h200() {
  jit::DeviceInfo device;
  device.name = "NVIDIA H200";
  device.compute_major = 9;
  device.sm_count = 132;
  return device;
}

// Answers each trial by its id: a time, unless told otherwise.
class FakeMeasurer : public Measurer {
 public:
  explicit FakeMeasurer(jit::DeviceInfo device = h200()) : device_(std::move(device)) {}

  const jit::DeviceInfo& device() const override { return device_; }
  Result<TrialResult> run(const Trial& trial) override {
    asked.push_back(trial.id);
    if (trial.id == dies_at) return fail(ErrorCode::kIo, "the runner was killed");
    TrialResult result;
    result.id = trial.id;
    if (trial.id == "wrong") {
      result.failure = Error{ErrorCode::kWrongResult, "y[3] is 1, expected 2", "detail"};
    } else {
      result.verification.verified = true;
      result.verification.worst_ratio = 0.25;
      result.sample.times_us = {10.5, 10.25, 11};
      result.sample.bound_by = "dram";
    }
    return result;
  }
  Result<std::vector<TrialResult>> run_interleaved(std::span<const Trial>, int) override {
    return fail(ErrorCode::kUnsupported, "not here");
  }

  std::vector<std::string> asked;
  std::string dies_at;

 private:
  jit::DeviceInfo device_;
};

class BundleTest : public testing::Test {
 protected:
  BundleTest() {
    std::string name = testing::TempDir() + "tilewright_bundle_XXXXXX";
    root_ = ::mkdtemp(name.data());
    folder_ = root_ / "bundle";
    journal_ = root_ / "journal.jsonl";
    info_.architecture = {9, 0, true};
    info_.nvrtc_version = "13.0";
  }
  ~BundleTest() override { fs::remove_all(root_); }

  Bundle make(const std::vector<std::string>& ids) {
    std::vector<BundleTrial> trials;
    for (const std::string& id : ids)
      trials.push_back({planted::uncompiled(id, id == "b" ? "two" : "one"),
                        R"({"family":"pointwise","config":{"width":4}})"});
    const auto written = write_bundle(folder_, info_, trials);
    EXPECT_TRUE(written) << written.error().message;
    auto bundle = Bundle::open(folder_);
    EXPECT_TRUE(bundle) << bundle.error().message;
    return std::move(*bundle);
  }

  static std::string read(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static void edit(const fs::path& path, const std::function<void(std::string&)>& change) {
    std::string text = read(path);
    change(text);
    std::ofstream(path, std::ios::binary) << text;
  }
  static std::string rendered(const Error& error) {
    return std::string(to_string(error.code)) + ": " + error.message;
  }

  fs::path root_, folder_, journal_;
  BundleInfo info_;
};

TEST_F(BundleTest, WhatIsReadIsWhatWasWritten) {
  Trial trial = planted::uncompiled("a");
  trial.seed = 77;
  trial.verify.max_elements = 123;
  trial.measure.graph = true;
  trial.measure.cut_off_us = 4.5;
  trial.timed = false;
  trial.displacement = {{"a", 4}};
  trial.inputs = digest_of("inputs");
  ASSERT_TRUE(write_bundle(folder_, info_, std::vector<BundleTrial>{{trial, R"({"k":1})"}}));
  const auto bundle = Bundle::open(folder_);
  ASSERT_TRUE(bundle) << bundle.error().message;
  ASSERT_EQ(bundle->trials().size(), 1u);
  const Trial& back = bundle->trials()[0].trial;
  EXPECT_EQ(back.id, "a");
  EXPECT_EQ(templates::print(*back.op), templates::print(*trial.op));
  EXPECT_EQ(back.bindings, trial.bindings);
  EXPECT_EQ(back.plan, trial.plan);
  EXPECT_EQ(back.seed, 77u);
  EXPECT_EQ(back.verify.max_elements, 123);
  EXPECT_TRUE(back.measure.graph);
  EXPECT_EQ(back.measure.cut_off_us, 4.5);
  EXPECT_FALSE(back.timed);
  EXPECT_EQ(back.displacement, trial.displacement);
  EXPECT_EQ(back.inputs, trial.inputs);
  ASSERT_EQ(back.images.size(), 1u);
  EXPECT_EQ(back.images[0]->digest, trial.images[0]->digest);
  EXPECT_EQ(back.images[0]->cubin, trial.images[0]->cubin);
  EXPECT_EQ(back.images[0]->ptx, trial.images[0]->ptx);
  EXPECT_EQ(back.images[0]->kernels, trial.images[0]->kernels);
  EXPECT_EQ(bundle->trials()[0].candidate, R"({"k":1})");
  EXPECT_EQ(bundle->info().architecture.name(), "sm_90a");
}

TEST_F(BundleTest, TrialsShareImagesAndKeepOnlyTheCodeAskedFor) {
  info_.ptx = false;
  const Bundle bundle = make({"a", "b", "c"});
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "images"), fs::directory_iterator()), 2);
  EXPECT_EQ(bundle.trials()[0].trial.images[0], bundle.trials()[2].trial.images[0]);
  EXPECT_EQ(bundle.trials()[0].trial.images[0]->ptx, "");
  EXPECT_NE(bundle.trials()[0].trial.images[0]->cubin, "");
}

TEST_F(BundleTest, ABundleThatIsNotWholeIsOneError) {
  make({"a", "b"});
  const fs::path image = folder_ / "images" / (digest_of("image two").hex() + ".zst");
  struct Case {
    std::string what;
    std::function<void()> damage;
    std::string message;
  };
  const Case cases[] = {
      {"another version",
       [&] {
         edit(folder_ / "manifest.json", [](std::string& text) {
           text.replace(text.find("\"version\": 1"), 12, "\"version\": 9");
         });
       },
       "unsupported: " + (folder_ / "manifest.json").string() + " is of version 9, expected 1"},
      {"no JSON", [&] { edit(folder_ / "manifest.json", [](std::string& text) { text = "{"; }); },
       "corrupt: " + (folder_ / "manifest.json").string() + " is no manifest of a trial bundle"},
      {"a byte of an image", [&] { edit(image, [](std::string& bytes) { bytes.back() ^= 1; }); },
       "corrupt: " + image.string() + " has digest "},
      {"an image is gone", [&] { fs::remove(image); },
       "corrupt: " + image.string() + " is missing"},
      {"a trial was edited",
       [&] { edit(folder_ / "trials.jsonl", [](std::string& text) { text[20] ^= 1; }); },
       "corrupt: " + (folder_ / "trials.jsonl").string() + " has digest "},
      {"no manifest", [&] { fs::remove(folder_ / "manifest.json"); },
       "not_found: " + folder_.string() + " is no bundle: it has no manifest.json"},
  };
  for (const Case& test : cases) {
    fs::remove_all(folder_);
    make({"a", "b"});
    test.damage();
    const auto bundle = Bundle::open(folder_);
    ASSERT_FALSE(bundle) << test.what;
    EXPECT_THAT(rendered(bundle.error()), HasSubstr(test.message)) << test.what;
  }
}

TEST_F(BundleTest, AFolderThatIsNoBundleIsNotOverwritten) {
  fs::create_directory(folder_);
  std::ofstream(folder_ / "precious") << "data";
  const auto written = write_bundle(folder_, info_, {});
  ASSERT_FALSE(written);
  EXPECT_EQ(rendered(written.error()),
            "invalid_argument: " + folder_.string() + " exists and is no bundle");
  EXPECT_EQ(read(folder_ / "precious"), "data");
}

TEST_F(BundleTest, TwoTrialsOfOneIdAreRefused) {
  const std::vector<BundleTrial> trials{{planted::uncompiled("a"), ""},
                                        {planted::uncompiled("a"), ""}};
  const auto written = write_bundle(folder_, info_, trials);
  ASSERT_FALSE(written);
  EXPECT_EQ(rendered(written.error()), "invalid_argument: two trials have the id a");
  EXPECT_FALSE(fs::exists(folder_));
}

TEST_F(BundleTest, AnAnchorIsRefused) {
  std::vector<BundleTrial> trials = {{planted::uncompiled("a"), ""}};
  trials[0].trial.anchor = std::make_shared<const Trial::Anchor>();
  const auto written = write_bundle(folder_, info_, trials);
  ASSERT_FALSE(written);
  EXPECT_EQ(rendered(written.error()),
            "unsupported: trial a is to have the bits of another plan, which a bundle does not "
            "carry");
  EXPECT_FALSE(fs::exists(folder_));
}

TEST_F(BundleTest, CodeForAnotherDeviceIsRefusedBeforeAnythingRuns) {
  const Bundle bundle = make({"a"});
  jit::DeviceInfo a100 = h200();
  a100.name = "NVIDIA A100";
  a100.compute_major = 8;
  FakeMeasurer measurer(a100);
  const auto run = run_bundle(bundle, measurer, {.journal = journal_});
  ASSERT_FALSE(run);
  EXPECT_EQ(rendered(run.error()),
            "unsupported: the bundle holds cubins and PTX for sm_90a, the device is NVIDIA A100 of "
            "compute capability 8.0");
  EXPECT_TRUE(measurer.asked.empty());
  info_.ptx = false;
  const Bundle without_ptx = make({"a"});
  jit::DeviceInfo virtual_h200 = h200();
  virtual_h200.virtual_gpu = true;
  EXPECT_FALSE(without_ptx.check_device(virtual_h200));
  EXPECT_TRUE(without_ptx.check_device(h200()));
}

TEST_F(BundleTest, ResultsComeBackWithTheirCandidates) {
  const Bundle bundle = make({"a", "wrong", "b"});
  FakeMeasurer measurer;
  std::vector<std::size_t> steps;
  const auto run =
      run_bundle(bundle, measurer,
                 {.journal = journal_,
                  .progress = [&](std::size_t done, std::size_t total, const TrialResult&) {
                    EXPECT_EQ(total, 3u);
                    steps.push_back(done);
                  }});
  ASSERT_TRUE(run) << run.error().message;
  EXPECT_EQ(run->run, 3u);
  EXPECT_EQ(run->failed, 1u);
  EXPECT_THAT(steps, ElementsAre(1, 2, 3));

  const auto results = read_results(bundle, journal_);
  ASSERT_TRUE(results) << results.error().message;
  EXPECT_EQ(results->device.key(), h200().key());
  ASSERT_EQ(results->outcomes.size(), 3u);
  const BundleOutcome& first = results->outcomes[0];
  EXPECT_EQ(first.trial->trial.id, "a");
  EXPECT_THAT(first.trial->candidate, HasSubstr("pointwise"));
  EXPECT_THAT(first.result.sample.times_us, ElementsAre(10.5, 10.25, 11));
  EXPECT_EQ(first.result.sample.time_us, 10.5);
  EXPECT_EQ(first.result.sample.bound_by, "dram");
  EXPECT_TRUE(first.result.verification.verified);
  const BundleOutcome& wrong = results->outcomes[1];
  ASSERT_TRUE(wrong.result.failure);
  EXPECT_EQ(*wrong.result.failure,
            (Error{ErrorCode::kWrongResult, "y[3] is 1, expected 2", "detail"}));
}

TEST_F(BundleTest, ARunGoesOnWhereItWasKilledAndSkipsTheTrialThatItDiedIn) {
  const Bundle bundle = make({"a", "b", "c", "d"});
  {
    FakeMeasurer measurer;
    measurer.dies_at = "c";
    const auto run = run_bundle(bundle, measurer, {.journal = journal_});
    ASSERT_FALSE(run);
    EXPECT_THAT(measurer.asked, ElementsAre("a", "b", "c"));
  }
  FakeMeasurer measurer;
  const auto run = run_bundle(bundle, measurer, {.journal = journal_});
  ASSERT_TRUE(run) << run.error().message;
  EXPECT_THAT(measurer.asked, ElementsAre("d"));
  EXPECT_EQ(run->earlier, 3u);
  EXPECT_THAT(run->crashed, ElementsAre("c"));
  const auto results = read_results(bundle, journal_);
  ASSERT_TRUE(results);
  ASSERT_EQ(results->outcomes.size(), 4u);
  EXPECT_EQ(results->outcomes[2].result.failure->code, ErrorCode::kCrash);
  // And a third run has nothing to do.
  FakeMeasurer idle;
  EXPECT_TRUE(run_bundle(bundle, idle, {.journal = journal_}));
  EXPECT_TRUE(idle.asked.empty());
}

TEST_F(BundleTest, AJournalOfAnotherBundleOrDeviceIsRefused) {
  const Bundle first = make({"a"});
  FakeMeasurer measurer;
  ASSERT_TRUE(run_bundle(first, measurer, {.journal = journal_}));
  jit::DeviceInfo other = h200();
  other.sm_count = 78;
  FakeMeasurer on_other(other);
  const auto other_device = run_bundle(first, on_other, {.journal = journal_});
  ASSERT_FALSE(other_device);
  EXPECT_THAT(other_device.error().message, HasSubstr("is the journal of a run on NVIDIA H200"));
  const Bundle second = make({"a", "b"});
  const auto other_bundle = run_bundle(second, measurer, {.journal = journal_});
  ASSERT_FALSE(other_bundle);
  EXPECT_EQ(rendered(other_bundle.error()),
            "invalid_argument: " + journal_.string() + " is the journal of bundle " +
                first.digest().hex() + ", this is " + second.digest().hex());
}

TEST_F(BundleTest, ATimeLimitEndsARunThatALaterOneFinishes) {
  const Bundle bundle = make({"a", "b"});
  FakeMeasurer measurer;
  const auto run = run_bundle(bundle, measurer, {.journal = journal_, .seconds = 1e-9});
  ASSERT_TRUE(run);
  EXPECT_EQ(run->run, 0u);
  const auto rest = run_bundle(bundle, measurer, {.journal = journal_});
  ASSERT_TRUE(rest);
  EXPECT_EQ(rest->run, 2u);
}

}  // namespace
}  // namespace tilewright::search
