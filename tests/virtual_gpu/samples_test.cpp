// Each launch specification of tests/virtual_gpu/samples, on each of its architectures and under
// several schedules: right results, and no report.
#include "tests/virtual_gpu/samples.h"

#include <algorithm>

namespace tilewright::cli {
namespace {

std::vector<std::string> specs() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kSamples))
    if (entry.path().extension() == ".yaml") names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

class Samples : public testing::TestWithParam<std::string> {};

TEST_P(Samples, AreRightAndWithoutReportUnderEverySchedule) {
  auto spec = load_launch_spec(kSamples / (GetParam() + ".yaml"));
  ASSERT_TRUE(spec) << spec.error().message;
  auto file = load_kernel_file(spec->source);
  ASSERT_TRUE(file) << file.error().message;
  auto prepared = PreparedSpec::prepare(*spec);
  ASSERT_TRUE(prepared) << prepared.error().message;
  const jit::DeviceDescription device = sample_device();
  ASSERT_FALSE(spec->architectures.empty());
  for (const jit::Architecture& architecture : spec->architectures) {
    auto ptx = sample_ptx(*file, architecture, spec->flags);
    if (!ptx && ptx.error().code == ErrorCode::kNotFound) GTEST_SKIP() << ptx.error().message;
    ASSERT_TRUE(ptx) << ptx.error().message << "\n" << ptx.error().detail;
    for (std::uint64_t seed : {0, 1, 2, 3}) {
      for (vgpu::Check check : {vgpu::Check::kOff, vgpu::Check::kFull}) {
        CheckOptions options;
        options.seed = seed;
        options.check = check;
        auto result = prepared->run(*ptx, device, options);
        ASSERT_TRUE(result) << result.error().message;
        EXPECT_EQ(findings(*result), "")
            << architecture.name() << ", seed " << seed << ", check " << int(check);
        if (HasFailure()) return;
      }
    }
  }
}

struct Sized {
  const char* sample;
  std::map<std::string, std::int64_t> sizes;
};

TEST(SampleSizes, MayBeRaggedOrExactOrOne) {
  const Sized cases[] = {
      {"elementwise", {{"N", 1}}},
      {"elementwise", {{"N", 512}}},
      {"elementwise", {{"N", 514}}},
      {"norms", {{"M", 1}, {"N", 1}}},
      {"norms", {{"M", 3}, {"N", 128}}},
      {"simt_gemm", {{"M", 1}, {"N", 1}, {"K", 1}}},
      {"simt_gemm", {{"M", 32}, {"N", 64}, {"K", 16}}},
      {"mma_gemm", {{"M", 1}, {"N", 1}, {"K", 8}}},
      {"mma_gemm", {{"M", 64}, {"N", 128}, {"K", 32}}},
      {"quant_gemm", {{"M", 1}, {"N", 1}, {"K", 32}}},
      {"splitk", {{"N", 1}, {"K", 3}}},
      {"splitk", {{"N", 64}, {"K", 64}, {"S", 1}}},
      {"flash", {{"L", 1}, {"S", 1}}},
      {"flash", {{"L", 64}, {"S", 96}}},
      {"wgmma_gemm", {{"M", 1}, {"N", 8}, {"K", 8}}},
      {"wgmma_gemm", {{"M", 64}, {"N", 64}, {"K", 128}}},
      {"wgmma_ring", {{"M", 1}, {"N", 4}, {"K", 8}}},
      {"wgmma_ring", {{"M", 128}, {"N", 128}, {"K", 192}}},
      {"int8_gemm", {{"M", 1}, {"N", 1}, {"K", 16}}},
      {"fp8_gemm", {{"M", 32}, {"N", 64}, {"K", 128}}},
      {"cluster", {{"C", 1}}},
  };
  for (const Sized& one : cases) {
    std::string title = one.sample;
    for (const auto& [name, value] : one.sizes) title += " " + name + "=" + std::to_string(value);
    SCOPED_TRACE(title);
    auto spec = load_launch_spec(kSamples / (std::string(one.sample) + ".yaml"), one.sizes);
    ASSERT_TRUE(spec) << spec.error().message;
    auto file = load_kernel_file(spec->source);
    ASSERT_TRUE(file) << file.error().message;
    auto prepared = PreparedSpec::prepare(*spec);
    ASSERT_TRUE(prepared) << prepared.error().message;
    auto ptx = sample_ptx(*file, spec->architectures.front(), spec->flags);
    if (!ptx && ptx.error().code == ErrorCode::kNotFound) GTEST_SKIP() << ptx.error().message;
    ASSERT_TRUE(ptx) << ptx.error().message << "\n" << ptx.error().detail;
    auto result = prepared->run(*ptx, sample_device(), {});
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_EQ(findings(*result), "");
  }
}

INSTANTIATE_TEST_SUITE_P(All, Samples, testing::ValuesIn(specs()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tilewright::cli
