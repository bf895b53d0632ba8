#include "jit/compile_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

namespace tilewright::jit {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

const CompileOptions kHopper{{9, 0, false}, {}, false};  // PTX alone: quick

Source kernel(const std::string& name, const std::string& comment = "") {
  return {name + ".cu", "// " + comment + "\nextern \"C\" __global__ void " + name + "() {}\n"};
}

std::unique_ptr<CompilePool> start(int workers,
                                   std::function<void(CompilePoolOptions&)> change = {}) {
  CompilePoolOptions options;
  options.workers = workers;
  options.worker_path = TILEWRIGHT_TEST_WORKER;
  options.deadline = 30s;
  if (change) change(options);
  auto pool = CompilePool::start({{"kernels/a.cuh", "12345"}}, options);
  EXPECT_TRUE(pool) << pool.error().message << "\n" << pool.error().detail;
  return pool ? std::move(*pool) : nullptr;
}

/// "ok", or the code and message of the error.
std::string outcome(const Result<Image>& image) {
  if (image) return "ok";
  return std::string(to_string(image.error().code)) + ": " + image.error().message;
}

bool eventually(const std::function<bool()>& holds) {
  for (int i = 0; i < 500; ++i) {
    if (holds()) return true;
    std::this_thread::sleep_for(10ms);
  }
  return false;
}

/// Neither running nor a zombie.
bool gone(int pid) { return kill(pid, 0) != 0 && errno == ESRCH; }

TEST(CompilePool, CompilesInAnotherProcess) {
  auto pool = start(1);
  auto image = pool->compile(kernel("k"), {{9, 0, true}, {}, true});
  ASSERT_TRUE(image) << image.error().message;
  EXPECT_THAT(image->ptx, HasSubstr(".visible .entry k"));
  EXPECT_THAT(image->cubin, testing::StartsWith("\x7f"
                                                "ELF"));
  EXPECT_EQ(image->architecture, (Architecture{9, 0, true}));
  EXPECT_EQ(image->digest, pool->digest(kernel("k"), {{9, 0, true}, {}, true}));
  ASSERT_EQ(image->kernels.size(), 1u);
  EXPECT_GT(image->find("k")->registers, 0);
  EXPECT_EQ(pool->compiles(), 1u);
  EXPECT_THAT(pool->nvrtc_version(), HasSubstr("."));
}

TEST(CompilePool, ACompilerErrorCostsNoWorker) {
  auto pool = start(1);
  const auto pids = pool->worker_pids();
  auto image = pool->compile({"bad.cu", "__device__ int f() { return nothing; }"}, kHopper);
  EXPECT_EQ(outcome(image), "compile: bad.cu:1: identifier \"nothing\" is undefined");
  EXPECT_THAT(image.error().detail, HasSubstr("1 error detected"));
  EXPECT_EQ(outcome(pool->compile(kernel("k"), kHopper)), "ok");
  EXPECT_EQ(pool->worker_pids(), pids);
  EXPECT_EQ(pool->compiles(), 2u);
}

TEST(CompilePool, ACrashCostsOneCandidate) {
  auto pool = start(1);
  auto image = pool->compile(kernel("k", "crash"), kHopper);
  EXPECT_EQ(outcome(image), "crash: compiling k.cu: process died of signal 6 (Aborted)");
  EXPECT_EQ(image.error().detail, "assertion of the compiler failed\n");
  EXPECT_EQ(outcome(pool->compile(kernel("k", "exit"), kHopper)),
            "crash: compiling k.cu: process exited with status 3");
  EXPECT_EQ(outcome(pool->compile(kernel("k"), kHopper)), "ok");
}

TEST(CompilePool, AHangCostsOneCandidateAndItsDeadline) {
  auto pool = start(1, [](auto& options) { options.deadline = 200ms; });
  const auto pids = pool->worker_pids();
  const auto start = Clock::now();
  EXPECT_EQ(outcome(pool->compile(kernel("k", "hang"), kHopper)),
            "hang: compiling k.cu: no answer in 200 ms");
  EXPECT_LT(Clock::now() - start, 5s);
  EXPECT_TRUE(gone(pids.front()));
}

TEST(CompilePool, AWorkerThatEatsMemoryIsStopped) {
  auto pool = start(1, [](auto& options) { options.memory_bytes = std::size_t{700} << 20; });
  EXPECT_THAT(
      outcome(pool->compile(kernel("k", "gluttony"), kHopper)),
      testing::MatchesRegex("out_of_memory: compiling k.cu: .* MiB.*expected at most 700 MiB"));
  EXPECT_EQ(outcome(pool->compile(kernel("k"), kHopper)), "ok");
}

TEST(CompilePool, OnesThatTakeTooLongOrTooMuchDoNotHoldUpTheOthers) {
  constexpr auto kDeadline = 1s;
  auto pool = start(2, [&](auto& options) {
    options.deadline = kDeadline;
    options.memory_bytes = std::size_t{700} << 20;
  });
  const auto begin = Clock::now();
  std::vector<std::shared_future<Result<Image>>> bad, good;
  for (const char* how : {"hang", "gluttony", "hang"})
    bad.push_back(pool->submit(kernel("bad" + std::to_string(bad.size()), how), kHopper));
  for (int i = 0; i < 6; ++i)
    good.push_back(pool->submit(kernel("k" + std::to_string(i)), kHopper));
  for (auto& image : good) EXPECT_EQ(outcome(image.get()), "ok");
  EXPECT_EQ(outcome(bad[0].get()), "hang: compiling bad0.cu: no answer in 1000 ms");
  EXPECT_THAT(outcome(bad[1].get()), HasSubstr("out_of_memory: compiling bad1.cu: "));
  EXPECT_EQ(outcome(bad[2].get()), "hang: compiling bad2.cu: no answer in 1000 ms");
  EXPECT_LT(Clock::now() - begin, 2 * kDeadline + 10s);
}

TEST(CompilePool, AnAllocationBeyondTheCapIsNotACrash) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers reserve more address space than any cap";
#endif
  auto pool = start(1);
  EXPECT_THAT(outcome(pool->compile(kernel("k", "huge"), kHopper)),
              HasSubstr("out_of_memory: compiling k.cu: out of memory at"));
  EXPECT_EQ(outcome(pool->compile(kernel("k"), kHopper)), "ok");
}

TEST(CompilePool, AWorkerKilledAmidACompileCostsThatCompile) {
  auto pool = start(1);
  auto image = pool->submit(kernel("k", "hang"), kHopper);
  ASSERT_TRUE(eventually([&] { return pool->compiles() == 1; }));
  kill(pool->worker_pids().front(), SIGKILL);
  EXPECT_EQ(outcome(image.get()), "crash: compiling k.cu: process died of signal 9 (Killed)");
  EXPECT_EQ(outcome(pool->compile(kernel("k"), kHopper)), "ok");
}

TEST(CompilePool, AWorkerKilledWhileIdleCostsNothing) {
  auto pool = start(1);
  const int pid = pool->worker_pids().front();
  kill(pid, SIGKILL);
  // Dead, and not yet collected: that is for the next compile to notice.
  ASSERT_TRUE(eventually([&] {
    siginfo_t info{};
    return waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == pid;
  }));
  EXPECT_EQ(outcome(pool->compile(kernel("k"), kHopper)), "ok");
  EXPECT_NE(pool->worker_pids().front(), pid);
}

TEST(CompilePool, WorkersThatStandStillAreReplacedAndCostNothing) {
  auto pool = start(2, [](auto& options) { options.heartbeat = 200ms; });
  std::vector<std::shared_future<Result<Image>>> images;
  for (int i = 0; i < 2; ++i)
    images.push_back(pool->submit(kernel("k" + std::to_string(i), "slow"), kHopper));
  for (auto& image : images) EXPECT_EQ(outcome(image.get()), "ok");
  const auto stopped = pool->worker_pids();
  ASSERT_EQ(stopped.size(), 2u);
  for (int pid : stopped) kill(pid, SIGSTOP);
  const auto begin = Clock::now();
  images.clear();
  for (int i = 0; i < 6; ++i)
    images.push_back(pool->submit(kernel("n" + std::to_string(i), "slow"), kHopper));
  for (auto& image : images) EXPECT_EQ(outcome(image.get()), "ok");
  EXPECT_LT(Clock::now() - begin, 20s) << "not the deadline of a compile";
  for (int pid : stopped) EXPECT_TRUE(gone(pid));
}

TEST(CompilePool, EqualSourcesInFlightJoinOneCompile) {
  auto pool = start(2);
  std::vector<std::shared_future<Result<Image>>> images;
  for (int i = 0; i < 8; ++i) images.push_back(pool->submit(kernel("k", "slow"), kHopper));
  images.push_back(pool->submit(kernel("other"), kHopper));
  for (auto& image : images) EXPECT_EQ(outcome(image.get()), "ok");
  EXPECT_EQ(pool->compiles(), 2u);
  // What has landed is not kept: that is the cache's work.
  EXPECT_EQ(outcome(pool->compile(kernel("k", "slow"), kHopper)), "ok");
  EXPECT_EQ(pool->compiles(), 3u);
}

TEST(CompilePool, WorkersAreRecycledAfterTheirShare) {
  auto pool = start(1, [](auto& options) { options.compiles_per_worker = 2; });
  std::vector<int> pids;
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(outcome(pool->compile(kernel("k" + std::to_string(i)), kHopper)), "ok");
    pids.push_back(pool->worker_pids().front());
  }
  EXPECT_EQ(pids[0], pids[1]);
  EXPECT_NE(pids[1], pids[2]);
  EXPECT_EQ(pids[2], pids[3]);
  EXPECT_NE(pids[3], pids[4]);
  EXPECT_TRUE(gone(pids[0]));
}

TEST(CompilePool, TheCheckComesBeforeTheCompilerAndCanBeSkipped) {
  EXPECT_EQ(outcome(start(1)->compile(kernel("k", "refuse"), kHopper)),
            "compile: k.cu:7: refused by the check");
  auto unchecked = start(1, [](auto& options) { options.check_sources = false; });
  EXPECT_EQ(outcome(unchecked->compile(kernel("k", "refuse"), kHopper)), "ok");
}

TEST(CompilePool, DescribesAHeader) {
  auto pool = start(1);
  EXPECT_EQ(pool->describe("kernels/a.cuh").value(), "{\"bytes\": 5}");
  EXPECT_EQ(pool->describe("kernels/b.cuh").error().message, "no header 'kernels/b.cuh'");
  EXPECT_EQ(pool->compiles(), 0u);
}

TEST(CompilePool, EndingItCancelsWhatIsUnfinishedAndLeavesNoProcess) {
  auto pool = start(2);
  std::vector<std::shared_future<Result<Image>>> images;
  for (int i = 0; i < 4; ++i)
    images.push_back(pool->submit(kernel("k" + std::to_string(i), "hang"), kHopper));
  ASSERT_TRUE(eventually([&] { return pool->compiles() == 2; }));
  const auto pids = pool->worker_pids();
  ASSERT_EQ(pids.size(), 2u);
  const auto start = Clock::now();
  pool.reset();
  EXPECT_LT(Clock::now() - start, 5s);
  for (auto& image : images) EXPECT_THAT(outcome(image.get()), HasSubstr("cancelled: "));
  for (int pid : pids) EXPECT_TRUE(gone(pid));
}

TEST(CompilePool, WorkersDieWithTheProcessThatHoldsThePool) {
  int channel[2];
  ASSERT_EQ(pipe(channel), 0);
  const pid_t holder = fork();
  if (holder == 0) {
    auto pool = start(1);
    auto image = pool->submit(kernel("k", "hang"), kHopper);
    while (pool->compiles() == 0) std::this_thread::sleep_for(1ms);
    const int pid = pool->worker_pids().front();
    (void)!write(channel[1], &pid, sizeof pid);
    kill(getpid(), SIGKILL);  // no destructor runs, as after kill -9
  }
  int worker = 0;
  ASSERT_EQ(read(channel[0], &worker, sizeof worker), ssize_t(sizeof worker));
  waitpid(holder, nullptr, 0);
  EXPECT_TRUE(eventually([&] {
    // In a container without an init it stays a zombie of no use to anyone.
    std::string state;
    if (FILE* stat = std::fopen(("/proc/" + std::to_string(worker) + "/stat").c_str(), "r")) {
      char text[256] = {};
      (void)!std::fread(text, 1, sizeof text - 1, stat);
      std::fclose(stat);
      state = text;
    }
    return state.empty() || state.find(") Z ") != std::string::npos;
  }));
  close(channel[0]);
  close(channel[1]);
}

TEST(CompilePool, SaysWhyItCannotStart) {
  CompilePoolOptions options;
  options.worker_path = "/nowhere/worker";
  auto pool = CompilePool::start({}, options);
  ASSERT_FALSE(pool);
  EXPECT_EQ(pool.error().message, "cannot start '/nowhere/worker': No such file or directory");
  options.worker_path = TILEWRIGHT_TEST_WORKER;
  options.nvrtc_path = "/nowhere/libnvrtc.so";
  pool = CompilePool::start({}, options);
  ASSERT_FALSE(pool);
  EXPECT_EQ(pool.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(pool.error().message, HasSubstr("no libnvrtc at '/nowhere/libnvrtc.so'"));
}

}  // namespace
}  // namespace tilewright::jit
