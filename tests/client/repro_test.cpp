// A failed trial, from a tune with a planted error to the folder that shows it, and mended there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

class Repro : public testing::Test {
 protected:
  Repro()
      : folder_(fs::path(testing::TempDir()) / ("tilewright-repro-" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
    fs::copy(TILEWRIGHT_SOURCE_DIR "/templates", folder_ / "templates",
             fs::copy_options::recursive);
  }
  ~Repro() override { fs::remove_all(folder_); }

  std::string read(const fs::path& path) const {
    std::ifstream in(folder_ / path);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  }

  void plant(const fs::path& path, const std::string& from, const std::string& to) const {
    std::string text = read(path);
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos);
    std::ofstream(folder_ / path) << text.replace(at, from.size(), to);
  }

  void plant_wrong_sum() const {
    plant("templates/kernels/simt_gemm.cuh",
          "sum = scalar::fma(a.get(i, step), b.get(j, step), sum);",
          "if (k + step != 5) sum = scalar::fma(a.get(i, step), b.get(j, step), sum);");
  }

  /// The exit code, and standard output.
  std::pair<int, std::string> sh(const std::string& command) const {
    const std::string line =
        "cd " + folder_.string() +
        " && export TILEWRIGHT_CACHE=cache TILEWRIGHT_RUNTIME=run TILEWRIGHT=" + program() +
        " && " + command + " 2>/dev/null";
    std::string out;
    FILE* pipe = popen(line.c_str(), "r");
    char buffer[4096];
    while (auto count = fread(buffer, 1, sizeof buffer, pipe)) out.append(buffer, count);
    const int status = pclose(pipe);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, out};
  }

  static std::string program() { return TILEWRIGHT_BINARY_DIR "/bin/tilewright"; }

  /// The failures of a tune with the templates as they are now.
  json tune() const {
    const auto [code, out] =
        sh(program() + " --no-daemon tune " TILEWRIGHT_SOURCE_DIR
                       "/configs/operators/linear.yaml --shape M=5,N=48,K=40 --budget 1 --device "
                       "virtual:h200 --templates templates --json");
    const json report = json::parse(out, nullptr, false);
    EXPECT_TRUE(report.is_object()) << code << out;
    return report.is_object() ? report.at("candidates").at("failures") : json::array();
  }

  std::string repro(const std::string& arguments) const {
    return program() + " repro " + arguments + " --device virtual:h200 --templates templates";
  }

  const fs::path folder_;
};

TEST_F(Repro, ShowsAWrongResultAgainUntilItIsMended) {
  plant_wrong_sum();
  const json failures = tune();
  ASSERT_FALSE(failures.empty());
  EXPECT_EQ(failures[0].at("reason"), "wrong_result");
  const std::string id = failures[0].at("trial");

  const auto [listed, list] = sh(repro("--json"));
  EXPECT_EQ(listed, 0);
  ASSERT_EQ(json::parse(list).size(), failures.size()) << list;
  EXPECT_EQ(json::parse(list)[0].at("replay"), true);

  const auto [made, text] = sh(repro(id.substr(0, 12) + " --out wrong"));
  ASSERT_EQ(made, 0) << text;
  EXPECT_THAT(read("wrong/failure.txt"),
              AllOf(HasSubstr("wrong_result: output 'y' is"), HasSubstr("the first wrong elements"),
                    HasSubstr("wanted")));
  EXPECT_THAT(read("wrong/kernel.cu"), HasSubstr("kernels/simt_gemm.cuh"));
  EXPECT_THAT(read("wrong/kernel.ptx"), HasSubstr(".visible .entry"));
  const json launch = json::parse(read("wrong/launch.json"));
  ASSERT_EQ(launch.size(), 1u);
  EXPECT_EQ(launch[0].at("grid").size(), 3u);
  EXPECT_EQ(launch[0].at("arguments")[0].at("shape"), json({5, 40}));
  EXPECT_EQ(json::parse(read("wrong/replay.json")).at("trial").at("seed"), 1);

  const auto [failed, why] = sh("wrong/run.sh");
  EXPECT_EQ(failed, 1);
  EXPECT_THAT(why, HasSubstr("wrong_result: output 'y' is"));
  const auto [bundle, journal] =
      sh(TILEWRIGHT_BINARY_DIR "/bin/tilewright-bundle-run wrong/bundle --virtual h200");
  EXPECT_EQ(bundle, 1);
  EXPECT_THAT(journal, HasSubstr("wrong_result"));

  fs::copy(TILEWRIGHT_SOURCE_DIR "/templates/kernels/simt_gemm.cuh",
           folder_ / "wrong/include/kernels/simt_gemm.cuh", fs::copy_options::overwrite_existing);
  const auto [mended, result] = sh("wrong/run.sh");
  EXPECT_EQ(mended, 0);
  EXPECT_THAT(result, HasSubstr("it does not fail"));
}

TEST_F(Repro, SaysTheSameBesideADaemon) {
  plant_wrong_sum();
  const json failures = tune();
  ASSERT_FALSE(failures.empty());
  const std::string id = failures[0].at("trial").get<std::string>().substr(0, 12);
  const auto list = sh(repro("")), json_list = sh(repro("--json"));
  const auto unknown = sh(repro("0123 --json"));
  ASSERT_EQ(list.first, 0);
  const auto made = sh(repro(id + " --out alone"));
  ASSERT_EQ(made.first, 0) << made.second;

  const auto [started, text] = sh(TILEWRIGHT_BINARY_DIR
                                  "/bin/tilewrightd --background --log-level warning --device "
                                  "virtual:h200");
  int daemon = 0;
  ASSERT_EQ(sscanf(text.c_str(), "tilewrightd: process %d", &daemon), 1) << started << text;
  EXPECT_EQ(sh(repro("")), list);
  EXPECT_EQ(sh(repro("--json")), json_list);
  EXPECT_EQ(sh(repro("0123 --json")), unknown);
  const auto beside = sh(repro(id + " --out beside"));
  EXPECT_EQ(beside.first, 0) << beside.second;
  // Of the bundle, images tell how long compiling took.
  EXPECT_EQ(sh("diff -r -x images -x manifest.json alone beside"), std::pair(0, std::string()));
  EXPECT_EQ(sh("beside/run.sh").first, 1);
  // Only the daemon opens the store.
  EXPECT_EQ(sh(program() + " --no-daemon repro").first, 1);
  ::kill(daemon, SIGTERM);
  for (int i = 0; i < 1000 && ::kill(daemon, 0) == 0; ++i) ::usleep(10'000);
}

TEST_F(Repro, ShowsWhatABundleFoundAsWell) {
  plant_wrong_sum();
  const std::string device = " --device virtual:h200 --templates templates";
  ASSERT_EQ(sh(program() +
               " bundle make b " TILEWRIGHT_SOURCE_DIR
               "/configs/operators/linear.yaml --shape M=5,N=48,K=40 --candidates 1" +
               device)
                .first,
            0);
  ASSERT_EQ(sh(program() + " bundle run b" + device).first, 0);
  ASSERT_EQ(sh(program() + " --no-daemon bundle import b").first, 0);
  const json listed = json::parse(sh(repro("--json")).second);
  std::string id;
  for (const json& trial : listed) {
    EXPECT_EQ(trial.at("replay"), true) << trial;
    if (trial.at("family") == "simt_gemm") id = trial.at("id");
  }
  ASSERT_FALSE(id.empty()) << listed;
  const auto [made, text] = sh(repro(id + " --out wrong"));
  ASSERT_EQ(made, 0) << text;
  EXPECT_EQ(json::parse(read("wrong/replay.json")).at("trial").at("id"), id);
  const auto [failed, why] = sh("wrong/run.sh");
  EXPECT_EQ(failed, 1);
  EXPECT_THAT(why, HasSubstr("wrong_result: output 'y' is"));
}

TEST_F(Repro, KeepsTheLogOfWhatDoesNotCompile) {
  plant("templates/device/tile.cuh", "#pragma once", "#pragma once\n#error planted");
  const json failures = tune();
  ASSERT_FALSE(failures.empty());
  EXPECT_EQ(failures[0].at("reason"), "compile");
  const std::string id = failures[0].at("trial");
  ASSERT_EQ(sh(repro(id + " --out broken")).first, 0);
  EXPECT_THAT(read("broken/compile.log"), HasSubstr("planted"));
  EXPECT_FALSE(fs::exists(folder_ / "broken/bundle"));
  const auto [failed, why] = sh("broken/run.sh");
  EXPECT_EQ(failed, 1);
  EXPECT_THAT(why, HasSubstr("planted"));
}

TEST_F(Repro, SaysWhatItDoesNotKnow) {
  EXPECT_EQ(sh(repro("")).second, "no failed trial is known\n");
  const auto [code, out] = sh(repro("0123 --json"));
  EXPECT_EQ(code, 1);
  EXPECT_THAT(out, HasSubstr("0 failed trials begin with '0123', expected one"));
}

}  // namespace
