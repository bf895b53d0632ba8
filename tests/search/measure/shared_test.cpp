// Trials on a device that another process uses as well.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <optional>
#include <thread>

#include "jit/virtual_gpu/driver/board.h"
#include "search/measure/journal.h"
#include "search/measure/measurer.h"
#include "tests/search/measure/planted.h"
#include "tests/virtual_gpu/occupant.h"

namespace tilewright::search {
namespace {

using planted::Kind;
using testing::HasSubstr;
using vgpu::Board;
using vgpu::testing::Occupant;
using namespace std::chrono_literals;

constexpr std::uint64_t kMemory = std::uint64_t{143156} << 20;  ///< of the H200

std::string rendered(const TrialResult& result) {
  if (result.failure) return std::string(to_string(result.failure->code));
  return result.sample.count > 0 ? "timed" : "verified";
}

class SharedTest : public testing::Test {
 protected:
  SharedTest() : file_(testing::TempDir() + "tilewright_board_" + std::to_string(::getpid())) {
    std::filesystem::remove(file_);
    ::setenv("TILEWRIGHT_VGPU_SHARED", file_.c_str(), 1);
    other_.emplace();
  }
  ~SharedTest() override {
    measurer_.reset();
    other_.reset();
    ::unsetenv("TILEWRIGHT_VGPU_SHARED");
    std::filesystem::remove(file_);
    std::filesystem::remove_all(file_ + ".run");
  }

  void start(MeasureProcessOptions options) {
    options.runtime_folder = file_ + ".run";
    auto started = planted::start_worker(std::move(options));
    ASSERT_TRUE(started) << started.error().message;
    measurer_ = std::move(*started);
  }

  std::string file_;
  std::optional<Occupant> other_;
  std::unique_ptr<Measurer> measurer_;
};

TEST_F(SharedTest, IdleWaitsUntilTheOtherHasStopped) {
  std::vector<std::string> told;
  MeasureProcessOptions options;
  options.busy.when = When::kIdle;
  options.busy.waiting = [&](const std::string& text) {
    if (told.empty()) {
      EXPECT_EQ(other_->tell("busy 0"), "ok");
    }
    told.push_back(text);
  };
  start(options);
  EXPECT_EQ(other_->tell("busy 60"), "ok");
  std::this_thread::sleep_for(300ms);
  const auto result = measurer_->run(planted::trial(Kind::kRight, "right"));
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(rendered(*result), "timed");
  EXPECT_LE(result->sample.others_percent, 5u);
  EXPECT_EQ(result->sample.discarded, 0);
  ASSERT_FALSE(told.empty());
  EXPECT_THAT(told.front(),
              testing::MatchesRegex("waiting: process " + std::to_string(other_->pid()) +
                                    " uses [0-9]+ % of the device, expected at most "
                                    "5 %"));
}

TEST_F(SharedTest, IdleGivesUpInTheEndAndNamesWhoIsBusy) {
  MeasureProcessOptions options;
  options.busy.when = When::kIdle;
  options.busy.patience_s = 0.5;
  start(options);
  EXPECT_EQ(other_->tell("busy 60"), "ok");
  std::this_thread::sleep_for(300ms);
  const auto result = measurer_->run(planted::trial(Kind::kRight, "right"));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kBusy);
  EXPECT_THAT(result.error().message, HasSubstr("the device was not idle within 0.5 s: process " +
                                                std::to_string(other_->pid()) + " uses"));
}

TEST_F(SharedTest, AWorkerThatDiedBetweenTrialsIsReplacedBeforeTheLook) {
  MeasureProcessOptions options;
  options.busy.when = When::kIdle;
  start(options);
  const auto board = Board::open(file_, kMemory);
  ASSERT_TRUE(board) << board.error().message;
  for (const auto& process : (*board)->processes())
    if (!process.ours && process.pid != std::uint32_t(other_->pid()))
      ::kill(pid_t(process.pid), SIGKILL);
  const auto result = measurer_->run(planted::trial(Kind::kRight, "right"));
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(rendered(*result), "timed") << (result->failure ? result->failure->message : "");
  EXPECT_EQ(result->attempts, 1);
}

TEST_F(SharedTest, AStopEndsTheWait) {
  MeasureProcessOptions options;
  options.busy.when = When::kIdle;
  std::stop_source source;
  options.busy.waiting = [&](const std::string&) { source.request_stop(); };
  start(options);
  EXPECT_EQ(other_->tell("busy 60"), "ok");
  std::this_thread::sleep_for(300ms);
  measurer_->watch(source.get_token());
  const auto result = measurer_->run(planted::trial(Kind::kRight, "right"));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kCancelled);
}

TEST_F(SharedTest, WhatTheOtherCameBetweenIsMeasuredAgain) {
  MeasureProcessOptions options;
  options.busy.when = When::kIdle;
  options.busy.waiting = [&](const std::string&) { EXPECT_EQ(other_->tell("busy 0"), "ok"); };
  options.journal = file_ + ".journal";
  start(options);
  const Trial trial = planted::trial(Kind::kSlow, "slow", 200'000);  // half a second or so
  ASSERT_TRUE(measurer_->run(trial));
  std::thread comer([&] {
    const auto runs = [&] {
      const auto open = unfinished_trials(options.journal);
      return open && !open->empty();
    };
    while (!runs()) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(other_->tell("busy 60"), "ok");
  });
  const auto result = measurer_->run(trial);
  comer.join();
  std::filesystem::remove(options.journal);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(rendered(*result), "timed");
  EXPECT_EQ(result->sample.discarded, 1);
  EXPECT_LE(result->sample.others_percent, 5u);
}

TEST_F(SharedTest, AlwaysMeasuresAndNotesTheOther) {
  start({});
  const Trial trial = planted::trial(Kind::kRight, "right");
  const auto alone = measurer_->run(trial);
  ASSERT_TRUE(alone) << alone.error().message;
  EXPECT_EQ(other_->tell("busy 100"), "ok");
  std::this_thread::sleep_for(500ms);
  const auto beside = measurer_->run(trial);
  ASSERT_TRUE(beside) << beside.error().message;
  EXPECT_EQ(rendered(*beside), "timed");
  EXPECT_GT(beside->sample.others_percent, 50u);
  EXPECT_GT(beside->sample.count, 1);
  EXPECT_NEAR(beside->sample.time_us, 2 * alone->sample.time_us, 0.2 * alone->sample.time_us);
}

TEST_F(SharedTest, NeverRefuses) {
  MeasureProcessOptions options;
  options.busy.when = When::kNever;
  const auto refused = planted::start_worker(options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kBusy);
}

TEST_F(SharedTest, TrialsKeepTheirCapOfDeviceMemory) {
  constexpr std::size_t kCap = std::size_t{200} << 20;
  start({.device_memory_bytes = kCap});
  auto board = Board::open(file_, kMemory);
  ASSERT_TRUE(board) << board.error().message;
  std::atomic<bool> done = false;
  std::uint64_t most = 0;
  std::thread watcher([&] {
    while (!done) {
      for (const auto& process : (*board)->processes())
        if (!process.ours && process.pid != std::uint32_t(other_->pid()))
          most = std::max(most, process.used);
      std::this_thread::sleep_for(1ms);
    }
  });
  // Two inputs and an output of 40 MiB each: only the inputs of one data kind at a time fit.
  Trial trial = planted::trial(Kind::kRight, "fits", 10 << 20);
  trial.measure.sample_blocks = 24;
  const auto fits = measurer_->run(trial);
  // Of 80 MiB.
  const auto large = measurer_->run(planted::trial(Kind::kRight, "large", 20 << 20));
  done = true;
  watcher.join();
  ASSERT_TRUE(fits) << fits.error().message;
  EXPECT_EQ(rendered(*fits), "timed") << (fits->failure ? fits->failure->message : "");
  ASSERT_TRUE(large) << large.error().message;
  EXPECT_EQ(rendered(*large), "out_of_memory");
  EXPECT_EQ(large->failure->message,
            "tensors of operator 'sum' need 241 MiB of device memory, expected at most 200 MiB of "
            "a cap of 200 MiB");
  EXPECT_EQ(large->attempts, 1);
  EXPECT_LE(most, kCap);
  EXPECT_GE(most, std::uint64_t{120} << 20);
}

TEST_F(SharedTest, ManyTrialsOfOneProblemTakeTheDeviceMemoryOfOne) {
  start({});
  auto board = Board::open(file_, kMemory);
  ASSERT_TRUE(board) << board.error().message;
  const auto used = [&] {
    std::uint64_t bytes = 0;
    for (const auto& process : (*board)->processes())
      if (!process.ours && process.pid != std::uint32_t(other_->pid())) bytes = process.used;
    return bytes;
  };
  // Three tensors of 4 MiB, the inputs once for each kind of data; chosen blocks are enough.
  std::vector<std::uint64_t> after;
  for (const Kind kind : {Kind::kRight, Kind::kWrong, Kind::kSlower, Kind::kRight, Kind::kWrong}) {
    Trial trial = planted::trial(kind, "trial " + std::to_string(after.size()), 1 << 20);
    trial.plan.launches.front().tile = {"0", "1", "128 * block.x", "128"};
    trial.measure.sample_blocks = 24;
    const auto result = measurer_->run(trial);
    ASSERT_TRUE(result) << result.error().message;
    after.push_back(used());
  }
  EXPECT_GE(after.front(), std::uint64_t{12} << 20);
  for (const std::uint64_t bytes : after)
    EXPECT_LT(bytes, after.front() + (std::uint64_t{4} << 20)) << "less than one tensor more";
}

TEST_F(SharedTest, WithoutACapWhatIsFreeLessAReserveIsTheLimit) {
  // 1100 MiB are left, 1024 of them are the reserve.
  EXPECT_EQ(other_->tell("memory 142056"), "ok");
  start({});
  const auto large = measurer_->run(planted::trial(Kind::kRight, "large", 10 << 20));
  ASSERT_TRUE(large) << large.error().message;
  EXPECT_EQ(rendered(*large), "out_of_memory");
  EXPECT_EQ(large->failure->message,
            "tensors of operator 'sum' need 121 MiB of device memory, expected at most 76 MiB");
  const auto small = measurer_->run(planted::trial(Kind::kRight, "small", 1 << 20));
  ASSERT_TRUE(small) << small.error().message;
  EXPECT_EQ(rendered(*small), "timed");
}

TEST_F(SharedTest, ARefusalOfMemoryIsOfOneTune) {
  EXPECT_EQ(other_->tell("memory 142056"), "ok");
  start({});
  Trial trial = planted::trial(Kind::kRight, "large", 8 << 20);
  trial.measure.sample_blocks = 24;
  trial.measure.deadline_s = 100;  // of a machine that has other things to do, too
  const auto outcome = [&] {
    const auto result = measurer_->run(trial);
    return result ? rendered(*result) : result.error().message;
  };
  EXPECT_EQ(outcome(), "out_of_memory");
  EXPECT_EQ(other_->tell("memory 0"), "ok");
  // Its other candidates need not find out each for itself.
  EXPECT_EQ(outcome(), "out_of_memory");
  measurer_->watch({});  // as the next tune begins
  EXPECT_EQ(outcome(), "timed");
}

}  // namespace
}  // namespace tilewright::search
