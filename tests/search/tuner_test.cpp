#include "search/tuner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "search/journal.h"
#include "search/report.h"
#include "tuner_fixture.h"

namespace tilewright::search {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

TEST_F(Tuner, FindsTheBestFusionAndConfig) {
  request_.budget.evaluations = 200;
  request_.strategy = "exhaustive";
  const TuneReport report = tuned();
  EXPECT_EQ(report.problem, "swiglu M=16");
  EXPECT_EQ(chosen(report), std::vector<std::string>{"gemm depth=1 width=8"});
  EXPECT_DOUBLE_EQ(report.choice_sample.time_us, 5 + 100 / 8.0 + 1);
  EXPECT_TRUE(report.choice_verified);
  EXPECT_TRUE(report.better_beyond_noise);
  // Unfused safe configs: two matmuls, silu and mul.
  EXPECT_DOUBLE_EQ(report.baseline.time_us, 2 * (5 + 100 + 1) + 2 * (5 + 10 + 1));
  EXPECT_NEAR(report.margin, 1 - 18.5 / 244, 1e-9);
  EXPECT_TRUE(report.failed.empty());
  EXPECT_EQ(report.choice, 0);
  const PartitionReport& baseline =
      report.partitions[static_cast<std::size_t>(report.baseline_partition)];
  EXPECT_TRUE(baseline.safe_configs);
  EXPECT_EQ(baseline.groups.size(), 4u);
  EXPECT_EQ(report.partitions[0].bytes_saved, 6 * 16 * 32 * 2 + 16 * 64 * 2);
}

TEST_F(Tuner, DistinctGroupsAreTunedOnce) {
  request_.budget.evaluations = 1000;
  request_.strategy = "exhaustive";
  const TuneReport report = tuned();
  std::set<std::string> seen;
  for (const CandidateReport& candidate : report.candidates)
    EXPECT_TRUE(seen.insert(candidate.group.hex() + candidate.family +
                            templates::to_string(candidate.config))
                    .second);
  // 11 valid configs for each of {gate}={up}, {act}, {y}, {act y}, {gate act}, {up y}, {up act y},
  // {gate act y}, {gate up act y}.
  EXPECT_EQ(report.tried, 99);
  EXPECT_EQ(static_cast<std::size_t>(report.tried), report.candidates.size());
}

TEST_F(Tuner, EveryGroupGetsItsSafeConfigWhereHalfOfTheBudgetIsEnough) {
  const auto groups_with_safe_config = [&] {
    std::set<Digest> groups;
    for (const CandidateReport& candidate : tuned().candidates)
      if (templates::to_string(candidate.config) == "depth=1 width=1")
        groups.insert(candidate.group);
    return groups.size();
  };
  request_.budget.evaluations = 18;
  EXPECT_EQ(groups_with_safe_config(), 9u);
  request_.budget.evaluations = 10;  // the fused one, gate, act, y: and one more
  EXPECT_EQ(groups_with_safe_config(), 5u);
}

TEST_F(Tuner, ASmallBudgetGoesToThePartitionThatTheCostModelLikesAndToTheBaseline) {
  request_.budget.evaluations = 4;  // the fused one, gate, act, y: up equals gate
  const TuneReport report = tuned();
  EXPECT_EQ(report.tried, 4);
  EXPECT_EQ(chosen(report), std::vector<std::string>{"gemm depth=1 width=1"});
  EXPECT_GT(report.baseline.time_us, report.choice_sample.time_us);
}

TEST_F(Tuner, TheSameSeedAndBudgetChooseTheSame) {
  request_.budget.evaluations = 20;
  const TuneReport first = tuned(), second = tuned();
  EXPECT_EQ(chosen(first), chosen(second));
  EXPECT_EQ(first.plan, second.plan);
  ASSERT_EQ(first.candidates.size(), second.candidates.size());
  for (std::size_t i = 0; i < first.candidates.size(); ++i)
    EXPECT_EQ(first.candidates[i].config, second.candidates[i].config);
  std::set<std::vector<std::string>> others;
  for (request_.seed = 2; request_.seed < 8; ++request_.seed) {
    std::vector<std::string> configs;
    for (const CandidateReport& candidate : tuned().candidates)
      configs.push_back(templates::to_string(candidate.config));
    others.insert(configs);
  }
  EXPECT_GT(others.size(), 1u);
}

TEST_F(Tuner, FailuresAreTypedConsumeBudgetAndCostOneCandidateEach) {
  request_.budget.evaluations = 60;
  pool_.broken = [](const std::string& text) -> std::optional<Error> {
    if (text.find("width=8") == std::string::npos) return std::nullopt;
    return Error{ErrorCode::kCompile, "too wide", "log"};
  };
  measurer_.failure = [](const Trial& trial,
                         const std::vector<fakes::Kernel>& kernels) -> std::optional<Error> {
    if (kernels.size() != 1 || trial.plan.tensors.empty()) return std::nullopt;
    if (kernels[0].width == 4) return Error{ErrorCode::kWrongResult, "y[3] is 4, expected 5", ""};
    if (kernels[0].depth == 2) return Error{ErrorCode::kHang, "no end after 20 s", ""};
    if (kernels[0].depth == 3) return Error{ErrorCode::kFault, "illegal address", ""};
    return std::nullopt;
  };
  const TuneReport report = tuned();
  EXPECT_EQ(report.tried, 60);
  EXPECT_THAT(report.failed, Contains(Pair("compile", ::testing::Gt(3))));
  EXPECT_THAT(report.failed, Contains(Pair("wrong_result", ::testing::Gt(3))));
  EXPECT_THAT(report.failed, Contains(Pair("hang", ::testing::Gt(3))));
  EXPECT_THAT(report.failed, Contains(Pair("fault", ::testing::Gt(3))));
  EXPECT_EQ(chosen(report), std::vector<std::string>{"gemm depth=1 width=2"});
  const std::string text = to_text(report);
  EXPECT_THAT(text, HasSubstr("candidates: 60 tried, "));
  EXPECT_THAT(text, HasSubstr("wrong_result: y[3] is 4, expected 5"));
}

TEST_F(Tuner, WhereNothingIsBetterBeyondTheNoiseTheBaselineStays) {
  request_.budget.evaluations = 60;
  measurer_.info().virtual_gpu = false;
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal(1, 0.05);
  measurer_.noise = [&] { return normal(random); };
  // The unfused plan takes as long as any other.
  measurer_.time = [](const fakes::Kernel& kernel) { return kernel.family == "gemm" ? 1000. : 1.; };
  request_.op =
      std::make_shared<const templates::Operator>(*templates::parse_operator(R"(operator: mm
dimensions: [M]
inputs:
  x: {dtype: bf16, shape: [M, 64]}
  w: {dtype: bf16, shape: [32, 64]}
body:
  - y = matmul(x, w, transpose_b=true)
outputs:
  y: {dtype: bf16}
)",
                                                                             "mm.yaml"));
  const TuneReport report = tuned();
  EXPECT_EQ(report.choice, report.baseline_partition);
  EXPECT_FALSE(report.better_beyond_noise);
  EXPECT_EQ(report.margin, 0);
  EXPECT_EQ(chosen(report), std::vector<std::string>{"gemm depth=1 width=1"});
  EXPECT_THAT(to_text(report), HasSubstr("the baseline stays"));
}

TEST_F(Tuner, OnARealDeviceARealGainIsFoundThroughNoise) {
  request_.budget.evaluations = 60;
  measurer_.info().virtual_gpu = false;
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal(1, 0.02);
  measurer_.noise = [&] { return normal(random); };
  const TuneReport report = tuned();
  EXPECT_TRUE(report.better_beyond_noise);
  EXPECT_LT(report.margin_interval.low, report.margin);
  EXPECT_GT(report.margin_interval.high, report.margin);
  EXPECT_EQ(chosen(report).size(), 1u);
}

TEST_F(Tuner, AWholePlanThatIsWrongIsNotChosen) {
  request_.budget.evaluations = 60;
  // The fused kernel is slow, so that plans of two kernels lead.
  measurer_.time = [](const fakes::Kernel& kernel) {
    return (kernel.family == "gemm" ? 10. : 50.) + static_cast<double>(kernel.depth);
  };
  measurer_.failure = [](const Trial& trial,
                         const std::vector<fakes::Kernel>& kernels) -> std::optional<Error> {
    if (trial.op->statements.size() == 4 && kernels.size() == 1)
      return Error{ErrorCode::kWrongResult, "fused wrongly", ""};
    if (trial.op->statements.size() == 4 && kernels.size() == 2)
      return Error{ErrorCode::kWrongResult, "joined wrongly", ""};
    return std::nullopt;
  };
  const TuneReport report = tuned();
  ASSERT_GE(report.choice, 0);
  EXPECT_EQ(report.choice, report.baseline_partition);
  int wrong = 0;
  for (const PartitionReport& partition : report.partitions)
    wrong += partition.failure && partition.failure->message == "joined wrongly";
  EXPECT_EQ(wrong, 3);
}

TEST_F(Tuner, ThePlanLaunchesWhatWasChosenAndHasANarrowTwin) {
  request_.budget.evaluations = 60;
  measurer_.time = [](const fakes::Kernel& kernel) {
    return kernel.family == "gemm" ? 100.0 / static_cast<double>(kernel.width) : 1.0;
  };
  const TuneReport report = tuned();
  ASSERT_TRUE(jit::check(report.plan)) << jit::check(report.plan).error().message;
  ASSERT_TRUE(jit::check(report.narrow)) << jit::check(report.narrow).error().message;
  EXPECT_FALSE(report.plan.legal.empty());
  EXPECT_TRUE(report.narrow.legal.empty());
  for (const jit::Plan* plan : {&report.plan, &report.narrow})
    EXPECT_EQ(plan->chosen_for.at("M"), (jit::DimensionRange{9, 16}));
  std::vector<std::string> names;
  for (const jit::PlanTensor& tensor : report.plan.tensors)
    if (tensor.role != jit::TensorRole::kIntermediate) names.push_back(tensor.name);
  EXPECT_EQ(names, (std::vector<std::string>{"x", "wg", "wu", "y"}));
  for (const jit::Plan* plan : {&report.plan, &report.narrow})
    for (const jit::PlanLaunch& launch : plan->launches)
      EXPECT_TRUE(std::any_of(report.images.begin(), report.images.end(),
                              [&](const auto& image) { return image->digest == launch.image; }));
  // The twin was verified with every tensor one element off.
  const auto twin = std::find_if(measurer_.trials.begin(), measurer_.trials.end(),
                                 [](const Trial& trial) { return !trial.displacement.empty(); });
  ASSERT_NE(twin, measurer_.trials.end());
  EXPECT_FALSE(twin->timed);
  EXPECT_THAT(twin->displacement,
              UnorderedElementsAre(Pair("x", 2), Pair("wg", 2), Pair("wu", 2), Pair("y", 2)));
}

TEST_F(Tuner, TheRangeEndsWhereTheNextBestConfigIsBetter) {
  request_.bindings = {{"M", 12}};
  request_.budget.evaluations = 200;
  request_.strategy = "exhaustive";
  // At the high end of the bucket depth 1 takes twice as long.
  measurer_.growth = [](const fakes::Kernel& kernel, const templates::Bindings& sizes) {
    return kernel.depth == 1 && sizes.at("M") == 16 ? 2.0 : 1.0;
  };
  const TuneReport report = tuned();
  EXPECT_EQ(pool_.compiles(), 99u + 1) << "the candidates and the twin for unaligned tensors";
  EXPECT_EQ(chosen(report), std::vector<std::string>{"gemm depth=1 width=8"});
  EXPECT_EQ(report.plan.chosen_for.at("M"), (jit::DimensionRange{9, 12}));
  ASSERT_EQ(report.probes.size(), 2u);
  EXPECT_EQ(report.probes[0].sizes, (templates::Bindings{{"M", 9}}));
  EXPECT_TRUE(report.probes[0].held) << report.probes[0].reason;
  EXPECT_EQ(report.probes[0].baseline_us, report.baseline.time_us);
  EXPECT_EQ(report.probes[1].sizes, (templates::Bindings{{"M", 16}}));
  EXPECT_EQ(report.probes[1].reason, "another plan takes 19.50 us");
  EXPECT_EQ(report.tried, 99) << "probes are no candidates";
}

TEST_F(Tuner, AStopDuringTheProbesKeepsTheChoiceAndANarrowerRange) {
  request_.bindings = {{"M", 12}};
  std::stop_source source;
  measurer_.after_each = [&] {
    if (measurer_.trials.back().bindings.at("M") == 9) source.request_stop();
  };
  const TuneReport report = tuned({}, source.get_token());
  EXPECT_FALSE(report.interrupted) << "what was asked for is known";
  EXPECT_TRUE(report.choice_verified);
  EXPECT_EQ(report.plan.chosen_for.at("M"), (jit::DimensionRange{9, 12}));
  ASSERT_EQ(report.probes.size(), 2u);
  EXPECT_EQ(report.probes[1].reason, "skipped: the tune was stopped");
  EXPECT_FALSE(report.probes[1].measured);
}

TEST_F(Tuner, ANarrowTwinThatIsWrongIsLeftOutAndSaidSo) {
  measurer_.failure = [](const Trial& trial,
                         const std::vector<fakes::Kernel>&) -> std::optional<Error> {
    if (trial.displacement.empty()) return std::nullopt;
    return Error{ErrorCode::kFault, "misaligned address", ""};
  };
  const TuneReport report = tuned();
  EXPECT_FALSE(report.plan.launches.empty());
  EXPECT_TRUE(report.narrow.launches.empty());
  ASSERT_TRUE(report.narrow_failure);
  EXPECT_THAT(to_text(report), HasSubstr("unaligned tensors are not served: fault: misaligned"));
}

TEST_F(Tuner, WhereTheWinnersNarrowTwinFailsTheSafeConfigsTakeItsPlace) {
  request_.budget.evaluations = 60;
  measurer_.time = [](const fakes::Kernel& kernel) {
    return kernel.family == "gemm" ? 100.0 / static_cast<double>(kernel.width) : 1.0;
  };
  pool_.broken = [](const std::string& text) -> std::optional<Error> {
    if (text.find(" narrow\n") == std::string::npos ||
        text.find("depth=1 width=1 narrow") != std::string::npos)
      return std::nullopt;
    return Error{ErrorCode::kCompile, "a static assertion failed", ""};
  };
  const TuneReport report = tuned();
  EXPECT_FALSE(report.narrow_failure);
  ASSERT_FALSE(report.narrow.launches.empty());
  EXPECT_TRUE(report.narrow.legal.empty());
  for (const jit::PlanLaunch& launch : report.narrow.launches)
    EXPECT_TRUE(std::any_of(report.images.begin(), report.images.end(),
                            [&](const auto& image) { return image->digest == launch.image; }));
  // It was verified as the winner's would have been.
  EXPECT_TRUE(
      std::any_of(measurer_.trials.begin(), measurer_.trials.end(), [&](const Trial& trial) {
        return !trial.timed && trial.plan.launches == report.narrow.launches &&
               trial.displacement.contains("x");
      }));
}

TEST_F(Tuner, RecalledTrialsAreNotRunAgainAndTheResultIsTheSame) {
  request_.budget.evaluations = 40;
  std::map<std::string, std::string> journal;
  TuneHooks hooks;
  const auto id_of = [&](const Digest& group, const std::string& family,
                         const templates::Config& config) {
    return trial_id(request_, measurer_.device(), group, family, config);
  };
  hooks.journal = [&](const CandidateReport& candidate) -> Result<void> {
    const std::string id = id_of(candidate.group, candidate.family, candidate.config);
    EXPECT_TRUE(journal.emplace(id, trial_body(candidate)).second) << "journaled twice";
    return {};
  };
  hooks.recall = [&](const Digest& group, const std::string& family,
                     const templates::Config& config) -> std::optional<CandidateReport> {
    const auto known = journal.find(id_of(group, family, config));
    if (known == journal.end()) return std::nullopt;
    auto candidate = parse_trial_body(known->second);
    EXPECT_TRUE(candidate) << candidate.error().message;
    return *candidate;
  };
  const TuneReport first = tuned(hooks);
  EXPECT_EQ(journal.size(), 40u);
  const std::size_t trials = measurer_.ids.size();
  // As after a crash: half of the journal is there.
  std::map<std::string, std::string> whole = journal;
  for (auto entry = journal.begin(); entry != journal.end();)
    entry = std::distance(journal.begin(), entry) % 2 ? journal.erase(entry) : std::next(entry);
  const std::size_t kept = journal.size();
  const TuneReport second = tuned(hooks);
  EXPECT_EQ(journal, whole);
  EXPECT_EQ(chosen(second), chosen(first));
  EXPECT_EQ(second.plan, first.plan);
  EXPECT_EQ(second.tried, first.tried);
  EXPECT_EQ(measurer_.ids.size() - trials, trials - kept);
}

TEST_F(Tuner, AStopKeepsWhatWasFound) {
  request_.budget.evaluations = 90;
  std::stop_source source;
  int trials = 0;
  measurer_.after_each = [&] {
    if (++trials == 20) source.request_stop();
  };
  const TuneReport report = tuned({}, source.get_token());
  EXPECT_TRUE(report.interrupted);
  EXPECT_EQ(report.tried, 20);
  EXPECT_EQ(trials, 20);
  ASSERT_EQ(report.choice, 0);
  EXPECT_TRUE(report.choice_verified);  // one kernel: its trial was the whole's
  EXPECT_FALSE(report.better_beyond_noise);
  EXPECT_FALSE(report.plan.launches.empty());
  EXPECT_THAT(to_text(report), HasSubstr("interrupted"));
}

TEST_F(Tuner, ATrialThatAStopEndsIsNotRecorded) {
  // Amid the 21st candidate, amid the whole plans, amid the narrow twin.
  for (const int at : {21, 91, 92}) {
    request_.budget.evaluations = 90;
    std::stop_source source;
    int trials = 0, journaled = 0;
    measurer_.amid_each = [&] {
      if (++trials == at) source.request_stop();
    };
    TuneHooks hooks;
    hooks.journal = [&](const CandidateReport& report) -> Result<void> {
      EXPECT_FALSE(report.failure && report.failure->code == ErrorCode::kCancelled);
      ++journaled;
      return {};
    };
    const TuneReport report = tuned(hooks, source.get_token());
    EXPECT_TRUE(report.interrupted) << at;
    EXPECT_EQ(report.tried, std::min(at - 1, 90));
    EXPECT_EQ(journaled, report.tried);
    EXPECT_GE(report.choice, 0) << at;
    EXPECT_FALSE(report.plan.launches.empty()) << at;
    EXPECT_THAT(report.failed, testing::IsEmpty());
    EXPECT_THAT(to_text(report), HasSubstr("interrupted"));
  }
}

TEST_F(Tuner, AJournalThatFailsCostsNothingOfTheReport) {
  request_.budget.evaluations = 30;
  TuneHooks hooks;
  int written = 0;
  hooks.journal = [&](const CandidateReport&) -> Result<void> {
    if (++written == 3) return {};
    return fail(ErrorCode::kIo, "no space left on device");
  };
  std::vector<std::string> warnings;
  hooks.warn = [&](const Error& error) { warnings.push_back(error.message); };
  const TuneReport report = tuned(hooks);
  EXPECT_EQ(written, 30);
  EXPECT_EQ(report.tried, 30);
  EXPECT_GE(report.choice, 0);
  ASSERT_TRUE(report.journal_failure);
  EXPECT_EQ(report.journal_failure->code, ErrorCode::kIo);
  EXPECT_THAT(report.journal_failure->message, HasSubstr("no space left on device"));
  EXPECT_THAT(warnings, testing::ElementsAre(report.journal_failure->message));
}

TEST_F(Tuner, TensorsThatTheDeviceCannotHoldEndTheTuneAtOnce) {
  measurer_.info().memory_bytes = 1000;
  const auto report = tune(request_, pool_, measurer_);
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, ErrorCode::kOutOfMemory);
  EXPECT_THAT(report.error().message, HasSubstr("of device memory, expected at most 0 MiB"));
  EXPECT_THAT(measurer_.ids, testing::IsEmpty());
}

TEST_F(Tuner, AStopBeforeAnythingIsFoundHasNoChoice) {
  std::stop_source source;
  source.request_stop();
  const TuneReport report = tuned({}, source.get_token());
  EXPECT_TRUE(report.interrupted);
  EXPECT_EQ(report.choice, -1);
  EXPECT_TRUE(report.plan.launches.empty());
  EXPECT_THAT(to_text(report), HasSubstr("choice: none"));
}

TEST_F(Tuner, WhereEveryCandidateFailsThereIsNoChoiceAndTheReasonIsShown) {
  pool_.broken = [](const std::string&) -> std::optional<Error> {
    return Error{ErrorCode::kCompile, "broken template", ""};
  };
  request_.budget.evaluations = 30;
  const TuneReport report = tuned();
  EXPECT_EQ(report.choice, -1);
  EXPECT_THAT(report.failed, UnorderedElementsAre(Pair("compile", 30)));
  EXPECT_THAT(to_text(report), HasSubstr("compile: broken template"));
}

TEST_F(Tuner, ErrorsOfRequestAndSpacesNameWhatIsWrong) {
  const auto message = [&] {
    const auto report = tune(request_, pool_, measurer_);
    return report ? std::string("no error") : report.error().message;
  };
  request_.bindings = {};
  EXPECT_EQ(message(), "dimension M of swiglu has no value");
  request_.bindings = {{"M", -1}};
  EXPECT_EQ(message(), "dimension M of swiglu is -1, expected 0 or more");
  request_.bindings = {{"M", 1}, {"Q", 1}};
  EXPECT_EQ(message(), "swiglu has no dimension Q");
  request_.bindings = {{"M", 1}};
  request_.budget.evaluations = 0;
  EXPECT_EQ(message(), "the budget is 0 evaluations, expected 1 or more");
  request_.budget.evaluations = 1;
  request_.strategy = "clever";
  EXPECT_EQ(message(), "strategy is clever, expected one of random, exhaustive");
  request_.strategy = "random";
  write_space("gemm", "tunables: {width: [1]}\n");
  EXPECT_EQ(message(), (spaces_ / "gemm.yaml").string() +
                           ": tunables are width, but configs of gemm have depth, width");
  write_space("gemm", "tunables: {width: [1], depth: [1]}\nconstraints: [wide > 1]\n");
  EXPECT_THAT(message(), HasSubstr("gemm.yaml:3: unknown variable wide in `wide > 1`"));
  measurer_.info().compute_major = 7;
  EXPECT_THAT(message(), HasSubstr("has compute capability 7.0, expected 8.0 or newer"));
  measurer_.info().compute_major = 9;
  std::filesystem::remove(spaces_ / "gemm.yaml");
  EXPECT_EQ(message(), "cannot read the space " + (spaces_ / "gemm.yaml").string());
}

TEST_F(Tuner, ASpaceWithoutAValidConfigLeavesTheSafeOne) {
  for (const templates::Family* family : fakes::families())
    write_space(std::string(family->name()),
                "tunables: {width: [1], depth: [1]}\nconstraints: [width > 1]\n");
  const TuneReport report = tuned();
  EXPECT_EQ(report.tried, 9);
  EXPECT_EQ(chosen(report), std::vector<std::string>{"gemm depth=1 width=1"});
}

}  // namespace
}  // namespace tilewright::search
