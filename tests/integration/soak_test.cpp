// Many tunes of small operators in one daemon: its memory, descriptors, threads and processes stay as
// they are after the first quarter.
//
// TILEWRIGHT_TUNES=2000 makes it the long run of docs/benchmarks.md; 40 is the test.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <thread>

#include "daemon/protocol/channel.h"
#include "templates/operator/parse.h"
#include "tests/cache/samples.h"

extern char** environ;

namespace tilewright {
namespace {

using namespace std::chrono_literals;
using cache::testing::value_of;
using protocol::Channel;

const std::string kBin = std::string(TILEWRIGHT_BINARY_DIR) + "/bin/";

int tunes() {
  const char* given = std::getenv("TILEWRIGHT_TUNES");
  return given ? std::max(8, std::atoi(given)) : 40;
}

/// What a process and its descendants take.
struct Use {
  int processes = 0, descriptors = 0, threads = 0;
  double mib = 0;
  std::map<std::string, double> mib_of;  ///< by program
};

double number_after(const std::string& text, const std::string& name) {
  const std::size_t at = text.find(name);
  return at == std::string::npos ? 0 : std::strtod(text.c_str() + at + name.size(), nullptr);
}

std::string file(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

void add(pid_t pid, Use& use) {
  const std::filesystem::path proc = "/proc/" + std::to_string(pid);
  const std::string status = file(proc / "status");
  if (status.empty()) return;
  ++use.processes;
  use.threads += static_cast<int>(number_after(status, "Threads:"));
  const double mib = number_after(status, "RssAnon:") / 1024;
  use.mib += mib;
  const std::size_t name = status.find('\t') + 1;
  use.mib_of[status.substr(name, status.find('\n') - name)] += mib;
  std::error_code gone;
  for (auto it = std::filesystem::directory_iterator(proc / "fd", gone);
       !gone && it != std::filesystem::directory_iterator(); it.increment(gone))
    ++use.descriptors;
  for (const auto& task : std::filesystem::directory_iterator(proc / "task", gone)) {
    std::istringstream children(file(task.path() / "children"));
    for (pid_t child; children >> child;) add(child, use);
  }
}

class Daemon {
 public:
  Daemon(const std::filesystem::path& folder) : socket_(folder / "run" / "daemon.sock") {
    std::vector<std::string> words{
        kBin + "tilewrightd",        "--socket", socket_.string(), "--cache",
        (folder / "cache").string(), "--device", "virtual:l4"};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    const std::string log = (folder / "log").string();
    posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    posix_spawn(&pid_, words[0].c_str(), &actions, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
  }
  ~Daemon() {
    kill(pid_, SIGTERM);
    waitpid(pid_, nullptr, 0);
  }

  Channel connect() const {
    for (int i = 0; i < 2000; ++i) {
      auto channel = Channel::connect(socket_.string(), "soak test", 10s);
      if (channel) return std::move(*channel);
      std::this_thread::sleep_for(10ms);
    }
    throw std::runtime_error("the daemon does not serve");
  }
  Use use() const {
    Use use;
    add(pid_, use);
    return use;
  }

 private:
  std::filesystem::path socket_;
  pid_t pid_ = -1;
};

std::string operator_of(int number) {
  // Another problem each time: the width is in the operator.
  return templates::print(value_of(templates::load_operator(
      std::string(TILEWRIGHT_SOURCE_DIR) + "/configs/operators/bias_gelu.yaml",
      {{"N", std::to_string(16 + 8 * number)}})));
}

TEST(Soak, ADaemonTakesNoMoreAfterManyTunes) {
  cache::testing::TemporaryFolder folder;
  const Daemon daemon(folder.path());
  const int count = tunes();
  Use early, last;
  const auto begin = std::chrono::steady_clock::now();
  std::cout << "tunes  seconds  processes  threads  descriptors  MiB\n";
  for (int i = 0; i < count; ++i) {
    {
      Channel channel = daemon.connect();
      protocol::Tune tune{{operator_of(i), {16}, {}}};
      tune.evaluations = 2;
      tune.replace = true;
      value_of(channel.send(tune, 10s));
      for (bool tuned = false; !tuned;) {  // progress comes first
        const auto answer = value_of(channel.receive(120s));
        const auto* failure = std::get_if<protocol::Failure>(&answer.message);
        ASSERT_TRUE(failure == nullptr) << failure->error.message;
        tuned = std::holds_alternative<protocol::Tuned>(answer.message);
      }
    }
    if ((i + 1) % std::max(1, count / 20) != 0) continue;
    std::this_thread::sleep_for(50ms);  // the session that has gone is closed
    last = daemon.use();
    if (i + 1 <= std::max(1, count / 4)) early = last;
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    std::cout << i + 1 << "  " << int(seconds.count()) << "  " << last.processes << "  "
              << last.threads << "  " << last.descriptors << "  " << last.mib;
    for (const auto& [program, mib] : last.mib_of) std::cout << "  " << program << ' ' << mib;
    std::cout << std::endl;
  }
  EXPECT_EQ(last.processes, early.processes);
  EXPECT_LE(last.threads, early.threads + 1);
  EXPECT_LE(last.descriptors, early.descriptors + 8);
  EXPECT_LE(last.mib, 1.1 * early.mib + 24);
}

}  // namespace
}  // namespace tilewright
