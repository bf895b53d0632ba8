// Errors planted in the templates and in what the generator writes: verification must catch each.
// Every case is right without them, so what is caught is the error. What the check that is usual
// elsewhere (random-normal data, absolute and relative tolerance 1e-2) would have missed of them is
// listed in docs/numerics.md, and the list is checked here.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "jit/compiler.h"
#include "search/verify/plan_run.h"
#include "templates/headers.h"
#include "tests/integration/kernel_bench.h"

namespace tilewright::integration {
namespace {

using templates::Bindings;
using templates::Config;
using templates::Facts;
using templates::Operator;
using templates::Overrides;

struct Case {
  const char* op;
  std::vector<int> statements;
  Overrides overrides;
  const char* family;
  Config config;  ///< what differs from the safe one
  bool aligned;
  Bindings bindings;
};

const std::map<std::string, Case> kCases = {
    {"ragged product",
     {"mlp_up", {}, {{"T", "f32"}, {"N", "70"}, {"K", "37"}}, "simt_gemm", {}, false, {{"M", 67}}}},
    {"bf16 product",
     {"mlp_up",
      {},
      {{"T", "bf16"}, {"N", "200"}, {"K", "40"}},
      "simt_gemm",
      {{"width", 4}, {"group_m", 4}, {"block_m", 16}, {"thread_m", 1}},
      true,
      {{"M", 100}}}},
    {"asynchronous product",
     {"mlp_up",
      {},
      {{"T", "f32"}, {"N", "72"}, {"K", "100"}},
      "simt_gemm",
      {{"stages", 3}, {"thread_m", 2}},
      true,
      {{"M", 33}}}},
    {"ragged asynchronous product",
     {"mlp_up",
      {},
      {{"T", "f32"}, {"N", "70"}, {"K", "37"}},
      "simt_gemm",
      {{"stages", 2}},
      false,
      {{"M", 33}}}},
    {"prefetched product",
     {"mlp_up",
      {},
      {{"T", "bf16"}, {"N", "72"}, {"K", "101"}},
      "simt_gemm",
      {{"stages", 2}},
      false,
      {{"M", 33}}}},
    {"split gate",
     {"swiglu",
      {},
      {{"T", "f32"}, {"N", "72"}, {"K", "200"}},
      "simt_gemm",
      {{"split_k", 3}},
      true,
      {{"M", 33}}}},
    {"gate",
     {"swiglu",
      {},
      {{"T", "f16"}, {"N", "64"}, {"K", "48"}},
      "simt_gemm",
      {{"stages", 2}},
      true,
      {{"M", 33}}}},
    {"transposed batches",
     {"transposed_batches",
      {},
      {{"T", "f32"}, {"U", "f32"}},
      "simt_gemm",
      {{"width", 8}, {"thread_n", 8}},
      true,
      {{"B", 3}, {"M", 20}}}},
    {"narrow transposed batches",
     {"transposed_batches",
      {},
      {{"T", "f32"}, {"U", "f32"}},
      "simt_gemm",
      {{"width", 2}},
      true,
      {{"B", 3}, {"M", 20}}}},
    {"row maximum", {"row_max", {}, {}, "row_reduction", {}, false, {{"M", 16}}}},
    {"shared weight",
     {"shared_weight", {}, {{"T", "f32"}}, "simt_gemm", {}, true, {{"B", 3}, {"M", 20}}}},
    {"strided rows", {"strided_rows", {}, {}, "simt_gemm", {}, true, {{"M", 20}}}},
    {"softmax",
     {"softmax",
      {},
      {{"T", "f32"}, {"N", "dynamic"}},
      "row_reduction",
      {{"threads_per_row", 64}, {"rows_per_block", 2}, {"held", 4}},
      false,
      {{"M", 9}, {"N", 1001}}}},
    {"streamed softmax",
     {"softmax",
      {},
      {{"T", "f32"}, {"N", "dynamic"}},
      "row_reduction",
      {},
      false,
      {{"M", 9}, {"N", 1001}}}},
    {"layernorm",
     {"layernorm",
      {},
      {{"T", "f32"}, {"N", "1001"}},
      "row_reduction",
      {{"threads_per_row", 128}, {"rows_per_block", 2}, {"held", 2}},
      false,
      {{"M", 9}}}},
    {"layernorm of wide fragments",
     {"layernorm",
      {},
      {{"T", "bf16"}, {"N", "dynamic"}},
      "row_reduction",
      {{"threads_per_row", 32}, {"rows_per_block", 4}, {"width", 8}, {"held", 4}},
      true,
      {{"M", 1}, {"N", 1001}}}},
    {"narrow rmsnorm",
     {"attn_out",
      {2},
      {{"T", "f32"}, {"N", "24"}},
      "row_reduction",
      {{"threads_per_row", 8}, {"rows_per_block", 4}},
      false,
      {{"M", 9}}}},
    {"bias_gelu",
     {"bias_gelu",
      {},
      {{"T", "f32"}, {"N", "1001"}},
      "pointwise",
      {{"rows_per_thread", 2}, {"items", 2}},
      false,
      {{"M", 33}}}},
    {"ragged fragments",
     {"bias_gelu",
      {},
      {{"T", "f32"}, {"N", "dynamic"}},
      "pointwise",
      {},
      true,
      {{"M", 1}, {"N", 1001}}}},
    {"chain",
     {"pointwise_chain",
      {},
      {{"T", "f32"}, {"N", "64"}, {"limit", "1"}},
      "pointwise",
      {},
      true,
      {{"M", 33}}}},
};

struct Mutant {
  const char* name;
  const char* of;    ///< a case
  const char* file;  ///< a device header, or "generated"
  const char* from;
  const char* to;
};

const Mutant kMutants[] = {
    // Products: bounds, tails, indices.
    {"k_tail_dropped", "ragged product", "kernels/simt_gemm.cuh",
     "0, ceil_div(depth, kC.block_k));", "0, depth / kC.block_k);"},
    {"k_bound_one_too_far", "ragged product", "device/tile.cuh", "depth - (k0 + at.k)",
     "depth - (k0 + at.k) + 1"},
    {"k_bound_one_short", "ragged product", "device/tile.cuh", "depth - (k0 + at.k)",
     "depth - (k0 + at.k) - 1"},
    {"rows_one_too_many", "ragged product", "kernels/simt_gemm.cuh",
     "if (!kF.whole_rows && r >= rows) continue;", "if (!kF.whole_rows && r > rows) continue;"},
    {"last_row_skipped", "ragged product", "kernels/simt_gemm.cuh",
     "if (!kF.whole_rows && r >= rows) continue;",
     "if (!kF.whole_rows && r + 1 >= rows) continue;"},
    {"columns_one_short", "ragged product", "kernels/simt_gemm.cuh",
     "at[g] = {column, columns - column};", "at[g] = {column, columns - column - 1};"},
    {"term_doubled", "ragged product", "kernels/simt_gemm.cuh",
     "sum = scalar::fma(a.get(i, step), b.get(j, step), sum);",
     "sum = scalar::fma((k + step == 5 ? 2.f : 1.f) * a.get(i, step), b.get(j, step), sum);"},
    {"term_dropped", "ragged product", "kernels/simt_gemm.cuh",
     "sum = scalar::fma(a.get(i, step), b.get(j, step), sum);",
     "if (k + step != 5) sum = scalar::fma(a.get(i, step), b.get(j, step), sum);"},
    {"threads_transposed", "ragged product", "kernels/simt_gemm.cuh",
     "int thread = int(threadIdx.x) / (kC.block_n / kC.thread_n);",
     "int thread = int(threadIdx.x) % (kC.block_n / kC.thread_n);"},
    {"operands_of_one_position", "ragged product", "kernels/simt_gemm.cuh",
     "b.read(b_tile + p * kB.elements(), thread_n, k);",
     "b.read(b_tile + p * kB.elements(), thread_m, k);"},
    {"barrier_before_a_tile_missing", "ragged product", "kernels/simt_gemm.cuh",
     "__syncthreads();  // the tile before has been read by all", ""},
    {"barrier_after_a_tile_missing", "ragged product", "kernels/simt_gemm.cuh",
     "keep(tile, 0);\n        __syncthreads();", "keep(tile, 0);"},
    {"barrier_between_buffers_missing", "prefetched product", "kernels/simt_gemm.cuh",
     "__syncthreads();  // the next tile is there for all; this one has been read by all", ""},
    {"same_buffer_twice", "prefetched product", "kernels/simt_gemm.cuh",
     "keep(tile + 1, 1 - buffer);", "keep(tile + 1, buffer);"},
    {"tile_height_for_width", "bf16 product", "kernels/simt_gemm.cuh",
     "int(within / group_rows) * kC.block_n", "int(within / group_rows) * kC.block_m"},
    {"last_group_as_high_as_others", "bf16 product", "kernels/simt_gemm.cuh",
     "tiles_m - first < kC.group_m ? tiles_m - first : kC.group_m", "kC.group_m"},
    {"chunk_elements_merged", "narrow transposed batches", "device/tile.cuh",
     "* chunk() + j % chunk();", "* chunk();"},
    {"copies_not_waited_for", "asynchronous product", "kernels/simt_gemm.cuh",
     "wait_for_copies<kC.stages - 2>();", "wait_for_copies<kC.stages>();"},
    {"last_tile_not_copied", "asynchronous product", "kernels/simt_gemm.cuh",
     "if (tile + kC.stages - 1 < last) start(tile + kC.stages - 1);",
     "if (tile + kC.stages < last) start(tile + kC.stages - 1);"},
    {"barrier_of_the_ring_missing", "asynchronous product", "kernels/simt_gemm.cuh",
     "__syncthreads();  // the tile is there for all; the one before it has been read by all", ""},
    {"copies_past_the_end", "ragged asynchronous product", "device/tile.cuh",
     "some > 0 ? address(at, k0) : base, some * int(sizeof(T))", "address(at, k0), kBytes"},
    {"stride_of_dense_rows", "strided rows", "device/tile.cuh",
     "base + position * stride + k :", "base + position * depth + k :"},
    // Parts of the depth.
    {"last_part_skipped", "split gate", "kernels/simt_gemm.cuh", "part < kC.split_k; ++part",
     "part < kC.split_k - 1; ++part"},
    {"tiles_of_parts_rounded_down", "split gate", "kernels/simt_gemm.cuh",
     "per_part = ceil_div(tiles, kC.split_k)", "per_part = tiles / kC.split_k"},
    {"planes_of_parts_mixed", "split gate", "kernels/simt_gemm.cuh",
     "workspace + ((index(part) * kF.products + p) * batches + block.batch)",
     "workspace + ((index(part) + p) * batches + block.batch)"},
    {"workspace_rows_not_padded", "split gate", "kernels/simt_gemm.cuh",
     "plane + r * part_stride(columns), whole", "plane + r * (part_stride(columns) + 4), whole"},
    // Gates, batches, broadcasts.
    {"gate_and_up_swapped", "gate", "generated", "v0 = products[0]", "v0 = products[1]"},
    {"one_weight_for_both", "gate", "kernels/simt_gemm.cuh", "BSource{b[p].base, b[p].stride",
     "BSource{b[0].base, b[0].stride"},
    {"second_tile_over_the_first", "gate", "kernels/simt_gemm.cuh",
     "(stage * kF.products + p) * kTileB, tile * kC.block_k",
     "stage * kF.products * kTileB, tile * kC.block_k"},
    {"bias_missing", "ragged product", "generated", "v0 + in2", "v0"},
    {"bias_of_other_columns", "ragged product", "generated", "read<4>(in2_, at)",
     "read<4>(in2_ + 1, at)"},
    {"batch_of_a_ignored", "transposed batches", "generated", "a{in0 + batch * ", "a{in0 + 0 * "},
    {"bias_of_the_first_batch", "transposed batches", "generated", "in2_ + batch * ",
     "in2_ + 0 * "},
    {"factor_of_the_first_row", "transposed batches", "generated", "in3_[row_index]", "in3_[0]"},
    {"cast_missing", "shared weight", "generated", "op::cast<bf16>(out1)", "out1"},
    {"output_rows_of_another_stride", "strided rows", "generated", "out0_ + row_index * 48",
     "out0_ + row_index * 40"},
    // Row reductions.
    {"maximum_begins_at_zero", "row maximum", "device/reduce.cuh",
     "float value = -bits_as<float>(0x7f800000);", "float value = 0.f;"},
    {"half_a_warp_reduced", "softmax", "device/reduce.cuh", "smaller(kThreads, 32) / 2",
     "smaller(kThreads, 32) / 4"},
    {"first_warp_left_out", "layernorm", "device/reduce.cuh", "for (int i = 0; i < kWarps; ++i)",
     "for (int i = 1; i < kWarps; ++i)"},
    {"warps_of_the_first_row_for_all", "layernorm", "device/reduce.cuh", "scratch[first + i]",
     "scratch[i]"},
    {"scratch_reused_too_early", "layernorm", "device/reduce.cuh",
     "__syncthreads();  // the last reduction's scratch has been read", ""},
    {"columns_that_do_not_exist_count", "layernorm of wide fragments", "device/reduce.cuh",
     "if (kWhole || i < at.valid) into.add(f.value[i]);", "into.add(f.value[i]);"},
    {"last_step_dropped", "streamed softmax", "kernels/row_reduction.cuh",
     "live ? ceil_div(columns, kC.threads_per_row * kC.width) : 0",
     "live ? columns / (kC.threads_per_row * kC.width) : 0"},
    {"rows_of_a_block_all_the_same", "layernorm", "kernels/row_reduction.cuh",
     "* kC.rows_per_block + int(threadIdx.x) / kC.threads_per_row",
     "* kC.rows_per_block + int(threadIdx.x) / 1024"},
    {"eps_wrong", "narrow rmsnorm", "generated", "1e-05f", "2e-05f"},
    {"mean_of_one_column_more", "layernorm", "generated", "(1.f / 1001.f)", "(1.f / 1002.f)"},
    {"gain_missing", "narrow rmsnorm", "generated", "row.out0_scale * in1", "row.out0_scale"},
    // Pointwise.
    {"tiles_overlap", "bias_gelu", "kernels/pointwise.cuh", "block_column * tile_columns(kC)",
     "block_column * kC.threads_x"},
    {"last_row_of_a_thread_skipped", "bias_gelu", "kernels/pointwise.cuh",
     "r < kC.rows_per_thread; ++r", "r < kC.rows_per_thread - 1; ++r"},
    {"last_column_skipped", "bias_gelu", "kernels/pointwise.cuh", "At{column, columns - column}",
     "At{column, columns - column - 1}"},
    {"fragments_one_too_long", "ragged fragments", "device/packed.cuh", "if (i < valid) {",
     "if (i <= valid) {"},
    {"ragged_fragments_whole", "ragged fragments", "device/fragment.cuh",
     "if (kWhole || at.valid >= kWidth) {", "if (true) {"},
    {"ragged_fragments_lost", "ragged fragments", "device/fragment.cuh",
     "write_some(row + at.column, pack<T>(f), at.valid);", ""},
    {"upper_limit_of_clamp_ignored", "chain", "device/math.cuh", "return min(max(a, low), high);",
     "return max(a, low);"},
    {"sigmoid_of_the_magnitude", "chain", "device/math.cuh", "return x < 0.f ? e * r : r;",
     "return r;"},
    {"gelu_without_its_cube", "ragged product", "device/math.cuh", "0.044715f", "0.04f"},
    {"items_of_one_column", "bias_gelu", "kernels/pointwise.cuh", "kC.items", "1"},
    // What special values alone tell.
    {"minimum_that_drops_nan", "chain", "device/math.cuh", "min.NaN.f32", "min.f32"},
    {"maximum_that_drops_nan", "row maximum", "device/math.cuh", "max.NaN.f32", "max.f32"},
    {"maximum_of_masked_rows_finite", "row maximum", "device/reduce.cuh",
     "float value = -bits_as<float>(0x7f800000);", "float value = -3e38f;"},
    {"exponential_of_infinity", "softmax", "device/math.cuh", "x = min(max(x, -150.f), 130.f);",
     ""},
};

class Mutation : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto opened = KernelBench::open();
    ASSERT_TRUE(opened) << opened.error().message << "\n" << opened.error().detail;
    bench_ = std::make_unique<KernelBench>(std::move(*opened));
  }
  static void TearDownTestSuite() { bench_.reset(); }

  struct Prepared {
    Operator op;
    templates::Generated made;
  };
  static Result<Prepared> prepare(const Case& example) {
    TILEWRIGHT_ASSIGN_OR_RETURN(Operator op, find_operator(example.op, example.overrides));
    if (!example.statements.empty()) op = templates::extract_group(op, example.statements);
    const templates::Family& family = *templates::find_family(example.family);
    Config config = family.safe_config(op, example.bindings);
    for (const auto& [name, value] : example.config) config[name] = value;
    TILEWRIGHT_ASSIGN_OR_RETURN(
        templates::Generated made,
        family.generate(op, config,
                        example.aligned ? Facts::of_allocation(op, example.bindings) : Facts{}));
    return Prepared{std::move(op), std::move(made)};
  }

  /// In this process: a pool of workers would have to be started for each set of headers.
  static Result<jit::LoadedPlan> load(const Prepared& prepared, const jit::HeaderSet& headers) {
    TILEWRIGHT_ASSIGN_OR_RETURN(jit::Compiler compiler, jit::Compiler::open(headers));
    TILEWRIGHT_ASSIGN_OR_RETURN(
        jit::Image image,
        compiler.compile(prepared.made.source,
                         {.architecture = bench_->context().device().architecture(),
                          .flags = {},
                          .cubin = false}));
    jit::Plan plan = prepared.made.plan;
    for (jit::PlanLaunch& launch : plan.launches) launch.image = image.digest;
    return jit::LoadedPlan::load(bench_->context(), std::move(plan),
                                 [&](const Digest&) -> Result<jit::Image> { return image; });
  }

  static search::VerifyJob job_of(const Case& example, const Prepared& prepared,
                                  const jit::LoadedPlan& plan) {
    search::VerifyJob job;
    job.op = &prepared.op;
    job.bindings = example.bindings;
    job.plan = &plan;
    job.settings.max_elements = 1 << 30;
    return job;
  }

  static Result<search::Verification> verdict(const Case& example, const Prepared& prepared,
                                              const jit::LoadedPlan& plan) {
    return search::verify(bench_->context(), job_of(example, prepared, plan));
  }

  /// The usual check: every element within 1e-2 + 1e-2 |wanted|, on random-normal data.
  static Result<bool> close_enough(const Case& example, const Prepared& prepared,
                                   const jit::LoadedPlan& plan) {
    constexpr double kTolerance = 1e-2;
    const search::VerifyJob job = job_of(example, prepared, plan);
    TILEWRIGHT_ASSIGN_OR_RETURN(const search::Tensors tensors, search::layouts_of(job));
    search::HostBudget host(0);
    search::DeviceBudget device(bench_->context());
    const search::Memory memory{host, device};
    const auto values = std::make_shared<search::TestData>(
        search::test_data(job, tensors, search::DataKind::kNormal));
    search::Inputs inputs(bench_->context(), *job.op, tensors, memory, [&](search::DataKind) {
      return [values](std::size_t input, std::int64_t row, std::int64_t begin, std::int64_t end,
                      void* out) { values->part(input, row, begin, end, out); };
    });
    TILEWRIGHT_ASSIGN_OR_RETURN(auto stream, jit::Stream::create(bench_->context()));
    search::PlanRunner runner(bench_->context(), job, tensors, memory, std::move(stream));
    TILEWRIGHT_TRY(runner.allocate_outputs());
    const search::BlockChoice all(bench_->context().driver().virtual_api(), 0, 1);
    TILEWRIGHT_ASSIGN_OR_RETURN(const search::PlanRun run,
                                runner.run(plan, inputs, search::DataKind::kNormal, 0, all));
    TILEWRIGHT_ASSIGN_OR_RETURN(const auto on_host, inputs.on_host(search::DataKind::kNormal));
    TILEWRIGHT_ASSIGN_OR_RETURN(auto evaluator,
                                templates::Evaluator::create(prepared.op, job.bindings, on_host));
    for (std::size_t i = 0; i < tensors.outputs.size(); ++i) {
      const search::TensorLayout& layout = tensors.outputs[i];
      TILEWRIGHT_ASSIGN_OR_RETURN(const auto wanted, evaluator.whole(i));
      TILEWRIGHT_ASSIGN_OR_RETURN(const auto bytes, runner.download(i, run.written(layout.name)));
      for (std::int64_t row = 0; row < layout.rows; ++row) {
        for (std::int64_t column = 0; column < layout.columns; ++column) {
          const double got = read_element(layout.dtype, bytes.data() + layout.row_offset(row),
                                          static_cast<std::size_t>(column));
          const double want = wanted[static_cast<std::size_t>(row * layout.columns + column)].value;
          if (!(std::abs(got - want) <= kTolerance + kTolerance * std::abs(want))) return false;
        }
      }
    }
    return true;
  }

  /// The names in the list of docs/numerics.md.
  static std::set<std::string> documented() {
    std::ifstream in(TILEWRIGHT_SOURCE_DIR "/docs/numerics.md");
    std::set<std::string> names;
    bool listed = false;
    for (std::string line; std::getline(in, line);) {
      if (line == "```planted") {
        listed = true;
      } else if (line == "```") {
        listed = false;
      } else if (listed) {
        std::istringstream words(line);
        for (std::string name; words >> name;) names.insert(name);
      }
    }
    return names;
  }

  /// A fault is sticky: the next one gets a fresh device.
  static void renew_after(const Error& error) {
    if (error.code != ErrorCode::kFault) return;
    bench_.reset();
    SetUpTestSuite();
  }

  static inline std::unique_ptr<KernelBench> bench_;
};

TEST_F(Mutation, CasesAreRightWithoutErrors) {
  for (const auto& [name, example] : kCases) {
    const auto prepared = prepare(example);
    ASSERT_TRUE(prepared) << name << ": " << prepared.error().message;
    const auto plan = load(*prepared, templates::device_headers());
    ASSERT_TRUE(plan) << name << ": " << plan.error().message << "\n" << plan.error().detail;
    const auto result = verdict(example, *prepared, *plan);
    EXPECT_TRUE(result) << name << ": " << result.error().message << "\n" << result.error().detail;
    EXPECT_EQ(close_enough(example, *prepared, *plan).value_or(false), true) << name;
    // No family lets rows mind each other, whether it was asked for or not.
    Prepared invariant{prepared->op, prepared->made};
    invariant.op.numerics.batch_invariant = true;
    const auto rows = verdict(example, invariant, *plan);
    EXPECT_TRUE(rows) << name << ": " << rows.error().message;
  }
}

TEST_F(Mutation, EveryPlantedErrorIsCaught) {
  std::map<std::string, int> by_reason, by_family;
  std::set<std::string> missed;
  for (const Mutant& mutant : kMutants) {
    SCOPED_TRACE(mutant.name);
    ASSERT_TRUE(kCases.contains(mutant.of));
    const Case& example = kCases.at(mutant.of);
    auto prepared = prepare(example);
    ASSERT_TRUE(prepared) << prepared.error().message;
    jit::HeaderSet headers = templates::device_headers();
    std::string& text = mutant.file == std::string("generated") ? prepared->made.source.text
                                                                : headers.at(mutant.file);
    const std::string from = mutant.from;
    std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << "the text to change is not there: " << from;
    const std::string before = text;
    for (; at != std::string::npos; at = text.find(from, at + std::string(mutant.to).size())) {
      text.replace(at, from.size(), mutant.to);
    }
    ASSERT_NE(text, before);

    ++by_family[example.family];
    auto plan = load(*prepared, headers);
    ASSERT_TRUE(plan) << plan.error().message << "\n" << plan.error().detail;
    const auto close = close_enough(example, *prepared, *plan);
    if (!close) {
      plan = fail(ErrorCode::kInternal, "gone with its device");
      renew_after(close.error());
      plan = load(*prepared, headers);
      ASSERT_TRUE(plan) << plan.error().message;
    } else if (*close) {
      missed.insert(mutant.name);
    }
    const auto result = verdict(example, *prepared, *plan);
    EXPECT_FALSE(result) << "not caught";
    if (result) continue;
    const ErrorCode code = result.error().code;
    EXPECT_TRUE(code == ErrorCode::kWrongResult || code == ErrorCode::kFault)
        << to_string(code) << ": " << result.error().message << "\n"
        << result.error().detail;
    ++by_reason[std::string(to_string(code))];
    plan = fail(ErrorCode::kInternal, "gone with its device");
    renew_after(result.error());
  }
  for (const auto& [reason, count] : by_reason) RecordProperty(reason, count);
  EXPECT_GE(std::size(kMutants), 50u);
  for (const templates::Family* family : templates::families())
    EXPECT_GE(by_family[std::string(family->name())], 8) << family->name();
  std::string list;
  for (const std::string& name : missed) list += name + "\n";
  EXPECT_EQ(missed, documented())
      << "what a plain tolerance misses is not what docs/numerics.md lists; it is\n"
      << list;
}

}  // namespace
}  // namespace tilewright::integration
