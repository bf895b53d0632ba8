// Every shipped operator, and some that are harder, in three dtypes at a dozen shapes and more:
// tails, zeros, ones, primes, bases and rows off alignment; for eight configs of the family. Whole
// outputs are compared. Shapes share images: how many were compiled is asserted.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/integration/kernel_bench.h"

namespace tilewright::integration {
namespace {

using templates::Bindings;
using templates::Config;
using templates::Facts;
using templates::Operator;
using templates::Overrides;

/// A shape, and by how much bases are displaced, in elements.
struct ShapeCase {
  Bindings bindings;
  int displaced = 0;
};

/// Which parameters are dynamic; which fixed ones and what batches.
struct MatrixCase {
  const char* name;
  std::vector<int> statements;  ///< empty: the whole operator
  const char* family;
  Overrides dynamic;  ///< "N": "dynamic", so that all shapes share images
  Overrides fixed;    ///< for images with the extents baked in
  std::vector<ShapeCase> shapes, fixed_shapes;
};

void PrintTo(const MatrixCase& example, std::ostream* to) { *to << example.name; }

std::vector<ShapeCase> with(std::vector<ShapeCase> shapes, const Bindings& more) {
  for (ShapeCase& shape : shapes) shape.bindings.insert(more.begin(), more.end());
  return shapes;
}

const std::vector<ShapeCase> kProducts = {
    {{{"M", 0}, {"N", 64}, {"K", 32}}},     {{{"M", 1}, {"N", 1}, {"K", 1}}},
    {{{"M", 1}, {"N", 128}, {"K", 64}}},    {{{"M", 3}, {"N", 5}, {"K", 7}}},
    {{{"M", 16}, {"N", 128}, {"K", 64}}},   {{{"M", 17}, {"N", 33}, {"K", 129}}},
    {{{"M", 64}, {"N", 0}, {"K", 16}}},     {{{"M", 5}, {"N", 40}, {"K", 0}}},
    {{{"M", 31}, {"N", 127}, {"K", 61}}},   {{{"M", 70}, {"N", 72}, {"K", 40}}},
    {{{"M", 65}, {"N", 136}, {"K", 48}}},   {{{"M", 33}, {"N", 1}, {"K", 96}}},
    {{{"M", 37}, {"N", 64}, {"K", 80}}, 1}, {{{"M", 129}, {"N", 8}, {"K", 8}}, 3},
};
const std::vector<ShapeCase> kFixedProducts = {{{{"M", 1}}}, {{{"M", 64}}}, {{{"M", 67}}}};

const std::vector<ShapeCase> kRows = {
    {{{"M", 0}, {"N", 64}}},     {{{"M", 1}, {"N", 1}}},      {{{"M", 3}, {"N", 7}}},
    {{{"M", 16}, {"N", 128}}},   {{{"M", 17}, {"N", 33}}},    {{{"M", 5}, {"N", 1000}}},
    {{{"M", 33}, {"N", 257}}},   {{{"M", 2}, {"N", 1024}}},   {{{"M", 64}, {"N", 0}}},
    {{{"M", 4}, {"N", 129}}},    {{{"M", 7}, {"N", 1025}}},   {{{"M", 1}, {"N", 127}}},
    {{{"M", 9}, {"N", 512}}, 1}, {{{"M", 33}, {"N", 96}}, 3},
};
const std::vector<ShapeCase> kFixedRows = {{{{"M", 1}}}, {{{"M", 5}}}, {{{"M", 16}}}};

const Overrides kAnyProduct = {{"N", "dynamic"}, {"K", "dynamic"}};
const Overrides kFixedProduct = {{"N", "192"}, {"K", "96"}};
const Overrides kAnyRow = {{"N", "dynamic"}};

const std::vector<MatrixCase> kCases = {
    {"linear", {}, "simt_gemm", kAnyProduct, kFixedProduct, kProducts, kFixedProducts},
    {"mlp_up", {}, "simt_gemm", kAnyProduct, kFixedProduct, kProducts, kFixedProducts},
    {"swiglu", {}, "simt_gemm", kAnyProduct, kFixedProduct, kProducts, kFixedProducts},
    {"attn_out", {0, 1}, "simt_gemm", kAnyProduct, kFixedProduct, kProducts, kFixedProducts},
    {"attn_out", {2}, "row_reduction", kAnyRow, {{"N", "768"}}, kRows, kFixedRows},
    {"add_rmsnorm", {}, "row_reduction", kAnyRow, {{"N", "1024"}}, kRows, kFixedRows},
    {"layernorm", {}, "row_reduction", kAnyRow, {{"N", "900"}}, kRows, kFixedRows},
    {"softmax", {}, "row_reduction", kAnyRow, {{"N", "1000"}}, kRows, kFixedRows},
    {"bias_gelu", {}, "pointwise", kAnyRow, {{"N", "1024"}}, kRows, kFixedRows},
    {"pointwise_chain", {}, "pointwise", kAnyRow, {{"N", "900"}}, kRows, kFixedRows},
};

/// Operators that no model ships, for what theirs leave out; with a few of the configs.
const std::vector<MatrixCase> kHardCases = {
    {"transposed_batches",
     {},
     "simt_gemm",
     kAnyProduct,
     {{"N", "64"}, {"K", "32"}},
     with(kProducts, {{"B", 3}}),
     with(kFixedProducts, {{"B", 2}})},
    {"shared_weight",
     {},
     "simt_gemm",
     kAnyProduct,
     {{"N", "64"}, {"K", "32"}},
     with(kProducts, {{"B", 2}}),
     with(kFixedProducts, {{"B", 5}})},
    {"gated_batches",
     {},
     "simt_gemm",
     kAnyProduct,
     {{"N", "64"}, {"K", "32"}},
     with(kProducts, {{"A", 2}, {"B", 3}}),
     with(kFixedProducts, {{"A", 3}, {"B", 1}})},
    {"strided_rows",
     {},
     "simt_gemm",
     {{"ldx", "dynamic"}, {"ldy", "dynamic"}},
     {},
     with(kFixedProducts, {{"ldx", 25}, {"ldy", 41}}),
     kFixedProducts},
    {"pointwise_axes",
     {},
     "pointwise",
     kAnyRow,
     {{"N", "64"}},
     with(kRows, {{"A", 2}, {"B", 3}}),
     with(kFixedRows, {{"A", 1}, {"B", 2}})},
    {"row_chain",
     {},
     "row_reduction",
     kAnyRow,
     {{"N", "640"}},
     with(kRows, {{"A", 3}}),
     with(kFixedRows, {{"A", 1}})},
};

std::vector<Config> configs_of(const std::string& family) {
  if (family == "pointwise") {
    const auto config = [](int width, int items, int rows, int x, int y) {
      return Config{{"width", width},
                    {"items", items},
                    {"rows_per_thread", rows},
                    {"threads_x", x},
                    {"threads_y", y}};
    };
    return {config(4, 1, 1, 64, 4), config(8, 1, 1, 128, 1), config(8, 2, 1, 32, 2),
            config(2, 4, 2, 64, 1), config(1, 1, 4, 256, 1), config(8, 4, 4, 32, 8),
            config(1, 4, 1, 32, 1), config(4, 2, 2, 16, 8)};
  }
  if (family == "row_reduction") {
    const auto config = [](int width, int threads, int rows, int held) {
      return Config{
          {"width", width}, {"threads_per_row", threads}, {"rows_per_block", rows}, {"held", held}};
    };
    // The held ones hold 1025 columns at least, so that every shape is theirs.
    return {config(4, 128, 1, 0), config(8, 256, 1, 1), config(8, 64, 2, 4), config(4, 512, 1, 1),
            config(1, 512, 1, 4), config(2, 32, 8, 0),  config(1, 8, 4, 0),  config(8, 32, 4, 0)};
  }
  const auto config = [](std::array<int, 3> block, std::array<int, 2> thread, int stages, int width,
                         int split, int group, int blocks) {
    return Config{{"block_m", block[0]},    {"block_n", block[1]},   {"block_k", block[2]},
                  {"thread_m", thread[0]},  {"thread_n", thread[1]}, {"stages", stages},
                  {"width", width},         {"split_k", split},      {"group_m", group},
                  {"blocks_per_sm", blocks}};
  };
  return {config({64, 64, 16}, {4, 4}, 1, 4, 1, 1, 1), config({32, 64, 32}, {4, 8}, 2, 8, 1, 1, 2),
          config({16, 64, 32}, {2, 8}, 3, 8, 2, 1, 1), config({32, 32, 16}, {2, 4}, 4, 4, 1, 4, 1),
          config({64, 32, 8}, {8, 4}, 2, 2, 3, 1, 1),  config({16, 128, 64}, {4, 4}, 1, 8, 1, 2, 1),
          config({128, 32, 8}, {8, 8}, 2, 1, 1, 1, 1), config({16, 32, 8}, {1, 2}, 3, 4, 8, 1, 1)};
}

std::vector<Config> configs_of(const MatrixCase& example) {
  const std::vector<Config> all = configs_of(std::string(example.family));
  const bool hard = std::any_of(kHardCases.begin(), kHardCases.end(), [&](const MatrixCase& other) {
    return std::string_view(other.name) == example.name;
  });
  if (!hard) return all;
  return example.family == std::string("simt_gemm") ? std::vector{all[0], all[2], all[3], all[4]}
                                                    : std::vector{all[0], all[1], all[4]};
}

/// Of all tensors that are read along their rows.
int alignment(const Operator& op, const Bindings& bindings) {
  const Facts facts = Facts::of_allocation(op, bindings);
  int least = 16;
  for (const jit::PlanTensor& tensor : templates::plan_tensors(op)) {
    if (tensor.shape.back() != "1") least = std::min(least, facts.alignment.at(tensor.name));
  }
  return least;
}

class Matrix : public testing::TestWithParam<std::tuple<MatrixCase, const char*>> {
 protected:
  static void SetUpTestSuite() {
    auto opened = KernelBench::open();
    ASSERT_TRUE(opened) << opened.error().message << "\n" << opened.error().detail;
    bench_ = std::make_unique<KernelBench>(std::move(*opened));
  }
  static void TearDownTestSuite() { bench_.reset(); }

  const MatrixCase& example() const { return std::get<0>(GetParam()); }

  Operator group(Overrides overrides) const {
    overrides["T"] = std::get<1>(GetParam());
    auto op = find_operator(example().name, overrides);
    EXPECT_TRUE(op) << op.error().message;
    if (!op) return {};
    return example().statements.empty() ? std::move(*op)
                                        : templates::extract_group(*op, example().statements);
  }

  /// One image per config.
  struct Images {
    Operator op;
    std::vector<Candidate> candidates;
    std::vector<jit::LoadedPlan> plans;
  };

  Images start(const Overrides& overrides, const Facts* facts, const Bindings& bindings) const {
    Images images{group(overrides), {}, {}};
    const templates::Family& family = *templates::find_family(example().family);
    const Facts known = facts ? *facts : Facts::of_allocation(images.op, bindings);
    for (const Config& config : configs_of(example())) {
      auto candidate = bench_->start(family, images.op, config, known);
      EXPECT_TRUE(candidate) << templates::to_string(config) << ": " << candidate.error().message;
      if (candidate) images.candidates.push_back(std::move(*candidate));
    }
    return images;
  }

  void load(Images& images) const {
    for (const Candidate& candidate : images.candidates) {
      auto plan = bench_->load(candidate);
      ASSERT_TRUE(plan) << plan.error().message << "\n" << plan.error().detail;
      images.plans.push_back(std::move(*plan));
    }
  }

  void verify(const Images& images, const ShapeCase& shape) const {
    search::VerifyJob job;
    job.op = &images.op;
    job.bindings = shape.bindings;
    for (const jit::PlanTensor& tensor : templates::plan_tensors(images.op)) {
      job.displacement[tensor.name] = shape.displaced * bits_of(tensor.dtype) / 8;
    }
    job.settings.max_elements = 1 << 30;
    auto session = search::VerifySession::create(bench_->context(), job);
    ASSERT_TRUE(session) << session.error().message;
    for (std::size_t i = 0; i < images.plans.size(); ++i) {
      const auto verified = (*session)->verify(images.plans[i], job.settings, 0);
      EXPECT_TRUE(verified) << describe(shape) << " "
                            << templates::to_string(configs_of(example())[i]) << ": "
                            << verified.error().message << "\n"
                            << verified.error().detail;
      if (!verified) continue;
      EXPECT_FALSE(verified->sampled);
      EXPECT_TRUE(verified->verified);
    }
  }

  static std::string describe(const ShapeCase& shape) {
    std::string text;
    for (const auto& [name, value] : shape.bindings) {
      text += (text.empty() ? "" : ",") + name + "=" + std::to_string(value);
    }
    return shape.displaced ? text + " displaced by " + std::to_string(shape.displaced) : text;
  }

  static inline std::unique_ptr<KernelBench> bench_;
};

TEST_P(Matrix, WholeOutputsAreRight) {
  const std::size_t before = bench_->pool().compiles();
  // All compiles under way at once: images that know nothing, that know of aligned rows, and that
  // know the extents.
  const Facts nothing;
  Images unaligned = start(example().dynamic, &nothing, {});
  Facts sixteen;
  for (const jit::PlanTensor& tensor : templates::plan_tensors(unaligned.op)) {
    sixteen.alignment[tensor.name] = 16;
  }
  Images aligned = start(example().dynamic, &sixteen, {});
  Images fixed = start(example().fixed, nullptr, example().fixed_shapes.front().bindings);
  std::set<Digest> distinct;
  for (Images* images : {&unaligned, &aligned, &fixed}) {
    load(*images);
    ASSERT_EQ(images->plans.size(), configs_of(example()).size());
    for (const jit::LoadedPlan& plan : images->plans) {
      distinct.insert(plan.plan().launches.front().image);
    }
  }
  int on_aligned = 0;
  for (const ShapeCase& shape : example().shapes) {
    const bool all_aligned = shape.displaced == 0 && alignment(unaligned.op, shape.bindings) == 16;
    on_aligned += all_aligned;
    verify(all_aligned ? aligned : unaligned, shape);
  }
  for (const ShapeCase& shape : example().fixed_shapes) verify(fixed, shape);
  EXPECT_GT(on_aligned, 0);
  EXPECT_LT(on_aligned, static_cast<int>(example().shapes.size()));
  // Every distinct source was compiled once, whatever the number of shapes.
  EXPECT_EQ(bench_->pool().compiles() - before, distinct.size());
}

/// A model's sizes, by the blocks that a seed picks.
struct ModelCase {
  const char* name;
  std::vector<int> statements;
  const char* family;
  Overrides parameters;
  Bindings bindings;
};

const ModelCase kModels[] = {
    {"linear", {}, "simt_gemm", {{"N", "3072"}, {"K", "2048"}}, {{"M", 16}}},  // llama-3.2-1b
    {"mlp_up", {}, "simt_gemm", {{"N", "3072"}, {"K", "768"}}, {{"M", 197}}},  // bert-base
    {"swiglu", {}, "simt_gemm", {{"N", "8192"}, {"K", "2048"}}, {{"M", 16}}},  // llama-3.2-1b
    {"attn_out", {0, 1}, "simt_gemm", {{"N", "2048"}, {"K", "2048"}}, {{"M", 64}}},
    {"attn_out", {2}, "row_reduction", {{"N", "2048"}, {"K", "2048"}}, {{"M", 64}}},
    {"add_rmsnorm", {}, "row_reduction", {{"N", "2048"}}, {{"M", 256}}},
    {"layernorm", {}, "row_reduction", {{"N", "1024"}}, {{"M", 197}}},  // bert-large
    {"softmax", {}, "row_reduction", {{"N", "32000"}}, {{"M", 16}}},    // mixtral-8x7b
    {"bias_gelu", {}, "pointwise", {{"N", "3072"}}, {{"M", 197}}},
    {"pointwise_chain", {}, "pointwise", {{"N", "14336"}}, {{"M", 33}}},
};

TEST_P(Matrix, ModelSizesAreRightInSampledBlocks) {
  for (const ModelCase& model : kModels) {
    if (model.name != std::string_view(example().name) || model.statements != example().statements)
      continue;
    Operator op = group(model.parameters);
    const templates::Family& family = *templates::find_family(model.family);
    search::VerifyJob job;
    job.op = &op;
    job.bindings = model.bindings;
    job.settings.max_elements = 256;
    auto session = search::VerifySession::create(bench_->context(), job);
    ASSERT_TRUE(session) << session.error().message;
    const Facts facts = Facts::of_allocation(op, model.bindings);
    std::vector<std::pair<Config, Candidate>> started;
    for (const Config& config : configs_of(example())) {
      auto candidate = bench_->start(family, op, config, facts);
      // A row may be too long to be held.
      if (!candidate && candidate.error().message.find("held is") != std::string::npos) continue;
      ASSERT_TRUE(candidate) << candidate.error().message;
      started.emplace_back(config, std::move(*candidate));
    }
    for (const auto& [config, candidate] : started) {
      auto plan = bench_->load(candidate);
      ASSERT_TRUE(plan) << plan.error().message << "\n" << plan.error().detail;
      const auto verified = (*session)->verify(*plan, job.settings, 6);
      EXPECT_TRUE(verified) << templates::to_string(config) << ": " << verified.error().message
                            << "\n"
                            << verified.error().detail;
    }
  }
}

std::string case_name(const testing::TestParamInfo<Matrix::ParamType>& info) {
  const MatrixCase& example = std::get<0>(info.param);
  std::string name = example.name;
  for (int statement : example.statements) name += "_" + std::to_string(statement);
  return name + "_" + std::get<1>(info.param);
}

INSTANTIATE_TEST_SUITE_P(Shipped, Matrix,
                         testing::Combine(testing::ValuesIn(kCases),
                                          testing::Values("f32", "f16", "bf16")),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Hard, Matrix,
                         testing::Combine(testing::ValuesIn(kHardCases),
                                          testing::Values("f32", "f16", "bf16")),
                         case_name);

}  // namespace
}  // namespace tilewright::integration
