// Kernels of every family under full checks, in the usual order of their warps and in two others: right,
// and nothing to report.
#include <gtest/gtest.h>

#include <string>

#include "tests/integration/kernel_bench.h"

namespace tilewright::integration {
namespace {

using templates::Bindings;
using templates::Config;
using templates::Facts;
using templates::Operator;

struct CheckedCase {
  const char* name;
  std::vector<int> statements;  ///< empty: the whole operator
  const char* family;
  templates::Overrides overrides;
  Bindings bindings;
  std::vector<Config> configs;
};

void PrintTo(const CheckedCase& example, std::ostream* to) { *to << example.name; }

Config gemm(std::array<int, 3> block, std::array<int, 2> thread, int stages, int width, int split) {
  return {{"block_m", block[0]},   {"block_n", block[1]},   {"block_k", block[2]},
          {"thread_m", thread[0]}, {"thread_n", thread[1]}, {"stages", stages},
          {"width", width},        {"split_k", split},      {"group_m", 2},
          {"blocks_per_sm", 1}};
}

Config rows(int width, int threads, int rows, int held) {
  return {{"width", width}, {"threads_per_row", threads}, {"rows_per_block", rows}, {"held", held}};
}

Config points(int width, int items, int rows, int x, int y) {
  return {{"width", width},
          {"items", items},
          {"rows_per_thread", rows},
          {"threads_x", x},
          {"threads_y", y}};
}

// Each at a ragged size; stages with asynchronous copies, split sums, reductions over several warps.
const CheckedCase kCases[] = {
    {"mlp_up",
     {},
     "simt_gemm",
     {{"T", "bf16"}, {"N", "72"}, {"K", "136"}},
     {{"M", 67}},
     {gemm({64, 64, 16}, {4, 4}, 1, 4, 1), gemm({32, 64, 32}, {4, 8}, 2, 8, 1),
      gemm({16, 64, 32}, {2, 8}, 3, 8, 2), gemm({16, 32, 8}, {1, 2}, 4, 4, 8)}},
    {"swiglu",
     {},
     "simt_gemm",
     {{"T", "f32"}, {"N", "40"}, {"K", "100"}},
     {{"M", 33}},
     {gemm({32, 32, 16}, {2, 4}, 4, 4, 1), gemm({64, 32, 8}, {8, 4}, 2, 2, 3)}},
    {"transposed_batches",
     {},
     "simt_gemm",
     {{"T", "f16"}, {"N", "33"}, {"K", "61"}},
     {{"B", 3}, {"M", 31}},
     {gemm({64, 64, 16}, {4, 4}, 1, 1, 1), gemm({16, 32, 8}, {1, 2}, 2, 1, 3)}},
    {"attn_out",
     {2},
     "row_reduction",
     {{"T", "bf16"}, {"N", "768"}},
     {{"M", 5}},
     {rows(8, 256, 1, 1), rows(4, 128, 1, 0)}},
    {"layernorm",
     {},
     "row_reduction",
     {{"T", "f32"}, {"N", "900"}},
     {{"M", 7}},
     {rows(4, 512, 1, 1), rows(2, 32, 8, 0), rows(1, 512, 1, 4)}},
    {"softmax",
     {},
     "row_reduction",
     {{"T", "f16"}, {"N", "1000"}},
     {{"M", 9}},
     {rows(8, 64, 2, 4), rows(1, 8, 4, 0)}},
    {"bias_gelu",
     {},
     "pointwise",
     {{"T", "bf16"}, {"N", "1000"}},
     {{"M", 5}},
     {points(8, 2, 1, 32, 2), points(4, 2, 2, 16, 8)}},
    {"pointwise_chain",
     {},
     "pointwise",
     {{"T", "f32"}, {"N", "129"}},
     {{"M", 33}},
     {points(1, 1, 4, 256, 1), points(1, 4, 1, 32, 1)}},
};

class CheckedKernels : public testing::TestWithParam<CheckedCase> {
 protected:
  static void SetUpTestSuite() {
    auto opened = KernelBench::open();
    ASSERT_TRUE(opened) << opened.error().message << "\n" << opened.error().detail;
    bench_ = std::make_unique<KernelBench>(std::move(*opened));
    ASSERT_TRUE(bench_->context().activate());
    check(0);
  }
  static void TearDownTestSuite() { bench_.reset(); }

  static void check(std::uint64_t seed) {
    ASSERT_EQ(bench_->context().driver().virtual_api()->tilewrightVgpuSetChecks("full", seed),
              CUDA_SUCCESS);
  }
  static std::string reports() {
    return bench_->context().driver().virtual_api()->tilewrightVgpuReports();
  }

  static inline std::unique_ptr<KernelBench> bench_;
};

TEST_P(CheckedKernels, AreRightAndHaveNothingToReport) {
  const CheckedCase& example = GetParam();
  auto whole = find_operator(example.name, example.overrides);
  ASSERT_TRUE(whole) << whole.error().message;
  const Operator op = example.statements.empty()
                          ? std::move(*whole)
                          : templates::extract_group(*whole, example.statements);
  const templates::Family& family = *templates::find_family(example.family);
  const Facts facts = Facts::of_allocation(op, example.bindings);
  std::vector<Candidate> started;
  for (const Config& config : example.configs) {
    auto candidate = bench_->start(family, op, config, facts);
    ASSERT_TRUE(candidate) << templates::to_string(config) << ": " << candidate.error().message;
    started.push_back(std::move(*candidate));
  }
  for (std::size_t i = 0; i < started.size(); ++i) {
    const auto plan = bench_->load(started[i]);
    ASSERT_TRUE(plan) << plan.error().message << "\n" << plan.error().detail;
    for (std::uint64_t seed : {0, 1, 2}) {
      check(seed);
      search::VerifyJob job;
      job.op = &op;
      job.bindings = example.bindings;
      job.plan = &*plan;
      job.settings.max_elements = 1 << 30;
      const auto verified = search::verify(bench_->context(), job);
      EXPECT_TRUE(verified) << templates::to_string(example.configs[i]) << ", seed " << seed << ": "
                            << verified.error().message << "\n"
                            << verified.error().detail;
      EXPECT_EQ(reports(), "[]") << templates::to_string(example.configs[i]) << ", seed " << seed;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, CheckedKernels, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

using Checks = CheckedKernels;

TEST_F(Checks, TellOfAnInputThatNobodyWrote) {
  auto op = find_operator("softmax", {{"T", "f32"}, {"N", "64"}});
  ASSERT_TRUE(op) << op.error().message;
  const templates::Family& family = *templates::find_family("row_reduction");
  auto candidate = bench_->start(family, *op, family.safe_config(*op, {}), {});
  ASSERT_TRUE(candidate) << candidate.error().message;
  const auto plan = bench_->load(*candidate);
  ASSERT_TRUE(plan) << plan.error().message;
  check(0);
  auto x = jit::DeviceBuffer::allocate(bench_->context(), 2 * 64 * 4);
  auto y = jit::DeviceBuffer::allocate(bench_->context(), 2 * 64 * 4);
  const std::vector<jit::TensorArgument> arguments = {{x->address(), {2, 64}, {}},
                                                      {y->address(), {2, 64}, {}}};
  auto prepared = plan->prepare(arguments);
  ASSERT_TRUE(prepared) << prepared.error().message;
  auto stream = jit::Stream::create(bench_->context());
  ASSERT_TRUE(prepared->launch(0, *stream));
  ASSERT_TRUE(stream->synchronize());
  EXPECT_NE(reports().find("uninitialised-read"), std::string::npos);
}

}  // namespace
}  // namespace tilewright::integration
