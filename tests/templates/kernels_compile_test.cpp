// What NVRTC makes of the golden sources: no spills, few registers, wide accesses.
#include <map>

#include "jit/compiler.h"
#include "jit/virtual_gpu/machine.h"
#include "templates/headers.h"
#include "tests/templates/golden_case.h"

namespace tilewright::templates {
namespace {

class Kernels : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto opened = jit::Compiler::open(device_headers());
    ASSERT_TRUE(opened) << opened.error().message << "\n" << opened.error().detail;
    compiler_ = std::make_unique<jit::Compiler>(std::move(*opened));
  }
  static void TearDownTestSuite() { compiler_.reset(); }

  static jit::Image compiled(const jit::Source& source, const char* architecture = "sm_90") {
    const auto image =
        compiler_->compile(source, {.architecture = *jit::Architecture::parse(architecture)});
    EXPECT_TRUE(image) << source.name << ": " << (image ? "" : image.error().message);
    return image ? *image : jit::Image{};
  }

  /// Of a golden case, for sm_90; compiled once.
  static const jit::Image& golden(const std::string& name) {
    auto found = images_.find(name);
    if (found == images_.end()) {
      found = images_.emplace(name, compiled(GoldenCase::load(name).generate().source)).first;
    }
    return found->second;
  }

  static inline std::unique_ptr<jit::Compiler> compiler_;
  static inline std::map<std::string, jit::Image> images_;
};

/// How often an instruction of the PTX begins with `name`.
int count(const std::string& ptx, const std::string& name) {
  int found = 0;
  for (std::size_t at = ptx.find(name); at != std::string::npos; at = ptx.find(name, at + 1)) {
    ++found;
  }
  return found;
}

/// The part of one kernel.
std::string body(const std::string& ptx, const std::string& kernel) {
  const std::size_t begin = ptx.find(".entry " + kernel + "(");
  return ptx.substr(begin, ptx.find(".entry ", begin + 1) - begin);
}

TEST_F(Kernels, OfGoldenSourcesDoNotSpill) {
  // Registers, with some room for another NVRTC.
  const std::map<std::string, int> limits = {
      {"pointwise_bias_gelu", 64},
      {"pointwise_broadcast_batches", 48},
      {"pointwise_chain_unaligned", 48},
      {"row_reduction_add_rmsnorm", 80},
      {"row_reduction_layernorm_streamed", 48},
      {"row_reduction_softmax_dynamic", 80},
      {"row_reduction_sum_and_rows", 48},
      {"simt_gemm_batched", 96},
      {"simt_gemm_mlp_up", 128},
      {"simt_gemm_residual_ragged", 144},
      {"simt_gemm_swiglu_split", 176},
  };
  for (const std::string& name : GoldenCase::all()) {
    ASSERT_TRUE(limits.contains(name)) << name;
    for (const jit::KernelResources& kernel : golden(name).kernels) {
      EXPECT_EQ(kernel.spill_load_bytes + kernel.spill_store_bytes, 0) << kernel.kernel;
      EXPECT_EQ(kernel.stack_bytes, 0) << kernel.kernel;
      EXPECT_LE(kernel.registers, limits.at(name)) << kernel.kernel;
      RecordProperty(kernel.kernel, kernel.registers);
    }
  }
}

TEST_F(Kernels, CompileForEveryArchitectureWeServeAndTheVirtualGpuKnowsAllOfIt) {
  for (const char* architecture :
       {"sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_103a", "sm_120a"}) {
    for (const char* name :
         {"pointwise_bias_gelu", "row_reduction_add_rmsnorm", "row_reduction_layernorm_streamed",
          "row_reduction_softmax_dynamic", "simt_gemm_swiglu_split"}) {
      const jit::Image image = compiled(GoldenCase::load(name).generate().source, architecture);
      const auto memory = vgpu::Memory::create(std::uint64_t{1} << 26);
      const auto program = vgpu::Program::load(image.ptx, *memory);
      EXPECT_TRUE(program) << architecture << " " << name << ": " << program.error().message;
    }
  }
}

TEST_F(Kernels, OfAlignedRowsAccessMemorySixteenBytesAtATime) {
  const std::string ptx = golden("row_reduction_add_rmsnorm").ptx;
  // 4096 columns of 128 threads: four fragments each of x, residual and gain, and of h and y.
  EXPECT_EQ(count(ptx, "ld.global.v4.b32"), 12);
  EXPECT_EQ(count(ptx, "st.global.v4.b32"), 8);
  EXPECT_EQ(count(ptx, "ld.global"), 12);
  EXPECT_EQ(count(ptx, "st.global"), 8);
}

TEST_F(Kernels, LoadABiasOncePerThreadAndNotPerRow) {
  const std::string ptx = golden("pointwise_bias_gelu").ptx;
  // Two fragments of the bias before the loop over rows, two of x in it.
  EXPECT_EQ(count(ptx, "ld.global.v4.b32"), 4);
  EXPECT_EQ(count(ptx, "ld.global"), 4);
  EXPECT_EQ(count(ptx, "st.global.v4.b32"), 2);
  EXPECT_EQ(count(ptx, "st.global"), 2);

  const std::string product = golden("simt_gemm_mlp_up").ptx;
  // One access of each operand per tile (two by thread for w), one of the bias for all four rows.
  EXPECT_EQ(count(product, "ld.global.v4.b32"), 3);
  EXPECT_EQ(count(product, "st.global.v4.b32"), 4);
  EXPECT_EQ(count(product, "st.global"), 4);
}

TEST_F(Kernels, ReadSharedMemorySixteenBytesAtATime) {
  const std::string ptx = golden("simt_gemm_mlp_up").ptx;
  EXPECT_EQ(count(ptx, "ld.shared"), count(ptx, "ld.shared.v4"));
  EXPECT_EQ(count(ptx, "st.shared"), count(ptx, "st.shared.v4"));
  // 4 rows and 8 columns for 16 steps along k, four at a time.
  EXPECT_EQ(count(ptx, "ld.shared.v4"), (4 + 8) * 4);
}

TEST_F(Kernels, CopyAsynchronouslyWhereAlignmentAllows) {
  const std::string ptx = golden("simt_gemm_swiglu_split").ptx;
  const std::string first = body(ptx, "tilewright_simt_gemm");
  EXPECT_GT(count(first, "cp.async.cg.shared.global"), 0);
  EXPECT_EQ(count(first, "ld.global"), 0);
  EXPECT_EQ(count(first, "st.shared"), 0);
  const std::string finish = body(ptx, "tilewright_simt_gemm_finish");
  EXPECT_EQ(count(finish, "ld.global"), count(finish, "ld.global.v4.b32"));
  EXPECT_EQ(count(finish, "st.global.v4.b32"), 1);

  const std::string ragged = golden("simt_gemm_residual_ragged").ptx;
  EXPECT_EQ(count(ragged, "cp.async"), 0);
}

TEST_F(Kernels, HoldAsMuchOfUnalignedRowsAsOfAlignedOnes) {
  const Operator norm =
      parsed(operator_yaml("  x: {dtype: bf16, shape: [M, N]}\n  gain: {dtype: bf16, shape: [N]}\n",
                           "  - y = rmsnorm(x, gain, eps=1e-5)\n", "  y: {dtype: bf16}\n", "M, N"));
  const Config configs[] = {
      {{"width", 4}, {"threads_per_row", 16}, {"rows_per_block", 2}, {"held", 32}},
      {{"width", 8}, {"threads_per_row", 32}, {"rows_per_block", 4}, {"held", 16}},
      {{"width", 1}, {"threads_per_row", 32}, {"rows_per_block", 4}, {"held", 64}}};
  for (const Config& config : configs) {
    for (const Facts& facts : {Facts::unaligned(norm), Facts::of_allocation(norm, {{"N", 4096}})}) {
      const auto made = find_family("row_reduction")->generate(norm, config, facts);
      ASSERT_TRUE(made) << to_string(config) << ": " << made.error().message;
      compiled(made->source);
    }
  }
}

TEST_F(Kernels, CompileWhateverTheTensorsAreCalled) {
  const Operator product = parsed(operator_yaml(
      "  a: {dtype: f32, shape: [kWidth, block]}\n  b: {dtype: f32, shape: [block, 8]}\n",
      "  - p = matmul(a, b)\n  - visit = relu(p)\n", "  visit: {dtype: f32}\n", "kWidth, block"));
  const Operator reduction =
      parsed(operator_yaml("  row: {dtype: f32, shape: [kWidth, 64]}\n",
                           "  - kept = softmax(row)\n", "  kept: {dtype: f32}\n", "kWidth"));
  const Operator chain =
      parsed(operator_yaml("  at: {dtype: f32, shape: [float, 64]}\n", "  - results = relu(at)\n",
                           "  results: {dtype: f32}\n", "float"));
  const std::pair<const char*, const Operator*> groups[] = {
      {"simt_gemm", &product}, {"row_reduction", &reduction}, {"pointwise", &chain}};
  for (const auto& [family, group] : groups) {
    const auto made = find_family(family)->generate(*group, config_of(family, *group, {}), Facts{});
    ASSERT_TRUE(made) << made.error().message;
    compiled(made->source);
  }
}

TEST_F(Kernels, OfDenseShapesHaveNoRaggedPath) {
  const Operator fixed = parsed(
      operator_yaml("  x: {dtype: f32, shape: [128, 64]}\n  w: {dtype: f32, shape: [64, 128]}\n",
                    "  - y = matmul(x, w)\n", "  y: {dtype: f32}\n", ""));
  const Facts facts = Facts::of_allocation(fixed, {});
  const Config config = config_of("simt_gemm", fixed, {});
  const auto made = find_family("simt_gemm")->generate(fixed, config, facts);
  ASSERT_TRUE(made) << made.error().message;
  const std::string ptx = compiled(made->source).ptx;
  EXPECT_EQ(count(ptx, "ld.global"), count(ptx, "ld.global.v4.b32"));
  EXPECT_EQ(count(ptx, "st.global"), count(ptx, "st.global.v4.b32"));
  // The loop over tiles, and nothing else: no branch around an access.
  EXPECT_LE(count(ptx, "bra"), 3);
}

}  // namespace
}  // namespace tilewright::templates
