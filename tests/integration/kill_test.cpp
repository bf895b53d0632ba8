// kill -9 of the daemon during a tune, and of `tilewright tune`, at random points: whatever was
// recorded is there afterwards, and the next start works.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <thread>

#include "cache/store.h"
#include "daemon/protocol/channel.h"
#include "search/record.h"
#include "tests/cache/samples.h"

extern char** environ;

namespace tilewright {
namespace {

using namespace std::chrono_literals;
using cache::testing::TemporaryFolder;
using cache::testing::value_of;
using protocol::Channel;

constexpr int kRounds = 20;
const std::string kBin = std::string(TILEWRIGHT_BINARY_DIR) + "/bin/";

/// A program of ours, ended with the test.
class Process {
 public:
  explicit Process(std::vector<std::string> words, const std::filesystem::path& log) {
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    if (posix_spawn(&child_, words[0].c_str(), &actions, nullptr, arguments.data(), environ) != 0)
      throw std::runtime_error("cannot start " + words[0]);
    posix_spawn_file_actions_destroy(&actions);
  }
  ~Process() { end(SIGKILL); }

  bool running() {
    if (child_ > 0 && waitpid(child_, &status_, WNOHANG) == child_) child_ = -1;
    return child_ > 0;
  }
  /// Returns the wait status.
  int end(int signal) {
    if (running()) {
      kill(child_, signal);
      waitpid(child_, &status_, 0);
      child_ = -1;
    }
    return status_;
  }

 private:
  pid_t child_ = -1;
  int status_ = 0;
};

class KillTest : public ::testing::Test {
 protected:
  static std::string operator_text() {
    auto op = templates::load_operator(
        std::string(TILEWRIGHT_SOURCE_DIR) + "/configs/operators/bias_gelu.yaml", {{"N", "64"}});
    return templates::print(value_of(std::move(op)));
  }
  std::filesystem::path cache_folder() const { return folder_.path() / "cache"; }
  std::string said() const {
    std::ifstream in(folder_.path() / "log");
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  }
  Process start_daemon() {
    return Process({kBin + "tilewrightd", "--socket", socket(), "--cache", cache_folder().string(),
                    "--device", "virtual:l4"},
                   folder_.path() / "log");
  }
  std::string socket() const { return (folder_.path() / "run" / "daemon.sock").string(); }
  Channel connect() {
    for (int i = 0; i < 2000; ++i) {
      auto channel = Channel::connect(socket(), "kill test", 10s);
      if (channel) return std::move(*channel);
      std::this_thread::sleep_for(10ms);
    }
    throw std::runtime_error("the daemon does not serve: " + said());
  }

  struct Contents {
    std::map<std::string, std::string> trials;
    std::map<Digest, cache::Record> records;
  };
  /// Of the store, whose owner is gone. Every trial is one that can be read.
  Contents contents() {
    Contents contents;
    auto store = value_of(cache::open_rocks_store({cache_folder()}));
    cache::testing::must(store->each_trial([&](const cache::StoredTrial& trial) {
      EXPECT_TRUE(search::parse_trial_body(trial.body)) << trial.id;
      contents.trials[trial.id] = trial.body;
      return true;
    }));
    cache::testing::must(store->each([&](const cache::Record& record) {
      for (const Digest& image : record.images()) EXPECT_TRUE(value_of(store->image(image)));
      contents.records[record.key.problem] = record;
      return true;
    }));
    return contents;
  }
  /// Nothing of `before` was lost or changed.
  static void expect_kept(const Contents& before, const Contents& after) {
    for (const auto& [id, body] : before.trials) {
      auto found = after.trials.find(id);
      ASSERT_TRUE(found != after.trials.end()) << "lost trial " << id;
      EXPECT_EQ(found->second, body);
    }
    for (const auto& [problem, record] : before.records) {
      auto found = after.records.find(problem);
      ASSERT_TRUE(found != after.records.end()) << "lost record " << problem.hex();
      for (const cache::Entry& entry : record.entries) {
        bool kept = false;
        for (const cache::Entry& now : found->second.entries)
          kept = kept || now.evidence.sizes == entry.evidence.sizes;
        EXPECT_TRUE(kept);
      }
    }
  }

  TemporaryFolder folder_;
  std::mt19937 random_{20260101};
};

TEST_F(KillTest, TheDaemonDuringATune) {
  const std::string text = operator_text();
  Contents before;
  int finished = 0;
  for (int round = 0; round < kRounds; ++round) {
    Process daemon = start_daemon();
    int acknowledged = 0;
    bool tuned = false;
    {
      Channel channel = connect();
      protocol::Tune tune{{text, {16 + finished}, {}}};
      tune.evaluations = 8;
      value_of(channel.send(tune, 10s));
      // A random step, and a random moment after it: the machine's load moves neither.
      int step = int(random_() % 10);
      auto moment = std::chrono::milliseconds(random_() % 120);
      while (!tuned && acknowledged < step) {
        auto answer = channel.receive(60s);
        ASSERT_TRUE(answer) << answer.error().message;
        if (auto* progress = std::get_if<protocol::Progress>(&answer->message))
          acknowledged = progress->done;
        if (auto* failure = std::get_if<protocol::Failure>(&answer->message))
          FAIL() << failure->error.message;
        tuned = std::holds_alternative<protocol::Tuned>(answer->message);
      }
      std::this_thread::sleep_for(moment);
      ASSERT_TRUE(WIFSIGNALED(daemon.end(SIGKILL))) << said();
    }
    Contents after = contents();
    expect_kept(before, after);
    // Trials that are recalled count as steps too, and are in the journal of an earlier round.
    EXPECT_GE(int(after.trials.size()), acknowledged);
    EXPECT_GE(after.records.size(), tuned ? 1u : 0u);
    if (tuned) {
      ++finished;
      std::size_t entries = 0;
      for (const auto& [problem, record] : after.records) entries += record.entries.size();
      EXPECT_GE(int(entries), finished);
    }
    before = std::move(after);
  }
  EXPECT_GT(before.trials.size(), 8u) << "the rounds were too short to try anything";
  // The next start works, and what is known is served.
  Process daemon = start_daemon();
  Channel channel = connect();
  auto plan = value_of(channel.call(protocol::Get{{text, {16}, {}}}, 60s));
  EXPECT_TRUE(std::holds_alternative<protocol::Plan>(plan.message));
  EXPECT_TRUE(WIFEXITED(daemon.end(SIGTERM))) << said();
}

TEST_F(KillTest, TheCommandDuringATune) {
  if (!std::filesystem::exists(kBin + "tilewright")) GTEST_SKIP() << "no tilewright is built";
  Contents before;
  for (int round = 0; round < kRounds; ++round) {
    Process tune({kBin + "tilewright", "--no-daemon", "--cache", cache_folder().string(),
                  "--device", "virtual:l4", "tune",
                  std::string(TILEWRIGHT_SOURCE_DIR) + "/configs/operators/bias_gelu.yaml",
                  "--shape", "M=" + std::to_string(16 + round / 5) + ",N=64", "--budget", "8",
                  "--seed", std::to_string(round / 5)},
                 folder_.path() / "log");
    std::this_thread::sleep_for(std::chrono::milliseconds(200 + random_() % 1000));
    int status = tune.end(SIGKILL);
    EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0) << said();
    Contents after = contents();
    expect_kept(before, after);
    before = std::move(after);
  }
  EXPECT_GT(before.trials.size(), 4u) << "the rounds were too short to try anything: " << said();
}

}  // namespace
}  // namespace tilewright
