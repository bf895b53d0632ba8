// Streams that execute as late as they may: what a program observes that forgot to wait.
#include <atomic>
#include <thread>

#include "jit/driver_api.h"
#include "jit/virtual_gpu/driver/stream_clock.h"
#include "tests/virtual_gpu/driver_calls.h"

namespace tilewright::vgpu::testing {
namespace {

class LateStreams : public DriverCalls {
 protected:
  void SetUp() override {
    DriverCalls::SetUp();
    ASSERT_EQ(tilewrightVgpuSetStreams("late"), 0);
    ASSERT_EQ(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  }
  void TearDown() override {
    EXPECT_EQ(tilewrightVgpuSetStreams("eager"), 0);
    EXPECT_EQ(jit::tilewrightVgpuSetChecks("off", 0), CUDA_SUCCESS);
    DriverCalls::TearDown();
  }

  CUresult set(CUdeviceptr data, float value, CUstream stream, unsigned count = 32) {
    void* parameters[] = {&data, &value, &count};
    return cuLaunchKernel(function("set"), 1, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr);
  }
  CUresult add_one(CUdeviceptr data, CUstream stream) {
    unsigned count = 32;
    void* parameters[] = {&data, &count};
    return cuLaunchKernel(function("increment"), 1, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr);
  }
  static CUevent event() {
    CUevent out = nullptr;
    EXPECT_EQ(cuEventCreate(&out, CU_EVENT_DEFAULT), CUDA_SUCCESS);
    return out;
  }
  /// Page-locked floats.
  static float* pinned(std::size_t count) {
    void* out = nullptr;
    EXPECT_EQ(cuMemAllocHost(&out, count * sizeof(float)), CUDA_SUCCESS);
    return static_cast<float*>(out);
  }
  static std::string reports() { return jit::tilewrightVgpuReports(); }

  CUstream a = nullptr, b = nullptr;
};

TEST_F(LateStreams, AMissingWaitBetweenStreamsChangesTheResult) {
  const CUdeviceptr data = floats(32), out = floats(32);
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  for (bool waits : {false, true}) {
    ASSERT_EQ(set(data, waits ? 7.0f : 5.0f, a), CUDA_SUCCESS);
    const CUevent done = event();
    ASSERT_EQ(cuEventRecord(done, a), CUDA_SUCCESS);
    if (waits) ASSERT_EQ(cuStreamWaitEvent(b, done, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuMemcpyDtoDAsync(out, data, 32 * sizeof(float), b), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamSynchronize(b), CUDA_SUCCESS);
    EXPECT_EQ(values(out, 32), std::vector<float>(32, waits ? 7 : 0)) << waits;
    ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    ASSERT_EQ(cuMemsetD32(data, 0, 32), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  }
}

TEST_F(LateStreams, TheWholeContextRunsTheLatestStreamFirst) {
  const CUdeviceptr data = floats(32);
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  ASSERT_EQ(set(data, 1, a), CUDA_SUCCESS);
  ASSERT_EQ(set(data, 2, b), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(values(data, 1)[0], 1);
}

TEST_F(LateStreams, SeedsDrawOrdersOfStreams) {
  const CUdeviceptr data = floats(32);
  bool seen[3] = {};
  for (int seed = 1; seed <= 12; ++seed) {
    ASSERT_EQ(tilewrightVgpuSetStreams(("late:" + std::to_string(seed)).c_str()), 0);
    ASSERT_EQ(set(data, 1, a), CUDA_SUCCESS);
    ASSERT_EQ(set(data, 2, b), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    seen[int(values(data, 1)[0])] = true;
  }
  EXPECT_TRUE(seen[1] && seen[2]);
  EXPECT_NE(tilewrightVgpuSetStreams("lately"), 0);
  EXPECT_NE(tilewrightVgpuSetStreams("late:x"), 0);
}

TEST_F(LateStreams, TheHostSeesWhatItWaitedForAndNoMore) {
  const CUdeviceptr data = floats(32);
  float* host = pinned(32);
  host[0] = -1;
  ASSERT_EQ(set(data, 3, a), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyDtoHAsync(host, data, 128, a), CUDA_SUCCESS);
  EXPECT_EQ(host[0], -1) << "nobody waited";
  EXPECT_EQ(cuStreamQuery(a), CUDA_ERROR_NOT_READY);
  while (cuStreamQuery(a) == CUDA_ERROR_NOT_READY) {
  }
  EXPECT_EQ(host[0], 3);
  EXPECT_EQ(cuStreamQuery(a), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFreeHost(host), CUDA_SUCCESS);
}

TEST_F(LateStreams, PageableMemoryIsReadByTheCallAndPinnedMemoryLater) {
  const CUdeviceptr data = floats(32);
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  std::vector<float> pageable(32, 1);
  ASSERT_EQ(cuMemcpyHtoDAsync(data, pageable.data(), 128, a), CUDA_SUCCESS);
  pageable.assign(32, 2);
  ASSERT_EQ(cuStreamSynchronize(a), CUDA_SUCCESS);
  EXPECT_EQ(values(data, 1)[0], 1);
  float* host = pinned(32);
  std::fill_n(host, 32, 3.0f);
  ASSERT_EQ(cuMemcpyHtoDAsync(data, host, 128, a), CUDA_SUCCESS);
  std::fill_n(host, 32, 4.0f);
  ASSERT_EQ(cuStreamSynchronize(a), CUDA_SUCCESS);
  EXPECT_EQ(values(data, 1)[0], 4);
  std::vector<float> target(32, 0);
  ASSERT_EQ(cuMemcpyDtoHAsync(target.data(), data, 128, a), CUDA_SUCCESS);
  EXPECT_EQ(target[0], 4) << "pageable memory is written before the call returns";
}

TEST_F(LateStreams, TheDefaultStreamIsInOrderWithBlockingOnes) {
  const CUdeviceptr data = floats(32);
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  CUstream blocking = nullptr;
  ASSERT_EQ(cuStreamCreate(&blocking, CU_STREAM_DEFAULT), CUDA_SUCCESS);
  ASSERT_EQ(set(data, 1, blocking), CUDA_SUCCESS);
  ASSERT_EQ(add_one(data, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(add_one(data, blocking), CUDA_SUCCESS);
  ASSERT_EQ(set(data, 10, a), CUDA_SUCCESS) << "not ordered with any of them";
  ASSERT_EQ(cuStreamSynchronize(blocking), CUDA_SUCCESS);
  EXPECT_EQ(values(data, 1)[0], 3);
  ASSERT_EQ(cuStreamSynchronize(a), CUDA_SUCCESS);
  EXPECT_EQ(values(data, 1)[0], 10);
}

TEST_F(LateStreams, EveryThreadHasADefaultStreamOfItsOwn) {
  CUdriverProcAddressQueryResult status;
  void *found = nullptr, *plain = nullptr;
  ASSERT_EQ(cuGetProcAddress("cuMemsetD32Async", &found, 12000,
                             CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &status),
            CUDA_SUCCESS);
  ASSERT_EQ(cuGetProcAddress("cuMemsetD32Async", &plain, 12000, 0, &status), CUDA_SUCCESS);
  ASSERT_TRUE(found);
  EXPECT_NE(found, plain);
  const auto fill = reinterpret_cast<decltype(&::cuMemsetD32Async)>(found);
  const CUdeviceptr data = floats(32);
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  ASSERT_EQ(fill(data, 7, 32, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamQuery(CU_STREAM_PER_THREAD), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(cuStreamQuery(CU_STREAM_PER_THREAD), CUDA_SUCCESS);
  ASSERT_EQ(fill(data, 8, 32, nullptr), CUDA_SUCCESS);
  std::thread other([&] {
    ASSERT_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamQuery(CU_STREAM_PER_THREAD), CUDA_SUCCESS) << "it is another stream";
    EXPECT_EQ(cuStreamQuery(CU_STREAM_LEGACY), CUDA_ERROR_NOT_READY) << "which waits for all";
  });
  other.join();
  unsigned value = 0;
  ASSERT_EQ(cuMemcpyDtoH(&value, data, 4), CUDA_SUCCESS);
  EXPECT_EQ(value, 8u);
  ASSERT_EQ(cuGetProcAddress("cuMemAlloc", &found, 12000,
                             CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &status),
            CUDA_SUCCESS);
  EXPECT_EQ(found, reinterpret_cast<void*>(&cuMemAlloc)) << "has no stream";
}

TEST_F(LateStreams, MemoryIsFreedWhereItsStreamFreesIt) {
  CUdeviceptr data = 0;
  ASSERT_EQ(cuMemAllocAsync(&data, 128, a), CUDA_SUCCESS);
  ASSERT_EQ(set(data, 1, a), CUDA_SUCCESS);
  ASSERT_EQ(cuMemFreeAsync(data, a), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFreeAsync(data, a), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemFree(data), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamSynchronize(a), CUDA_SUCCESS) << "the kernel came first";
  EXPECT_EQ(set(data, 2, a), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(a), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(LateStreams, AFaultIsToldByTheCallThatWaits) {
  ASSERT_EQ(cuLaunchKernel(function("stop"), 1, 1, 1, 1, 1, 1, 0, a, nullptr, nullptr),
            CUDA_SUCCESS);
  const CUdeviceptr data = floats(32);
  EXPECT_NE(data, 0u) << "other calls know nothing yet";
  EXPECT_EQ(cuStreamSynchronize(b), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(a), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(cuStreamSynchronize(b), CUDA_ERROR_LAUNCH_FAILED);
}

TEST_F(LateStreams, HostFunctionsRunInTheOrderOfTheirStream) {
  const CUdeviceptr data = floats(32);
  float* host = pinned(32);
  struct Seen {
    float* host;
    float value;
  } seen{host, 0};
  ASSERT_EQ(set(data, 6, a), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyDtoHAsync(host, data, 128, a), CUDA_SUCCESS);
  ASSERT_EQ(cuLaunchHostFunc(
                a, [](void* at) { static_cast<Seen*>(at)->value = *static_cast<Seen*>(at)->host; },
                &seen),
            CUDA_SUCCESS);
  EXPECT_EQ(seen.value, 0);
  ASSERT_EQ(cuStreamDestroy(a), CUDA_SUCCESS) << "what it holds is done all the same";
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(seen.value, 6);
  EXPECT_EQ(cuMemFreeHost(host), CUDA_SUCCESS);
}

TEST_F(LateStreams, AnEventIsTimedOnceItsRecordIsDone) {
  const CUdeviceptr data = floats(32);
  const CUevent begin = event(), end = event();
  float milliseconds = 0;
  ASSERT_EQ(cuEventRecord(begin, a), CUDA_SUCCESS);
  ASSERT_EQ(set(data, 1, a), CUDA_SUCCESS);
  ASSERT_EQ(cuEventRecord(end, a), CUDA_SUCCESS);
  EXPECT_EQ(cuEventElapsedTime(&milliseconds, begin, end), CUDA_ERROR_NOT_READY);
  ASSERT_EQ(cuEventSynchronize(end), CUDA_SUCCESS);
  ASSERT_EQ(cuEventElapsedTime(&milliseconds, begin, end), CUDA_SUCCESS);
  EXPECT_GT(milliseconds, 0);
}

TEST_F(LateStreams, ThousandsOfTasksOfTwoStreamsThatWaitForEachOtherEnd) {
  const CUdeviceptr data = floats(32);
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS) << "the streams are not ordered after the fill";
  const CUevent there = event(), back = event();
  for (int i = 0; i < 3000; ++i) {
    ASSERT_EQ(add_one(data, i % 2 ? b : a), CUDA_SUCCESS);
    ASSERT_EQ(cuEventRecord(i % 2 ? back : there, i % 2 ? b : a), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamWaitEvent(i % 2 ? a : b, i % 2 ? back : there, 0), CUDA_SUCCESS);
  }
  ASSERT_EQ(cuStreamSynchronize(a), CUDA_SUCCESS);
  EXPECT_EQ(values(data, 1)[0], 3000);
}

TEST_F(LateStreams, AGraphRunsBranchesInTheOtherOrder) {
  const CUdeviceptr data = floats(32);
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  const CUevent fork = event(), join = event();
  ASSERT_EQ(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  ASSERT_EQ(cuEventRecord(fork, a), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamWaitEvent(b, fork, 0), CUDA_SUCCESS);
  ASSERT_EQ(set(data, 1, a), CUDA_SUCCESS);
  ASSERT_EQ(set(data, 2, b), CUDA_SUCCESS);
  ASSERT_EQ(cuEventRecord(join, b), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamWaitEvent(a, join, 0), CUDA_SUCCESS);
  CUgraph graph = nullptr;
  ASSERT_EQ(cuStreamEndCapture(a, &graph), CUDA_SUCCESS);
  CUgraphExec exec = nullptr;
  ASSERT_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphLaunch(exec, a), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(a), CUDA_SUCCESS);
  EXPECT_EQ(values(data, 1)[0], 1) << "the branch that was captured last has run first";
}

TEST_F(LateStreams, WhatKernelsPrintComesWhenTheHostWaits) {
  constexpr const char* kHello = R"(
.version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b32 count) vprintf (.param .b64 format, .param .b64 values)
;
.global .align 1 .b8 text[10] = {104, 101, 108, 108, 111, 32, 37, 117, 10, 0};
.visible .entry hello(.param .u32 traps)
{
  .reg .pred %p<2>;
  .local .align 8 .b8 values[8];
  .reg .b32 %r<3>;
  .reg .b64 %rd<5>;
  mov.u64 %rd1, values;
  cvta.local.u64 %rd2, %rd1;
  mov.u32 %r1, %tid.x;
  st.local.u32 [%rd1], %r1;
  mov.u64 %rd3, text;
  cvta.global.u64 %rd4, %rd3;
  {
  .param .b64 format;
  .param .b64 list;
  .param .b32 count;
  st.param.b64 [format], %rd4;
  st.param.b64 [list], %rd2;
  call.uni (count), vprintf, (format, list);
  ld.param.b32 %r2, [count];
  }
  ld.param.u32 %r1, [traps];
  setp.ne.u32 %p1, %r1, 0;
  @%p1 trap;
  ret;
}
)";
  for (const char* mode : {"eager", "late"}) {
    ASSERT_EQ(tilewrightVgpuSetStreams(mode), 0);
    CUmodule printing = nullptr;
    CUfunction hello = nullptr;
    ASSERT_EQ(cuModuleLoadData(&printing, kHello), CUDA_SUCCESS) << jit::tilewrightVgpuReport();
    ASSERT_EQ(cuModuleGetFunction(&hello, printing, "hello"), CUDA_SUCCESS);
    unsigned traps = 0;
    void* parameters[] = {&traps};
    auto launch = [&] {
      return cuLaunchKernel(hello, 1, 1, 1, 2, 1, 1, 0, a, parameters, nullptr);
    };
    ::testing::internal::CaptureStdout();
    ASSERT_EQ(launch(), CUDA_SUCCESS);
    std::fflush(stdout);
    EXPECT_EQ(::testing::internal::GetCapturedStdout(), "") << mode;
    ::testing::internal::CaptureStdout();
    ASSERT_EQ(cuStreamSynchronize(a), CUDA_SUCCESS);
    EXPECT_EQ(::testing::internal::GetCapturedStdout(), "hello 0\nhello 1\n") << mode;
    ::testing::internal::CaptureStdout();
    traps = 1;
    ASSERT_EQ(launch(), CUDA_SUCCESS);
    EXPECT_NE(cuStreamSynchronize(a), CUDA_SUCCESS);
    EXPECT_EQ(::testing::internal::GetCapturedStdout(), "hello 0\nhello 1\n")
        << mode << ": what was printed before a fault";
    ASSERT_EQ(cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  }
}

/// Which the checks find whatever the order was.
class StreamRaces : public LateStreams, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    ASSERT_EQ(jit::tilewrightVgpuSetChecks("full", 0), CUDA_SUCCESS);
    LateStreams::SetUp();
    ASSERT_EQ(tilewrightVgpuSetStreams(GetParam()), 0);
    data = floats(64);
    out = floats(64);
    ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    reports();
  }
  CUdeviceptr data = 0, out = 0;
};
INSTANTIATE_TEST_SUITE_P(, StreamRaces, ::testing::Values("eager", "late", "late:5"));

TEST_P(StreamRaces, AForgottenWaitIsNamedWithBothSides) {
  ASSERT_EQ(set(data, 1, a), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyDtoDAsync(out, data, 128, b), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(a), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(b), CUDA_SUCCESS);
  const std::string found = reports();
  EXPECT_NE(found.find("\"check\": \"stream-race\""), std::string::npos) << found;
  EXPECT_NE(found.find("kernel set"), std::string::npos) << found;
  EXPECT_NE(found.find("an allocation of 256 bytes"), std::string::npos) << found;
}

TEST_P(StreamRaces, AWriteOfWhatAnotherStreamReadsIsOne) {
  ASSERT_EQ(cuMemcpyDtoDAsync(out, data, 128, a), CUDA_SUCCESS);
  ASSERT_EQ(set(data, 1, b), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_NE(reports().find("stream-race"), std::string::npos);
}

TEST_P(StreamRaces, OrdersOfEveryKindAreOrders) {
  const CUevent done = event();
  ASSERT_EQ(set(data, 1, a), CUDA_SUCCESS);
  ASSERT_EQ(cuEventRecord(done, a), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamWaitEvent(b, done, 0), CUDA_SUCCESS);
  ASSERT_EQ(add_one(data, b), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(b), CUDA_SUCCESS);
  ASSERT_EQ(add_one(data, a), CUDA_SUCCESS) << "the host has waited";
  ASSERT_EQ(cuStreamSynchronize(a), CUDA_SUCCESS);
  ASSERT_EQ(set(data, 2, nullptr), CUDA_SUCCESS);
  CUstream blocking = nullptr;
  ASSERT_EQ(cuStreamCreate(&blocking, CU_STREAM_DEFAULT), CUDA_SUCCESS);
  ASSERT_EQ(add_one(data, blocking), CUDA_SUCCESS);
  ASSERT_EQ(add_one(data, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(values(data, 1)[0], 4);
  EXPECT_EQ(reports(), "[]");
}

TEST_P(StreamRaces, NeighboursAndReadersAreNone) {
  ASSERT_EQ(set(data, 1, a, 31), CUDA_SUCCESS);
  ASSERT_EQ(set(data + 31 * 4, 2, b, 32), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyDtoDAsync(out, data, 64, a), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyDtoDAsync(out + 64, data, 64, b), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(reports(), "[]");
}

}  // namespace
}  // namespace tilewright::vgpu::testing
