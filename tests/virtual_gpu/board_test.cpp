// A device that this process shares with others: memory, time, and what NVML tells of both.
#include "jit/virtual_gpu/driver/board.h"

#include <cuda.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "jit/driver_api.h"
#include "tests/virtual_gpu/driver_kernels.h"
#include "tests/virtual_gpu/occupant.h"

namespace tilewright::vgpu::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr std::size_t kGib = std::size_t{1} << 30;

std::string fresh_file(const std::string& name) {
  const std::string file = ::testing::TempDir() + "tilewright_" + name + std::to_string(::getpid());
  std::filesystem::remove(file);
  return file;
}

bool eventually(const std::function<bool()>& holds) {
  for (int i = 0; i < 300; ++i) {
    if (holds()) return true;
    std::this_thread::sleep_for(10ms);
  }
  return false;
}

TEST(Board, ItsProcessesShareTheMemory) {
  const std::string file = fresh_file("memory");
  auto first = Board::open(file, 100).value(), second = Board::open(file, 100).value();
  ASSERT_TRUE(first->take(60));
  const auto refused = second->take(50);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(refused.error().message,
            "allocation of 50 bytes, 40 of 100 are free, of the others has 60 bytes process " +
                std::to_string(::getpid()));
  ASSERT_TRUE(second->take(40));
  EXPECT_EQ(first->used(), 100u);
  second->give_back(10);
  EXPECT_EQ(first->used(), 90u);
  second.reset();
  EXPECT_EQ(first->used(), 60u);
  std::filesystem::remove(file);
}

TEST(Board, WorkAtOneTimeTakesTurns) {
  const std::string file = fresh_file("turns");
  auto first = Board::open(file, 100).value(), second = Board::open(file, 100).value();
  EXPECT_EQ(first->occupy(400e3), 0);
  // Shorter than what the other has: as long again. Longer: by what the other has.
  EXPECT_DOUBLE_EQ(second->occupy(1000), 1000);
  const double longer = second->occupy(10e6);
  EXPECT_GT(longer, 200e3);
  EXPECT_LE(longer, 400e3);
  first.reset();
  EXPECT_EQ(second->occupy(1000), 0);
  std::filesystem::remove(file);
}

TEST(Board, OccupationIsOfTheLastSecond) {
  const std::string file = fresh_file("share");
  auto board = Board::open(file, 100).value(), other = Board::open(file, 100).value();
  EXPECT_FALSE(others_work(board));
  other->occupy(100e3);
  std::this_thread::sleep_for(150ms);
  const auto processes = board->processes();
  ASSERT_EQ(processes.size(), 2u);
  EXPECT_TRUE(processes[0].ours);
  EXPECT_EQ(processes[0].busy, 0);
  EXPECT_NEAR(processes[1].busy, 0.1, 0.02);
  EXPECT_TRUE(others_work(board));
  EXPECT_FALSE(others_work(nullptr));
  std::filesystem::remove(file);
}

TEST(Board, AFileThatIsNoneOrOfAnotherDeviceIsRefused) {
  const std::string file = fresh_file("none");
  std::ofstream(file) << "a text";
  auto opened = Board::open(file, 100);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(opened.error().message, HasSubstr("has 6 bytes, expected a board of"));
  std::filesystem::remove(file);
  {
    auto board = Board::open(file, 100).value();
    opened = Board::open(file, 200);
    ASSERT_FALSE(opened);
    EXPECT_THAT(opened.error().message, HasSubstr("is of a device of 100 bytes that process"));
  }
  EXPECT_TRUE(Board::open(file, 200));  // nobody uses it any more
  opened = Board::open("/nowhere/board", 100);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::kIo);
  std::filesystem::remove(file);
}

struct Utilisation {
  unsigned gpu, memory;
};
struct ProcessInfo {
  unsigned pid;
  unsigned long long memory;
  unsigned gpu_instance, compute_instance;
};
struct ProcessUtilisation {
  unsigned pid;
  unsigned long long time_us;
  unsigned sm, memory, encoder, decoder;
};

template <typename... Parameters>
int nvml(const char* name, Parameters... parameters) {
  auto* call = reinterpret_cast<int (*)(Parameters...)>(dlsym(RTLD_DEFAULT, name));
  EXPECT_TRUE(call) << name;
  return call ? call(parameters...) : -1;
}

/// The driver of this process, on a board; it stays on it.
class SharedDevice : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    ::setenv("TILEWRIGHT_VGPU_SHARED", fresh_file("board").c_str(), 1);
    ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
    CUcontext context = nullptr;
    ASSERT_EQ(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
    ASSERT_EQ(nvml("nvmlInit_v2"), 0);
    ASSERT_EQ(nvml("nvmlDeviceGetHandleByIndex_v2", 0u, &device_), 0);
  }
  static void TearDownTestSuite() {
    std::filesystem::remove(::getenv("TILEWRIGHT_VGPU_SHARED"));
    nvml("nvmlShutdown");
    cuDevicePrimaryCtxRelease(0);
  }

  static std::size_t free_bytes() {
    std::size_t free = 0, total = 0;
    EXPECT_EQ(cuMemGetInfo(&free, &total), CUDA_SUCCESS);
    return free;
  }
  static unsigned utilisation() {
    Utilisation out{};
    EXPECT_EQ(nvml("nvmlDeviceGetUtilizationRates", device_, &out), 0);
    return out.gpu;
  }
  /// Of `pid`; -1: it is not listed.
  static long long listed_bytes(pid_t pid) {
    ProcessInfo infos[8];
    unsigned count = 8;
    EXPECT_EQ(nvml("nvmlDeviceGetComputeRunningProcesses_v3", device_, &count, &infos[0]), 0);
    for (unsigned i = 0; i < count; ++i)
      if (infos[i].pid == unsigned(pid)) return static_cast<long long>(infos[i].memory);
    return -1;
  }

  static inline void* device_ = nullptr;
};

TEST_F(SharedDevice, WhatAnotherProcessHoldsIsNotFree) {
  const std::size_t before = free_bytes();
  Occupant other;
  EXPECT_EQ(other.tell("memory 65536"), "ok");
  EXPECT_EQ(before - free_bytes(), 64 * kGib);
  EXPECT_EQ(listed_bytes(other.pid()), 64ll << 30);
  EXPECT_EQ(listed_bytes(::getpid()), 0);
  CUdeviceptr memory = 0;
  EXPECT_EQ(cuMemAlloc(&memory, free_bytes() + 1), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_THAT(
      jit::tilewrightVgpuReport(),
      HasSubstr("of the others has 68719476736 bytes process " + std::to_string(other.pid())));
  ASSERT_EQ(cuMemAlloc(&memory, free_bytes()), CUDA_SUCCESS);
  EXPECT_EQ(other.tell("memory 131072"), "out of memory");
  EXPECT_EQ(cuMemFree(memory), CUDA_SUCCESS);
  EXPECT_EQ(other.tell("memory 131072"), "ok");
  // However it ends, what it held is free.
  other.kill();
  EXPECT_EQ(free_bytes(), before);
  EXPECT_EQ(listed_bytes(other.pid()), -1);
}

TEST_F(SharedDevice, UtilisationIsTheShareThatWorkOfAnyProcessOccupied) {
  Occupant other;
  ASSERT_TRUE(eventually([] { return utilisation() == 0; }));
  EXPECT_EQ(other.tell("busy 40"), "ok");
  std::this_thread::sleep_for(1100ms);
  EXPECT_NEAR(utilisation(), 40, 15);
  ProcessUtilisation samples[8];
  unsigned count = 8;
  ASSERT_EQ(nvml("nvmlDeviceGetProcessUtilization", device_, &samples[0], &count, 0ull), 0);
  ASSERT_EQ(count, 1u);
  EXPECT_EQ(samples[0].pid, unsigned(other.pid()));
  EXPECT_NEAR(samples[0].sm, 40, 15);
  EXPECT_EQ(other.tell("busy 0"), "ok");
  constexpr int kNotFound = 6;
  EXPECT_TRUE(eventually([&] {
    count = 8;
    return nvml("nvmlDeviceGetProcessUtilization", device_, &samples[0], &count, 0ull) == kNotFound;
  }));
  EXPECT_EQ(utilisation(), 0u);
}

TEST_F(SharedDevice, EventsAreFurtherApartWhileAnotherProcessWorks) {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  ASSERT_EQ(cuModuleLoadData(&module, kKernels.c_str()), CUDA_SUCCESS);
  ASSERT_EQ(cuModuleGetFunction(&function, module, "increment"), CUDA_SUCCESS);
  CUdeviceptr data = 0;
  int n = 1000;
  ASSERT_EQ(cuMemAlloc(&data, 4000), CUDA_SUCCESS);
  ASSERT_EQ(cuMemsetD32(data, 0, 1000), CUDA_SUCCESS);
  CUevent begin = nullptr, end = nullptr;
  ASSERT_EQ(cuEventCreate(&begin, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuEventCreate(&end, 0), CUDA_SUCCESS);
  const auto time_us = [&] {
    void* parameters[] = {&data, &n};
    EXPECT_EQ(cuEventRecord(begin, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(cuLaunchKernel(function, 32, 1, 1, 32, 1, 1, 0, nullptr, parameters, nullptr),
              CUDA_SUCCESS);
    EXPECT_EQ(cuEventRecord(end, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    float milliseconds = 0;
    EXPECT_EQ(cuEventElapsedTime(&milliseconds, begin, end), CUDA_SUCCESS);
    return double(milliseconds) * 1000;
  };
  const auto vary = [] {
    int out = -1;
    EXPECT_EQ(jit::tilewrightVgpuTimesVary(&out), CUDA_SUCCESS);
    return out;
  };
  Occupant other;
  ASSERT_TRUE(eventually([&] { return vary() == 0; }));
  const double alone = time_us();
  EXPECT_DOUBLE_EQ(time_us(), alone);
  EXPECT_EQ(other.tell("busy 100"), "ok");
  EXPECT_TRUE(eventually([&] { return std::abs(time_us() - 2 * alone) < 0.01 * alone; }))
      << time_us() << " of " << alone;
  EXPECT_EQ(vary(), 1);
  EXPECT_EQ(other.tell("busy 0"), "ok");
  EXPECT_TRUE(eventually([&] { return vary() == 0; }));
  EXPECT_DOUBLE_EQ(time_us(), alone);
  EXPECT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree(data), CUDA_SUCCESS);
}

}  // namespace
}  // namespace tilewright::vgpu::testing
