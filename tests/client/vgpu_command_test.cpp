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
#include <vector>

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

Outcome execute(const std::string& line) {
  Outcome outcome;
  FILE* pipe = popen(line.c_str(), "r");
  char buffer[4096];
  while (auto count = fread(buffer, 1, sizeof buffer, pipe)) outcome.out.append(buffer, count);
  const int status = pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

Outcome run(const std::string& arguments, const char* errors = " 2>&1") {
  return execute("exec " TILEWRIGHT_BINARY_DIR "/bin/tilewright " + arguments + errors);
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

TEST_F(VgpuCommand, TellsWhatAProgramLeaves) {
  const std::string leaves = kProbe + " 1 0 libcuda.so.1 leave";
  const auto clean = run("vgpu run --check memory " + kProbe);
  EXPECT_EQ(clean.code, 0) << clean.out;
  EXPECT_EQ(clean.out, "sum 64\n");
  const auto unchecked = run("vgpu run " + leaves);
  EXPECT_EQ(unchecked.code, 0) << unchecked.out;
  EXPECT_EQ(unchecked.out, "sum 64\n");
  const auto outcome = run("vgpu run --check memory " + leaves);
  EXPECT_EQ(outcome.code, 1) << outcome.out;
  EXPECT_THAT(outcome.out, testing::Not(HasSubstr("leak: leak")));
  EXPECT_THAT(outcome.out, HasSubstr("leak: the process ended with an allocation of 256 bytes"));
  EXPECT_THAT(outcome.out,
              HasSubstr("leak: the process ended, and nobody had destroyed 1 of its modules"));
  EXPECT_THAT(outcome.out,
              HasSubstr("leak: the process ended, and nobody had destroyed 1 of its streams"));
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

/// The library as any program finds it, set up by nothing but the environment.
class VgpuEnvironment : public VgpuCommand {
 protected:
  void SetUp() override {
    VgpuCommand::SetUp();
    fs::create_symlink(TILEWRIGHT_BINARY_DIR "/bin/libtilewright_vgpu.so",
                       folder_ / "libcuda.so.1");
  }
  Outcome probe(const std::string& variables, const std::string& mode = "",
                int extra_threads = 0) const {
    return execute("LD_LIBRARY_PATH=" + folder_.string() + " " + variables + " " + kProbe + " 1 " +
                   std::to_string(extra_threads) + " libcuda.so.1 " + mode + " 2>&1");
  }
  /// The checks that the file of reports names.
  std::vector<std::string> reported(const std::string& file) const {
    std::ifstream stream(file);
    std::vector<std::string> checks;
    for (std::string line; std::getline(stream, line);)
      checks.push_back(json::parse(line)["check"]);
    return checks;
  }
};

TEST_F(VgpuEnvironment, ChecksByItAloneAndSaysSoOnStandardError) {
  EXPECT_EQ(probe("").out, "sum 64\n");
  EXPECT_EQ(probe("TILEWRIGHT_VGPU_CHECK=off", "leave").out, "sum 64\n");
  EXPECT_EQ(probe("TILEWRIGHT_VGPU_CHECK=full").out, "sum 64\n");
  const auto leaves = probe("TILEWRIGHT_VGPU_CHECK=memory", "leave");
  EXPECT_THAT(leaves.out, HasSubstr("sum 64\n"));
  EXPECT_THAT(leaves.out, HasSubstr("tilewright vgpu: leak: the process ended with an allocation"));
  EXPECT_EQ(leaves.code, 0) << "what the library finds changes no exit code";
  const auto wrong = probe("TILEWRIGHT_VGPU_CHECK=much");
  EXPECT_THAT(wrong.out, HasSubstr("TILEWRIGHT_VGPU_CHECK is none of off, memory, full"));
  EXPECT_THAT(wrong.out, HasSubstr("cuInit: 1\n"));
}

TEST_F(VgpuEnvironment, WritesReportsToItsFileAndNotToStandardError) {
  const std::string file = (folder_ / "reports.jsonl").string();
  const std::string variables = "TILEWRIGHT_VGPU_CHECK=full TILEWRIGHT_VGPU_REPORTS=" + file;
  EXPECT_EQ(probe(variables, "leave").out, "sum 64\n");
  EXPECT_EQ(reported(file), (std::vector<std::string>{"leak", "leak", "leak"}));
  fs::remove(file);
  EXPECT_EQ(probe(variables, "leave", 64).out, "cuCtxSynchronize: 700\n");
  EXPECT_EQ(reported(file), std::vector<std::string>{"out-of-bounds"})
      << "after a fault nothing can be given back, so nothing is a leak";
}

TEST_F(VgpuEnvironment, TellsWhatAContextAndALibraryEndWithOnce) {
  const std::pair<const char*, const char*> cases[] = {
      {"reset", "tilewright vgpu: leak: the context ended with an allocation of 256 bytes"},
      {"close", "tilewright vgpu: leak: the process ended with an allocation of 256 bytes"}};
  for (const auto& [mode, text] : cases) {
    const auto outcome = probe("TILEWRIGHT_VGPU_CHECK=memory", mode);
    EXPECT_EQ(outcome.code, 0) << outcome.out;
    const std::size_t first = outcome.out.find(text);
    EXPECT_NE(first, std::string::npos) << mode << ": " << outcome.out;
    EXPECT_EQ(outcome.out.find("an allocation", first + std::string(text).size()),
              std::string::npos)
        << mode << ": " << outcome.out;
  }
}

TEST_F(VgpuEnvironment, LeavesTheLeaksOfAProcessToTheOneThatMadeThem) {
  const std::string file = (folder_ / "reports.jsonl").string();
  EXPECT_EQ(probe("TILEWRIGHT_VGPU_CHECK=memory TILEWRIGHT_VGPU_REPORTS=" + file, "fork").code, 0);
  EXPECT_EQ(reported(file), (std::vector<std::string>{"leak", "leak", "leak"}));
}

TEST_F(VgpuEnvironment, DrawsTheOrderOfWarpsFromItsSeed) {
  EXPECT_EQ(probe("", "order").out, "order 0 1\n");
  bool other = false;
  for (int seed = 1; seed <= 20; ++seed) {
    const std::string variable = "TILEWRIGHT_VGPU_SEED=" + std::to_string(seed);
    const auto once = probe(variable, "order");
    EXPECT_EQ(once.code, 0) << once.out;
    other |= once.out == "order 1 0\n";
    if (seed <= 3) {
      EXPECT_EQ(probe(variable, "order").out, once.out) << seed;
    }
  }
  EXPECT_TRUE(other) << "no seed of twenty let the second warp come first";
}

TEST_F(VgpuEnvironment, LetsStreamsBeAsLateAsItSays) {
  EXPECT_EQ(probe("", "unordered").out, "sum 64\n");
  EXPECT_EQ(probe("TILEWRIGHT_VGPU_STREAMS=eager", "unordered").out, "sum 64\n");
  EXPECT_EQ(probe("TILEWRIGHT_VGPU_STREAMS=late", "unordered").out, "sum 0\n")
      << "the copy did not wait for the launch";
  EXPECT_THAT(probe("TILEWRIGHT_VGPU_STREAMS=soon", "unordered").out,
              HasSubstr("TILEWRIGHT_VGPU_STREAMS is 'soon', expected eager, late or late:SEED"));
}

TEST_F(VgpuEnvironment, LetsApproximationsErrByItsSeed) {
  auto bits = [&](const std::string& value) {
    const auto outcome = probe("TILEWRIGHT_VGPU_APPROXIMATE=" + value, "reciprocal");
    EXPECT_EQ(outcome.code, 0) << outcome.out;
    return outcome.out;
  };
  const std::string nearest = bits("nearest");
  EXPECT_EQ(nearest, probe("", "reciprocal").out);
  const std::string first = bits("adversarial"), second = bits("adversarial:2");
  EXPECT_NE(first, nearest);
  EXPECT_NE(second, first);
  EXPECT_EQ(bits("adversarial:2"), second) << "the same seed, the same errors";
  EXPECT_THAT(probe("TILEWRIGHT_VGPU_APPROXIMATE=adversarial:0", "reciprocal").out,
              HasSubstr("expected nearest, adversarial or adversarial:SEED, the seed not being 0"));
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
