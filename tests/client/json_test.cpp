// Every command with --json: standard output is one JSON document, whether it does what it was asked
// for or says why not.
#include <gtest/gtest.h>
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

class Json : public testing::Test {
 protected:
  Json() : folder_(fs::path(testing::TempDir()) / ("tilewright-json-" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
    std::ofstream(folder_ / "tiny.yaml")
        << "model: tiny\n"
           "operators:\n"
           "  - {operator: linear, name: down, parameters: {N: 48, K: 40}, count: 2}\n";
  }
  ~Json() override { fs::remove_all(folder_); }

  /// The exit code, and standard output alone.
  std::pair<int, std::string> run(const std::string& arguments) const {
    const std::string line = "cd " + folder_.string() +
                             " && TILEWRIGHT_CACHE=cache TILEWRIGHT_RUNTIME=run "
                             "exec " TILEWRIGHT_BINARY_DIR "/bin/tilewright --no-daemon " +
                             arguments + " 2>/dev/null";
    std::string out;
    FILE* pipe = popen(line.c_str(), "r");
    char buffer[4096];
    while (auto count = fread(buffer, 1, sizeof buffer, pipe)) out.append(buffer, count);
    const int status = pclose(pipe);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, out};
  }

  fs::path folder_;
};

// In this order: later ones read what earlier ones wrote.
TEST_F(Json, OfEveryCommandIsOneDocument) {
  const std::string op = TILEWRIGHT_SOURCE_DIR "/configs/operators/linear.yaml";
  const std::string small = op + " --shape M=5,N=48,K=40 --device virtual:h200";
  const std::string sweep = "sweep --model tiny.yaml --tokens 5 --budget 2 --device virtual:h200";
  struct Case {
    std::string arguments;
    int code;
    std::vector<std::string> members;  ///< of the object; none: an array
  };
  const Case cases[] = {
      {"devices", 0, {}},
      {"show " + op, 0, {"operator", "groups", "partitions", "illegal"}},
      {"generate " + small, 0, {"source", "ptx", "plan", "kernels"}},
      {"tune " + small + " --budget 2", 0, {"problem", "choice", "baseline", "candidates"}},
      {"get " + small, 0, {"source", "launches", "domains"}},
      {sweep + " --dry-run", 0, {"problems", "left_out"}},
      {sweep, 0, {"items", "seconds", "interrupted"}},
      {"cache list", 0, {}},
      {"cache show ''", 0, {}},
      {"cache stats", 0, {"records", "images", "trials"}},
      {"cache export lines", 0, {"lines", "file"}},
      {"cache import lines",
       0,
       {"file", "taken", "kept", "other_generator", "without_images", "images"}},
      {"bundle make bundle " + small + " --candidates 1", 0, {"folder", "trials", "problems"}},
      {"bundle run bundle --device virtual:h200", 0, {"journal", "trials", "run", "failed"}},
      {"bundle import bundle", 0, {"journal", "imported"}},
      {"repro", 0, {}},
      // What cannot be done.
      {"show nothing.yaml", 2, {"error", "message"}},
      {"generate nothing.yaml", 2, {"error", "message"}},
      {"tune " + op, 2, {"error", "message"}},
      {"get " + op + " --shape M=60,N=48,K=40 --device virtual:h200", 1, {"error", "message"}},
      {"run " + small, 2, {"error", "message"}},
      {"sweep --model nothing.yaml --dry-run", 1, {"error", "message"}},
      {"cache show abc", 1, {"error", "message"}},
      {"cache export -", 2, {"error", "message"}},
      {"cache import nothing", 1, {"error", "message"}},
      {"bundle make bundle nothing.yaml", 2, {"error", "message"}},
      {"bundle run nothing --device virtual:h200", 1, {"error", "message"}},
      {"bundle import nothing", 1, {"error", "message"}},
      // What was not understood.
      {"tunes", 2, {"error", "message"}},
      {"tune", 2, {"error", "message"}},
      {"", 2, {"error", "message"}},
      {"tune " + op + " --budget 0", 2, {"error", "message"}},
      {"tune " + op + " --bugdet 3", 2, {"error", "message"}},
      {"--device fpga devices", 2, {"error", "message"}},
  };
  for (const Case& test : cases) {
    const auto [code, out] = run(test.arguments + " --json");
    EXPECT_EQ(code, test.code) << test.arguments << "\n" << out;
    const json document = json::parse(out, nullptr, false);
    ASSERT_FALSE(document.is_discarded()) << test.arguments << "\n" << out;
    EXPECT_EQ(document.is_array(), test.members.empty()) << test.arguments << "\n" << out;
    for (const std::string& member : test.members)
      EXPECT_TRUE(document.contains(member)) << test.arguments << ": " << member << "\n" << out;
  }
}

}  // namespace
