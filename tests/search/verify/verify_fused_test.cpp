// One launch, a matmul with its epilogue: right kernels pass at any size and stride, planted wrong
// ones are caught, and caught for what they did.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/search/verify/planted_kernels.h"

namespace tilewright::search {
namespace {

using planted::Bench;
using planted::Edit;
using planted::outcome;
using testing::HasSubstr;

constexpr char kOperator[] = R"(operator: linear
parameters: {T: bf16, N: 70, K: 100}
dimensions: [M, ldx, ldy]
inputs:
  x: {dtype: T, shape: [M, K], strides: [ldx, 1]}
  w: {dtype: T, shape: [N, K]}
  bias: {dtype: T, shape: [N]}
body:
  - y = add(matmul(x, w, transpose_b=true), bias)
outputs:
  y: {dtype: T, strides: [ldy, 1]}
)";

// A block's tile is 4 rows of 32 columns.
constexpr char kKernel[] = R"(
extern "C" __global__ void linear(T* x, const T* w, const T* bias, T* y, index M, index N,
                                  index K, index ldx, index ldy, float* scratch) {
  index n = blockIdx.x * 32 + threadIdx.x, m = blockIdx.y * 4 + threadIdx.y;
  if (m >= M || n >= N) return;
  float sum = 0;
  for (index k = 0; k < K; ++k) sum += wide(x[m * ldx + k]) * wide(w[n * K + k]);
  sum += wide(bias[n]);
  store(&y[m * ldy + n], sum);
}
)";

jit::Plan linear_plan(const templates::Operator& op, const std::string& n, const std::string& k) {
  jit::Plan plan = planted::plan_of(op);
  jit::PlanLaunch launch;
  launch.kernel = "linear";
  launch.grid = {"ceil_div(" + n + ", 32)", "ceil_div(M, 4)", "1"};
  launch.block = {32, 4, 1};
  for (const char* name : {"x", "w", "bias", "y"})
    launch.arguments.push_back(planted::tensor(name));
  for (const std::string& size : {std::string("M"), n, k, std::string("ldx"), std::string("ldy")}) {
    launch.arguments.push_back(planted::number(size));
  }
  launch.arguments.push_back(planted::workspace("0"));
  launch.tile = {"block.y * 4", "min(4, M - block.y * 4)", "block.x * 32",
                 "min(32, " + n + " - block.x * 32)"};
  plan.launches = {launch};
  plan.workspace_bytes = "64";
  return plan;
}

struct Problem {
  std::string dtype = "bf16";
  std::int64_t m = 9, n = 70, k = 100, ldx = 100, ldy = 70;
  std::uint64_t sample_blocks = 0;
  bool integer = true, normal = true;
  std::map<std::string, std::int64_t> displacement;
};

Result<Verification> run(const Problem& p, const std::vector<Edit>& edits = {}) {
  std::string n = std::to_string(p.n), k = std::to_string(p.k);
  templates::Operator op = planted::parsed(kOperator, {{"T", p.dtype}, {"N", n}, {"K", k}});
  std::string type = p.dtype == "f32" ? "#define T float\n" : "#define T bf16\n";
  jit::LoadedPlan plan = Bench::get().load(linear_plan(op, n, k), type + kKernel, edits);
  VerifyJob job{.op = &op, .bindings = {{"M", p.m}, {"ldx", p.ldx}, {"ldy", p.ldy}}, .plan = &plan};
  job.settings.integer = p.integer;
  job.settings.normal = p.normal;
  job.sample_blocks = p.sample_blocks;
  job.displacement = p.displacement;
  return verify(Bench::get().context(), job);
}

TEST(VerifyFused, PassesARightKernelAtAnySizeAndStride) {
  const Problem cases[] = {
      {},
      {.dtype = "f32"},
      {.m = 1},
      {.m = 0},
      {.k = 0, .ldx = 8},
      {.k = 1, .ldx = 1},
      {.m = 5, .n = 1, .k = 33, .ldx = 40, .ldy = 3},
      {.ldx = 128, .ldy = 96},
      {.dtype = "f32", .ldx = 101, .ldy = 71, .displacement = {{"x", 4}, {"y", 20}}},
      {.displacement = {{"x", 2}, {"w", 6}, {"y", 10}}},
      {.m = 64, .n = 700, .ldy = 700, .sample_blocks = 6},
  };
  for (const Problem& p : cases) {
    auto result = run(p);
    EXPECT_EQ(outcome(result), "verified") << p.m << " " << p.n << " " << p.k;
    if (!result) continue;
    EXPECT_EQ(result->total_elements, 3 * p.m * p.n);
    EXPECT_EQ(result->sampled, p.sample_blocks > 0);
    EXPECT_LE(result->worst_ratio, 1);
    if (p.sample_blocks == 0) {
      EXPECT_EQ(result->elements, 3 * p.m * p.n);
    }
  }
}

TEST(VerifyFused, ComparesBitsOnIntegersAndBoundsOnNormalData) {
  auto integer = run({.dtype = "f32", .normal = false});
  ASSERT_TRUE(integer) << integer.error().message;
  EXPECT_EQ(integer->error, 0);
  auto normal = run({.dtype = "f32", .integer = false});
  ASSERT_TRUE(normal) << normal.error().message;
  EXPECT_GT(normal->error, 0);
  EXPECT_LT(normal->error, normal->tolerance);
  EXPECT_LT(normal->tolerance, 1e-4);
}

struct Planted {
  const char* name;
  Edit edit;
  const char* message;  ///< a part of it
};
void PrintTo(const Planted& planted, std::ostream* out) { *out << planted.name; }

class VerifyFusedPlanted : public testing::TestWithParam<Planted> {};

constexpr char kWrongValue[] = "expected";
constexpr char kLoop[] = "for (index k = 0; k < K; ++k)";

const Planted kPlanted[] = {
    {"DroppedLastTerm", {kLoop, "for (index k = 0; k < K - 1; ++k)"}, kWrongValue},
    {"DroppedFirstTerm", {kLoop, "for (index k = 1; k < K; ++k)"}, kWrongValue},
    {"DroppedTail", {kLoop, "for (index k = 0; k < K / 32 * 32; ++k)"}, kWrongValue},
    {"DoubledTerm",
     {"float sum = 0;", "float sum = wide(x[m * ldx + 37]) * wide(w[n * K + 37]);"},
     kWrongValue},
    {"TermTooMany", {kLoop, "for (index k = 0; k <= K; ++k)"}, kWrongValue},
    {"MissingBias", {"sum += wide(bias[n]);", ""}, kWrongValue},
    {"BiasOfTheRow", {"bias[n]", "bias[m]"}, kWrongValue},
    {"BiasTwice", {"sum += wide(bias[n]);", "sum += 2 * wide(bias[n]);"}, kWrongValue},
    {"TransposedIndex", {"w[n * K + k]", "w[k * N + n < N * K ? k * N + n : 0]"}, kWrongValue},
    {"DenseRows", {"x[m * ldx + k]", "x[m * K + k]"}, kWrongValue},
    {"SumStartsAtOne", {"float sum = 0;", "float sum = 1;"}, kWrongValue},
    {"RoundsTowardsZero",
     {"store(&y[m * ldy + n], sum);", "y[m * ldy + n] = __float_as_uint(sum) >> 16;"},
     kWrongValue},
    {"AccumulatesInBf16",
     {"sum += wide(x[m * ldx + k]) * wide(w[n * K + k]);",
      "{ sum += wide(x[m * ldx + k]) * wide(w[n * K + k]); bf16 r; store(&r, sum); sum = wide(r); "
      "}"},
     kWrongValue},
    {"LastColumnNotWritten", {"n >= N", "n >= N - 1"}, "was not written at [0, 69]"},
    {"LastRowNotWritten", {"m >= M", "m >= M - 1"}, "was not written at [8, 0]"},
    {"NanInOneElement",
     {"store(&y[m", "if (m == 3 && n == 5) sum = sum / 0 * 0; store(&y[m"},
     "is nan at [3, 5]"},
    {"OneElementWrong",
     {"store(&y[m", "if (m == 8 && n == 69) sum += 1; store(&y[m"},
     "at [8, 69]"},
    {"WritesPastTheEnd",
     {"store(&y[m", "if (m == M - 1 && n == N - 1) y[m * ldy + n + 2] = 7; store(&y[m"},
     "bytes after its end"},
    {"WritesBeforeTheStart",
     {"store(&y[m", "if (m == 0 && n == 0) y[-3] = 7; store(&y[m"},
     "6 bytes before its start"},
    {"WritesIntoTheGap",
     {"store(&y[m", "if (m == 2 && n == 69) y[m * ldy + 70] = 7; store(&y[m"},
     "which no block was to write"},
    {"ChangesAnInput",
     {"store(&y[m", "if (m == 1 && n == 1) x[ldx + 3] = 9; store(&y[m"},
     "input 'x' was written at byte"},
    {"WritesPastTheWorkspace",
     {"store(&y[m", "if (m == 0 && n == 0) scratch[16] = 1; store(&y[m"},
     "workspace of 64 bytes was written after its end"},
    {"WritesBeforeTheWorkspace",
     {"store(&y[m", "if (m == 0 && n == 0) scratch[-1] = 1; store(&y[m"},
     "workspace of 64 bytes was written before its start"},
    {"ReadsScratchThatNobodyWrote", {"store(&y[m", "sum += scratch[3]; store(&y[m"}, "is nan"},
};

TEST_P(VerifyFusedPlanted, IsCaught) {
  Problem p{.ldx = 104, .ldy = 74};
  auto result = run(p, {GetParam().edit});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kWrongResult);
  EXPECT_THAT(result.error().message, HasSubstr(GetParam().message));
}

// Which blocks run must not decide what is found.
TEST_P(VerifyFusedPlanted, IsCaughtWithSampledBlocks) {
  Problem p{.ldx = 104, .ldy = 74, .sample_blocks = 6};
  auto result = run(p, {GetParam().edit});
  // What happens in few elements only is found if their block runs: corners do.
  std::string name = GetParam().name;
  bool inside = name == "NanInOneElement" || name == "WritesIntoTheGap" || name == "ChangesAnInput";
  if (result) {
    EXPECT_TRUE(inside);
  } else {
    EXPECT_EQ(result.error().code, ErrorCode::kWrongResult);
  }
}

INSTANTIATE_TEST_SUITE_P(Table, VerifyFusedPlanted, testing::ValuesIn(kPlanted),
                         [](const auto& info) { return std::string(info.param.name); });

// What a tolerance of 1e-2 would let pass.
TEST(VerifyFused, CatchesOneDroppedTermAmongManyInEitherData) {
  Edit dropped{kLoop, "for (index k = 0; k < K; ++k) if (k != 2000)"};
  for (const char* dtype : {"bf16", "f32"}) {
    auto result =
        run({.dtype = dtype, .m = 4, .n = 64, .k = 4096, .ldx = 4096, .ldy = 64, .normal = false},
            {dropped});
    EXPECT_THAT(outcome(result), HasSubstr("(integer data)")) << dtype;
  }
  // One term of 4096 is within the noise of f32 sums only by chance; 32 of 14336 are not.
  Edit many{kLoop, "for (index k = 0; k < K - 32; ++k)"};
  auto result =
      run({.dtype = "f32", .m = 4, .n = 64, .k = 14336, .ldx = 14336, .ldy = 64, .integer = false},
          {many});
  EXPECT_THAT(outcome(result), HasSubstr("(normal data)"));
}

TEST(VerifyFused, CatchesWritesOutsideTheTilesOfSampledBlocks) {
  // A block that also writes a neighbour's element, with the right value.
  Edit stray{"store(&y[m * ldy + n], sum);",
             "store(&y[m * ldy + n], sum); if (n == 31 && m == 0) store(&y[40], 1.f);"};
  auto result = run({.m = 4, .n = 320, .ldy = 320, .sample_blocks = 3}, {stray});
  EXPECT_THAT(outcome(result), HasSubstr("which no block was to write"));
}

TEST(VerifyFused, NamesElementValueAndBound) {
  auto result = run({.dtype = "f32", .m = 2, .n = 3, .ldy = 3},
                    {{"store(&y[m", "if (m == 1 && n == 2) sum += 8; store(&y[m"}});
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().message,
              testing::MatchesRegex("output 'y' is -?[0-9]+ at \\[1, 2\\] \\(integer data\\), "
                                    "expected -?[0-9]+ within 0; 1 of 6 elements compared are "
                                    "wrong"));
}

}  // namespace
}  // namespace tilewright::search
