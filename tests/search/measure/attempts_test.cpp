// Trials that fail the first time: which of them get another attempt. And who may measure at all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "search/measure/journal.h"
#include "search/measure/measurer.h"
#include "tests/search/measure/planted.h"

namespace tilewright::search {
namespace {

using planted::Kind;
using testing::HasSubstr;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

constexpr char kWorker[] = TILEWRIGHT_BINARY_DIR "/bin/test_measure_worker";

std::string rendered(const TrialResult& result) {
  if (result.failure) return std::string(to_string(result.failure->code));
  return result.sample.count > 0 ? "timed" : "verified";
}

class AttemptsTest : public testing::Test {
 protected:
  AttemptsTest() {
    std::string name = testing::TempDir() + "tilewright_attempts_XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~AttemptsTest() override { fs::remove_all(folder_); }

  /// The first worker has these faults.
  MeasureProcessOptions faulty(const std::string& rules) const {
    const fs::path file = folder_ / "faulty";
    std::ofstream(file) << "once";
    MeasureProcessOptions options;
    options.worker_path = kWorker;
    options.worker_arguments = {"faults", rules, file.string()};
    options.journal = folder_ / "journal";
    return options;
  }

  std::vector<nlohmann::json> ended() const {
    std::vector<nlohmann::json> result;
    const auto lines = read_journal(folder_ / "journal");
    EXPECT_TRUE(lines) << lines.error().message;
    for (const auto& line : *lines)
      if (line.value("event", "") == "ended") result.push_back(line);
    return result;
  }

  fs::path folder_;
};

TEST_F(AttemptsTest, WhatSaysLittleOfTheTrialIsRunOnceMore) {
  struct Case {
    std::string rules, outcome;
    int attempts;
  };
  for (const Case& wanted : {Case{"launch 1 lost", "timed", 2},
                             {"launch 1 out-of-memory", "timed", 2},
                             {"throttle 10 1.0 0.5", "timed", 2},
                             {"launch 1 fault", "fault", 1},
                             {"launch 1 hang", "hang", 1},
                             {"launch 1 corrupt", "wrong_result", 1}}) {
    SCOPED_TRACE(wanted.rules);
    fs::remove(folder_ / "journal");
    auto measurer = planted::start_worker(faulty(wanted.rules));
    ASSERT_TRUE(measurer) << measurer.error().message;
    Trial trial = planted::trial(Kind::kRight, "trial");
    trial.measure.deadline_s = wanted.outcome == "hang" ? 1 : 20;
    const auto result = (*measurer)->run(trial);
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_EQ(rendered(*result), wanted.outcome)
        << (result->failure ? result->failure->message : "");
    EXPECT_EQ(result->attempts, wanted.attempts);
    EXPECT_EQ(result->sample.attempts, wanted.attempts);
    const auto lines = ended();
    ASSERT_EQ(lines.size(), 1u);
    EXPECT_EQ(lines[0]["attempts"], wanted.attempts);
  }
}

TEST_F(AttemptsTest, ASecondFailureIsTheTrialsAndSaysSo) {
  struct Case {
    std::string rules, outcome;
  };
  for (const Case& wanted : {Case{"launch 1 lost", "device_lost"},
                             {"launch 1 out-of-memory", "device_memory"},
                             {"throttle 10 1.0 0.5", "throttled"}}) {
    SCOPED_TRACE(wanted.rules);
    ::setenv("TILEWRIGHT_VGPU_FAULTS", wanted.rules.c_str(), 1);
    auto measurer = planted::start_worker();
    ASSERT_TRUE(measurer) << measurer.error().message;
    const auto result = (*measurer)->run(planted::trial(Kind::kRight, "trial"));
    ::unsetenv("TILEWRIGHT_VGPU_FAULTS");
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_EQ(rendered(*result), wanted.outcome);
    EXPECT_THAT(result->failure->message, testing::EndsWith("(attempt 2)"));
    // The worker after a lost one is a new one.
    if (wanted.outcome == "device_lost")
      EXPECT_EQ(rendered(*(*measurer)->run(planted::trial(Kind::kRight, "next"))), "timed");
  }
}

TEST_F(AttemptsTest, AnInterleavedRunThatRanOutOfMemoryOnceIsRepeated) {
  // Both are verified by two launches each; the fifth is the first that is timed.
  auto measurer = planted::start_worker(faulty("launch 5 out-of-memory"));
  ASSERT_TRUE(measurer) << measurer.error().message;
  const std::vector<Trial> trials{planted::trial(Kind::kRight, "a"),
                                  planted::trial(Kind::kSlow, "b")};
  const auto results = (*measurer)->run_interleaved(trials, 3);
  ASSERT_TRUE(results) << results.error().message;
  for (const TrialResult& result : *results) {
    EXPECT_EQ(rendered(result), "timed");
    EXPECT_EQ(result.attempts, 2);
  }
}

TEST_F(AttemptsTest, AWorkerThatIsKilledOnceCostsTheTrialNothing) {
  MeasureProcessOptions options;
  options.journal = folder_ / "journal";
  auto measurer = planted::start_worker(options);
  ASSERT_TRUE(measurer) << measurer.error().message;
  std::thread killer([&] {
    const auto runs = [&] {
      const auto open = unfinished_trials(folder_ / "journal");
      return open && !open->empty();
    };
    while (!runs()) std::this_thread::sleep_for(1ms);
    std::ifstream children("/proc/self/task/" + std::to_string(::getpid()) + "/children");
    if (pid_t worker = 0; children >> worker) ::kill(worker, SIGKILL);
  });
  // All of its blocks: most of a second.
  const auto result = (*measurer)->run(planted::trial(Kind::kSlow, "killed", 200'000));
  killer.join();
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(rendered(*result), "timed") << (result->failure ? result->failure->message : "");
  EXPECT_EQ(result->attempts, 2);
}

TEST_F(AttemptsTest, ALeaseIsOfTheDeviceWhateverItsOrdinalIs) {
  const auto start = [&](const std::string& uuid, int ordinal) {
    MeasureProcessOptions options;
    options.worker_path = kWorker;
    options.worker_arguments = {"real", uuid};
    options.ordinal = ordinal;
    options.runtime_folder = folder_ / "run";
    return measure_in_process(options);
  };
  auto first = start("GPU-1", 0);
  ASSERT_TRUE(first) << first.error().message;
  const auto second = start("GPU-1", 1);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kBusy);
  EXPECT_EQ(second.error().message,
            "device GPU-1 is in use by process " + std::to_string(::getpid()));
  EXPECT_TRUE(start("GPU-2", 0));
  first->reset();
  EXPECT_TRUE(start("GPU-1", 1));
}

}  // namespace
}  // namespace tilewright::search
