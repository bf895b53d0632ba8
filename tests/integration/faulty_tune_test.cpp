// A tune a fifth of whose candidates crash, hang, fault, lie, run out of memory or jump about, on a
// device as noisy as a real one: the winner is as good as without all that, every fault has its type,
// and it takes bounded time and memory.
//
// TILEWRIGHT_CANDIDATES=1000 makes it longer than the 200 of the test.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>

#include "jit/virtual_gpu/driver/faults.h"
#include "search/tuner.h"
#include "templates/families/family.h"
#include "templates/headers.h"
#include "templates/operator/parse.h"

namespace tilewright::search {
namespace {

using Clock = std::chrono::steady_clock;

const std::filesystem::path kConfigs = std::filesystem::path(TILEWRIGHT_SOURCE_DIR) / "configs";

constexpr char kOperator[] = R"(operator: product
parameters: {N: 96, K: 64}
dimensions: [M]
inputs:
  x: {dtype: f32, shape: [M, K]}
  w: {dtype: f32, shape: [N, K]}
body:
  - y = matmul(x, w, transpose_b=true)
outputs:
  y: {dtype: f32}
)";

// Ends of the parts of [0, 1) that the faults take, in the order of the rules below.
struct Part {
  double end;
  const char* rule;
  std::optional<ErrorCode> failure;
};
const Part kParts[] = {
    {0.04, "fault", ErrorCode::kFault},         {0.07, "hang", ErrorCode::kHang},
    {0.11, "corrupt", ErrorCode::kWrongResult}, {0.14, "out-of-memory", ErrorCode::kDeviceMemory},
    {0.17, "crash", ErrorCode::kCrash},         {0.20, "noise 0.4", std::nullopt},
};

std::string rules() {
  std::string text = "noise 0.02; drift 0.9 0.005; outliers 0.01 3; throttle 300 0.1 0.6; seed 3";
  double begin = 0;
  for (const Part& part : kParts) {
    text += "; modules " + std::to_string(part.end - begin) + " " + part.rule;
    begin = part.end;
  }
  return text;
}

std::optional<ErrorCode> expected_failure(double place) {
  for (const Part& part : kParts)
    if (place < part.end) return part.failure;
  return std::nullopt;
}

/// Passes everything on, and notes where the faults would find each trial's module.
class Noting final : public Measurer {
 public:
  explicit Noting(std::unique_ptr<Measurer> measurer) : measurer_(std::move(measurer)) {}
  const jit::DeviceInfo& device() const override { return measurer_->device(); }
  Result<TrialResult> run(const Trial& trial) override {
    places[trial.images.front()->digest] = vgpu::Faults::place_of(trial.images.front()->ptx);
    return measurer_->run(trial);
  }
  Result<std::vector<TrialResult>> run_interleaved(std::span<const Trial> trials,
                                                   int rounds) override {
    return measurer_->run_interleaved(trials, rounds);
  }
  void watch(std::stop_token stop) override { measurer_->watch(std::move(stop)); }

  std::map<Digest, double> places;

 private:
  std::unique_ptr<Measurer> measurer_;
};

std::unique_ptr<Noting> start() {
  MeasureProcessOptions options;
  options.driver.kind = jit::DriverKind::kVirtual;
  options.driver.configs = kConfigs;
  auto measurer = measure_in_process(options);
  if (!measurer) {
    ADD_FAILURE() << measurer.error().message;
    return nullptr;
  }
  return std::make_unique<Noting>(std::move(*measurer));
}

int candidates() {
  const char* given = std::getenv("TILEWRIGHT_CANDIDATES");
  return given ? std::atoi(given) : 200;
}

TuneRequest request() {
  TuneRequest request;
  request.op = std::make_shared<const templates::Operator>(
      templates::parse_operator(kOperator, "product").value());
  request.bindings = {{"M", 32}};
  request.budget.evaluations = candidates();
  request.seed = 5;
  request.spaces = kConfigs / "spaces";
  request.families = {templates::find_family("simt_gemm")};
  request.generator = templates::generator_digest(templates::device_headers());
  return request;
}

double child_peak_mib() {
  rusage usage{};
  ::getrusage(RUSAGE_CHILDREN, &usage);
  return double(usage.ru_maxrss) / 1024;
}

std::string shown(const CandidateReport& candidate) {
  return templates::to_string(candidate.config) +
         (candidate.failure ? ": " + candidate.failure->message : "");
}

TEST(FaultyTune, EndsWithTheRightWinnerAndTypesEveryFault) {
  ::unsetenv("TILEWRIGHT_VGPU_FAULTS");
  auto pool = jit::CompilePool::start(templates::device_headers(), {});
  ASSERT_TRUE(pool) << pool.error().message;

  const auto begin = Clock::now();
  auto healthy = start();
  ASSERT_TRUE(healthy);
  const auto truth = tune(request(), **pool, *healthy);
  ASSERT_TRUE(truth) << truth.error().message;
  ASSERT_EQ(truth->tried, candidates());
  ASSERT_TRUE(truth->failed.empty());
  const std::map<Digest, double> places = healthy->places;
  healthy.reset();
  const double healthy_s = std::chrono::duration<double>(Clock::now() - begin).count();

  // What is right: the best of those that no fault meets.
  std::map<templates::Config, double> true_us;
  double best_us = std::numeric_limits<double>::infinity();
  int faulty = 0;
  for (const CandidateReport& candidate : truth->candidates) {
    true_us[candidate.config] = candidate.sample.time_us;
    const double place = places.at(candidate.images.front());
    faulty += place < kParts[std::size(kParts) - 1].end;
    if (!expected_failure(place)) best_us = std::min(best_us, candidate.sample.time_us);
  }
  EXPECT_NEAR(faulty, 0.2 * candidates(), 0.08 * candidates());

  ::setenv("TILEWRIGHT_VGPU_FAULTS", rules().c_str(), 1);
  const auto faulty_begin = Clock::now();
  auto measurer = start();
  ASSERT_TRUE(measurer);
  const auto report = tune(request(), **pool, *measurer);
  ::unsetenv("TILEWRIGHT_VGPU_FAULTS");
  ASSERT_TRUE(report) << report.error().message << report.error().detail;
  measurer.reset();
  const double faulty_s = std::chrono::duration<double>(Clock::now() - faulty_begin).count();

  EXPECT_EQ(report->tried, candidates());
  std::map<std::string, int> typed;
  for (const CandidateReport& candidate : report->candidates) {
    const auto expected = expected_failure(places.at(candidate.images.front()));
    const auto seen =
        candidate.failure ? std::optional(candidate.failure->code) : std::optional<ErrorCode>();
    EXPECT_EQ(seen, expected) << shown(candidate);
    ++typed[candidate.failure ? std::string(to_string(candidate.failure->code)) : "sound"];
  }
  for (const auto& [type, count] : typed) RecordProperty(type, count);

  ASSERT_GE(report->choice, 0);
  EXPECT_TRUE(report->choice_verified);
  const auto& groups = report->partitions[static_cast<std::size_t>(report->choice)].groups;
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_LE(true_us.at(groups.front().best.config), 1.03 * best_us) << shown(groups.front().best);

  // A hang takes a deadline, which is short once sound trials have been seen; nothing else takes
  // longer than it did.
  const double hangs = typed["hang"];
  RecordProperty("healthy_ms", static_cast<int>(1000 * healthy_s));
  RecordProperty("faulty_ms", static_cast<int>(1000 * faulty_s));
  EXPECT_LE(faulty_s, 4 * healthy_s + 25 * (hangs > 8 ? 8 : hangs) + 6 * hangs);
  RecordProperty("peak_mib", static_cast<int>(child_peak_mib()));
  EXPECT_LT(child_peak_mib(), 1024);
}

}  // namespace
}  // namespace tilewright::search
