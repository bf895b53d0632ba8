#include "search/sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace tilewright::search {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Sweep : public ::testing::Test {
 protected:
  Sweep() {
    folder_ =
        std::filesystem::path(::testing::TempDir()) / ("sweep_test_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
    write("scale.yaml", R"(operator: scale
parameters: {T: f32, N: 64}
dimensions: [M]
inputs:
  x: {dtype: T, shape: [M, N]}
body:
  - y = neg(x)
outputs:
  y: {dtype: T}
)");
    options_.operators = folder_;
    options_.tokens = {1, 16};
  }
  ~Sweep() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
    return folder_ / name;
  }
  void add_model(const std::string& name, const std::string& operators) {
    options_.models.push_back(
        write(name + "-model.yaml", "model: " + name + "\noperators:\n" + operators));
  }
  std::vector<SweepProblem> planned() {
    auto plan = plan_sweep(options_);
    EXPECT_TRUE(plan) << plan.error().message;
    return plan ? plan->problems : std::vector<SweepProblem>{};
  }
  SweepReport swept(const SweepHooks& hooks, std::stop_token stop = {}) {
    auto report = run_sweep(planned(), folder_ / "manifest", hooks, stop);
    EXPECT_TRUE(report) << report.error().message;
    return report ? *report : SweepReport{};
  }
  SweepHooks hooks() {
    SweepHooks hooks;
    hooks.tune = [this](const SweepProblem& problem) -> Result<TuneReport> {
      tuned_.push_back(problem.title);
      if (problem.title == failing_) return fail(ErrorCode::kDeviceLost, "gone");
      TuneReport report;
      report.choice = 0;
      report.choice_sample.time_us = 3;
      report.choice_sample.modelled = true;
      report.tried = 5;
      if (problem.bindings.at("M") == 16) report.range = {{"M", {9, 16}}};
      report.failed = {{"compile", 1}};
      report.partitions.resize(1);
      report.partitions[0].groups.resize(1);
      report.partitions[0].groups[0].best.family = "pointwise";
      return report;
    };
    return hooks;
  }

  std::filesystem::path folder_;
  SweepOptions options_;
  std::vector<std::string> tuned_;
  std::string failing_;
};

std::vector<std::string> titles(const std::vector<SweepProblem>& problems) {
  std::vector<std::string> result;
  for (const SweepProblem& problem : problems) result.push_back(problem.title);
  return result;
}

TEST_F(Sweep, IsModelsTimesTpTimesOperatorsTimesTokens) {
  options_.tensor_parallel = {1, 2};
  add_model("small",
            "  - {operator: scale, parameters: {N: 32}, tp: {divides: [N]}, count: 4}\n"
            "  - {operator: scale, parameters: {N: 8}, tp: {only: [1]}}\n");
  const auto problems = planned();
  EXPECT_THAT(titles(problems), ElementsAre("small scale M=1 tp=1", "small scale M=16 tp=1",
                                            "small scale M=1 tp=1", "small scale M=16 tp=1",
                                            "small scale M=1 tp=2", "small scale M=16 tp=2"));
  const auto columns = [&](std::size_t i) {
    return *problems[i].op->value(problems[i].op->inputs[0].value).shape[1].value;
  };
  EXPECT_EQ(columns(0), 32);
  EXPECT_EQ(columns(2), 8);
  EXPECT_EQ(columns(4), 16);
  EXPECT_EQ(problems[1].bindings, (templates::Bindings{{"M", 16}}));
}

TEST_F(Sweep, NamesPartsAndLeavesThemOutWhereTheyAreNot) {
  options_.tensor_parallel = {1, 2};
  options_.tokens = {4};
  add_model("parts",
            "  - {operator: scale, name: down, parameters: {N: 8}, tp: {divides: [N]}}\n"
            "  - {operator: scale, name: out, parameters: {N: 8}, tp: {except: [1]}}\n");
  EXPECT_THAT(titles(planned()),
              ElementsAre("parts scale down M=4 tp=1", "parts scale down M=4 tp=2",
                          "parts scale out M=4 tp=2"));
}

TEST_F(Sweep, DividesAttentionByWholeHeadsAndCopiesKeysAndValuesWhereTheyAreFewer) {
  struct Case {
    int tp;
    std::int64_t columns;  ///< 0: refused
    const char* error = "";
  };
  // Eight heads of queries and two of keys and values, each of 16: 192 columns.
  const Case cases[] = {
      {1, (8 + 2 * 2) * 16},
      {2, (4 + 2 * 1) * 16},
      {4, (2 + 2 * 1) * 16},
      {8, (1 + 2 * 1) * 16},
      {3, 0, ":7: num_attention_heads is 8, expected a multiple of tp 3"},
      {16, 0, ":7: num_attention_heads is 8, expected a multiple of tp 16"},
  };
  options_.tokens = {1};
  options_.models = {write("heads-model.yaml", R"(model: heads
num_attention_heads: 8
num_key_value_heads: 2
head_dim: 16

operators:
  - {operator: scale, name: qkv_proj, parameters: {N: 192}, tp: {divides_heads: [N]}}
)")};
  for (const Case& test : cases) {
    options_.tensor_parallel = {test.tp};
    const auto problems = plan_sweep(options_);
    ASSERT_EQ(problems.has_value(), test.columns > 0) << test.tp;
    if (!problems) {
      EXPECT_THAT(problems.error().message, HasSubstr(test.error));
      continue;
    }
    const templates::Operator& op = *problems->problems.front().op;
    EXPECT_EQ(op.value(op.inputs[0].value).shape[1].value, test.columns) << test.tp;
  }
}

TEST_F(Sweep, ErrorsNameTheModelsLine) {
  struct Case {
    const char* operators;
    const char* message;
  };
  const Case cases[] = {
      {"  - {operator: scale, parameters: {N: 33}, tp: {divides: [N]}}\n",
       ":3: N of scale is 33, expected a multiple of tp 2"},
      {"  - {operator: scale, tp: {divides: [N]}}\n",
       ":3: tp divides N of scale, which has no number of that name"},
      {"  - {operator: scale, parameters: {N: 32.5}, tp: {divides: [N]}}\n",
       ":3: tp divides N of scale, which has no number of that name"},
      {"  - {operator: scale, parameters: {N: 32}, tp: {divides_heads: [N]}}\n",
       ":3: N of scale is 32, expected (num_attention_heads + 2 num_key_value_heads) head_dim, "
       "which is 0"},
      {"  - {operator: scale, tp: {splits: [N]}}\n",
       ":3: tp has `splits`, expected divides or divides_heads: [PARAMETER, ...], only or except: "
       "[DEGREE, ...]"},
      {"  - {name: scale}\n", ":3: an entry of operators has no `operator: NAME`"},
      {"  - {operator: scale, shape: 3}\n",
       ":3: operator scale has `shape`, expected maps parameters or tp, name or count"},
      {"  - {operator: missing}\n", "missing.yaml"},
      {"  - {operator: scale, parameters: {Q: 3}}\n", "Q"},
  };
  options_.tensor_parallel = {2};
  for (const Case& test : cases) {
    options_.models.clear();
    add_model("wrong", test.operators);
    const auto problems = plan_sweep(options_);
    ASSERT_FALSE(problems) << test.operators;
    EXPECT_THAT(problems.error().message, HasSubstr(test.message));
    EXPECT_THAT(problems.error().message, HasSubstr("wrong-model.yaml:3: "));
  }
  options_.models = {write("none.yaml", "model: none\n")};
  EXPECT_THAT(plan_sweep(options_).error().message,
              HasSubstr("none.yaml:1: `operators:` is missing"));
  options_.models = {folder_ / "absent.yaml"};
  EXPECT_EQ(plan_sweep(options_).error().code, ErrorCode::kNotFound);
}

TEST_F(Sweep, TunesEqualProblemsOfDifferentModelsOnce) {
  add_model("a", "  - {operator: scale}\n");
  add_model("b", "  - {operator: scale}\n  - {operator: scale, parameters: {N: 8}}\n");
  const SweepReport report = swept(hooks());
  EXPECT_THAT(tuned_, ElementsAre("a scale M=1 tp=1", "a scale M=16 tp=1", "b scale M=1 tp=1",
                                  "b scale M=16 tp=1"));
  ASSERT_EQ(report.items.size(), 6u);
  EXPECT_EQ(report.items[2].state, SweepItem::State::kKept);
  EXPECT_EQ(report.items[2].title, "b scale M=1 tp=1");
  EXPECT_EQ(report.items[2].time_us, 3);
  EXPECT_EQ(report.items[4].state, SweepItem::State::kTuned);
  EXPECT_THAT(to_text(report), HasSubstr("4 tuned, 2 kept, 0 covered, 0 failed, 0 pending"));
  EXPECT_THAT(to_json_text(report), HasSubstr("\"choice\": \"pointwise \""));
}

TEST_F(Sweep, OnAnotherDeviceIsAnotherSweep) {
  add_model("a", "  - {operator: scale}\n");
  options_.conditions = digest_of("one device");
  const Digest here = planned().at(0).digest;
  EXPECT_EQ(planned().at(0).digest, here);
  options_.conditions = digest_of("another device");
  EXPECT_NE(planned().at(0).digest, here);
}

TEST_F(Sweep, GoesOnWhereItWasInterrupted) {
  add_model("a", "  - {operator: scale}\n  - {operator: scale, parameters: {N: 8}}\n");
  std::stop_source source;
  SweepHooks stopping = hooks();
  stopping.progress = [&](const SweepProgress& progress) {
    if (progress.done == 1) source.request_stop();
  };
  const SweepReport first = swept(stopping, source.get_token());
  EXPECT_TRUE(first.interrupted);
  EXPECT_EQ(tuned_.size(), 2u);
  EXPECT_EQ(first.items[2].state, SweepItem::State::kPending);
  EXPECT_THAT(to_text(first), HasSubstr("interrupted: the same command goes on from here"));
  const SweepReport second = swept(hooks());
  EXPECT_FALSE(second.interrupted);
  EXPECT_EQ(tuned_.size(), 4u);
  EXPECT_EQ(second.items[0].state, SweepItem::State::kKept);
  EXPECT_EQ(second.items[3].state, SweepItem::State::kTuned);
}

TEST_F(Sweep, AProblemThatWasInterruptedIsStillToBeDone) {
  add_model("a", "  - {operator: scale}\n");
  SweepHooks interrupted = hooks();
  interrupted.tune = [](const SweepProblem&) -> Result<TuneReport> {
    TuneReport report;
    report.interrupted = true;
    return report;
  };
  EXPECT_TRUE(swept(interrupted).interrupted);
  const SweepReport report = swept(hooks());
  EXPECT_EQ(tuned_.size(), 2u);
  EXPECT_EQ(report.items[0].state, SweepItem::State::kTuned);
}

TEST_F(Sweep, WhatIsInTheRangeOfATunedProblemIsCovered) {
  options_.tokens = {16, 9, 8};
  add_model("a", "  - {operator: scale, parameters: {N: 128}}\n");
  add_model("b", "  - {operator: scale, parameters: {N: 256}}\n");
  SweepHooks stopping = hooks();
  std::stop_source source;
  stopping.progress = [&](const SweepProgress& progress) {
    if (progress.done == 3) source.request_stop();  // in the second model's first problem
  };
  const SweepReport first = swept(stopping, source.get_token());
  EXPECT_EQ(first.items[1].state, SweepItem::State::kCovered);
  EXPECT_EQ(first.items[1].covered_by, first.items[0].title);
  EXPECT_EQ(first.items[1].time_us, 0) << "nothing was measured there";
  EXPECT_EQ(first.items[2].state, SweepItem::State::kTuned);
  EXPECT_THAT(to_text(first), HasSubstr("covered " + first.items[1].title + ": in the range of " +
                                        first.items[0].title + "\n"));
  // Ranges are remembered, and are of one operator.
  tuned_.clear();
  const SweepReport second = swept(hooks());
  EXPECT_EQ(second.items[1].state, SweepItem::State::kCovered);
  EXPECT_EQ(second.items[4].state, SweepItem::State::kCovered);
  EXPECT_EQ(second.items[4].covered_by, second.items[3].title);
  EXPECT_THAT(tuned_, ElementsAre(second.items[5].title));
}

TEST_F(Sweep, SaysWhatTheChoiceOfEachShapeLosesAtMost) {
  add_model("a", "  - {operator: scale}\n");
  SweepHooks losing = hooks();
  losing.tune = [tune = losing.tune](const SweepProblem& problem) {
    auto report = tune(problem);
    ProbeReport& probe = report->probes.emplace_back();
    probe.measured = probe.held = true;
    probe.sample.count = 1;
    probe.sample.time_us = 5;
    probe.best = problem.bindings.at("M") == 16 ? 4 : 5;
    return report;
  };
  const SweepReport first = swept(losing);
  EXPECT_EQ(first.items[0].regret, 0);
  EXPECT_EQ(first.items[1].regret, 0.25);
  EXPECT_THAT(to_text(first), HasSubstr("a scale M=16 tp=1: 3.00 us modelled, 0.0 % less time than "
                                        "the baseline, regret 25.0 %, 5 tried"));
  EXPECT_THAT(to_json_text(first), HasSubstr("\"regret\": 0.25"));
  EXPECT_EQ(swept(losing).items[1].regret, 0.25) << "it is in the manifest";
}

TEST_F(Sweep, FailuresDoNotEndItAndAreTriedAgain) {
  add_model("a", "  - {operator: scale}\n");
  failing_ = "a scale M=1 tp=1";
  const SweepReport first = swept(hooks());
  EXPECT_EQ(first.items[0].state, SweepItem::State::kFailed);
  EXPECT_EQ(first.items[0].error, "device_lost: gone");
  EXPECT_EQ(first.items[1].state, SweepItem::State::kTuned);
  failing_.clear();
  const SweepReport second = swept(hooks());
  EXPECT_EQ(second.items[0].state, SweepItem::State::kTuned);
  EXPECT_EQ(second.items[1].state, SweepItem::State::kKept);
}

TEST_F(Sweep, ATornLastLineIsForgottenAndAWrongOneRefused) {
  add_model("a", "  - {operator: scale}\n");
  swept(hooks());
  const auto size = std::filesystem::file_size(folder_ / "manifest");
  std::filesystem::resize_file(folder_ / "manifest", size - 10);
  tuned_.clear();
  EXPECT_EQ(swept(hooks()).items[0].state, SweepItem::State::kKept);
  EXPECT_THAT(tuned_, ElementsAre("a scale M=16 tp=1"));
  tuned_.clear();
  EXPECT_EQ(swept(hooks()).items[1].state, SweepItem::State::kKept);  // the line is whole again
  EXPECT_TRUE(tuned_.empty());

  std::ofstream(folder_ / "manifest", std::ios::app) << "nonsense\n";
  const auto report = run_sweep(planned(), folder_ / "manifest", hooks());
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, ErrorCode::kCorrupt);
  EXPECT_THAT(report.error().message, HasSubstr("manifest:3: expected a JSON object"));

  std::filesystem::resize_file(folder_ / "manifest", 0);
  std::ofstream(folder_ / "manifest", std::ios::app) << "{\"event\": \"started\"}\n";
  EXPECT_THAT(run_sweep(planned(), folder_ / "manifest", hooks()).error().message,
              HasSubstr("manifest:1: this is no line of a sweep's manifest"));
}

TEST_F(Sweep, EveryShippedModelIsAPlan) {
  options_.operators = std::filesystem::path(TILEWRIGHT_SOURCE_DIR) / "configs" / "operators";
  options_.tokens = {1, 16, 256};
  options_.tensor_parallel = {1, 2};
  int models = 0;
  for (const auto& entry : std::filesystem::directory_iterator(
           std::filesystem::path(TILEWRIGHT_SOURCE_DIR) / "configs" / "models")) {
    options_.models = {entry.path()};
    const auto problems = plan_sweep(options_);
    ASSERT_TRUE(problems) << problems.error().message;
    EXPECT_EQ(problems->problems.size() % 3, 0u);
    EXPECT_TRUE(problems->left_out.empty());
    ++models;
  }
  EXPECT_GT(models, 20);

  // Ten heads of keys and values neither divide into four devices nor the other way round.
  options_.tensor_parallel = {4};
  const auto shipped = std::filesystem::path(TILEWRIGHT_SOURCE_DIR) / "configs" / "models";
  options_.models = {shipped / "phi-4.yaml", shipped / "qwen3-8b.yaml"};
  const auto plan = plan_sweep(options_);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_THAT(plan->left_out, ElementsAre(HasSubstr("num_key_value_heads is 10, expected a "
                                                    "multiple or a divisor of tp 4")));
  EXPECT_FALSE(plan->problems.empty());
}

TEST_F(Sweep, LeavesOutModelsThatADegreeDoesNotDivideAndSaysWhy) {
  options_.tensor_parallel = {1, 2};
  options_.tokens = {1};
  add_model("odd",
            "  - {operator: scale, parameters: {N: 4}, tp: {divides: [N]}}\n"
            "  - {operator: scale, parameters: {N: 33}, tp: {divides: [N]}}\n");
  add_model("even", "  - {operator: scale, parameters: {N: 32}, tp: {divides: [N]}}\n");
  const auto plan = plan_sweep(options_);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_THAT(titles(plan->problems), ElementsAre("odd scale M=1 tp=1", "odd scale M=1 tp=1",
                                                  "even scale M=1 tp=1", "even scale M=1 tp=2"));
  EXPECT_THAT(plan->left_out,
              ElementsAre(HasSubstr("odd-model.yaml:4: N of scale is 33, expected a multiple of "
                                    "tp 2")));
}

TEST_F(Sweep, CoversTheProjectionsOfAModelAtEveryDegree) {
  const std::filesystem::path configs = std::filesystem::path(TILEWRIGHT_SOURCE_DIR) / "configs";
  options_.operators = configs / "operators";
  options_.tokens = {16};
  options_.models = {configs / "models" / "llama-3.1-8b.yaml"};
  // Of the weight, [N, K], on one device: columns of the output are divided where heads or features
  // are, rows of the input where a sum over devices follows.
  struct Case {
    int tp;
    std::vector<std::string> weights;
  };
  const Case cases[] = {
      {1, {"qkv_proj 6144x4096", "down_proj 4096x14336", "lm_head 128256x4096"}},
      {4, {"qkv_proj 1536x4096", "o_proj 4096x1024", "down_proj 4096x3584", "lm_head 32064x4096"}},
      {16, {"qkv_proj 512x4096", "o_proj 4096x256", "down_proj 4096x896", "lm_head 8016x4096"}},
  };
  for (const Case& test : cases) {
    options_.tensor_parallel = {test.tp};
    std::vector<std::string> weights;
    for (const SweepProblem& problem : planned()) {
      const std::string start = "llama-3.1-8b linear ";
      if (problem.title.rfind(start, 0) != 0) continue;
      const templates::Operator& op = *problem.op;
      const auto& shape = op.value(op.inputs[1].value).shape;
      weights.push_back(
          problem.title.substr(start.size(), problem.title.find(" M=") - start.size()) + " " +
          std::to_string(*shape[0].value) + "x" + std::to_string(*shape[1].value));
    }
    EXPECT_EQ(weights, test.weights) << "tp " << test.tp;
  }
}

}  // namespace
}  // namespace tilewright::search
