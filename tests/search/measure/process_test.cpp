// Trials in a worker process on the virtual GPU, and all the ways in which they may end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "search/measure/bundle_run.h"
#include "search/measure/journal.h"
#include "search/measure/measurer.h"
#include "tests/search/measure/planted.h"

namespace tilewright::search {
namespace {

using planted::Kind;
using testing::ElementsAre;
using testing::HasSubstr;

namespace fs = std::filesystem;
using namespace std::chrono_literals;

// The children of any thread of a process.
std::vector<pid_t> children_of(pid_t pid) {
  std::vector<pid_t> children;
  std::error_code error;
  for (const auto& task : fs::directory_iterator("/proc/" + std::to_string(pid) + "/task", error)) {
    std::ifstream in(task.path() / "children");
    for (pid_t child; in >> child;) children.push_back(child);
  }
  return children;
}

bool wait_for(const std::function<bool()>& condition, std::chrono::milliseconds patience = 20s) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(2ms);
  }
  return true;
}

// Running, and not a zombie.
bool alive(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  std::string number, name, state;
  return in >> number >> name >> state && state != "Z" && state != "X";
}

std::string rendered(const TrialResult& result) {
  if (result.failure) return std::string(to_string(result.failure->code));
  return result.sample.count > 0 ? "timed" : "verified";
}

class ProcessTest : public testing::Test {
 protected:
  ProcessTest() {
    std::string name = testing::TempDir() + "tilewright_process_XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~ProcessTest() override { fs::remove_all(folder_); }

  void start(MeasureProcessOptions options = {}) {
    auto started = planted::start_worker(std::move(options));
    ASSERT_TRUE(started) << started.error().message;
    measurer_ = std::move(*started);
  }

  TrialResult run(const Trial& trial) {
    auto result = measurer_->run(trial);
    EXPECT_TRUE(result) << result.error().message;
    return result ? std::move(*result) : TrialResult();
  }

  fs::path folder_;
  std::unique_ptr<Measurer> measurer_;
};

TEST_F(ProcessTest, ARightTrialIsVerifiedAndTimed) {
  start();
  EXPECT_TRUE(measurer_->device().virtual_gpu);
  const TrialResult result = run(planted::trial(Kind::kRight, "right"));
  ASSERT_FALSE(result.failure) << result.failure->message;
  EXPECT_EQ(result.id, "right");
  EXPECT_TRUE(result.verification.verified);
  EXPECT_GT(result.sample.time_us, 0);
  EXPECT_TRUE(result.sample.modelled);
  EXPECT_NE(result.sample.bound_by, "");
  EXPECT_GT(result.sample.bound_fraction, 0);
  EXPECT_LE(result.sample.bound_fraction, 1);
  Trial untimed = planted::trial(Kind::kRight, "untimed");
  untimed.timed = false;
  EXPECT_EQ(rendered(run(untimed)), "verified");
  Trial graph = planted::trial(Kind::kRight, "graph");
  graph.measure.graph = true;
  const TrialResult replayed = run(graph);
  ASSERT_FALSE(replayed.failure) << replayed.failure->message;
  EXPECT_TRUE(replayed.sample.graph);
  EXPECT_GT(replayed.sample.time_us, 0);
}

TEST_F(ProcessTest, TheModelSaysTheSameEachTime) {
  start();
  const Trial trial = planted::trial(Kind::kRight, "right");
  EXPECT_EQ(run(trial).sample.times_us, run(trial).sample.times_us);
}

TEST_F(ProcessTest, EachPlantedFailureIsTypedAndCostsOneTrial) {
  start();
  struct Case {
    Kind kind;
    std::string outcome;
  };
  for (const auto& [kind, outcome] : {Case{Kind::kWrong, "wrong_result"},
                                      {Kind::kFaulting, "fault"},
                                      {Kind::kMisaligned, "fault"},
                                      {Kind::kEndless, "hang"}}) {
    Trial trial = planted::trial(kind, outcome);
    trial.measure.deadline_s = kind == Kind::kEndless ? 0.5 : 20;
    const TrialResult result = run(trial);
    EXPECT_EQ(rendered(result), outcome) << (result.failure ? result.failure->message : "");
    EXPECT_EQ(result.id, outcome);
    EXPECT_EQ(rendered(run(planted::trial(Kind::kRight, "after " + outcome))), "timed");
  }
}

TEST_F(ProcessTest, DataThatDoesNotFitCostsNothingButItsTrial) {
  start({.memory_bytes = std::size_t{64} << 20});
  // Two inputs and an output of 64 MiB each.
  for (const char* id : {"large", "large again"}) {
    const TrialResult result = run(planted::trial(Kind::kRight, id, 16 << 20));
    EXPECT_EQ(rendered(result), "out_of_memory");
    ASSERT_TRUE(result.failure);
    EXPECT_THAT(result.failure->message, HasSubstr("of host memory, expected at most 64 MiB"));
    EXPECT_LT(result.seconds, 5);
  }
  EXPECT_EQ(rendered(run(planted::trial(Kind::kRight, "small"))), "timed");
}

TEST_F(ProcessTest, OfLargeTensorsOnlyWhatSampledBlocksTouchCosts) {
  // Three tensors of 8 GiB each, and less for them than a tenth of one.
  start({.memory_bytes = std::size_t{256} << 20});
  Trial trial = planted::trial(Kind::kRight, "large", std::int64_t{1} << 31);
  trial.plan.launches.front().tile = {"0", "1", "128 * block.x", "128"};
  trial.measure.sample_blocks = 24;
  const TrialResult result = run(trial);
  EXPECT_EQ(rendered(result), "timed") << (result.failure ? result.failure->message : "");
  EXPECT_TRUE(result.verification.sampled);
  EXPECT_LT(result.seconds, 10);
  Trial wrong = planted::trial(Kind::kWrong, "wrong", std::int64_t{1} << 31);
  wrong.plan.launches.front().tile = trial.plan.launches.front().tile;
  wrong.measure.sample_blocks = 24;
  EXPECT_EQ(rendered(run(wrong)), "wrong_result");
}

TEST_F(ProcessTest, DataThatNoDeviceHoldsIsRefused) {
  start();
  const TrialResult result = run(planted::trial(Kind::kRight, "large", std::int64_t{1} << 34));
  EXPECT_EQ(rendered(result), "out_of_memory");
  ASSERT_TRUE(result.failure);
  EXPECT_THAT(result.failure->message, HasSubstr("of device memory, expected at most"));
}

TEST_F(ProcessTest, DataThatIsNotMadeInTimeIsAHangOnce) {
  start();
  Trial trial = planted::trial(Kind::kRight, "slow", 1 << 22);
  trial.measure.prepare_deadline_s = 0.01;
  const TrialResult first = run(trial);
  EXPECT_EQ(rendered(first), "hang");
  ASSERT_TRUE(first.failure);
  EXPECT_THAT(first.failure->message, HasSubstr("its data was not made within 0.01 s"));
  EXPECT_EQ(rendered(run(trial)), "hang");
  EXPECT_EQ(rendered(run(planted::trial(Kind::kRight, "small"))), "timed");
  trial.measure.prepare_deadline_s = 120;
  EXPECT_EQ(rendered(run(trial)), "timed");
}

TEST_F(ProcessTest, AStopEndsTheTrialAtOnceAndSaysNothingOfIt) {
  start({.journal = folder_ / "journal"});
  std::stop_source source;
  measurer_->watch(source.get_token());
  std::chrono::steady_clock::time_point asked;
  std::thread stopper([&] {
    std::this_thread::sleep_for(200ms);
    asked = std::chrono::steady_clock::now();
    source.request_stop();
  });
  const auto stopped = measurer_->run(planted::trial(Kind::kEndless, "endless"));
  stopper.join();
  EXPECT_LT(std::chrono::steady_clock::now() - asked, 500ms);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
  const auto unfinished = unfinished_trials(folder_ / "journal");
  ASSERT_TRUE(unfinished) << unfinished.error().message;
  EXPECT_THAT(*unfinished, testing::IsEmpty());
  EXPECT_FALSE(measurer_->run(planted::trial(Kind::kRight, "after the stop")));
  measurer_->watch({});
  EXPECT_EQ(rendered(run(planted::trial(Kind::kRight, "later"))), "timed");
}

TEST_F(ProcessTest, AFaultComesWithItsReport) {
  start();
  const TrialResult result = run(planted::trial(Kind::kFaulting, "fault"));
  ASSERT_TRUE(result.failure);
  EXPECT_THAT(result.failure->message + result.failure->detail, HasSubstr("sum"));
}

TEST_F(ProcessTest, AWorkerThatIsKilledAmidATrialIsACrash) {
  start({.attempts = 1});
  const std::vector<pid_t> workers = children_of(::getpid());
  ASSERT_EQ(workers.size(), 1u);
  std::thread killer([&] {
    std::this_thread::sleep_for(100ms);
    ::kill(workers[0], SIGKILL);
  });
  const TrialResult result = run(planted::trial(Kind::kEndless, "killed"));
  killer.join();
  ASSERT_TRUE(result.failure);
  EXPECT_EQ(result.failure->code, ErrorCode::kCrash);
  EXPECT_EQ(result.failure->message, "measuring worker: process died of signal 9 (Killed)");
  EXPECT_EQ(rendered(run(planted::trial(Kind::kRight, "after"))), "timed");
}

TEST_F(ProcessTest, AWorkerThatDoesNotComeBackIsKilledAtTheDeadline) {
  start();
  const std::vector<pid_t> workers = children_of(::getpid());
  ASSERT_EQ(workers.size(), 1u);
  std::thread stopper([&] {
    std::this_thread::sleep_for(100ms);
    ::kill(workers[0], SIGSTOP);
  });
  Trial trial = planted::trial(Kind::kEndless, "stopped");
  trial.measure.deadline_s = 0.6;
  const TrialResult result = run(trial);
  stopper.join();
  ASSERT_TRUE(result.failure);
  EXPECT_EQ(result.failure->code, ErrorCode::kHang);
  EXPECT_EQ(result.failure->message, "no end within 0.6 s: the measuring worker was killed");
  EXPECT_FALSE(alive(workers[0]));
  EXPECT_EQ(rendered(run(planted::trial(Kind::kRight, "after"))), "timed");
}

TEST_F(ProcessTest, AnImageThatIsMissingIsTheTrialsFault) {
  start();
  Trial trial = planted::trial(Kind::kRight, "no image");
  trial.images.clear();
  EXPECT_EQ(rendered(run(trial)), "not_found");
  EXPECT_EQ(rendered(run(planted::trial(Kind::kRight, "after"))), "timed");
}

TEST_F(ProcessTest, OtherInputDataThanExpectedIsRefused) {
  start();
  Trial trial = planted::trial(Kind::kRight, "other data");
  trial.inputs = digest_of("of another machine");
  EXPECT_EQ(rendered(run(trial)), "corrupt");
}

TEST_F(ProcessTest, InterleavedTrialsGiveOneSampleEach) {
  start();
  const std::vector<Trial> trials{planted::trial(Kind::kRight, "a"),
                                  planted::trial(Kind::kSlow, "b")};
  const auto results = measurer_->run_interleaved(trials, 3);
  ASSERT_TRUE(results) << results.error().message;
  ASSERT_EQ(results->size(), 2u);
  EXPECT_EQ((*results)[0].id, "a");
  EXPECT_EQ(rendered((*results)[0]), "timed");
  EXPECT_LT((*results)[0].sample.time_us, (*results)[1].sample.time_us);
}

TEST_F(ProcessTest, OneThatFaultsAmongInterleavedTrialsDropsOutAlone) {
  start();
  for (const Kind kind : {Kind::kFaulting, Kind::kWrong}) {
    const std::vector<Trial> trials{planted::trial(Kind::kRight, "a"), planted::trial(kind, "bad"),
                                    planted::trial(Kind::kRight, "b")};
    const auto results = measurer_->run_interleaved(trials, 2);
    ASSERT_TRUE(results) << results.error().message;
    ASSERT_EQ(results->size(), 3u);
    EXPECT_EQ(rendered((*results)[0]), "timed");
    EXPECT_EQ(rendered((*results)[1]), kind == Kind::kWrong ? "wrong_result" : "fault");
    EXPECT_EQ(rendered((*results)[2]), "timed");
  }
}

TEST_F(ProcessTest, VirtualDevicesNeedNoLease) {
  start();
  EXPECT_TRUE(planted::start_worker());
}

TEST_F(ProcessTest, AProgramThatIsNoWorkerIsAnError) {
  MeasureProcessOptions options;
  options.worker_path = "/bin/true";
  auto started = planted::start_worker(options);
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().code, ErrorCode::kCrash);
  options.worker_path = (folder_ / "none").string();
  started = planted::start_worker(options);
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().code, ErrorCode::kNotFound);
}

TEST_F(ProcessTest, TheWorkerDiesWithItsOwnerAndTheJournalNamesTheTrial) {
  const fs::path journal = folder_ / "journal.jsonl";
  const Trial endless = planted::trial(Kind::kEndless, "culprit");
  const Trial right = planted::trial(Kind::kRight, "fine");
  std::fflush(nullptr);
  const pid_t owner = ::fork();
  if (owner == 0) {
    auto measurer = planted::start_worker({.journal = journal});
    if (!measurer || !(*measurer)->run(right)) ::_exit(1);
    (void)(*measurer)->run(endless);
    ::_exit(0);
  }
  const auto started = [&] {
    const auto open = unfinished_trials(journal);
    return open && *open == std::vector<std::string>{"culprit"};
  };
  ASSERT_TRUE(wait_for(started));
  const std::vector<pid_t> workers = children_of(owner);
  ASSERT_EQ(workers.size(), 1u);
  ::kill(owner, SIGKILL);
  ::waitpid(owner, nullptr, 0);
  EXPECT_TRUE(wait_for([&] { return !alive(workers[0]); }));
  EXPECT_THAT(*unfinished_trials(journal), ElementsAre("culprit"));
}

// The small runner as a person would use it, in a process of its own.
class RunnerTest : public ProcessTest {
 protected:
  void SetUp() override {
    std::vector<BundleTrial> trials;
    for (const auto& [kind, id] :
         {std::pair(Kind::kRight, "first"), {Kind::kEndless, "endless"}, {Kind::kRight, "last"}})
      trials.push_back({planted::trial(kind, id), ""});
    trials[1].trial.measure.deadline_s = 60;
    BundleInfo info;
    info.architecture = {9, 0, false};
    ASSERT_TRUE(write_bundle(folder_ / "bundle", info, trials));
  }

  pid_t start_runner() {
    std::fflush(nullptr);
    const pid_t pid = ::fork();
    if (pid == 0) {
      const std::string program = TILEWRIGHT_BINARY_DIR "/bin/tilewright-bundle-run";
      const std::string bundle = folder_ / "bundle", log = folder_ / "log";
      if (!::freopen(log.c_str(), "a", stdout)) ::_exit(126);
      ::execl(program.c_str(), program.c_str(), bundle.c_str(), "--virtual", "h200", "--journal",
              journal().c_str(), nullptr);
      ::_exit(127);
    }
    return pid;
  }

  std::string journal() const { return folder_ / "journal.jsonl"; }
};

TEST_F(RunnerTest, ARunnerThatWasKilledGoesOnBehindTheTrialThatItDiedIn) {
  const pid_t first = start_runner();
  ASSERT_TRUE(wait_for([&] {
    const auto open = unfinished_trials(journal());
    const auto lines = read_journal(journal());
    return lines && lines->size() == 4 && open;  // session, first started and finished, endless
  }));
  ::kill(first, SIGKILL);
  ::waitpid(first, nullptr, 0);
  int status = 0;
  const pid_t second = start_runner();
  ::waitpid(second, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1) << status;  // one trial failed
  const auto bundle = Bundle::open(folder_ / "bundle");
  ASSERT_TRUE(bundle);
  const auto results = read_results(*bundle, journal());
  ASSERT_TRUE(results) << results.error().message;
  std::vector<std::string> outcomes;
  for (const BundleOutcome& outcome : results->outcomes)
    outcomes.push_back(outcome.result.id + " " + rendered(outcome.result));
  EXPECT_THAT(outcomes, ElementsAre("first timed", "endless crash", "last timed"));
}

}  // namespace
}  // namespace tilewright::search
