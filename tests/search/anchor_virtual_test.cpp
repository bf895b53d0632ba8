// Rows of batch-invariant operators have the same bits by the plans for 16 rows and for 512, whole
// tunes on the virtual GPU. Bits are compared here, and not by the verifier.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "jit/launch.h"
#include "search/record.h"
#include "search/report.h"
#include "templates/headers.h"
#include "templates/operator/parse.h"

namespace tilewright::search {
namespace {

const std::filesystem::path kConfigs = std::filesystem::path(TILEWRIGHT_SOURCE_DIR) / "configs";

constexpr char kSoftmax[] = R"(operator: softmax
numerics: {batch_invariant: true}
dimensions: [M]
inputs:
  x: {dtype: f32, shape: [M, 512]}
body:
  - y = softmax(x)
outputs:
  y: {dtype: f32}
)";

// Deep and narrow: at few rows its depth is split, at many it is not.
constexpr char kLinear[] = R"(operator: linear
numerics: {batch_invariant: true}
dimensions: [M]
inputs:
  x: {dtype: f32, shape: [M, 512]}
  w: {dtype: f32, shape: [32, 512]}
body:
  - y = matmul(x, w, transpose_b=true)
outputs:
  y: {dtype: f32}
)";

constexpr std::int64_t kFew = 16, kMany = 512;

class TwoPlans : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto pool = jit::CompilePool::start(templates::device_headers(), {});
    ASSERT_TRUE(pool) << pool.error().message;
    pool_ = std::move(*pool);
    jit::DriverOptions options;
    options.kind = jit::DriverKind::kVirtual;
    options.virtual_device = "h200";
    options.configs = kConfigs;
    auto driver = jit::Driver::open(options);
    ASSERT_TRUE(driver) << driver.error().message;
    auto context = jit::Context::create(*driver, 0);
    ASSERT_TRUE(context) << context.error().message;
    context_ = std::make_shared<jit::Context>(std::move(*context));
    MeasureProcessOptions process;
    process.driver = options;
    auto measurer = measure_in_process(process);
    ASSERT_TRUE(measurer) << measurer.error().message;
    measurer_ = std::move(*measurer);
  }
  static void TearDownTestSuite() {
    measurer_.reset();
    context_.reset();
    pool_.reset();
  }
  void SetUp() override { ASSERT_TRUE(pool_ && measurer_); }

  static TuneReport tuned(const char* text, std::int64_t m, std::uint64_t seed,
                          cache::Store* store) {
    TuneRequest request;
    request.op = std::make_shared<const templates::Operator>(
        *templates::parse_operator(text, "operator.yaml"));
    request.bindings = {{"M", m}};
    request.budget.evaluations = 10;
    request.seed = seed;
    request.spaces = kConfigs / "spaces";
    request.generator = templates::generator_digest(templates::device_headers());
    request.nvrtc_version = pool_->nvrtc_version();
    if (store) {
      auto anchor = anchor_of(*store, request, measurer_->device());
      EXPECT_TRUE(anchor) << anchor.error().message;
      if (anchor) request.anchor = std::move(*anchor);
    }
    auto report = tune(request, *pool_, *measurer_);
    EXPECT_TRUE(report) << report.error().message << report.error().detail;
    if (!report) return {};
    EXPECT_GE(report->choice, 0) << to_text(*report);
    EXPECT_TRUE(report->choice_verified) << to_text(*report);
    if (store) {
      EXPECT_TRUE(store_report(*store, *report, request));
    }
    return std::move(*report);
  }

  /// y of the first kFew rows of M.
  static std::vector<float> rows(const TuneReport& report, std::int64_t m) {
    const auto loaded = jit::LoadedPlan::load(*context_, report.plan,
                                              [&](const Digest& digest) -> Result<jit::Image> {
                                                for (const auto& image : report.images)
                                                  if (image->digest == digest) return *image;
                                                return fail(ErrorCode::kNotFound, digest.hex());
                                              });
    EXPECT_TRUE(loaded) << loaded.error().message;
    std::vector<jit::DeviceBuffer> buffers;
    std::vector<jit::TensorArgument> arguments;
    std::int64_t columns = 0;
    for (const jit::PlanTensor* tensor : loaded->arguments()) {
      jit::TensorArgument& argument = arguments.emplace_back();
      std::int64_t count = 1;
      for (const std::string& extent : tensor->shape) {
        argument.shape.push_back(extent == "M" ? m : std::stoll(extent));
        count *= argument.shape.back();
      }
      // The first values of a longer tensor are those of a shorter one.
      std::mt19937 numbers(7);
      std::vector<float> values;
      for (std::int64_t i = 0; i < count; ++i)
        values.push_back(static_cast<float>(numbers()) / 4294967296.0F - 0.5F);
      buffers.push_back(*jit::DeviceBuffer::allocate(*context_, values.size() * 4));
      EXPECT_TRUE(buffers.back().upload(values.data(), values.size() * 4));
      argument.address = buffers.back().address();
      columns = argument.shape.back();
    }
    EXPECT_TRUE(context_->activate());
    const auto prepared = loaded->prepare(arguments);
    EXPECT_TRUE(prepared) << prepared.error().message;
    auto workspace = jit::DeviceBuffer::allocate(*context_, prepared->workspace_bytes());
    auto stream = jit::Stream::create(*context_);
    EXPECT_TRUE(prepared->launch(workspace->address(), *stream));
    EXPECT_TRUE(context_->synchronize());
    std::vector<float> result(static_cast<std::size_t>(kFew * columns));
    EXPECT_TRUE(buffers.back().download(result.data(), result.size() * 4));
    return result;
  }

  static bool same_bits(const TuneReport& few, const TuneReport& many) {
    const std::vector<float> a = rows(few, kFew), b = rows(many, kMany);
    return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  }

  static std::unique_ptr<jit::CompilePool> pool_;
  static std::shared_ptr<jit::Context> context_;
  static std::unique_ptr<Measurer> measurer_;
};
std::unique_ptr<jit::CompilePool> TwoPlans::pool_;
std::shared_ptr<jit::Context> TwoPlans::context_;
std::unique_ptr<Measurer> TwoPlans::measurer_;

TEST_F(TwoPlans, OfOneRecordGiveRowsTheSameBits) {
  for (const char* text : {kSoftmax, kLinear})
    for (const std::uint64_t seed : {1, 2}) {
      const auto store = cache::memory_store();
      const TuneReport few = tuned(text, kFew, seed, store.get());
      const TuneReport many = tuned(text, kMany, seed, store.get());
      EXPECT_TRUE(same_bits(few, many)) << to_text(few) << to_text(many);
      EXPECT_EQ(many.baseline_name, "the record's first plan");
    }
}

/// That the test above can fail, and what the rule is for.
TEST_F(TwoPlans, TunedApartGiveSomeRowsOtherBits) {
  for (const char* text : {kSoftmax, kLinear}) {
    int other = 0;
    for (const std::uint64_t seed : {1, 2})
      other += !same_bits(tuned(text, kFew, seed, nullptr), tuned(text, kMany, seed, nullptr));
    EXPECT_GT(other, 0) << text;
  }
}

}  // namespace
}  // namespace tilewright::search
