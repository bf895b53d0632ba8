// Whole tunes on the virtual GPU: real families, compiler and measuring process; small shapes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "jit/locations.h"
#include "search/record.h"
#include "search/report.h"
#include "search/space.h"
#include "search/tuner.h"
#include "templates/headers.h"
#include "templates/introspect/description.h"
#include "templates/operator/parse.h"

namespace tilewright::search {
namespace {

using ::testing::Contains;
using ::testing::Pair;

const std::filesystem::path kConfigs = std::filesystem::path(TILEWRIGHT_SOURCE_DIR) / "configs";

class VirtualTune : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto pool = jit::CompilePool::start(templates::device_headers(), {});
    ASSERT_TRUE(pool) << pool.error().message;
    pool_ = pool->release();
    MeasureProcessOptions options;
    options.driver.kind = jit::DriverKind::kVirtual;
    options.driver.virtual_device = "h200";
    options.driver.configs = kConfigs;
    auto measurer = measure_in_process(options);
    ASSERT_TRUE(measurer) << measurer.error().message;
    measurer_ = measurer->release();
  }
  static void TearDownTestSuite() {
    delete measurer_;
    delete pool_;
    measurer_ = nullptr;
    pool_ = nullptr;
  }
  void SetUp() override { ASSERT_TRUE(pool_ != nullptr && measurer_ != nullptr); }

  static TuneRequest request(const std::string& name, const templates::Overrides& overrides,
                             std::int64_t m, int evaluations) {
    auto op = templates::load_operator(kConfigs / "operators" / (name + ".yaml"), overrides);
    EXPECT_TRUE(op) << op.error().message;
    TuneRequest request;
    request.op = std::make_shared<const templates::Operator>(*op);
    request.bindings = {{"M", m}};
    request.budget.evaluations = evaluations;
    request.seed = 7;
    request.spaces = kConfigs / "spaces";
    request.generator = templates::generator_digest(templates::device_headers());
    return request;
  }
  static TuneReport tuned(const TuneRequest& request, const TuneHooks& hooks = {}) {
    auto report = tune(request, *pool_, *measurer_, hooks);
    EXPECT_TRUE(report) << report.error().message << report.error().detail;
    return report ? *report : TuneReport{};
  }

  static jit::CompilePool* pool_;
  static Measurer* measurer_;
};
jit::CompilePool* VirtualTune::pool_ = nullptr;
Measurer* VirtualTune::measurer_ = nullptr;

std::string shown(const TuneReport& report) {
  if (report.choice < 0) return "none";
  std::string text;
  for (const GroupReport& group : report.partitions[static_cast<std::size_t>(report.choice)].groups)
    text += group.best.family + " " + templates::to_string(group.best.config) + "\n";
  return text;
}

TEST_F(VirtualTune, EveryShippedOperatorEndsWithAVerifiedPlanThatIsNotWorseThanTheBaseline) {
  struct Case {
    const char* name;
    templates::Overrides overrides;
    std::int64_t m;
  };
  const Case cases[] = {
      {"add_rmsnorm", {{"N", "256"}}, 5},
      {"attn_out", {{"N", "64"}, {"K", "96"}}, 17},
      {"bias_gelu", {{"N", "130"}}, 3},
      {"layernorm", {{"N", "100"}}, 7},
      {"mlp_up", {{"N", "96"}, {"K", "64"}}, 16},
      {"pointwise_chain", {{"N", "257"}}, 9},
      {"softmax", {{"N", "1000"}}, 4},
      {"swiglu", {{"N", "64"}, {"K", "128"}}, 16},
  };
  for (const Case& test : cases) {
    const TuneReport report = tuned(request(test.name, test.overrides, test.m, 8));
    ASSERT_GE(report.choice, 0) << to_text(report);
    EXPECT_TRUE(report.choice_verified) << to_text(report);
    EXPECT_TRUE(report.failed.empty()) << to_text(report);
    EXPECT_LE(report.choice_sample.time_us, report.baseline.time_us) << to_text(report);
    EXPECT_GT(report.baseline.time_us, 0);
    EXPECT_TRUE(report.choice_sample.modelled);
    EXPECT_FALSE(report.narrow_failure) << to_text(report);
    EXPECT_TRUE(jit::check(report.plan));
    EXPECT_TRUE(to_entry(report, request(test.name, test.overrides, test.m, 8)));
  }
}

TEST_F(VirtualTune, TheSameSeedChoosesTheSameAndTheJournalSparesTheRest) {
  const TuneRequest swiglu = request("swiglu", {{"N", "64"}, {"K", "128"}}, 16, 10);
  const auto store = cache::memory_store();
  const TuneReport first = tuned(swiglu, journal_in(*store, swiglu, measurer_->device()));
  const TuneReport second = tuned(swiglu);
  EXPECT_EQ(shown(first), shown(second));
  EXPECT_EQ(first.plan, second.plan);
  EXPECT_EQ(first.choice_sample.time_us, second.choice_sample.time_us);
  const TuneReport third = tuned(swiglu, journal_in(*store, swiglu, measurer_->device()));
  EXPECT_EQ(first.plan, third.plan);
  for (const CandidateReport& candidate : third.candidates) EXPECT_TRUE(candidate.recalled);
}

TEST_F(VirtualTune, TunablesOfTemplatesAndOfSpacesAreTheSame) {
  for (const templates::Family* family : templates::families()) {
    const auto text = pool_->describe(std::string(family->header()));
    ASSERT_TRUE(text) << text.error().message;
    const auto description = templates::description_from_json(*text);
    ASSERT_TRUE(description) << description.error().message;
    std::vector<std::string> names;
    for (const auto& tunable : description->tunables) names.push_back(tunable.name);
    const auto space = Space::load(kConfigs / "spaces" / (std::string(family->name()) + ".yaml"));
    ASSERT_TRUE(space) << space.error().message;
    const auto checked = space->check_tunables(names);
    EXPECT_TRUE(checked) << checked.error().message;
  }
}

/// A family of which some configs are made wrongly, by what `spoil` does to what was generated.
class Spoiled : public templates::Family {
 public:
  explicit Spoiled(const templates::Family& real) : real_(real) {}
  std::string_view name() const override { return real_.name(); }
  std::string_view header() const override { return real_.header(); }
  Result<void> accepts(const templates::Operator& group) const override {
    return real_.accepts(group);
  }
  std::map<std::string, std::int64_t> variables(
      const templates::Operator& group, const templates::Bindings& bindings) const override {
    return real_.variables(group, bindings);
  }
  templates::Config safe_config(const templates::Operator& group,
                                const templates::Bindings& bindings) const override {
    return real_.safe_config(group, bindings);
  }
  Result<templates::Generated> generate(const templates::Operator& group,
                                        const templates::Config& config,
                                        const templates::Facts& facts) const override {
    TILEWRIGHT_ASSIGN_OR_RETURN(templates::Generated made, real_.generate(group, config, facts));
    if (config == safe_config(group, {})) return made;
    jit::PlanLaunch& launch = made.plan.launches.front();
    switch (config.at("items") * 10 + config.at("rows_per_thread")) {
      case 11:  // the second kernel never ends
        made.source.text +=
            "\nextern \"C\" __global__ void spin(volatile int* p) {\n"
            "  for (int i = 1; i != 0; i = i % 1000 + 1) {}\n  *p = 1;\n}\n";
        launch.kernel = "spin";
        launch.arguments.resize(1);
        break;
      case 21:  // writes to an address that nobody owns
        for (jit::PlanArgument& argument : launch.arguments)
          if (argument.kind == jit::ArgumentKind::kTensor)
            argument = {jit::ArgumentKind::kInt64, "", "4096"};
        break;
      case 12:
        made.source.text += "\n#error planted\n";
        break;
      case 22:  // the first input is read in place of the second
        for (jit::PlanArgument& argument : launch.arguments)
          if (argument.name == "residual") argument.name = "x";
        break;
      default:
        break;
    }
    return made;
  }

 private:
  const templates::Family& real_;
};

TEST_F(VirtualTune, CandidatesThatHangFaultMiscomputeOrDoNotCompileCostOneCandidateEach) {
  TuneRequest add = request("add_rmsnorm", {{"N", "256"}}, 8, 40);
  const Spoiled pointwise(*templates::find_family("pointwise"));
  add.families = {&pointwise, templates::find_family("row_reduction")};
  // Of the sum alone: the norm's group is not what is spoiled.
  auto op = templates::parse_operator(R"(operator: sum
dimensions: [M]
inputs:
  x: {dtype: bf16, shape: [M, 256]}
  residual: {dtype: bf16, shape: [M, 256]}
body:
  - h = add(x, residual)
outputs:
  h: {dtype: bf16}
)",
                                      "sum.yaml");
  ASSERT_TRUE(op) << op.error().message;
  add.op = std::make_shared<const templates::Operator>(*op);
  add.measure.deadline_s = 1;
  const auto store = cache::memory_store();
  const TuneReport report = tuned(add, journal_in(*store, add, measurer_->device()));
  EXPECT_EQ(report.tried, 40);
  EXPECT_THAT(report.failed, Contains(Pair("hang", ::testing::Gt(0)))) << to_text(report);
  EXPECT_THAT(report.failed, Contains(Pair("fault", ::testing::Gt(0)))) << to_text(report);
  EXPECT_THAT(report.failed, Contains(Pair("compile", ::testing::Gt(0)))) << to_text(report);
  EXPECT_THAT(report.failed, Contains(Pair("wrong_result", ::testing::Gt(0)))) << to_text(report);
  EXPECT_EQ(report.failed.size(), 4u) << to_text(report);
  ASSERT_GE(report.choice, 0);
  EXPECT_TRUE(report.choice_verified);
}

}  // namespace
}  // namespace tilewright::search
