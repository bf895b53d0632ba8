// The `tilewright` command from outside: exit codes, messages, JSON, what an interrupt keeps.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const std::string kOperators = TILEWRIGHT_SOURCE_DIR "/configs/operators/";
const std::string kSmall = kOperators + "swiglu.yaml --shape M=5,N=48,K=40 --device virtual:h200";

struct Outcome {
  int code = -1;
  std::string out;  // both streams
};

class Command : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("tilewright-command-" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string environment() const {
    return "TILEWRIGHT_CACHE=" + (folder_ / "cache").string() +
           " TILEWRIGHT_RUNTIME=" + (folder_ / "run").string();
  }
  std::string line(const std::string& arguments) const {
    return environment() + " exec " TILEWRIGHT_BINARY_DIR "/bin/tilewright --no-daemon " +
           arguments;
  }
  Outcome run(const std::string& arguments) const { return run_line(line(arguments)); }
  static Outcome run_line(const std::string& line) {
    Outcome outcome;
    FILE* pipe = popen((line + " 2>&1").c_str(), "r");
    char buffer[4096];
    while (auto count = fread(buffer, 1, sizeof buffer, pipe)) outcome.out.append(buffer, count);
    int status = pclose(pipe);
    outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return outcome;
  }

  fs::path folder_;
};

TEST_F(Command, NamesWhatIsWrongWithAFlagAndExitsWithTwo) {
  const std::string swiglu = kOperators + "swiglu.yaml";
  struct Case {
    std::string arguments, message;
  };
  const Case cases[] = {
      {"tunes",
       "tilewright: command is 'tunes', expected one of devices, show, generate, tune, "
       "sweep, get, run, cache, bundle, repro, serve, vgpu\n"},
      {"--device fpga devices",
       "--device: value is 'fpga', expected auto, cuda, cuda:N, virtual or virtual:ID\n"
       "Run with --help for more information.\n"},
      {"tune nothing.yaml", "tilewright: operator file nothing.yaml does not exist\n"},
      {"tune /", "tilewright: / is a folder, expected an operator file\n"},
      {"--templates /nowhere devices",
       "--templates: Directory does not exist: /nowhere\nRun with --help for more information.\n"},
      {"--configs /nowhere devices",
       "--configs: Directory does not exist: /nowhere\nRun with --help for more information.\n"},
      {"serve --config /nowhere",
       "--config: File does not exist: /nowhere\nRun with --help for more information.\n"},
      {"tune " + swiglu, "tilewright: --shape has no M, expected M=SIZE\n"},
      {"tune " + swiglu + " --shape M",
       "tilewright: --shape: shape has 'M', expected NAME=VALUE separated by commas\n"},
      {"tune " + swiglu + " --shape Q=3",
       "tilewright: --shape: shape sets 'Q', expected one of: M, T, N, K\n"},
      {"tune " + swiglu + " --shape M=x",
       "tilewright: --shape: shape sets 'M' to 'x', expected a whole number of at least 0\n"},
      {"show " + swiglu + " --shape M=9223372036854775807",
       "tilewright: --shape: dimension M is 9223372036854775807, expected at most 2^48 = "
       "281474976710656\n"},
      {"tune " + swiglu + " --shape M=100000000000",
       "tilewright: --shape: dimension M is 100000000000, expected at most 68719476736: a tensor "
       "of shape [M, 4096] has at most 2^48 elements\n"},
      {"tune " + swiglu + " --shape M=4 --budget 0",
       "--budget: is 0, expected a number of at least 1\n"
       "Run with --help for more information.\n"},
      {"get " + swiglu + " --shape M=4 --objective speed",
       "--objective: speed not in {latency,throughput,p99,energy}\n"
       "Run with --help for more information.\n"},
      {"generate " + swiglu + " --family gemm",
       "tilewright: --family is 'gemm', expected one of pointwise, row_reduction, simt_gemm\n"},
      {"generate " + swiglu + " --group gate,foo",
       "tilewright: --group names 'foo', expected some of gate, up, t0, y\n"},
      {"generate " + swiglu + " --arch sm_9x",
       "tilewright: architecture is 'sm_9x', expected one like sm_80, sm_90a or sm_120\n"},
  };
  for (const auto& c : cases) {
    auto outcome = run(c.arguments);
    EXPECT_EQ(outcome.code, 2) << c.arguments;
    EXPECT_EQ(outcome.out, c.message) << c.arguments;
  }
}

TEST_F(Command, ListsTheDeviceThatIsAskedFor) {
  const auto one = run("devices --device virtual:h200 --json");
  EXPECT_EQ(one.code, 0);
  const json listed = json::parse(one.out);
  ASSERT_EQ(listed.size(), 1u);
  EXPECT_EQ(listed[0]["device"], "virtual:h200");
  const auto none = run("devices --device virtual:nope");
  EXPECT_EQ(none.code, 2);
  EXPECT_EQ(none.out.find("tilewright: --device is 'virtual:nope', expected one of "), 0u);
}

TEST_F(Command, WritesNoControlCharactersOfAFileToTheTerminal) {
  const fs::path file = folder_ / "binary.yaml";
  std::ofstream(file) << "\x1b[2J\x7f"
                         "ELF\xff";
  const auto outcome = run("show " + file.string());
  EXPECT_EQ(outcome.code, 1);
  for (const char c : outcome.out) EXPECT_TRUE(c == '\n' || (c >= ' ' && c < 0x7f)) << int(c);
}

TEST_F(Command, SaysInJsonWhatFailed) {
  auto outcome = run("cache show abcdef --json");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(json::parse(outcome.out),
            json({{"error", "not_found"}, {"message", "no record begins with abcdef"}}));
}

TEST_F(Command, TunesServesFromTheStoreAndRecalls) {
  auto tuned = run("tune " + kSmall + " --budget 6 --seed 7 --json");
  ASSERT_EQ(tuned.code, 0) << tuned.out;
  auto report = json::parse(tuned.out);
  EXPECT_EQ(report["device"]["name"], "NVIDIA H200 (virtual)");
  EXPECT_TRUE(report["device"]["virtual"].get<bool>());
  EXPECT_EQ(report["choice"]["time_kind"], "modelled");
  EXPECT_TRUE(report["choice"]["verified"].get<bool>());
  for (const char* member :
       {"problem", "partitions", "baseline", "margin", "candidates", "seconds"})
    EXPECT_TRUE(report.contains(member)) << member;
  for (const auto& partition : report["partitions"])
    for (const auto& group : partition["groups"])
      for (const char* member : {"family", "config", "registers", "shared_bytes", "spill_bytes",
                                 "time_us", "error", "tolerance"})
        EXPECT_TRUE(group.contains(member)) << member << " of " << group;

  // The same seed and budget choose the same, with and without the journal.
  auto again = json::parse(run("tune " + kSmall + " --budget 6 --seed 7 --json").out);
  auto fresh = json::parse(run("tune " + kSmall + " --budget 6 --seed 7 --json --fresh").out);
  EXPECT_EQ(again["choice"], report["choice"]);
  EXPECT_EQ(fresh["choice"], report["choice"]);
  EXPECT_EQ(fresh["partitions"][0]["groups"][0]["config"],
            report["partitions"][0]["groups"][0]["config"]);

  auto got = run("get " + kSmall + " --json");
  ASSERT_EQ(got.code, 0) << got.out;
  auto plan = json::parse(got.out);
  EXPECT_EQ(plan["source"], "hit");
  EXPECT_TRUE(plan["verified"].get<bool>());
  EXPECT_FALSE(plan["launches"].empty());
  auto range = plan["domains"]["chosen_for"]["M"];
  EXPECT_EQ(plan["domains"]["chosen_for"], report["chosen_for"]);
  EXPECT_EQ(plan["time_us"], report["choice"]["time_us"]);

  // It was asked for at the other sizes of its bucket, of which 5 is the low end; where it holds,
  // others in between are served without a tune, and without a time.
  ASSERT_EQ(report["points"].size(), 2u) << report["points"];
  EXPECT_EQ(report["points"][0]["sizes"]["M"], 5);
  EXPECT_EQ(report["points"][1]["sizes"]["M"], 8);
  ASSERT_TRUE(report["points"][1]["held"].get<bool>()) << report["points"];
  EXPECT_EQ(range, json({5, 8}));
  EXPECT_EQ(again["points"], report["points"]);
  EXPECT_EQ(fresh["points"], report["points"]);
  auto at_size = [&](const std::string& size) {
    std::string words = kSmall;
    words.replace(words.find("M=5"), 3, "M=" + size);
    return json::parse(run("get " + words + " --json").out);
  };
  EXPECT_EQ(at_size("8")["time_us"], report["points"][1]["time_us"]);
  EXPECT_EQ(at_size("8")["launches"], plan["launches"]);
  EXPECT_EQ(at_size("7")["plan"], plan["plan"]);
  EXPECT_EQ(at_size("7")["time_us"], 0) << "nothing was measured there";
  EXPECT_EQ(at_size("9")["error"], "not_found");

  // A copy of the cache made by export and import serves the same.
  auto lines = (folder_ / "lines").string();
  ASSERT_EQ(run("cache export " + lines).code, 0);
  fs::rename(folder_ / "cache", folder_ / "first");
  EXPECT_EQ(run("get " + kSmall + " --json").code, 1);
  ASSERT_EQ(run("cache import " + lines).code, 0);
  EXPECT_EQ(json::parse(run("get " + kSmall + " --json").out), plan);
}

TEST_F(Command, TunesUnderOtherConditionsStaySideBySide) {
  const std::string tune = "tune " + kSmall + " --budget 6 --seed 7 --json";
  const auto get = [&](const std::string& flags) {
    auto got = run("get " + kSmall + " --json " + flags);
    EXPECT_EQ(got.code, 0) << got.out;
    return json::parse(got.out);
  };
  const auto eager = json::parse(run(tune).out);
  EXPECT_EQ(eager["conditions"],
            (json{{"objective", "latency"}, {"graph", false}, {"warm_l2", false}}));
  // Better than nothing, and said to be of others.
  EXPECT_EQ(get("--graph")["source"], "other");
  EXPECT_EQ(get("--graph")["conditions"], eager["conditions"]);
  const auto served = json::parse(run(tune + " --objective throughput --graph").out);
  EXPECT_EQ(served["conditions"],
            (json{{"objective", "throughput"}, {"graph", true}, {"warm_l2", false}}));
  for (const auto& [flags, report] : {std::pair{"", &eager},
                                      {"--stream", &eager},
                                      {"--objective latency --cold-l2", &eager},
                                      {"--objective throughput --graph", &served},
                                      {"--graph", &served}}) {
    const auto plan = get(flags);
    EXPECT_EQ(plan["source"], "hit") << flags;
    EXPECT_EQ(plan["conditions"], (*report)["conditions"]) << flags;
    EXPECT_EQ(plan["time_us"], (*report)["choice"]["time_us"]) << flags;
  }
  auto listed = run("cache list");
  for (const char* text : {" latency, stream, cold L2:", " throughput, graph, cold L2:"})
    EXPECT_NE(listed.out.find(text), std::string::npos) << listed.out;
  // An export keeps them.
  auto lines = (folder_ / "lines").string();
  ASSERT_EQ(run("cache export " + lines).code, 0);
  fs::rename(folder_ / "cache", folder_ / "first");
  ASSERT_EQ(run("cache import " + lines).code, 0);
  EXPECT_EQ(run("cache list").out, listed.out);
}

TEST_F(Command, SweepsAModelAndGoesOnWhereItStopped) {
  auto model = folder_ / "tiny.yaml";
  std::ofstream(model) << "model: tiny\n"
                          "operators:\n"
                          "  - {operator: add_rmsnorm, parameters: {N: 64, eps: 1e-5}, count: 2}\n";
  auto arguments = "sweep --model " + model.string() +
                   " --tokens 1,3 --tp 1 --budget 2 --device virtual:h200 --json";
  auto first = run(arguments);
  ASSERT_EQ(first.code, 0) << first.out;
  auto second = run(arguments);
  ASSERT_EQ(second.code, 0) << second.out;
  auto items = json::parse(second.out)["items"];
  ASSERT_EQ(items.size(), 2u) << second.out;
  for (const auto& item : items) EXPECT_EQ(item["state"], "kept") << item;
  // Under other conditions it is another sweep.
  auto graphs = json::parse(run(arguments + " --graph").out);
  EXPECT_TRUE(graphs["conditions"]["graph"].get<bool>());
  for (const auto& item : graphs["items"]) EXPECT_NE(item["state"], "kept") << item;
}

/// With a daemon that owns the cache.
class CommandBesideADaemon : public Command {
 protected:
  void SetUp() override {
    Command::SetUp();
    std::ofstream(folder_ / "config.yaml") << "tune: {background: false}\n";
    auto started = run_line(
        environment() +
        " exec " TILEWRIGHT_BINARY_DIR
        "/bin/tilewrightd --background --log-level warning --device virtual:h200 --config " +
        (folder_ / "config.yaml").string());
    ASSERT_EQ(sscanf(started.out.c_str(), "tilewrightd: process %d", &daemon_), 1) << started.out;
  }
  void TearDown() override {
    stop_daemon();
    Command::TearDown();
  }
  std::string beside(const std::string& arguments) const {
    return environment() + " exec " TILEWRIGHT_BINARY_DIR "/bin/tilewright " + arguments;
  }
  /// Runs in the background, its output in `file`.
  pid_t start(const std::string& arguments, const std::string& file) const {
    auto words = beside(arguments) + " > " + (folder_ / file).string() + " 2>&1";
    pid_t child = fork();
    if (child == 0) {
      execl("/bin/sh", "sh", "-c", words.c_str(), nullptr);
      _exit(127);
    }
    return child;
  }
  std::string end(pid_t child, const std::string& file, int& code) const {
    int status = 0;
    waitpid(child, &status, 0);
    code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    std::ifstream in(folder_ / file);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  double counter(const std::string& name) const {
    auto stats = run_line(beside("cache stats --json"));
    auto object = json::parse(stats.out, nullptr, false);
    return object.contains(name) ? object[name].get<double>() : -1;
  }

  /// And waits until it has gone: it owns the cache until then.
  void stop_daemon() {
    if (daemon_ > 0) kill(daemon_, SIGTERM);
    for (int i = 0; i < 1000 && daemon_ > 0 && kill(daemon_, 0) == 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    daemon_ = 0;
  }

  pid_t daemon_ = 0;
};

TEST_F(CommandBesideADaemon, TheDaemonTunesAndTheReportIsTheSame) {
  const std::string tune = "tune " + kSmall + " --budget 6 --seed 7";
  auto tuned = run_line(beside(tune + " --json"));
  ASSERT_EQ(tuned.code, 0) << tuned.out;
  auto report = json::parse(tuned.out);
  EXPECT_EQ(report["device"]["name"], "NVIDIA H200 (virtual)");
  EXPECT_TRUE(report["choice"]["verified"].get<bool>());
  EXPECT_EQ(report["candidates"]["tried"], 6);
  EXPECT_EQ(report["seed"], 7);
  for (const char* member : {"problem", "partitions", "baseline", "margin", "seconds"})
    EXPECT_TRUE(report.contains(member)) << member;
  EXPECT_EQ(json::parse(run_line(beside("get " + kSmall + " --json")).out)["source"], "hit");
  auto other = json::parse(run_line(beside("get " + kSmall + " --json --warm-l2")).out);
  EXPECT_EQ(other["source"], "other");
  EXPECT_EQ(other["conditions"], report["conditions"]);
  auto text = run_line(beside(tune));
  EXPECT_EQ(text.code, 0);
  EXPECT_NE(text.out.find("<- choice"), std::string::npos) << text.out;

  // The same without a daemon.
  stop_daemon();
  fs::rename(folder_ / "cache", folder_ / "daemons");
  auto alone = json::parse(run("tune " + kSmall + " --budget 6 --seed 7 --json").out);
  EXPECT_EQ(alone["choice"], report["choice"]);
  for (json* some : {&alone, &report})
    for (auto& partition : (*some)["partitions"])
      for (auto& group : partition["groups"]) group.erase("compile_ms");
  EXPECT_EQ(alone["partitions"], report["partitions"]);
}

TEST_F(CommandBesideADaemon, FlagsThatCannotReachTheDaemonAreRefused) {
  fs::create_directories(folder_ / "configs/spaces");
  fs::create_directories(folder_ / "configs/devices");
  struct Case {
    std::string flags, message;
  };
  for (const Case& c : {
           Case{"--device virtual:l4",
                "--device is virtual:l4 (NVIDIA L4 (virtual)), and the daemon "
                "that owns the cache serves NVIDIA H200 (virtual)"},
           Case{"--configs " + (folder_ / "configs").string(),
                "--configs is " + (folder_ / "configs").string() +
                    ", and the daemon that owns the cache reads "},
       }) {
    auto outcome = run_line(
        beside("tune " + kOperators + "swiglu.yaml --shape M=5,N=48,K=40 --budget 2 " + c.flags));
    EXPECT_EQ(outcome.code, 1) << c.flags;
    EXPECT_NE(outcome.out.find(c.message), std::string::npos) << outcome.out;
  }
}

TEST_F(CommandBesideADaemon, ATuneIsSharedAndKeptWhenInterrupted) {
  const std::string large =
      "tune " + kOperators + "swiglu.yaml --shape M=16,N=512,K=512 --device virtual:h200 ";
  pid_t first = start(large + "--budget 4000", "first");
  for (int i = 0; i < 1500 && counter("trials") < 1; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  pid_t second = start(large + "--budget 2", "second");
  std::this_thread::sleep_for(std::chrono::seconds(1));
  int code = -1;
  kill(first, SIGINT);
  auto out = end(first, "first", code);
  // Somebody else waits for it, so it goes on without the first.
  EXPECT_EQ(code, 1) << out;
  EXPECT_NE(out.find("the tune was cancelled"), std::string::npos) << out;
  kill(second, SIGINT);
  out = end(second, "second", code);
  EXPECT_LE(code, 1) << out;
  EXPECT_NE(out.find("another tune of this problem was joined, which counts with 4000 evaluations"),
            std::string::npos)
      << out;
  EXPECT_NE(out.find("stopping"), std::string::npos) << out;
  EXPECT_GE(counter("trials"), 1);
}

TEST_F(CommandBesideADaemon, ASweepIsTunedByTheDaemon) {
  auto model = folder_ / "tiny.yaml";
  std::ofstream(model) << "model: tiny\n"
                          "operators:\n"
                          "  - {operator: add_rmsnorm, parameters: {N: 64, eps: 1e-5}, count: 2}\n";
  auto swept = run_line(beside("sweep --model " + model.string() +
                               " --tokens 1,3 --tp 1 --budget 2 --device virtual:h200 --json"));
  ASSERT_EQ(swept.code, 0) << swept.out;
  const json report = json::parse(swept.out);
  for (const auto& item : report["items"]) {
    EXPECT_EQ(item["state"], "tuned") << item;
    EXPECT_EQ(item["time_kind"], "modelled") << item;
    EXPECT_NE(item["choice"], "") << item;
  }
}

TEST_F(Command, KeepsWhatWasFoundWhenInterrupted) {
  auto words = line("tune " + kOperators +
                    "swiglu.yaml --shape M=16,N=512,K=512 --budget 4000 --device virtual:h200 "
                    "> " +
                    (folder_ / "out").string() + " 2>&1");
  pid_t child = fork();
  if (child == 0) {
    execl("/bin/sh", "sh", "-c", words.c_str(), nullptr);
    _exit(127);
  }
  // Until some trials are known; the store has one owner, so its files are looked at.
  for (int i = 0; i < 300 && !fs::exists(folder_ / "cache"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  std::this_thread::sleep_for(std::chrono::seconds(4));
  kill(child, SIGINT);
  int status = 0;
  waitpid(child, &status, 0);
  std::ifstream in(folder_ / "out");
  std::string out((std::istreambuf_iterator<char>(in)), {});
  ASSERT_TRUE(WIFEXITED(status)) << out;
  EXPECT_LE(WEXITSTATUS(status), 1) << out;
  EXPECT_NE(out.find("stopping"), std::string::npos) << out;
  auto stats = run("cache stats --json");
  ASSERT_EQ(stats.code, 0) << stats.out;
  EXPECT_GT(json::parse(stats.out)["trials"].get<int>(), 0) << out;
}

}  // namespace
