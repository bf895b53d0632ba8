// Row reductions, sessions, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/search/verify/planted_kernels.h"

namespace tilewright::search {
namespace {

using planted::Bench;
using planted::Edit;
using planted::outcome;
using testing::HasSubstr;

// ---- row reductions: one block of 32 threads per row

struct RowCase {
  const char* name;
  const char* expression;
  const char* body;  ///< of a kernel with x, gain, bias, y of one row, N columns
};

const RowCase kSoftmax{
    "softmax", "softmax(x)",
    "float top = -1e30f, sum = 0;\n"
    "for (int n = 0; n < N; ++n) top = fmaxf(top, wide(x[n]));\n"
    "for (int n = 0; n < N; ++n) sum += expf(wide(x[n]) - top);\n"
    "for (int n = threadIdx.x; n < N; n += 32) store(&y[n], expf(wide(x[n]) - top) / sum);\n"};
const RowCase kRmsNorm{"rmsnorm", "rmsnorm(x, gain, eps=1e-5)",
                       "float sum = 0;\n"
                       "for (int n = 0; n < N; ++n) sum += wide(x[n]) * wide(x[n]);\n"
                       "float scale = rsqrtf(sum / N + 1e-5f);\n"
                       "for (int n = threadIdx.x; n < N; n += 32) store(&y[n], wide(x[n]) * scale "
                       "* wide(gain[n]));\n"};
const RowCase kLayerNorm{
    "layernorm", "layernorm(x, gain, bias, eps=1e-5)",
    "float sum = 0, squares = 0;\n"
    "for (int n = 0; n < N; ++n) sum += wide(x[n]);\n"
    "float mean = sum / N;\n"
    "for (int n = 0; n < N; ++n) squares += (wide(x[n]) - mean) * (wide(x[n]) - mean);\n"
    "float scale = rsqrtf(squares / N + 1e-5f);\n"
    "for (int n = threadIdx.x; n < N; n += 32)\n"
    "  store(&y[n], (wide(x[n]) - mean) * scale * wide(gain[n]) + wide(bias[n]));\n"};
const RowCase kMaximum{
    "maximum", "sub(x, reduce_max(x))",
    "float top = wide(x[0]);\n"
    "for (int n = 1; n < N; ++n) top = wide(x[n]) <= top ? top : top != top ? top : wide(x[n]);\n"
    "for (int n = threadIdx.x; n < N; n += 32) store(&y[n], wide(x[n]) - top);\n"};

Result<Verification> run_rows(const RowCase& c, const std::string& dtype, std::int64_t m,
                              std::int64_t n, const std::vector<Edit>& edits = {}) {
  std::string columns = std::to_string(n), expression = c.expression;
  std::string inputs = "  x: {dtype: T, shape: [M, N]}\n";
  bool gain = expression.find("gain") != std::string::npos;
  bool bias = expression.find("bias") != std::string::npos;
  if (gain) inputs += "  gain: {dtype: T, shape: [N]}\n";
  if (bias) inputs += "  bias: {dtype: T, shape: [N]}\n";
  templates::Operator op =
      planted::parsed("operator: rows\nparameters: {T: bf16, N: 1}\ndimensions: [M]\ninputs:\n" +
                          inputs + "body:\n  - y = " + expression + "\noutputs:\n  y: {dtype: T}\n",
                      {{"T", dtype}, {"N", columns}});
  jit::Plan plan = planted::plan_of(op);
  jit::PlanLaunch launch;
  launch.kernel = "rows";
  launch.grid = {"M", "1", "1"};
  launch.block = {32, 1, 1};
  launch.arguments = {planted::tensor("x"), planted::tensor(gain ? "gain" : "x"),
                      planted::tensor(bias ? "bias" : "x"), planted::tensor("y")};
  launch.tile = {"block.x", "1", "0", columns};
  plan.launches = {launch};
  std::string source = std::string("#define T ") + (dtype == "f32" ? "float" : "bf16") +
                       "\n#define N " + columns +
                       "\nextern \"C\" __global__ void rows(const T* x, const T* gain, const T* "
                       "bias, T* y) {\nx += blockIdx.x * N; y += blockIdx.x * N;\n" +
                       c.body + "}\n";
  jit::LoadedPlan loaded = Bench::get().load(plan, source, edits);
  VerifyJob job{.op = &op, .bindings = {{"M", m}}, .plan = &loaded};
  return verify(Bench::get().context(), job);
}

TEST(VerifyRows, PassesRightKernelsOfAnyWidth) {
  for (const RowCase* c : {&kSoftmax, &kRmsNorm, &kLayerNorm, &kMaximum}) {
    for (const char* dtype : {"bf16", "f32"}) {
      for (std::int64_t n : {1, 7, 100, 513}) {
        EXPECT_EQ(outcome(run_rows(*c, dtype, 5, n)), "verified") << c->name << dtype << n;
      }
    }
  }
}

TEST(VerifyRows, CatchesPlantedErrors) {
  const std::pair<const RowCase*, Edit> planted[] = {
      {&kSoftmax, {"n < N; ++n) sum", "n < N - 1; ++n) sum"}},
      {&kSoftmax, {"int n = 0; n < N; ++n) sum", "int n = 1; n < N; ++n) sum"}},
      {&kSoftmax, {"n < N; ++n) sum", "n < N / 32 * 32; ++n) sum"}},
      {&kSoftmax, {"sum = 0", "sum = 1"}},
      {&kSoftmax, {"/ sum", "/ sum * 1.01f"}},
      {&kRmsNorm, {"n < N; ++n) sum", "n < N - 1; ++n) sum"}},
      {&kRmsNorm, {"int n = 0; n < N; ++n) sum", "int n = 1; n < N; ++n) sum"}},
      {&kRmsNorm, {"sum / N", "sum / (N - 1)"}},
      {&kRmsNorm, {" + 1e-5f", ""}},
      {&kRmsNorm, {"gain[n]", "gain[n ^ 1]"}},
      {&kRmsNorm, {"float sum = 0", "float sum = wide(x[1])"}},
      {&kLayerNorm, {"n < N; ++n) sum", "n < N - 1; ++n) sum"}},
      {&kLayerNorm, {"n < N; ++n) squares", "n < N - 1; ++n) squares"}},
      {&kLayerNorm, {" + wide(bias[n])", ""}},
      {&kLayerNorm, {"wide(gain[n]) + wide(bias[n])", "(wide(gain[n]) + wide(bias[n]))"}},
      {&kLayerNorm, {"squares / N", "squares / (N - 1)"}},
      {&kLayerNorm, {"(wide(x[n]) - mean) * scale", "wide(x[n]) * scale"}},
      {&kMaximum, {"int n = 1; n < N", "int n = 1; n < N - 1"}},
      {&kMaximum, {"wide(x[0])", "0"}},
      {&kMaximum, {"wide(x[0])", "wide(x[1])"}},
      {&kMaximum, {"int n = 1; n < N; ++n)", "int n = 1; n < N; n += 2)"}},
      // Only special values tell these.
      {&kMaximum,
       {"wide(x[n]) <= top ? top : top != top ? top : wide(x[n])", "fmaxf(top, wide(x[n]))"}},
      {&kSoftmax, {"expf(wide(x[n]) - top) / sum", "sum > 0 ? expf(wide(x[n]) - top) / sum : 0"}},
      {&kRmsNorm, {"wide(x[n]) * wide(x[n])", "fminf(wide(x[n]) * wide(x[n]), 1e30f)"}},
  };
  for (const auto& [c, edit] : planted) {
    for (const char* dtype : {"bf16", "f32"}) {
      auto result = run_rows(*c, dtype, 6, 100, {edit});
      EXPECT_THAT(outcome(result), HasSubstr("wrong_result"))
          << c->name << " " << dtype << " " << edit.second;
    }
  }
}

// ---- sessions

constexpr char kSum[] = R"(operator: sum
dimensions: [M]
inputs:
  a: {dtype: f32, shape: [M, 40]}
  b: {dtype: f32, shape: [M, 40]}
body:
  - y = add(a, b)
outputs:
  y: {dtype: f32}
)";
constexpr char kSumKernel[] = R"(
extern "C" __global__ void sum(float* a, const float* b, float* y) {
  index i = blockIdx.x * 40 + threadIdx.x;
  y[i] = a[i] + b[i];
}
)";

jit::Plan sum_plan(const templates::Operator& op) {
  jit::Plan plan = planted::plan_of(op);
  jit::PlanLaunch launch;
  launch.kernel = "sum";
  launch.grid = {"M", "1", "1"};
  launch.block = {40, 1, 1};
  launch.arguments = {planted::tensor("a"), planted::tensor("b"), planted::tensor("y")};
  launch.tile = {"block.x", "1", "0", "40"};
  plan.launches = {launch};
  return plan;
}

TEST(VerifySession, JudgesManyPlansOnTheSameData) {
  templates::Operator op = planted::parsed(kSum);
  VerifyJob job{.op = &op, .bindings = {{"M", 8}}};
  auto session = VerifySession::create(Bench::get().context(), job);
  ASSERT_TRUE(session) << session.error().message;
  jit::LoadedPlan right = Bench::get().load(sum_plan(op), kSumKernel);
  jit::LoadedPlan wrong =
      Bench::get().load(sum_plan(op), kSumKernel, {{"a[i] + b[i]", "a[i] - b[i]"}});
  jit::LoadedPlan spoils = Bench::get().load(
      sum_plan(op), kSumKernel, {{"y[i] = a[i] + b[i]", "y[i] = a[i] + b[i]; a[i] = 0"}});
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(outcome((*session)->verify(right, {}, 0)), "verified");
    EXPECT_THAT(outcome((*session)->verify(wrong, {}, 0)), HasSubstr("output 'y' is"));
    EXPECT_THAT(outcome((*session)->verify(spoils, {}, 0)), HasSubstr("input 'a' was written"));
  }
  EXPECT_EQ(outcome((*session)->verify(right, {}, 3)), "verified");
}

TEST(VerifySession, WhatAPlanBeforeItWroteDoesNotPassForAPlansOwn) {
  templates::Operator op = planted::parsed(kSum);
  VerifyJob job{.op = &op, .bindings = {{"M", 8}}};
  auto session = VerifySession::create(Bench::get().context(), job);
  ASSERT_TRUE(session) << session.error().message;
  const auto load = [&](const char* statement) {
    return Bench::get().load(sum_plan(op), kSumKernel, {{"y[i] = a[i] + b[i];", statement}});
  };
  jit::LoadedPlan right = load("y[i] = a[i] + b[i];");
  jit::LoadedPlan nothing = load("if (i < 0) y[i] = a[i];");
  jit::LoadedPlan most = load("if (i != 77) y[i] = a[i] + b[i];");
  jit::LoadedPlan its_own = load("y[i] = y[i];");
  for (int sampled : {0, 3}) {
    EXPECT_EQ(outcome((*session)->verify(right, {}, sampled)), "verified");
    EXPECT_THAT(outcome((*session)->verify(nothing, {}, sampled)), HasSubstr("wrong_result"));
    EXPECT_EQ(outcome((*session)->verify(right, {}, sampled)), "verified");
    EXPECT_THAT(outcome((*session)->verify(its_own, {}, sampled)), HasSubstr("wrong_result"));
  }
  EXPECT_EQ(outcome((*session)->verify(right, {}, 0)), "verified");
  EXPECT_THAT(outcome((*session)->verify(most, {}, 0)), HasSubstr("wrong_result"));
}

TEST(VerifySession, LaunchesPreparedPlansOnRandomNormalData) {
  templates::Operator op = planted::parsed(kSum);
  VerifyJob job{.op = &op, .bindings = {{"M", 8}}};
  auto session = VerifySession::create(Bench::get().context(), job);
  ASSERT_TRUE(session);
  jit::LoadedPlan plan = Bench::get().load(sum_plan(op), kSumKernel);
  const jit::LoadedPlan* plans[] = {&plan, &plan};
  auto ready = (*session)->ready(plans);
  ASSERT_TRUE(ready) << ready.error().message;
  ASSERT_EQ(ready->size(), 2u);
  auto stream = jit::Stream::create(Bench::get().context());
  ASSERT_TRUE(stream);
  for (const auto& sets : *ready) {
    ASSERT_EQ(sets.size(), 1u);
    const auto& one = sets.front();
    EXPECT_EQ(one.workspace, 0u);
    EXPECT_TRUE(one.launch.launch(one.workspace, *stream));
  }
  EXPECT_TRUE(stream->synchronize());
}

TEST(VerifySession, LeavesSamplingAsTheCallerAskedForIt) {
  templates::Operator op = planted::parsed(kSum);
  jit::LoadedPlan plan = Bench::get().load(sum_plan(op), kSumKernel);
  VerifyJob job{.op = &op, .bindings = {{"M", 8}}};
  auto session = VerifySession::create(Bench::get().context(), job);
  ASSERT_TRUE(session);
  EXPECT_EQ(outcome((*session)->verify(plan, {}, 5)), "verified");
  const jit::LoadedPlan* plans[] = {&plan};
  auto ready = (*session)->ready(plans);
  ASSERT_TRUE(ready);
  auto stream = jit::Stream::create(Bench::get().context());
  ASSERT_TRUE((*ready)[0][0].launch.launch(0, *stream));
  ASSERT_TRUE(stream->synchronize());
  jit::VirtualLaunch last;
  ASSERT_EQ(Bench::get().virtual_api().tilewrightVgpuLastLaunch(&last), CUDA_SUCCESS);
  EXPECT_EQ(last.blocks_executed, 5u);
  Bench::get().virtual_api().tilewrightVgpuSampleBlocks(0, 1);
}

TEST(Verify, RefusesWhatDoesNotFit) {
  templates::Operator op = planted::parsed(kSum);
  jit::LoadedPlan plan = Bench::get().load(sum_plan(op), kSumKernel);
  auto message = [&](VerifyJob job) { return outcome(verify(Bench::get().context(), job)); };
  VerifyJob right{.op = &op, .bindings = {{"M", 2}}, .plan = &plan};
  EXPECT_EQ(message(right), "verified");
  VerifyJob job = right;
  job.bindings = {};
  EXPECT_EQ(message(job),
            "invalid_argument: 'a': dimension M has no value, expected one for every dimension of "
            "[M, 40]");
  job = right;
  job.displacement = {{"c", 4}};
  EXPECT_EQ(message(job),
            "invalid_argument: tensor 'c' is displaced by 4 bytes, expected an input or output of "
            "operator 'sum'");
  job.displacement = {{"a", 3}};
  EXPECT_EQ(message(job),
            "invalid_argument: 'a' is displaced by 3 bytes, expected a multiple of 4");
  job = right;
  job.settings.integer = job.settings.normal = job.settings.adversarial = false;
  EXPECT_EQ(message(job), "not verified");
}

TEST(InputDigest, DependsOnProblemAndSeedAlone) {
  templates::Operator op = planted::parsed(kSum);
  auto digest = [&](std::int64_t m, std::uint64_t seed, bool normal) {
    VerifyJob job{.op = &op, .bindings = {{"M", m}}, .seed = seed};
    job.settings.normal = normal;
    auto result = input_digest(job);
    EXPECT_TRUE(result);
    return *result;
  };
  EXPECT_EQ(digest(3, 1, true), digest(3, 1, true));
  EXPECT_NE(digest(3, 1, true), digest(3, 2, true));
  EXPECT_NE(digest(3, 1, true), digest(4, 1, true));
  EXPECT_NE(digest(3, 1, true), digest(3, 1, false));
}

}  // namespace
}  // namespace tilewright::search
