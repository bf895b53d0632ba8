// Equal bits in a second run, and of a row whatever the rows beside it.
#include "search/verify/equal_bits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/search/verify/planted_kernels.h"

namespace tilewright::search {
namespace {

using planted::Bench;
using planted::Edit;
using planted::outcome;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kRowSums[] = R"(operator: row_sums
parameters: {numerics: {}}
dimensions: [M]
inputs:
  x: {dtype: f32, shape: [M, 256]}
body:
  - y = reduce_sum(x)
outputs:
  y: {dtype: f32}
)";

// A row to a block of 8 warps.
constexpr char kKernel[] = R"(
extern "C" __global__ void row_sums(const float* x, float* y, float* scratch) {
  __shared__ float parts[8];
  index row = blockIdx.x;
  float sum = x[row * 256 + threadIdx.x];
  for (int i = 16; i > 0; i /= 2) sum += __shfl_xor_sync(~0u, sum, i);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  float total = 0;
  for (int i = 0; i < 8; ++i) total += parts[i];
  y[row] = total;
}
)";

Result<Verification> run(const std::string& numerics, std::int64_t m,
                         const std::vector<Edit>& edits = {}, std::uint64_t sample_blocks = 0,
                         const std::vector<Edit>* anchor_edits = nullptr) {
  std::string text = kRowSums;
  text.replace(text.find("parameters: {numerics: {}}"), 26, "numerics: " + numerics);
  const templates::Operator op = planted::parsed(text);
  jit::Plan plan = planted::plan_of(op);
  jit::PlanLaunch launch;
  launch.kernel = "row_sums";
  launch.grid = {"M", "1", "1"};
  launch.block = {256, 1, 1};
  launch.arguments = {planted::tensor("x"), planted::tensor("y"), planted::workspace("0")};
  launch.tile = {"block.x", "1", "0", "1"};
  plan.launches = {launch};
  plan.workspace_bytes = "64";
  const jit::LoadedPlan loaded = Bench::get().load(plan, kKernel, edits);
  VerifyJob job{.op = &op, .bindings = {{"M", m}}, .plan = &loaded, .sample_blocks = sample_blocks};
  std::optional<jit::LoadedPlan> anchor;
  if (anchor_edits) {
    anchor = Bench::get().load(plan, kKernel, *anchor_edits);
    job.anchor = &*anchor;
  }
  return verify(Bench::get().context(), job);
}

constexpr char kDeterministic[] = "{deterministic: true}";
constexpr char kAny[] = "{deterministic: false}";
constexpr char kInvariant[] = "{batch_invariant: true}";

// The order in which warps come decides the bits.
const std::vector<Edit> kWarpsInAnyOrder = {
    {"parts[threadIdx.x / 32] = sum;", "atomicAdd(&parts[0], sum);"},
    {"float sum = x", "if (threadIdx.x == 0) parts[0] = 0; __syncthreads(); float sum = x"},
    {"for (int i = 0; i < 8; ++i) total += parts[i];", "total = parts[0];"}};
// What was left in the workspace does.
const std::vector<Edit> kReadsWorkspace = {
    {"y[row] = total;",
     "y[row] = __float_as_uint(scratch[0]) == ~0u ? total : total * 1.0000002f;"}};
const std::vector<Edit> kMindsTheNumberOfRows = {
    {"total += parts[i];", "total += parts[gridDim.x > 9 ? 7 - i : i];"}};
const std::vector<Edit> kMindsItsPlace = {
    {"total += parts[i];", "total += parts[row % 2 ? 7 - i : i];"}};

TEST(EqualBits, PassOfRightKernels) {
  for (const char* numerics : {kDeterministic, kAny, kInvariant})
    for (const std::int64_t m : {0, 1, 9, 40})
      EXPECT_EQ(outcome(run(numerics, m)), "verified") << numerics << m;
  EXPECT_EQ(outcome(run(kInvariant, 300, {}, 7)), "verified");
}

TEST(EqualBits, TellWhatIsNotDeterministic) {
  for (const auto& edits : {kWarpsInAnyOrder, kReadsWorkspace}) {
    EXPECT_THAT(outcome(run(kDeterministic, 9, edits)),
                HasSubstr("when the plan runs again (normal data), expected equal bits of a "
                          "deterministic operator"));
    EXPECT_EQ(outcome(run(kAny, 9, edits)), "verified");
  }
}

TEST(EqualBits, TellWhatMindsOtherRows) {
  for (const auto& edits : {kMindsTheNumberOfRows, kMindsItsPlace}) {
    EXPECT_THAT(outcome(run(kInvariant, 8, edits)),
                HasSubstr("expected equal bits of a batch-invariant operator"));
    EXPECT_EQ(outcome(run(kDeterministic, 8, edits)), "verified");
  }
}

TEST(EqualBits, TellWhatSumsInAnotherOrderThanTheAnchor) {
  const std::vector<Edit> same = {{"float total = 0;", "float total = 0.0f;"}};
  const std::vector<Edit> backwards = {{"total += parts[i];", "total += parts[7 - i];"}};
  for (const std::uint64_t sample_blocks : {0, 7}) {
    EXPECT_EQ(outcome(run(kInvariant, 300, {}, sample_blocks, &same)), "verified");
    EXPECT_EQ(outcome(run(kInvariant, 300, backwards, sample_blocks)), "verified") << "not wrong";
    const auto other = run(kInvariant, 300, backwards, sample_blocks, &same);
    ASSERT_FALSE(other);
    EXPECT_EQ(other.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(other.error().message,
                AllOf(HasSubstr("gives other bits than the plan that this record begins with"),
                      HasSubstr("another order of sums")));
  }
}

TEST(EqualBits, LeaveTheScheduleAsItWas) {
  ASSERT_TRUE(run(kDeterministic, 9));
  const auto first = run(kDeterministic, 9, kWarpsInAnyOrder);
  const auto second = run(kDeterministic, 9, kWarpsInAnyOrder);
  EXPECT_EQ(outcome(first), outcome(second));
}

TEST(BatchDimensions, AreThoseOfRowsThatDoNotMeet) {
  const auto of = [](const std::string& inputs, const std::string& body) {
    return batch_dimensions(planted::parsed("operator: o\ndimensions: [B, M]\ninputs:\n" + inputs +
                                            "body:\n  - y = " + body +
                                            "\noutputs:\n  y: {dtype: f32}\n"));
  };
  const std::string x = "  x: {dtype: f32, shape: [B, M, 8]}\n";
  EXPECT_THAT(of(x, "softmax(x)"), ElementsAre("B", "M"));
  EXPECT_THAT(of(x + "  w: {dtype: f32, shape: [4, 8]}\n", "matmul(x, w, transpose_b=true)"),
              ElementsAre("B", "M"));
  // Contracted, normalised along, and the columns of a result.
  const std::string a = "  a: {dtype: f32, shape: [B, 8, M]}\n";
  EXPECT_THAT(of(x + a, "matmul(a, x)"), ElementsAre("B"));
  EXPECT_THAT(of(a, "softmax(a)"), ElementsAre("B"));
  EXPECT_THAT(of(a, "exp(a)"), ElementsAre("B"));
}

}  // namespace
}  // namespace tilewright::search
