// kill -9 of the daemon during a tune, and of `tilewright tune` during a write, at random points:
// whatever was said to be kept is there afterwards, byte for byte; the next start works, and runs
// nothing again that is there.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <random>
#include <regex>
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
  /// Until it ends by itself; returns its exit code, -1 for a signal.
  int wait() {
    if (running()) waitpid(child_, &status_, 0);
    child_ = -1;
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : -1;
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
                    "--device", "virtual:l4", "--log-level", "debug"},
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

  /// Something that the killed process said was kept, with the digest of its bytes.
  struct Kept {
    std::string kind, name, digest;
  };
  /// Said after the store had it. A line that the kill cut off is none.
  std::vector<Kept> kept() const {
    static const std::regex line(".*(trial|record) ([0-9a-f]{32}) is kept as ([0-9a-f]{32})");
    std::vector<Kept> all;
    std::istringstream in(said());
    std::smatch match;
    for (std::string text; std::getline(in, text) && !in.eof();)
      if (std::regex_match(text, match, line)) all.push_back({match[1], match[2], match[3]});
    return all;
  }
  /// Until so much was kept, and a moment longer: the next write is then under way, or not.
  void wait_for_kept(std::size_t count, const std::function<bool()>& ended) {
    auto deadline = std::chrono::steady_clock::now() + 60s;
    while (kept().size() < count && !ended()) {
      if (std::chrono::steady_clock::now() > deadline)
        throw std::runtime_error("nothing was kept for a minute: " + said());
      std::this_thread::sleep_for(1ms);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random_() % 40'000));
  }

  struct Contents {
    std::map<std::string, std::string> trials;
    std::map<std::string, cache::Record> records;  ///< by problem
  };
  Process start_tune(const std::filesystem::path& cache, int m) {
    return Process({kBin + "tilewright", "--no-daemon", "--verbose", "--cache", cache.string(),
                    "--device", "virtual:l4", "tune",
                    std::string(TILEWRIGHT_SOURCE_DIR) + "/configs/operators/bias_gelu.yaml",
                    "--shape", "M=" + std::to_string(m) + ",N=64", "--budget", "8"},
                   folder_.path() / "log");
  }

  /// What is launched at the sizes of each entry, by its range.
  static std::map<std::string, std::vector<std::string>> choices(
      const std::filesystem::path& folder) {
    std::map<std::string, std::vector<std::string>> choices;
    auto store = value_of(cache::open_rocks_store({folder}));
    cache::testing::must(store->each([&](const cache::Record& record) {
      for (const cache::Entry& entry : record.entries) {
        std::string range;
        for (const auto& [dimension, ends] : entry.plan.chosen_for)
          range += dimension + "=" + std::to_string(ends.low) + ".." + std::to_string(ends.high);
        for (const jit::PlanLaunch& launch : entry.plan.launches)
          choices[range].push_back(launch.image.hex());
      }
      return true;
    }));
    return choices;
  }

  /// Of the store, whose owner is gone. Every trial is one that can be read, every record has its
  /// images.
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
      contents.records[record.key.problem.hex()] = record;
      return true;
    }));
    EXPECT_EQ(value_of(store->statistics()).damaged, 0u);
    return contents;
  }

  /// After a kill: all that was there before, and all that was said to be kept since, byte for byte.
  /// And what was there was not run again.
  void expect_kept(const Contents& before, const Contents& after) {
    std::map<std::string, std::string> records, trials;  // the last word on each
    std::map<std::string, int> said;                     // words on each trial: begun, then ended
    for (const Kept& one : kept()) {
      (one.kind == "record" ? records : trials)[one.name] = one.digest;
      said[one.name] += one.kind == "trial";
    }
    for (const auto& [id, digest] : trials) {
      auto found = after.trials.find(id);
      ASSERT_TRUE(found != after.trials.end()) << "lost trial " << id;
      // Killed between the write of the end and the word on it, it has ended all the same.
      if (said[id] > 1 || is_begun(found->second))
        EXPECT_EQ(digest_of(found->second).hex(), digest) << id;
      said_kept_ += !is_begun(found->second);
      auto known = before.trials.find(id);
      if (known != before.trials.end())
        EXPECT_TRUE(may_be_repeated(known->second)) << "repeated: " << known->second;
    }
    for (const auto& [id, body] : before.trials) {
      auto found = after.trials.find(id);
      ASSERT_TRUE(found != after.trials.end()) << "lost trial " << id;
      if (!may_be_repeated(body)) EXPECT_EQ(found->second, body);
    }
    for (const auto& [problem, digest] : records) {
      auto found = after.records.find(problem);
      ASSERT_TRUE(found != after.records.end()) << "lost record " << problem;
      EXPECT_EQ(digest_of(pack(found->second)).hex(), digest) << problem;
    }
    for (const auto& [problem, record] : before.records) {
      auto found = after.records.find(problem);
      ASSERT_TRUE(found != after.records.end()) << "lost record " << problem;
      // A tune of other sizes adds an entry and leaves the others alone.
      for (const cache::Entry& entry : record.entries) {
        const auto& now = found->second.entries;
        EXPECT_TRUE(std::find(now.begin(), now.end(), entry) != now.end());
      }
    }
  }
  static bool is_begun(const std::string& body) {
    return value_of(search::parse_trial_body(body)).begun > 0;
  }
  /// What was begun and has not ended, or failed for a reason of the machine's, is tried again.
  static bool may_be_repeated(const std::string& body) {
    auto trial = value_of(search::parse_trial_body(body));
    if (trial.begun > 0) return true;
    return trial.failure && trial.failure->code != ErrorCode::kCompile &&
           trial.failure->code != ErrorCode::kUnsupported &&
           trial.failure->code != ErrorCode::kCrash &&
           trial.failure->code != ErrorCode::kWrongResult;
  }

  TemporaryFolder folder_;
  std::mt19937 random_{20260101};
  int said_kept_ = 0;
};

TEST_F(KillTest, TheDaemonDuringATune) {
  const std::string text = operator_text();
  Contents before;
  int finished = 0;
  for (int round = 0; round < kRounds; ++round) {
    Process daemon = start_daemon();
    bool tuned = false;
    {
      Channel channel = connect();
      protocol::Tune tune{{text, {16 + finished}, {}}};
      tune.evaluations = 8;
      value_of(channel.send(tune, 10s));
      wait_for_kept(1 + random_() % 8, [&] {
        auto answer = channel.receive(1ms);
        if (!answer) {
          if (answer.error().code != ErrorCode::kHang)
            throw std::runtime_error(answer.error().message + "\n" + said());
          return false;
        }
        if (auto* failure = std::get_if<protocol::Failure>(&answer->message))
          throw std::runtime_error(failure->error.message);
        tuned = std::holds_alternative<protocol::Tuned>(answer->message);
        return tuned;
      });
      ASSERT_TRUE(WIFSIGNALED(daemon.end(SIGKILL))) << said();
    }
    Contents after = contents();
    expect_kept(before, after);
    if (tuned) {
      ++finished;
      std::size_t entries = 0;
      for (const auto& [problem, record] : after.records) entries += record.entries.size();
      EXPECT_GE(int(entries), finished);
    }
    before = std::move(after);
  }
  EXPECT_GE(said_kept_, kRounds) << "the rounds were too short to try anything";
  // The next start works, and what is known is served.
  Process daemon = start_daemon();
  Channel channel = connect();
  auto plan = value_of(channel.call(protocol::Get{{text, {16}, {}}}, 60s));
  EXPECT_TRUE(std::holds_alternative<protocol::Plan>(plan.message));
  EXPECT_TRUE(WIFEXITED(daemon.end(SIGTERM))) << said();
}

TEST_F(KillTest, TheCommandDuringAWrite) {
  if (!std::filesystem::exists(kBin + "tilewright")) GTEST_SKIP() << "no tilewright is built";
  Contents before;
  int finished = 0;
  for (int round = 0; round < kRounds; ++round) {
    Process tune = start_tune(cache_folder(), 16 + finished);
    wait_for_kept(1 + random_() % 8, [&] { return !tune.running(); });
    int status = tune.end(SIGKILL);
    if (WIFEXITED(status)) {
      EXPECT_EQ(WEXITSTATUS(status), 0) << said();
      ++finished;
    }
    Contents after = contents();
    expect_kept(before, after);
    before = std::move(after);
  }
  EXPECT_GE(said_kept_, kRounds) << "the rounds were too short to try anything: " << said();

  // Where a tune was killed until it ended, it chose what one chooses that nobody disturbs.
  ASSERT_EQ(start_tune(cache_folder(), 16 + finished).wait(), 0) << said();
  const std::filesystem::path quiet = folder_.path() / "quiet";
  for (int m = 16; m <= 16 + finished; ++m) ASSERT_EQ(start_tune(quiet, m).wait(), 0) << said();
  EXPECT_EQ(choices(cache_folder()), choices(quiet));
}

}  // namespace
}  // namespace tilewright
