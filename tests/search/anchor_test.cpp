// Batch-invariant operators: later tunes have the bits of the plan that the record begins with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "fakes.h"
#include "samples.h"
#include "search/journal.h"
#include "search/record.h"
#include "templates/operator/parse.h"

namespace tilewright::search {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kGate[] = R"(operator: gate
numerics: {batch_invariant: true}
dimensions: [M]
inputs:
  x: {dtype: bf16, shape: [M, 64]}
  w: {dtype: bf16, shape: [32, 64]}
body:
  - h = matmul(x, w, transpose_b=true)
  - y = silu(h)
outputs:
  y: {dtype: bf16}
)";

constexpr char kSpace[] = R"(tunables:
  width: [1, 2, 4, 8]
  depth: [1, 2, 3]
)";

/// The fakes' order of sums is their width.
std::vector<std::int64_t> widths(const jit::Plan& plan,
                                 const std::vector<std::shared_ptr<const jit::Image>>& images) {
  std::vector<std::int64_t> result;
  for (const jit::PlanLaunch& launch : plan.launches)
    for (const auto& image : images)
      if (image->digest == launch.image) result.push_back(fakes::Kernel::of(*image).width);
  return result;
}

std::optional<Error> other_bits(const Trial& trial) {
  if (!trial.anchor ||
      widths(trial.plan, trial.images) == widths(trial.anchor->plan, trial.anchor->images))
    return std::nullopt;
  return Error{ErrorCode::kUnsupported, "gives other bits", ""};
}

class AnchoredTune : public ::testing::Test {
 protected:
  AnchoredTune() {
    spaces_ = std::filesystem::path(::testing::TempDir()) /
              ("anchor_test_" + std::to_string(::getpid())) / "spaces";
    std::filesystem::create_directories(spaces_);
    for (const templates::Family* family : fakes::families())
      std::ofstream(spaces_ / (std::string(family->name()) + ".yaml"))
          << "family: " << family->name() << "\n"
          << kSpace;
    request_.op =
        std::make_shared<const templates::Operator>(*templates::parse_operator(kGate, "gate.yaml"));
    request_.bindings = {{"M", 512}};
    request_.families = fakes::families();
    request_.spaces = spaces_;
    request_.strategy = "exhaustive";
    request_.budget.evaluations = 200;
    request_.anchor = {{"gemm", {{"width", 2}, {"depth", 2}}, {0}},
                       {"pointwise", {{"width", 4}, {"depth", 3}}, {1}}};
    // Wider is faster, deeper slower, fused fastest.
    measurer_.time = [](const fakes::Kernel& kernel) {
      return 5 + 100 / static_cast<double>(kernel.width) + static_cast<double>(kernel.depth);
    };
    measurer_.failure = [](const Trial& trial, const std::vector<fakes::Kernel>&) {
      return other_bits(trial);
    };
  }
  ~AnchoredTune() override { std::filesystem::remove_all(spaces_.parent_path()); }

  TuneReport tuned() {
    auto report = tune(request_, pool_, measurer_);
    EXPECT_TRUE(report) << report.error().message;
    return report ? *report : TuneReport{};
  }

  static std::vector<std::string> groups(const PartitionReport& partition) {
    std::vector<std::string> texts;
    for (const GroupReport& group : partition.groups)
      texts.push_back(to_text({group.best.family, group.best.config, group.indices}));
    return texts;
  }

  std::filesystem::path spaces_;
  TuneRequest request_;
  fakes::Pool pool_;
  fakes::Measurer measurer_;
};

TEST_F(AnchoredTune, ChoosesTheBestOfWhatHasTheAnchorsPartitionAndBits) {
  const TuneReport report = tuned();
  ASSERT_GE(report.choice, 0);
  EXPECT_TRUE(report.choice_verified);
  EXPECT_THAT(groups(report.partitions[static_cast<std::size_t>(report.choice)]),
              ElementsAre("gemm depth=1 width=2 of 0", "pointwise depth=1 width=4 of 1"));
  EXPECT_TRUE(report.better_beyond_noise);
  EXPECT_GT(report.failed.at("unsupported"), 0);
  for (const CandidateReport& candidate : report.candidates)
    EXPECT_EQ(candidate.failure.has_value(),
              candidate.config.at("width") != (candidate.family == "gemm" ? 2 : 4))
        << candidate.family << templates::to_string(candidate.config);

  request_.anchor.clear();
  const TuneReport free = tuned();
  EXPECT_THAT(groups(free.partitions[static_cast<std::size_t>(free.choice)]),
              ElementsAre("gemm depth=1 width=8 of 0+1"));
}

TEST_F(AnchoredTune, BeginsWithTheAnchorAsItsBaseline) {
  request_.budget.evaluations = 2;
  const TuneReport report = tuned();
  const PartitionReport& baseline =
      report.partitions[static_cast<std::size_t>(report.baseline_partition)];
  EXPECT_EQ(report.baseline_name, "the record's first plan");
  EXPECT_THAT(groups(baseline),
              ElementsAre("gemm depth=2 width=2 of 0", "pointwise depth=3 width=4 of 1"));
}

TEST_F(AnchoredTune, AnswersWithTheAnchorWhereNothingElseHasItsBits) {
  measurer_.failure = [](const Trial& trial,
                         const std::vector<fakes::Kernel>&) -> std::optional<Error> {
    if (!trial.anchor) return std::nullopt;
    return Error{ErrorCode::kUnsupported, "gives other bits", ""};
  };
  const TuneReport report = tuned();
  ASSERT_GE(report.choice, 0);
  EXPECT_TRUE(report.choice_verified);
  EXPECT_THAT(groups(report.partitions[static_cast<std::size_t>(report.choice)]),
              ElementsAre("gemm depth=2 width=2 of 0", "pointwise depth=3 width=4 of 1"));
  EXPECT_FALSE(report.narrow_failure);
}

TEST_F(AnchoredTune, EveryPlanOfItIsComparedWithTheAnchorForTheSameTensors) {
  tuned();
  std::size_t whole = 0, unaligned = 0;
  for (const Trial& trial : measurer_.trials) {
    if (!trial.anchor) continue;
    EXPECT_EQ(trial.anchor->plan.launches.size(), trial.plan.launches.size());
    EXPECT_EQ(trial.anchor->plan.legal.empty(), trial.plan.legal.empty());
    whole += trial.plan.launches.size() == 2;
    unaligned += !trial.displacement.empty();
  }
  EXPECT_GT(whole, 0u);
  EXPECT_GT(unaligned, 0u);
}

TEST_F(AnchoredTune, FailuresOfOtherBitsAreThoseOfThisAnchorAlone) {
  const jit::DeviceInfo device;
  const Digest group = digest_of("g");
  std::set<std::string> ids;
  const auto add = [&] {
    return ids.insert(trial_id(request_, device, group, "gemm", {{"width", 1}})).second;
  };
  EXPECT_TRUE(add());
  EXPECT_FALSE(add());
  request_.anchor[0].config["width"] = 4;
  EXPECT_TRUE(add());
  request_.anchor.clear();
  EXPECT_TRUE(add());
}

TEST_F(AnchoredTune, RefusesAnAnchorThatIsNoPartOfTheOperator) {
  request_.anchor[0].statements = {7};
  const auto report = tune(request_, pool_, measurer_);
  ASSERT_FALSE(report);
  EXPECT_THAT(report.error().message, HasSubstr("is no group of the operator"));
}

class AnchoredRecord : public ::testing::Test {
 protected:
  AnchoredRecord() {
    templates::Operator op = *samples::two_step_operator();
    op.numerics.batch_invariant = true;
    request_.op = std::make_shared<const templates::Operator>(std::move(op));
    request_.generator = digest_of("templates");
    request_.nvrtc_version = "13.0";
  }

  /// As a tune at M that chose `width`.
  Result<void> stores(std::int64_t m, std::int64_t width) {
    TuneReport report = samples::report();
    GroupReport& group = report.partitions[0].groups[0];
    group.indices = {0, 1};
    group.best.config["width"] = width;
    report.plan.chosen_for = report.narrow.chosen_for = {{"M", {m, m}}};
    report.nvrtc_version = request_.nvrtc_version;
    request_.bindings = {{"M", m}};
    return store_report(*store_, report, request_);
  }
  /// As a tune at M begins.
  std::vector<std::string> anchor_at(std::int64_t m) {
    request_.bindings = {{"M", m}};
    const auto anchor = anchor_of(*store_, request_, samples::report().device);
    EXPECT_TRUE(anchor) << anchor.error().message;
    request_.anchor = anchor ? *anchor : std::vector<GroupChoice>();
    std::vector<std::string> texts;
    for (const GroupChoice& choice : request_.anchor) texts.push_back(to_text(choice));
    return texts;
  }
  /// "16: 8, 512: 4": sizes and widths.
  std::string shown() const {
    const auto record = *store_->get(cache::Key::of(*request_.op, samples::report().device));
    std::string text;
    for (const cache::Entry& entry : record->entries) {
      if (!text.empty()) text += ", ";
      text += std::to_string(entry.evidence.sizes.at("M")) + ": " +
              std::to_string(parse_group(entry.groups.at(0))->config.at("width"));
    }
    return text;
  }

  std::unique_ptr<cache::Store> store_ = cache::memory_store();
  TuneRequest request_;
};

TEST_F(AnchoredRecord, GivesItsFirstPlanToLaterTunes) {
  EXPECT_THAT(anchor_at(16), IsEmpty());
  ASSERT_TRUE(stores(16, 8));
  EXPECT_THAT(anchor_at(512), ElementsAre("pointwise threads=256 width=8 of 0+1"));
  ASSERT_TRUE(stores(512, 4));
  EXPECT_THAT(anchor_at(16), ElementsAre("pointwise threads=256 width=8 of 0+1"));
  EXPECT_EQ(shown(), "16: 8, 512: 4");
}

TEST_F(AnchoredRecord, GivesNoneToOperatorsThatPromiseNothing) {
  request_.op = samples::two_step_operator();
  ASSERT_TRUE(stores(16, 8));
  EXPECT_THAT(anchor_at(512), IsEmpty());
  EXPECT_TRUE(stores(512, 4));
}

TEST_F(AnchoredRecord, GivesNoneOfAnotherGeneratorOrCompiler) {
  ASSERT_TRUE(stores(16, 8));
  ASSERT_THAT(anchor_at(32), ElementsAre(HasSubstr("width=8")));
  ASSERT_TRUE(stores(32, 2));
  request_.nvrtc_version = "13.1";
  EXPECT_THAT(anchor_at(512), IsEmpty());
  ASSERT_TRUE(stores(512, 4));
  EXPECT_EQ(shown(), "512: 4") << "plans of the old compiler have no bits in common with new ones";
  request_.generator = digest_of("mended templates");
  EXPECT_THAT(anchor_at(16), IsEmpty());
}

TEST_F(AnchoredRecord, TunedFreshAtItsFirstSizesBeginsAnew) {
  ASSERT_TRUE(stores(16, 8));
  ASSERT_THAT(anchor_at(512), ElementsAre(HasSubstr("width=8")));
  ASSERT_TRUE(stores(512, 4));
  request_.replace = true;
  EXPECT_THAT(anchor_at(512), ElementsAre(HasSubstr("width=8"))) << "of other sizes it stays";
  ASSERT_TRUE(stores(512, 1));
  EXPECT_THAT(anchor_at(16), IsEmpty());
  ASSERT_TRUE(stores(16, 8));
  EXPECT_EQ(shown(), "16: 8, 512: 1") << "the same configs have the same bits";
  ASSERT_TRUE(stores(16, 2));
  EXPECT_EQ(shown(), "16: 2");
}

TEST_F(AnchoredRecord, RefusesWhatWasTunedWithoutItsFirstPlan) {
  ASSERT_THAT(anchor_at(512), IsEmpty());
  ASSERT_TRUE(stores(16, 8));  // meanwhile
  const auto refused = stores(512, 4);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kBusy);
  EXPECT_THAT(refused.error().message, HasSubstr("tune again"));
  EXPECT_EQ(shown(), "16: 8");
}

}  // namespace
}  // namespace tilewright::search
