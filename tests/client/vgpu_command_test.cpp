// `tilewright vgpu` from outside: what it prints, its JSON, its exit codes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

const std::string kSamples = TILEWRIGHT_SOURCE_DIR "/tests/virtual_gpu/samples/";
const std::string kProbe = TILEWRIGHT_BINARY_DIR "/bin/vgpu_probe";

struct Outcome {
  int code = -1;
  std::string out;
};

Outcome run(const std::string& arguments, const char* errors = " 2>&1") {
  Outcome outcome;
  const std::string line = "exec " TILEWRIGHT_BINARY_DIR "/bin/tilewright " + arguments + errors;
  FILE* pipe = popen(line.c_str(), "r");
  char buffer[4096];
  while (auto count = fread(buffer, 1, sizeof buffer, pipe)) outcome.out.append(buffer, count);
  const int status = pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

class VgpuCommand : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("tilewright-vgpu-" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }

  fs::path folder_;
};

/// A block of 64 stores to 60 places, and reads one that nobody wrote.
constexpr const char* kWrong = R"(
.version 8.0
.target sm_80
.address_size 64
.visible .entry wrong(.param .u64 p) {
  .reg .u64 %d<4>;
  .reg .u32 %r<4>;
  ld.param.u64 %d1, [p];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %d2, %r1, 4;
  add.u64 %d3, %d1, %d2;
  st.global.u32 [%d3], %r1;
  ret;
})";

TEST_F(VgpuCommand, ChecksAKernelAndSaysThatItIsRight) {
  const auto outcome = run("vgpu check " + kSamples + "elementwise.cu --launch " + kSamples +
                           "elementwise.yaml --seeds 3");
  if (outcome.out.find("no libnvrtc") != std::string::npos) GTEST_SKIP() << outcome.out;
  EXPECT_EQ(outcome.code, 0) << outcome.out;
  EXPECT_THAT(outcome.out, HasSubstr("no report, right results"));
  EXPECT_THAT(outcome.out, HasSubstr("us modelled, bound by"));
}

TEST_F(VgpuCommand, NamesCheckLineAndThreadOfAFault) {
  const auto kernel = write("wrong.ptx", kWrong);
  const auto spec = write("wrong.yaml",
                          "grid: 1\nblock: 64\narguments:\n"
                          "  - {name: p, buffer: u32, shape: 60, fill: zeros}\n");
  const auto outcome =
      run("vgpu check " + kernel + " --launch " + spec + " --json", " 2>/dev/null");
  EXPECT_EQ(outcome.code, 1);
  const json object = json::parse(outcome.out);
  ASSERT_EQ(object["reports"].size(), 1) << outcome.out;
  const json& report = object["reports"][0];
  EXPECT_EQ(report["check"], "out-of-bounds");
  EXPECT_EQ(report["line"], 12);
  EXPECT_EQ(report["thread"], (json{60, 0, 0}));
  EXPECT_TRUE(object["time_us"].is_null());
}

TEST_F(VgpuCommand, ListsTheFirstWrongElements) {
  const auto kernel = write("wrong.ptx", kWrong);
  const auto spec = write("wrong.yaml",
                          "kernel: wrong\ngrid: 1\nblock: 64\narguments:\n"
                          "  - {name: p, buffer: u32, shape: [8, 8]}\n"
                          "expect: {p: {values: [0, 1, 2, 3, 4]}}\n");
  const auto outcome =
      run("vgpu check " + kernel + " --launch " + spec + " --json", " 2>/dev/null");
  EXPECT_EQ(outcome.code, 1);
  const json object = json::parse(outcome.out);
  EXPECT_TRUE(object["reports"].empty()) << outcome.out;
  ASSERT_EQ(object["mismatches"].size(), 8);
  EXPECT_EQ(object["mismatches"][0]["index"], (json{0, 5}));
  EXPECT_EQ(object["mismatches"][0]["seen"], 5);
  EXPECT_EQ(object["mismatches"][0]["expected"], 0);
  EXPECT_EQ(object["mismatches"][0]["count"], 59);
  EXPECT_GT(object["time_us"], 0);
  EXPECT_EQ(object["counters"]["global_stores"], 2);
}

TEST_F(VgpuCommand, SaysWhatIsWrongWithASpecificationAndExitsWithTwo) {
  const auto kernel = write("wrong.ptx", kWrong);
  const std::pair<const char*, const char*> cases[] = {
      {"block: 1\n", "spec.yaml:1: the specification has no grid, expected its extents"},
      {"grid: 1\nblock: 2000\n", "spec.yaml:2: block has 2000 threads, expected at most 1024"},
      {"grid: 1\nblock: 64\nargument: []\n",
       "spec.yaml:3: the specification has the key 'argument', expected one of source, kernel, "},
      {"grid: M\nblock: 64\n",
       "spec.yaml:1: grid is 'M', expected an integer or an expression of "
       "sizes"},
      {"grid: 1\nblock: 64\narguments:\n  - {name: p, buffer: f31, shape: 4}\n",
       "spec.yaml:4: argument 'p': dtype is 'f31', expected one of f64, f32"},
      {"grid: 1\nblock: 64\narguments:\n  - {name: p, buffer: f32, shape: 4, fill: ramp}\n",
       "spec.yaml:4: fill of argument 'p' is 'ramp', expected uninitialised, zeros"},
      {"grid: 1\nblock: 64\narguments:\n  - {name: p, scalar: i32, value: 1}\n",
       "spec.yaml:4: argument 'p' has 4 bytes, expected 8, those of parameter 0 of wrong"},
      {"grid: 1\nblock: 64\n", "spec.yaml: 0 arguments, expected the 1 parameters of wrong"},
      {"grid: 1\nblock: 64\nexpect: {q: {values: 1}}\n",
       "spec.yaml:3: expectation of 'q' is of no buffer, expected the name of one"},
      {"grid: 1\nblock: 64\nkernel: right\n",
       "spec.yaml: kernel is 'right', expected one of wrong"},
      {"grid: [1\n", "spec.yaml:2: "},
      {"grid: 1\nblock: 64\narguments:\n  - {name: p, buffer: f32, shape: 64, fill: ones}\n"
       "body:\n  - r = add(p, q)\nexpect: {p: {is: r}}\n",
       "spec.yaml:6: "},
  };
  for (const auto& [text, message] : cases) {
    const auto spec = write("spec.yaml", text);
    const auto outcome = run("vgpu check " + kernel + " --launch " + spec);
    EXPECT_EQ(outcome.code, 2) << text << outcome.out;
    EXPECT_THAT(outcome.out, HasSubstr(message)) << text;
  }
}

TEST_F(VgpuCommand, RunsAProgramOnTheVirtualGpu) {
  const auto outcome = run("vgpu run " + kProbe + " 2");
  EXPECT_EQ(outcome.code, 0) << outcome.out;
  EXPECT_EQ(outcome.out, "sum 128\n");
}

TEST_F(VgpuCommand, ExitsAsTheProgramDoes) {
  EXPECT_EQ(run("vgpu run /bin/sh -c 'exit 42'").code, 42);
  const auto missing = run("vgpu run /nowhere/program");
  EXPECT_EQ(missing.code, 1);
  EXPECT_THAT(missing.out, HasSubstr("/nowhere/program cannot be run: No such file"));
}

TEST_F(VgpuCommand, ExitsWithOneWhereChecksOfAProgramFindSomething) {
  const auto reports = (folder_ / "reports.jsonl").string();
  const auto outcome = run("vgpu run --check full --reports " + reports + " " + kProbe + " 1 64");
  EXPECT_NE(outcome.code, 0) << outcome.out;
  EXPECT_THAT(outcome.out, HasSubstr("out-of-bounds: "));
  std::ifstream stream(reports);
  std::string line;
  ASSERT_TRUE(std::getline(stream, line));
  EXPECT_EQ(json::parse(line)["check"], "out-of-bounds");
}

TEST_F(VgpuCommand, TellsOfAFaultWithoutChecks) {
  const auto outcome = run("vgpu run " + kProbe + " 1 64");
  EXPECT_NE(outcome.code, 0) << outcome.out;
  EXPECT_THAT(outcome.out, HasSubstr("fault: kernel inc"));
  EXPECT_THAT(outcome.out, HasSubstr("of global memory"));
}

TEST_F(VgpuCommand, SumsUpWhatAProgramLaunched) {
  const auto table = run("vgpu run --summary " + kProbe + " 2");
  EXPECT_EQ(table.code, 0) << table.out;
  EXPECT_THAT(table.out, HasSubstr("sum 128\n"));
  EXPECT_THAT(table.out, HasSubstr("NVIDIA H200 (virtual): "));
  EXPECT_THAT(table.out, HasSubstr("copy to the host"));
  const auto out = run("--json vgpu run --summary " + kProbe + " 2").out;
  const auto found = json::parse(out.substr(out.find('{')));
  ASSERT_EQ(found["kernels"].size(), 1u) << out;
  EXPECT_EQ(found["kernels"][0]["launches"], 2);
  EXPECT_GT(found["kernels"][0]["modelled_us"], 0);
}

TEST_F(VgpuCommand, ReachesAProgramThatOpensAnAbsolutePath) {
  const auto redirect = std::string(TILEWRIGHT_BINARY_DIR "/bin/libtilewright_vgpu_redirect.so");
  if (!std::ifstream(redirect)) GTEST_SKIP() << "a sanitized build has no auditor";
  const auto outcome = run("vgpu run " + kProbe + " 2 0 /usr/lib/nowhere/libcuda.so.1");
  EXPECT_EQ(outcome.code, 0) << outcome.out;
  EXPECT_EQ(run("vgpu run " + kProbe + " 2 0 /usr/lib/nowhere/libother.so.1").code, 5);
}

TEST_F(VgpuCommand, InjectsFaultsIntoAProgram) {
  const std::pair<const char*, const char*> cases[] = {
      {"launch 1 fault", "cuCtxSynchronize: 700\n"},
      {"launch 1 out-of-memory", "cuLaunchKernel: 2\n"},
      {"launch inc* lost", "cuCtxSynchronize: 46\n"},
      {"launch 9 fault; launch 1 slow 3; noise 0.02", "sum 64\n"},
  };
  for (const auto& [faults, out] : cases)
    EXPECT_EQ(run("vgpu run --faults '" + std::string(faults) + "' " + kProbe).out, out) << faults;
  const auto hang = run("vgpu run --deadline 0.2 --faults 'launch 1 hang' " + kProbe);
  EXPECT_EQ(hang.out, "cuCtxSynchronize: 702\n");
  const auto corrupt = run("vgpu run --faults 'launch 1 corrupt' " + kProbe);
  EXPECT_THAT(corrupt.out, HasSubstr("sum "));
  EXPECT_NE(corrupt.out, "sum 64\n");
  const auto wrong = run("vgpu run --faults 'launch 1 explode' " + kProbe);
  EXPECT_THAT(wrong.out, HasSubstr("action is 'explode', expected fault, hang"));
}

}  // namespace
