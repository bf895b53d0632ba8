/// Kernels with one mistake: a text of the source exchanged for another.
#pragma once

#include "tests/virtual_gpu/samples.h"

namespace tilewright::cli {

inline constexpr const char* kWrong = "wrong result";

struct Mutation {
  const char* from;  ///< occurs once in the source
  const char* to;
  const char* caught_by;  ///< names of checks, or kWrong, any of which will do, separated by |
};

/// Fails unless one of the first four schedules shows the mistake as `mutation` says.
inline void expect_caught(KernelFile file, const LaunchSpec& spec,
                          const jit::Architecture& architecture, const Mutation& mutation) {
  const std::size_t at = file.text.find(mutation.from);
  ASSERT_NE(at, std::string::npos) << mutation.from;
  ASSERT_EQ(file.text.find(mutation.from, at + 1), std::string::npos) << mutation.from;
  file.text.replace(at, std::string(mutation.from).size(), mutation.to);

  auto prepared = PreparedSpec::prepare(spec);
  ASSERT_TRUE(prepared) << prepared.error().message;
  auto ptx = sample_ptx(file, architecture, spec.flags);
  if (!ptx && ptx.error().code == ErrorCode::kNotFound) GTEST_SKIP() << ptx.error().message;
  ASSERT_TRUE(ptx) << ptx.error().message << "\n" << ptx.error().detail;
  const std::string wanted = "|" + std::string(mutation.caught_by) + "|";
  std::string seen;
  for (std::uint64_t seed : {0, 1, 2, 3}) {
    CheckOptions options;
    options.seed = seed;
    options.deadline_s = 20;
    auto result = prepared->run(*ptx, sample_device(), options);
    ASSERT_TRUE(result) << result.error().message;
    seen += findings(*result);
    if (!result->mismatches.empty() && wanted.find("|wrong result|") != std::string::npos) return;
    for (const vgpu::Report& report : result->reports)
      if (wanted.find("|" + report.check + "|") != std::string::npos) return;
  }
  ADD_FAILURE() << "expected " << mutation.caught_by << ", seen:\n" << seen;
}

}  // namespace tilewright::cli
