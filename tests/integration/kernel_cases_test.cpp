// What went wrong in kernels elsewhere, as cases of ours: overflowing offsets, batches beyond a
// grid's limits, aliased tensors, infinite rows, subnormal numbers, bits that depend on neighbours.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "tests/integration/kernel_bench.h"

namespace tilewright::integration {
namespace {

using templates::Bindings;
using templates::Config;
using templates::Facts;
using templates::Operator;

/// A tensor in device memory; offsets are in elements of `dtype`.
class Tensor {
 public:
  Tensor(const jit::Context& context, DType dtype, std::int64_t elements) : dtype_(dtype) {
    auto buffer = jit::DeviceBuffer::allocate(context, bytes_for(dtype, elements));
    EXPECT_TRUE(buffer) << buffer.error().message;
    buffer_ = std::move(*buffer);
  }
  CUdeviceptr address() const { return buffer_.address(); }
  void write(const std::vector<double>& values, std::int64_t offset = 0) {
    std::vector<std::byte> bytes(bytes_for(dtype_, values.size()));
    for (std::size_t i = 0; i < values.size(); ++i)
      write_element(dtype_, bytes.data(), i, values[i]);
    EXPECT_TRUE(buffer_.upload(bytes.data(), bytes.size(), bytes_for(dtype_, offset)));
  }
  std::vector<double> read(std::size_t count, std::int64_t offset = 0) const {
    std::vector<std::byte> bytes(bytes_for(dtype_, count));
    EXPECT_TRUE(buffer_.download(bytes.data(), bytes.size(), bytes_for(dtype_, offset)));
    std::vector<double> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = read_element(dtype_, bytes.data(), i);
    return values;
  }

 private:
  DType dtype_;
  jit::DeviceBuffer buffer_;
};

class KernelCases : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto opened = KernelBench::open();
    ASSERT_TRUE(opened) << opened.error().message << "\n" << opened.error().detail;
    bench_ = std::make_unique<KernelBench>(std::move(*opened));
    ASSERT_TRUE(bench_->context().activate());
  }
  static void TearDownTestSuite() { bench_.reset(); }

  static Operator op(const char* name, const templates::Overrides& overrides = {}) {
    auto found = find_operator(name, overrides);
    EXPECT_TRUE(found) << found.error().message;
    return found ? std::move(*found) : Operator{};
  }

  static jit::LoadedPlan plan(const char* family, const Operator& group, const Config& set,
                              const Facts& facts = {}) {
    const templates::Family& of = *templates::find_family(family);
    Config config = of.safe_config(group, {});
    for (const auto& [name, value] : set) config[name] = value;
    auto candidate = bench_->start(of, group, config, facts);
    EXPECT_TRUE(candidate) << candidate.error().message;
    auto loaded = bench_->load(*candidate);
    EXPECT_TRUE(loaded) << loaded.error().message << "\n" << loaded.error().detail;
    return std::move(*loaded);
  }

  /// How many launches had something to do.
  static std::size_t launch(const jit::LoadedPlan& plan,
                            const std::vector<jit::TensorArgument>& arguments) {
    auto prepared = plan.prepare(arguments);
    EXPECT_TRUE(prepared) << prepared.error().message;
    auto workspace = jit::DeviceBuffer::allocate(bench_->context(), prepared->workspace_bytes());
    auto stream = jit::Stream::create(bench_->context());
    const auto launched = prepared->launch(workspace->address(), *stream);
    EXPECT_TRUE(launched) << launched.error().message;
    const auto done = stream->synchronize();
    EXPECT_TRUE(done) << done.error().message << "\n" << done.error().detail;
    return prepared->launches();
  }

  static void verify(const char* family, const Operator& group, const Config& set,
                     const Bindings& bindings, std::uint64_t sample_blocks = 0,
                     bool aligned = false) {
    const jit::LoadedPlan loaded =
        plan(family, group, set, aligned ? Facts::of_allocation(group, bindings) : Facts{});
    search::VerifyJob job;
    job.op = &group;
    job.bindings = bindings;
    job.plan = &loaded;
    job.sample_blocks = sample_blocks;
    job.settings.max_elements = sample_blocks ? 512 : 1 << 30;
    const auto verified = search::verify(bench_->context(), job);
    EXPECT_TRUE(verified) << templates::to_string(set) << ": " << verified.error().message << "\n"
                          << verified.error().detail;
  }

  static inline std::unique_ptr<KernelBench> bench_;
};

TEST_F(KernelCases, RowsFurtherApartThanAnIntCounts) {
  constexpr std::int64_t kStride = 2147483776, kColumns = 128;
  const Operator group = op("distant_rows");
  for (const Config& config :
       {Config{{"held", 1}, {"threads_per_row", 32}, {"rows_per_block", 2}, {"width", 4}},
        Config{{"held", 0}}}) {
    const jit::LoadedPlan loaded =
        plan("row_reduction", group, config, Facts::of_allocation(group, {{"M", 2}}));
    Tensor x(bench_->context(), DType::kBF16, kStride + kColumns);
    Tensor gain(bench_->context(), DType::kBF16, kColumns);
    Tensor h(bench_->context(), DType::kBF16, kStride + kColumns);
    Tensor y(bench_->context(), DType::kBF16, 2 * kColumns);
    std::vector<double> first(kColumns), second(kColumns);
    for (std::int64_t i = 0; i < kColumns; ++i) first[i] = 1, second[i] = i % 2 ? 3 : -3;
    x.write(first);
    x.write(second, kStride);
    gain.write(std::vector<double>(kColumns, 2));
    launch(loaded, {{x.address(), {2, kColumns}, {kStride, 1}},
                    {gain.address(), {kColumns}, {}},
                    {h.address(), {2, kColumns}, {kStride, 1}},
                    {y.address(), {2, kColumns}, {}}});
    const std::vector<double> far = h.read(kColumns, kStride), out = y.read(2 * kColumns);
    for (std::int64_t i = 0; i < kColumns; ++i) {
      EXPECT_EQ(far[i], 2 * second[i]) << i;
      EXPECT_EQ(out[kColumns + i], i % 2 ? 2 : -2) << i;  // of the second row's own mean square
    }
  }
}

TEST_F(KernelCases, MoreBatchesThanAGridsOtherExtentsCount) {
  const Operator group = op("many_batches");
  verify("simt_gemm", group,
         {{"block_m", 8},
          {"block_n", 8},
          {"thread_m", 2},
          {"thread_n", 1},
          {"block_k", 8},
          {"width", 1}},
         {{"B", 65537}}, 8);
  verify("simt_gemm", group,
         {{"block_m", 8},
          {"block_n", 8},
          {"thread_m", 2},
          {"thread_n", 1},
          {"block_k", 8},
          {"width", 1},
          {"split_k", 2}},
         {{"B", 300}});
}

TEST_F(KernelCases, AnOperandThatIsTheResidualToo) {
  for (std::int64_t stages : {1, 3}) {
    for (std::int64_t split : {1, 2}) {
      verify("simt_gemm", op("residual_is_operand"),
             {{"stages", stages}, {"split_k", split}, {"width", 8}}, {{"M", 33}}, 0, true);
    }
  }
}

TEST_F(KernelCases, OneTensorAsBothOperands) {
  for (std::int64_t split : {1, 2}) {
    verify("simt_gemm", op("gram"), {{"split_k", split}, {"stages", 2}}, {{"M", 33}}, 0, true);
  }
}

TEST_F(KernelCases, NamesThatCannotBeUsedAndAWeightThatIsUsedTwice) {
  for (std::int64_t split : {1, 2}) {
    verify("simt_gemm", op("awkward_names"), {{"split_k", split}}, {{"index", 33}, {"rows", 40}}, 0,
           true);
  }
}

TEST_F(KernelCases, QueriesInsidePackedRows) {
  for (const char* dtype : {"bf16", "f32"}) {
    const Operator group =
        op("packed_heads", {{"T", dtype}, {"H", "3"}, {"D", "64"}, {"row", "520"}});
    verify("row_reduction", group, {{"held", 1}, {"threads_per_row", 16}, {"rows_per_block", 4}},
           {{"M", 7}}, 0, true);
    verify("row_reduction", group, {{"width", 1}}, {{"M", 7}});
  }
}

TEST_F(KernelCases, InputRowsThatLieOnEachOther) {
  for (const char* stride : {"0", "8"}) {
    verify("simt_gemm", op("strided_rows", {{"ldx", stride}}), {}, {{"M", 20}}, 0, true);
  }
}

TEST_F(KernelCases, AnyNumberOfTilesAgainstAnyNumberOfStages) {
  const Operator group = op("mlp_up", {{"T", "f32"}, {"N", "32"}, {"K", "dynamic"}});
  for (std::int64_t stages : {1, 2, 3, 4}) {
    const Facts facts = Facts::of_allocation(group, {{"M", 16}, {"K", 16}});
    const jit::LoadedPlan loaded = plan(
        "simt_gemm", group,
        {{"stages", stages}, {"block_m", 16}, {"block_n", 32}, {"thread_m", 2}, {"block_k", 8}},
        facts);
    for (std::int64_t tiles = 1; tiles <= 2 * stages + 1; ++tiles) {
      for (std::int64_t rest : {0, 4}) {
        search::VerifyJob job;
        job.op = &group;
        job.bindings = {{"M", 16}, {"K", tiles * 8 - rest}};
        job.plan = &loaded;
        const auto verified = search::verify(bench_->context(), job);
        EXPECT_TRUE(verified) << stages << " stages, K=" << tiles * 8 - rest << ": "
                              << verified.error().message;
      }
    }
  }
}

TEST_F(KernelCases, NothingToDoIsNoLaunch) {
  // Empty tensors have null addresses, as frameworks pass them.
  const Tensor some(bench_->context(), DType::kF32, 64 * 32);
  const CUdeviceptr full = some.address();
  const jit::LoadedPlan norm = plan("row_reduction", op("layernorm", {{"N", "64"}}), {});
  EXPECT_EQ(launch(norm, {{0, {0, 64}, {}}, {full, {64}, {}}, {full, {64}, {}}, {0, {0, 64}, {}}}),
            0u);
  const jit::LoadedPlan product =
      plan("simt_gemm", op("mlp_up", {{"N", "64"}, {"K", "32"}}), {{"split_k", 2}});
  EXPECT_EQ(
      launch(product, {{0, {0, 32}, {}}, {full, {64, 32}, {}}, {full, {64}, {}}, {0, {0, 64}, {}}}),
      0u);
  const jit::LoadedPlan chain = plan("pointwise", op("bias_gelu", {{"N", "dynamic"}}), {});
  EXPECT_EQ(launch(chain, {{0, {3, 0}, {}}, {0, {0}, {}}, {0, {3, 0}, {}}}), 0u);
}

TEST_F(KernelCases, RowsOfMinusInfinityAreNanUnderSoftmaxAndNeighboursAreNot) {
  const double minus = -std::numeric_limits<double>::infinity();
  for (std::int64_t columns : {1, 32, 1000}) {
    for (std::int64_t held : {0, 8}) {
      const jit::LoadedPlan softmax =
          plan("row_reduction", op("softmax", {{"T", "f32"}, {"N", "dynamic"}}),
               {{"held", held}, {"threads_per_row", 32}, {"rows_per_block", 4}});
      Tensor x(bench_->context(), DType::kF32, 3 * columns);
      Tensor y(bench_->context(), DType::kF32, 3 * columns);
      std::vector<double> values(3 * columns, 0.0);
      for (std::int64_t i = 0; i < columns; ++i) values[columns + i] = minus;
      x.write(values);
      launch(softmax, {{x.address(), {3, columns}, {}}, {y.address(), {3, columns}, {}}});
      const std::vector<double> out = y.read(3 * columns);
      for (std::int64_t i = 0; i < columns; ++i) {
        EXPECT_NEAR(out[i], 1.0 / columns, 1e-6);
        EXPECT_TRUE(std::isnan(out[columns + i])) << i;
        EXPECT_NEAR(out[2 * columns + i], 1.0 / columns, 1e-6);
      }
    }
  }
}

TEST_F(KernelCases, AnOutputMayLieInAnInputsMemory) {
  // h = x + residual is written over the residual, as engines do.
  constexpr std::int64_t kRows = 5, kColumns = 300;
  const Operator group = op("add_rmsnorm", {{"T", "f32"}, {"N", std::to_string(kColumns)}});
  for (std::int64_t held : {0, 1}) {
    const jit::LoadedPlan loaded = plan("row_reduction", group, {{"held", held}});
    Tensor x(bench_->context(), DType::kF32, kRows * kColumns);
    Tensor residual(bench_->context(), DType::kF32, kRows * kColumns);
    Tensor gain(bench_->context(), DType::kF32, kColumns);
    Tensor y(bench_->context(), DType::kF32, kRows * kColumns);
    x.write(std::vector<double>(kRows * kColumns, 1));
    residual.write(std::vector<double>(kRows * kColumns, 2));
    gain.write(std::vector<double>(kColumns, 4));
    launch(loaded, {{x.address(), {kRows, kColumns}, {}},
                    {residual.address(), {kRows, kColumns}, {}},
                    {gain.address(), {kColumns}, {}},
                    {residual.address(), {kRows, kColumns}, {}},
                    {y.address(), {kRows, kColumns}, {}}});
    for (double h : residual.read(kRows * kColumns)) EXPECT_EQ(h, 3);
    for (double out : y.read(kRows * kColumns)) EXPECT_NEAR(out, 4, 1e-5);
  }
}

TEST_F(KernelCases, SubnormalNumbersAreNotFlushed) {
  const auto chain = templates::parse_operator(
      "operator: halves\ndimensions: [M]\ninputs:\n  x: {dtype: f32, shape: [M]}\nbody:\n"
      "  - y = mul(x, 0.5)\noutputs:\n  y: {dtype: f32}\n",
      "halves.yaml");
  ASSERT_TRUE(chain) << chain.error().message;
  const jit::LoadedPlan loaded = plan("pointwise", *chain, {});
  const std::vector<double> values = {1.2e-38f, 3e-45f, -6e-39f, 1};
  Tensor x(bench_->context(), DType::kF32, 4), y(bench_->context(), DType::kF32, 4);
  x.write(values);
  launch(loaded, {{x.address(), {4}, {}}, {y.address(), {4}, {}}});
  const std::vector<double> out = y.read(4);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(out[i], static_cast<double>(static_cast<float>(values[i]) * 0.5f)) << values[i];
    EXPECT_NE(out[i], 0);
  }
}

TEST_F(KernelCases, TheBitsOfARowDoNotDependOnTheOtherRows) {
  const Operator group = op("mlp_up", {{"T", "f32"}, {"N", "40"}, {"K", "200"}});
  for (const Config& config : {Config{{"stages", 2}}, Config{{"split_k", 3}, {"stages", 1}}}) {
    const jit::LoadedPlan loaded =
        plan("simt_gemm", group, config, Facts::of_allocation(group, {{"M", 2}}));
    std::vector<double> rows(33 * 200), weights(40 * 200), alone, among;
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = std::sin(0.37 * static_cast<double>(i));
    for (std::size_t i = 0; i < weights.size(); ++i)
      weights[i] = std::cos(0.11 * static_cast<double>(i));
    Tensor x(bench_->context(), DType::kF32, 33 * 200), w(bench_->context(), DType::kF32, 40 * 200);
    Tensor bias(bench_->context(), DType::kF32, 40), y(bench_->context(), DType::kF32, 33 * 40);
    x.write(rows);
    w.write(weights);
    bias.write(std::vector<double>(40, 0.1));
    for (std::int64_t m : {1, 2, 17, 33}) {
      launch(loaded, {{x.address(), {m, 200}, {}},
                      {w.address(), {40, 200}, {}},
                      {bias.address(), {40}, {}},
                      {y.address(), {m, 40}, {}}});
      const std::vector<double> first = y.read(40);
      if (m == 1) alone = first;
      EXPECT_EQ(first, alone) << "M=" << m;
    }
  }
}

TEST_F(KernelCases, ABaseOffAlignmentIsRefusedAndNotAFault) {
  const Operator group = op("bias_gelu", {{"T", "bf16"}, {"N", "64"}});
  const jit::LoadedPlan loaded =
      plan("pointwise", group, {{"width", 8}}, Facts::of_allocation(group, {{"M", 4}}));
  Tensor x(bench_->context(), DType::kBF16, 4 * 64 + 1), y(bench_->context(), DType::kBF16, 4 * 64);
  Tensor bias(bench_->context(), DType::kBF16, 64);
  const jit::TensorArgument arguments[] = {
      {x.address() + 2, {4, 64}, {}}, {bias.address(), {64}, {}}, {y.address(), {4, 64}, {}}};
  const auto prepared = loaded.prepare(arguments);
  ASSERT_FALSE(prepared);
  EXPECT_EQ(prepared.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(prepared.error().message.find("x.align >= 16"), std::string::npos)
      << prepared.error().message;
}

}  // namespace
}  // namespace tilewright::integration
