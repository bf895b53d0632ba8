// Each kernel of the study, on each of its architectures, at ragged and at exact sizes, under several
// schedules and all checks: right results, and no report.
#include "tests/virtual_gpu/study.h"

namespace tilewright::cli {
namespace {

using Sizes = std::map<std::string, std::int64_t>;

struct StudyKernel {
  const char* file;
  const char* spec;                          ///< and the kernel's name
  std::vector<Sizes> sizes;                  ///< instead of the specification's
  std::vector<std::string> architectures{};  ///< of these only; empty: of all
};

const StudyKernel kKernels[] = {
    {"a_elementwise.cu", "ew_f32x4", {{}, {{"R", 1}, {"C", 4}}, {{"R", 3}, {"C", 1024}}}},
    {"a_elementwise.cu", "ew_bf16x8", {{}, {{"N", 8}}, {{"N", 2048}}, {{"N", 2056}}}},
    {"a_elementwise.cu",
     "ew_tail",
     {{{"MODE", 0}}, {{"MODE", 1}}, {{"MODE", 2}}, {{"MODE", 3}}, {{"MODE", 4}}, {{"N", 1}}}},
    {"b_norms.cu", "rmsnorm_bf16", {{}, {{"M", 1}, {"N", 8}}, {{"M", 2}, {"N", 2048}}}},
    {"b_norms.cu", "layernorm_f32", {{}, {{"M", 1}, {"N", 33}}, {{"M", 8}, {"N", 64}}}},
    {"b_norms.cu", "softmax_f32", {{}, {{"M", 1}, {"N", 1}}, {{"M", 2}, {"N", 128}}}},
    {"c_sgemm.cu", "sgemm_128x128x8", {{}, {{"M", 256}, {"N", 128}, {"K", 8}}}},
    {"d_mma_gemm.cu",
     "gemm_bf16",
     {{}, {{"M", 1}, {"K", 32}}, {{"M", 131}, {"N", 256}, {"K", 96}}}},
    {"d_mma_gemm.cu", "gemm_f16", {{}, {{"M", 65}, {"K", 64}}}},
    {"e_quant_gemm.cu", "gemm_s8", {{}, {{"M", 128}, {"N", 64}, {"K", 64}}}},
    {"e_quant_gemm.cu", "gemm_e4m3", {{}, {{"M", 128}, {"N", 64}, {"K", 64}}}},
    {"e_quant_gemm.cu",
     "gemm_w4a16",
     {{}, {{"M", 16}, {"N", 32}, {"K", 16}, {"GROUP", 16}}, {{"K", 128}, {"GROUP", 128}}}},
    {"f_wgmma_gemm.cu",
     "gemm_wgmma",
     {{}, {{"M", 1}, {"N", 8}, {"K", 64}}, {{"M", 128}, {"N", 128}, {"K", 256}}, {{"K", 704}}}},
    {"g_flash.cu", "flash_fwd", {{}, {{"CAUSAL", 0}}, {{"B", 1}, {"S", 64}}, {{"S", 128}}}},
    {"h_splitk.cu",
     "splitk_red",
     {{}, {{"M", 1}, {"N", 1}, {"K", 1}}, {{"M", 32}, {"N", 16}, {"K", 64}}, {{"CHUNK", 48}}}},
    {"h_splitk.cu", "splitk_sem", {{}, {{"S", 1}, {"LEN", 1}}, {{"N", 256}, {"S", 7}}}},
    {"h_splitk.cu", "argmax_reduce", {{}, {{"N", 1}, {"AT", 0}}}, {"sm_80"}},
    {"h_splitk.cu",
     "argmax_reduce",
     {{{"PAIRS", 1}}, {{"PAIRS", 1}, {"N", 512}, {"AT", 510}}},
     {"sm_90a", "sm_120"}},
    {"i_paged_decode.cu",
     "paged_decode",
     {{},
      {{"LENGTH0", 1}, {"LENGTH1", 96}},
      {{"H", 3}, {"HKV", 1}},
      {{"PART", 16}, {"SPLITS", 6}}}},
    {"i_paged_decode.cu", "paged_combine", {{}, {{"BH", 1}, {"SPLITS", 1}}}},
    {"j_cluster.cu", "cluster_rms", {{}, {{"M", 1}, {"N", 16}}, {{"M", 3}, {"N", 4096}}}},
    {"j_cluster.cu", "cluster_bcast", {{}, {{"C", 1}}}},
};

void PrintTo(const StudyKernel& kernel, std::ostream* out) { *out << kernel.spec; }

class StudyKernels : public testing::TestWithParam<StudyKernel> {};

TEST_P(StudyKernels, AreRightAndWithoutReportUnderEverySchedule) {
  if (!study_is_here()) GTEST_SKIP() << kNoStudy;
  const StudyKernel& kernel = GetParam();
  auto file = load_kernel_file(kStudyKernels / kernel.file);
  ASSERT_TRUE(file) << file.error().message;
  for (const Sizes& sizes : kernel.sizes) {
    auto spec = load_launch_spec(kStudySpecs / (std::string(kernel.spec) + ".yaml"), sizes);
    ASSERT_TRUE(spec) << spec.error().message;
    auto prepared = PreparedSpec::prepare(*spec);
    ASSERT_TRUE(prepared) << prepared.error().message;
    for (const jit::Architecture& architecture : spec->architectures) {
      const auto& only = kernel.architectures;
      if (!only.empty() && std::find(only.begin(), only.end(), architecture.name()) == only.end())
        continue;
      auto ptx = study_ptx(*file, architecture, spec->flags);
      if (!ptx && ptx.error().code == ErrorCode::kNotFound) GTEST_SKIP() << ptx.error().message;
      ASSERT_TRUE(ptx) << ptx.error().message << "\n" << ptx.error().detail;
      for (std::uint64_t seed : {0, 1, 2, 3, 4}) {
        CheckOptions options;
        options.seed = seed;
        auto result = prepared->run(*ptx, sample_device(), options);
        ASSERT_TRUE(result) << result.error().message;
        std::string title = architecture.name() + ", seed " + std::to_string(seed);
        for (const auto& [name, value] : sizes) title += ", " + name + "=" + std::to_string(value);
        ASSERT_EQ(findings(*result), "") << title;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, StudyKernels, testing::ValuesIn(kKernels), [](const auto& info) {
  return std::string(info.param.spec) +
         (info.param.architectures.empty() ? "" : "_" + info.param.architectures.front());
});

}  // namespace
}  // namespace tilewright::cli
