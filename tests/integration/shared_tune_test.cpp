// `tilewright tune` beside an engine: a process that has most of the device's memory and, at times, its
// time. The tune keeps its cap and its policy, and ends with the choice that it would have made alone.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "cache/store.h"
#include "jit/virtual_gpu/driver/board.h"
#include "tests/cache/samples.h"
#include "tests/virtual_gpu/occupant.h"

extern char** environ;

namespace tilewright {
namespace {

using namespace std::chrono_literals;
using cache::testing::TemporaryFolder;
using cache::testing::value_of;
using testing::HasSubstr;
using vgpu::Board;
using vgpu::testing::Occupant;
using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kMib = 1 << 20;
constexpr std::uint64_t kDevice = 143156 * kMib;  ///< the H200
constexpr std::uint64_t kCap = 24 * kMib;

std::string content_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

class SharedTune : public testing::Test {
 protected:
  SharedTune() {
    ::setenv("TILEWRIGHT_VGPU_SHARED", path("board").c_str(), 1);
    ::setenv("TILEWRIGHT_RUNTIME", path("run").c_str(), 1);
  }
  ~SharedTune() override {
    ::unsetenv("TILEWRIGHT_VGPU_SHARED");
    ::unsetenv("TILEWRIGHT_RUNTIME");
  }

  /// Its result and what it says are NAME.json and NAME.log.
  pid_t start(const std::string& name, const std::vector<std::string>& flags,
              const std::string& budget = "6") {
    std::vector<std::string> words{TILEWRIGHT_BINARY_DIR "/bin/tilewright",
                                   "--json",
                                   "--no-daemon",
                                   "--device",
                                   "virtual:h200",
                                   "--cache",
                                   path(name + ".cache"),
                                   "tune",
                                   TILEWRIGHT_SOURCE_DIR "/configs/operators/bias_gelu.yaml",
                                   "--shape",
                                   "M=2048,N=1024",
                                   "--budget",
                                   budget,
                                   "--seed",
                                   "7"};
    words.insert(words.end(), flags.begin(), flags.end());
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    for (const auto& [descriptor, file] :
         {std::pair(1, path(name + ".json")), {2, path(name + ".log")}})
      posix_spawn_file_actions_addopen(&actions, descriptor, file.c_str(),
                                       O_WRONLY | O_CREAT | O_TRUNC, 0600);
    pid_t pid = -1;
    EXPECT_EQ(posix_spawn(&pid, words[0].c_str(), &actions, nullptr, arguments.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    return pid;
  }
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }

  nlohmann::json report(const std::string& name) const {
    return nlohmann::json::parse(content_of(path(name + ".json")));
  }
  /// The shares of the others that its trials were recorded with.
  std::vector<unsigned> shares_of_others(const std::string& name) const {
    std::vector<unsigned> shares;
    auto store = value_of(cache::open_rocks_store({path(name + ".cache")}));
    cache::testing::must(store->each_trial([&](const cache::StoredTrial& trial) {
      const auto body = nlohmann::json::parse(trial.body);
      if (body.contains("sample")) shares.push_back(body["sample"].value("others_percent", 0u));
      return true;
    }));
    return shares;
  }

  TemporaryFolder folder_;
};

TEST_F(SharedTune, KeepsItsCapAndItsPolicyBesideAnEngine) {
  int status = -1;
  ::waitpid(start("alone", {}), &status, 0);
  ASSERT_EQ(status, 0) << content_of(path("alone.log"));

  Occupant engine;
  ASSERT_EQ(engine.tell("memory 142000"), "ok");
  ASSERT_EQ(engine.tell("busy 70"), "ok");
  auto board = value_of(Board::open(path("board"), kDevice));
  const pid_t tune = start("beside", {"--when", "idle", "--memory", std::to_string(kCap / kMib)});
  std::uint64_t most = 0;
  // Watches the memory of all processes but the engine until `over` says so; false: the tune ended.
  const auto watch = [&](const std::function<bool()>& over) {
    while (!over()) {
      for (const auto& process : board->processes())
        if (!process.ours && process.pid != std::uint32_t(engine.pid()))
          most = std::max(most, process.used);
      if (::waitpid(tune, &status, WNOHANG) == tune) return false;
      std::this_thread::sleep_for(1ms);
    }
    return true;
  };
  const auto passed = [](std::chrono::milliseconds time) {
    return [end = Clock::now() + time] { return Clock::now() > end; };
  };

  // Busy: it waits, and says for whom.
  const std::string waiting = "waiting: process " + std::to_string(engine.pid()) + " uses";
  const auto end = Clock::now() + 60s;
  ASSERT_TRUE(watch([&] {
    return content_of(path("beside.log")).find(waiting) != std::string::npos || Clock::now() > end;
  })) << content_of(path("beside.log"));
  ASSERT_LT(Clock::now(), end) << content_of(path("beside.log"));
  ASSERT_TRUE(watch(passed(500ms)));

  // Idle, and busy again amid its trials.
  EXPECT_EQ(engine.tell("busy 0"), "ok");
  if (watch([&] { return most > 4 * kMib; })) {
    EXPECT_EQ(engine.tell("busy 70"), "ok");
    EXPECT_TRUE(watch(passed(1s)));
    EXPECT_EQ(engine.tell("busy 0"), "ok");
    watch([] { return false; });
  } else {
    ADD_FAILURE() << "the tune ended before it was seen to use memory";
  }
  ASSERT_EQ(status, 0) << content_of(path("beside.log"));

  EXPECT_LE(most, kCap);
  const auto alone = report("alone"), beside = report("beside");
  EXPECT_EQ(beside["candidates"], alone["candidates"]);
  EXPECT_EQ(beside["choice"], alone["choice"]);
  const auto shares = shares_of_others("beside");
  EXPECT_GE(shares.size(), 3u);
  EXPECT_THAT(shares, testing::Each(testing::Le(5u)));
}

TEST_F(SharedTune, ACapThatIsTooSmallIsSaidByEachTrialAndForgottenWithIt) {
  int status = -1;
  ::waitpid(start("small", {"--memory", "5"}), &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1) << status;
  const auto small = report("small");
  EXPECT_EQ(small["candidates"]["failed"]["out_of_memory"], small["candidates"]["tried"]) << small;
  EXPECT_THAT(small.dump(),
              HasSubstr("of device memory, expected at most 5 MiB of a cap of 5 MiB"));
  // The same cache and candidates with more memory: nothing of the refusals is left.
  ::waitpid(start("small", {}), &status, 0);
  EXPECT_EQ(status, 0) << content_of(path("small.log"));
  const auto large = report("small");
  EXPECT_EQ(large["candidates"]["tried"], small["candidates"]["tried"]);
  EXPECT_EQ(large["candidates"]["failed"], nlohmann::json::object()) << large;
}

TEST_F(SharedTune, OneProcessMeasuresAtATimeAndADeadOneDoesNot) {
  const pid_t first = start("first", {}, "2000");
  const auto holder = [&] {
    std::error_code none;
    for (const auto& file : std::filesystem::directory_iterator(path("run"), none))
      if (file.path().extension() == ".lock") return content_of(file.path().string());
    return std::string();
  };
  const std::string pid = std::to_string(first);
  for (int i = 0; i < 3000 && holder() != pid + "\n"; ++i) std::this_thread::sleep_for(10ms);
  ASSERT_EQ(holder(), pid + "\n") << content_of(path("first.log"));

  int status = -1;
  ::waitpid(start("second", {}), &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1) << status;
  const auto refused = report("second");
  EXPECT_EQ(refused["error"], "busy") << refused;
  EXPECT_THAT(refused["message"].get<std::string>(),
              testing::EndsWith(" is in use by process " + pid));

  // It was at work all the while.
  ASSERT_EQ(::waitpid(first, &status, WNOHANG), 0) << content_of(path("first.log"));
  ::kill(first, SIGKILL);
  ::waitpid(first, &status, 0);
  ::waitpid(start("second", {}), &status, 0);
  EXPECT_EQ(status, 0) << content_of(path("second.log"));
  EXPECT_GE(report("second")["choice"].size(), 1u);
}

TEST_F(SharedTune, NeverIsRefusedAtOnce) {
  int status = -1;
  ::waitpid(start("never", {"--when", "never"}), &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) != 0) << status;
  EXPECT_THAT(content_of(path("never.log")) + content_of(path("never.json")),
              HasSubstr("the device is not to be measured on: when is never"));
}

}  // namespace
}  // namespace tilewright
