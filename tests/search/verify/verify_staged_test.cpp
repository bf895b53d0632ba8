// Plans of several launches: split-k through scratch, and an intermediate that is stored. With
// sampled blocks the ones that feed them run, too, so that errors in any launch show.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/search/verify/planted_kernels.h"

namespace tilewright::search {
namespace {

using planted::Bench;
using planted::Edit;
using planted::outcome;
using testing::HasSubstr;

// ---- split-k

constexpr char kLinear[] = R"(operator: linear
dimensions: [M]
inputs:
  x: {dtype: bf16, shape: [M, 256]}
  w: {dtype: bf16, shape: [160, 256]}
body:
  - y = relu(matmul(x, w, transpose_b=true))
outputs:
  y: {dtype: bf16}
)";

constexpr char kSplit[] = R"(
extern "C" __global__ void partial(const bf16* x, const bf16* w, float* scratch, index M) {
  index n = blockIdx.x % 5 * 32 + threadIdx.x, m = blockIdx.x / 5 * 4 + threadIdx.y;
  if (m >= M || n >= 160) return;
  float sum = 0;
  for (index k = blockIdx.y * 64; k < blockIdx.y * 64 + 64; ++k)
    sum += wide(x[m * 256 + k]) * wide(w[n * 256 + k]);
  scratch[(blockIdx.y * M + m) * 160 + n] = sum;
}
extern "C" __global__ void finish(const float* scratch, bf16* y, index M) {
  index n = threadIdx.x, m = blockIdx.x;
  float sum = 0;
  for (int s = 0; s < 4; ++s) sum += scratch[(s * M + m) * 160 + n];
  store(&y[m * 160 + n], sum < 0 ? 0 : sum);
}
)";

Result<Verification> run_split(std::int64_t m, std::uint64_t sample_blocks,
                               const std::vector<Edit>& edits = {}) {
  templates::Operator op = planted::parsed(kLinear);
  jit::Plan plan = planted::plan_of(op);
  jit::PlanLaunch partial;
  partial.kernel = "partial";
  partial.grid = {"ceil_div(M, 4) * 5", "4", "1"};
  partial.block = {32, 4, 1};
  partial.arguments = {planted::tensor("x"), planted::tensor("w"), planted::workspace("0"),
                       planted::number("M")};
  partial.tile = {"block.x / 5 * 4", "min(4, M - block.x / 5 * 4)", "block.x % 5 * 32", "32"};
  jit::PlanLaunch finish;
  finish.kernel = "finish";
  finish.grid = {"M", "1", "1"};
  finish.block = {160, 1, 1};
  finish.arguments = {planted::workspace("0"), planted::tensor("y"), planted::number("M")};
  finish.tile = {"block.x", "1", "0", "160"};
  plan.launches = {partial, finish};
  plan.workspace_bytes = "4 * 4 * 160 * M";
  jit::LoadedPlan loaded = Bench::get().load(plan, kSplit, edits);
  VerifyJob job{.op = &op, .bindings = {{"M", m}}, .plan = &loaded};
  job.sample_blocks = sample_blocks;
  return verify(Bench::get().context(), job);
}

TEST(VerifyStaged, PassesSplitKWholeAndSampled) {
  for (std::uint64_t sample : {0, 3, 7}) {
    for (std::int64_t m : {1, 6, 50}) {
      EXPECT_EQ(outcome(run_split(m, sample)), "verified") << m << " " << sample;
    }
  }
}

TEST(VerifyStaged, RunsForChosenBlocksOnlyThoseThatFeedThem) {
  auto& api = Bench::get().virtual_api();
  EXPECT_EQ(outcome(run_split(50, 3)), "verified");
  jit::VirtualLaunch last;
  ASSERT_EQ(api.tilewrightVgpuLastLaunch(&last), CUDA_SUCCESS);
  EXPECT_EQ(last.blocks, 50u);
  EXPECT_EQ(last.blocks_executed, 3u);
}

TEST(VerifyStaged, CatchesErrorsInEitherPassWithAndWithoutSampling) {
  const Edit edits[] = {
      {"blockIdx.y * 64 + 64", "blockIdx.y * 64 + 63"},                   // a term of each split
      {"blockIdx.y * 64 + 64", "blockIdx.y * 64 + 64 - blockIdx.y / 3"},  // of the last one
      {"n >= 160", "n >= 159"},                                           // a column not written
      {"s < 4", "s < 3"},                                                 // a split
      {"int s = 0", "int s = 1"},
      {"(s * M + m)", "(s * M + m / 2 * 2)"},
      {"sum < 0 ? 0 : sum", "sum"},  // the epilogue
      {"scratch[(blockIdx.y * M + m) * 160 + n] = sum",
       "if (blockIdx.y != 2) scratch[(blockIdx.y * M + m) * 160 + n] = sum"},
  };
  for (const Edit& edit : edits) {
    for (std::uint64_t sample : {0, 5}) {
      auto result = run_split(10, sample, {edit});
      ASSERT_FALSE(result) << edit.second;
      EXPECT_EQ(result.error().code, ErrorCode::kWrongResult) << edit.second;
    }
  }
}

// ---- a stored intermediate

constexpr char kNorm[] = R"(operator: norm
parameters: {S: bf16}
dimensions: [M]
inputs:
  x: {dtype: bf16, shape: [M, 96]}
  w: {dtype: bf16, shape: [128, 96]}
  gain: {dtype: bf16, shape: [128]}
body:
  - h = matmul(x, w, transpose_b=true)
  - y = rmsnorm(h, gain, eps=1e-05)
outputs:
  y: {dtype: f32}
intermediate: S
)";

constexpr char kTwoKernels[] = R"(
extern "C" __global__ void product(const bf16* x, const bf16* w, S* h, index M) {
  index n = blockIdx.x * 32 + threadIdx.x, m = blockIdx.y * 4 + threadIdx.y;
  if (m >= M) return;
  float sum = 0;
  for (index k = 0; k < 96; ++k) sum += wide(x[m * 96 + k]) * wide(w[n * 96 + k]);
  store(&h[m * 128 + n], sum);
}
extern "C" __global__ void norm_rows(const S* h, const bf16* gain, float* y, index M) {
  index m = blockIdx.x;
  float sum = 0;
  for (int n = 0; n < 128; ++n) sum += wide(h[m * 128 + n]) * wide(h[m * 128 + n]);
  float scale = 1 / sqrtf(sum / 128 + 1e-5f);
  for (int n = threadIdx.x; n < 128; n += 32)
    store(&y[m * 128 + n], wide(h[m * 128 + n]) * scale * wide(gain[n]));
}
)";

Result<Verification> run_norm(std::int64_t m, std::uint64_t sample_blocks,
                              const std::vector<Edit>& edits = {}, const char* stored = "bf16") {
  templates::Operator op = planted::parsed(kNorm, {{"S", stored}});
  jit::Plan plan = planted::plan_of(op);
  plan.tensors.push_back({.name = "h",
                          .dtype = op.intermediate,
                          .role = jit::TensorRole::kIntermediate,
                          .shape = {"M", "128"},
                          .strides = {},
                          .workspace_offset = "0"});
  jit::PlanLaunch matmul;
  matmul.kernel = "product";
  matmul.grid = {"4", "ceil_div(M, 4)", "1"};
  matmul.block = {32, 4, 1};
  matmul.arguments = {planted::tensor("x"), planted::tensor("w"), planted::tensor("h"),
                      planted::number("M")};
  matmul.tile = {"block.y * 4", "min(4, M - block.y * 4)", "block.x * 32", "32"};
  jit::PlanLaunch norm;
  norm.kernel = "norm_rows";
  norm.grid = {"M", "1", "1"};
  norm.block = {32, 1, 1};
  norm.arguments = {planted::tensor("h"), planted::tensor("gain"), planted::tensor("y"),
                    planted::number("M")};
  norm.tile = {"block.x", "1", "0", "128"};
  plan.launches = {matmul, norm};
  plan.workspace_bytes = "4 * 128 * M";
  std::string type = op.intermediate == DType::kF32 ? "#define S float\n" : "#define S bf16\n";
  jit::LoadedPlan loaded = Bench::get().load(plan, type + kTwoKernels, edits);
  VerifyJob job{.op = &op, .bindings = {{"M", m}}, .plan = &loaded};
  job.sample_blocks = sample_blocks;
  return verify(Bench::get().context(), job);
}

TEST(VerifyStaged, AllowsForTheRoundingOfAStoredIntermediateAndNoMore) {
  for (const char* stored : {"bf16", "f32"}) {
    for (std::uint64_t sample : {0, 3}) {
      EXPECT_EQ(outcome(run_norm(21, sample, {}, stored)), "verified") << stored << sample;
    }
  }
  // The output is f32: what is rounded to bf16 without being allowed to shows.
  Edit rounds{"store(&h[m * 128 + n], sum);",
              "bf16 r; store(&r, sum); store(&h[m * 128 + n], wide(r));"};
  EXPECT_THAT(outcome(run_norm(21, 0, {rounds}, "f32")), HasSubstr("(normal data)"));
  // And what is rounded twice or the other way where once is allowed.
  Edit truncates{"store(&h[m * 128 + n], sum);", "h[m * 128 + n] = __float_as_uint(sum) >> 16;"};
  EXPECT_THAT(outcome(run_norm(21, 0, {truncates})), HasSubstr("(normal data)"));
}

TEST(VerifyStaged, CatchesErrorsInEitherKernelWithAndWithoutSampling) {
  const Edit edits[] = {
      {"k < 96", "k < 95"},
      {"index k = 0", "index k = 1"},
      {"m >= M", "m >= M || n == 127"},  // a column of the intermediate not written
      {"n < 128; ++n", "n < 127; ++n"},  // a term of the norm
      {"sum / 128", "sum / 127"},
      {"1e-5f", "1e-3f"},
      {"* wide(gain[n])", ""},
      {"n += 32", "n += 64"},  // columns not written
      {"index m = blockIdx.x;", "index m = blockIdx.x < M - 1 ? blockIdx.x : 0;"},
  };
  for (const Edit& edit : edits) {
    for (std::uint64_t sample : {0, 4}) {
      auto result = run_norm(21, sample, {edit});
      ASSERT_FALSE(result) << edit.second << " " << sample;
      EXPECT_EQ(result.error().code, ErrorCode::kWrongResult) << edit.second;
    }
  }
}

}  // namespace
}  // namespace tilewright::search
