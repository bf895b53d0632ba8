// What the checks find: each defect by its name and its lines, and nothing in its corrected twin.
#include <gmock/gmock.h>

#include <array>
#include <sstream>

#include "tests/virtual_gpu/check_cases.h"
#include "tests/virtual_gpu/check_cases_async.h"
#include "tests/virtual_gpu/nvrtc.h"
#include "tests/virtual_gpu/run_ptx.h"
#include "tests/virtual_gpu/sample_kernels.h"

namespace tilewright::vgpu {
namespace {

using testing::HasSubstr;
using Words = std::vector<std::uint32_t>;

/// The body with the lines of the defect, or of its twin.
std::string variant(std::string_view body, bool defect) {
  std::istringstream lines{std::string(body)};
  std::string line, text;
  bool bad = true, good = true;
  while (std::getline(lines, line)) {
    if (line == "// BAD") good = false;
    if (line == "// GOOD") {
      good = true;
      bad = false;
    }
    if (line == "// END") bad = true;
    if (defect ? bad : good) text += line;
    text += "\n";
  }
  return text;
}

int line_of(const std::string& text, std::string_view mark) {
  std::size_t at = text.find(mark);
  if (at == std::string::npos) return 0;
  return 1 + static_cast<int>(
                 std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
}

std::string texts(const Outcome& outcome) {
  std::string all;
  for (const Report& report : outcome.reports) all += report.text + "\n";
  return all;
}

struct Ran {
  std::string ptx;
  Outcome outcome;
};
Ran run_case(const CheckCase& test, bool defect, Check check, std::uint64_t seed) {
  Ran result;
  result.ptx = entry(variant(test.body, defect), 2, test.declarations, test.attributes);
  Machine machine(result.ptx);
  EXPECT_TRUE(machine.ok()) << machine.error().message;
  if (!machine.ok()) return result;
  machine.memory().track();
  Words words(4096);
  for (std::uint32_t i = 0; i < words.size(); ++i) words[i] = i;
  std::uint64_t known = machine.buffer(words), unknown = *machine.memory().allocate(16384);
  Launch launch = machine.launch(test.grid, test.block, known, unknown);
  launch.check = check;
  launch.cluster = test.cluster;
  launch.schedule_seed = seed;
  result.outcome = machine.run(launch);
  return result;
}

class Checks : public testing::TestWithParam<CheckCase> {};

TEST_P(Checks, NameTheDefectWithItsLines) {
  const CheckCase& test = GetParam();
  Ran bad = run_case(test, true, Check::kFull, 0);
  const Report* found = nullptr;
  for (const Report& report : bad.outcome.reports)
    if (report.check == test.check && found == nullptr) found = &report;
  ASSERT_NE(found, nullptr) << texts(bad.outcome);
  EXPECT_EQ(found->kernel, "k");
  // Of two that nothing orders, either may come first.
  int here = line_of(bad.ptx, "// HERE"), other = line_of(bad.ptx, "// OTHER");
  if (found->ptx_line == other) std::swap(here, other);
  EXPECT_EQ(found->ptx_line, here) << found->text;
  if (other == 0) return;
  EXPECT_THAT(found->other, HasSubstr("ptx line " + std::to_string(other) + ":")) << found->text;
}

TEST_P(Checks, FindNothingInTheTwin) {
  const CheckCase& test = GetParam();
  for (Check check : {Check::kMemory, Check::kFull}) {
    for (std::uint64_t seed = 0; seed <= 20; ++seed) {
      Ran good = run_case(test, false, check, seed);
      EXPECT_FALSE(good.outcome.fault) << good.outcome.fault->report;
      EXPECT_EQ(texts(good.outcome), "") << "seed " << seed;
      if (HasFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, Checks, testing::ValuesIn(check_cases()),
                         [](const auto& info) { return std::string(info.param.name); });
INSTANTIATE_TEST_SUITE_P(Asynchronous, Checks, testing::ValuesIn(async_check_cases()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(CheckReports, NameSourceLinesBlocksThreadsAndAllocations) {
  Nvrtc nvrtc;
  if (!nvrtc.available()) GTEST_SKIP() << "NVRTC is not here";
  constexpr const char* kSource = R"(extern "C" __global__ void k(float* out, const float* in) {
  __shared__ float s[64];
  s[threadIdx.x] = in[threadIdx.x];
  out[threadIdx.x] = s[threadIdx.x ^ 1];
}
)";
  std::string log;
  auto ptx = nvrtc.compile(kSource, "sm_90", &log, {"-lineinfo"});
  ASSERT_TRUE(ptx) << log;
  Machine machine(*ptx);
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  auto out = machine.buffer(std::vector<float>(64)), in = machine.buffer(std::vector<float>(64));
  Launch launch = machine.launch({1, 1, 1}, {64, 1, 1}, out, in);
  launch.check = Check::kFull;
  Outcome outcome = machine.run(launch);
  ASSERT_EQ(outcome.reports.size(), 1u) << texts(outcome);
  const Report& report = outcome.reports[0];
  EXPECT_EQ(report.check, "shared-race");
  EXPECT_THAT(report.source, testing::EndsWith("sample.cu"));
  EXPECT_EQ(report.source_line, 4);
  EXPECT_EQ(report.space, "shared");
  EXPECT_EQ(report.bytes, 4u);
  EXPECT_EQ(report.thread, (std::array<unsigned, 3>{0, 0, 0}));
  EXPECT_EQ(report.count, 64u) << "conflicts of 64 words are counted";
  EXPECT_THAT(report.other, HasSubstr("write by block (0, 0, 0), thread (1, 0, 0), "));
  EXPECT_THAT(report.other, HasSubstr("sample.cu:3, ptx line "));
  EXPECT_EQ(report.allocation, "shared memory of block (0, 0, 0)");
}

TEST(CheckReports, NameFreedMemory) {
  Machine machine(entry("ld.param.u64 %d0, [p0]; st.global.u32 [%d0+8], 1; ret;"));
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  auto out = machine.buffer(Words(64)), kept = machine.buffer(Words(64));
  ASSERT_TRUE(machine.memory().free(out));
  Launch launch = machine.launch({1, 1, 1}, {1, 1, 1}, out);
  launch.check = Check::kMemory;
  Outcome outcome = machine.run(launch);
  ASSERT_TRUE(outcome.fault);
  ASSERT_EQ(outcome.reports.size(), 1u);
  EXPECT_EQ(outcome.reports[0].check, "use-after-free");
  EXPECT_THAT(outcome.reports[0].allocation, HasSubstr("256 bytes"));
  EXPECT_THAT(outcome.reports[0].allocation, HasSubstr("freed: 8 bytes from its beginning"));
  static_cast<void>(kept);
}

TEST(CheckReports, WhatUncheckedLaunchesWroteCountsAsWritten) {
  Machine machine(entry("ld.param.u64 %d0, [p0]; ld.global.u32 %r0, [%d0]; ret;"));
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  machine.memory().track();
  auto in = *machine.memory().allocate(64);
  Launch launch = machine.launch({1, 1, 1}, {1, 1, 1}, in);
  launch.check = Check::kMemory;
  EXPECT_EQ(machine.run(launch).reports.size(), 1u);
  launch.check = Check::kOff;
  EXPECT_EQ(machine.run(launch).reports.size(), 0u);
  launch.check = Check::kMemory;
  EXPECT_EQ(machine.run(launch).reports.size(), 0u);
}

TEST(CheckReports, ALaunchIsOrderedAfterTheOneBefore) {
  Machine machine(
      entry("ld.param.u64 %d0, [p0]; mov.u32 %r0, %tid.x; mul.wide.u32 %d1, %r0, 4;"
            "add.u64 %d0, %d0, %d1; ld.global.u32 %r1, [%d0]; xor.b32 %r1, %r1, %r0;"
            "st.global.u32 [%d0], %r1; ret;"));
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  auto out = machine.buffer(Words(64));
  for (unsigned i = 0; i < 3; ++i) {
    Launch launch = machine.launch({1, 1, 1}, {64, 1, 1}, out + 0);
    launch.check = Check::kFull;
    EXPECT_EQ(texts(machine.run(launch)), "");
  }
}

TEST(CheckReports, AreNoneForTheSampleKernels) {
  Nvrtc nvrtc;
  if (!nvrtc.available()) GTEST_SKIP() << "NVRTC is not here";
  auto compile = [&](const char* source, const char* kernel) {
    std::string log, text = source;
    text.replace(text.find(std::string(kernel) + "("), std::string(kernel).size(), "k");
    return *nvrtc.compile(text, "sm_90", &log);
  };
  auto expect_clean = [&](Machine& machine, Launch launch) {
    launch.check = Check::kFull;
    for (std::uint64_t seed : {0, 1, 2}) {
      launch.schedule_seed = seed;
      Outcome outcome = machine.run(launch);
      EXPECT_FALSE(outcome.fault) << outcome.fault->report;
      EXPECT_EQ(texts(outcome), "");
    }
  };
  {
    Machine machine(compile(samples::kGemm, "gemm"));
    ASSERT_TRUE(machine.ok());
    std::vector<float> matrix(128 * 128, 1.0f);
    auto a = machine.buffer(matrix), b = machine.buffer(matrix), c = machine.buffer(matrix);
    expect_clean(machine, machine.launch({2, 2, 1}, {256, 1, 1}, a, b, c, 128, 128, 128));
  }
  {
    Machine machine(compile(samples::kElementwise, "elementwise"));
    ASSERT_TRUE(machine.ok());
    std::vector<float> v(1000, 1.0f);
    auto x = machine.buffer(v), g = machine.buffer(v), y = machine.buffer(v);
    expect_clean(machine, machine.launch({4, 1, 1}, {256, 1, 1}, x, g, y, 1000));
  }
  {
    Machine machine(compile(samples::kSoftmax, "softmax"));
    ASSERT_TRUE(machine.ok());
    std::vector<float> v(3 * 1000, 1.0f);
    auto x = machine.buffer(v), y = machine.buffer(v);
    expect_clean(machine, machine.launch({3, 1, 1}, {256, 1, 1}, x, y, 1000));
  }
}

}  // namespace
}  // namespace tilewright::vgpu
