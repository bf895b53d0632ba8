// Streams, events, capture and graphs: order, modelled time, and the errors of misuse.
#include <cmath>

#include "tests/virtual_gpu/driver_fixture.h"

namespace tilewright::vgpu::testing {
namespace {

class Streams : public DriverTest {
 protected:
  Streams() : a(get(jit::Stream::create(context))), b(get(jit::Stream::create(context))) {}

  /// Reads through the driver's own copies, so that it is what a stream leaves behind.
  jit::Stream a, b;
};

TEST_F(Streams, WorkOfOneStreamIsInOrder) {
  auto buffer = buffer_of(std::vector<float>(64, 0));
  std::vector<float> before(64), after(64);
  const std::size_t bytes = buffer.size();
  ASSERT_EQ(launch("set", 1, 64, a.handle(), buffer.address(), 1.0f, 64u), CUDA_SUCCESS);
  ASSERT_EQ(api().cuMemcpyDtoHAsync(before.data(), buffer.address(), bytes, a.handle()),
            CUDA_SUCCESS);
  ASSERT_EQ(launch("increment", 1, 64, a.handle(), buffer.address(), 64u), CUDA_SUCCESS);
  ASSERT_EQ(api().cuMemcpyDtoHAsync(after.data(), buffer.address(), bytes, a.handle()),
            CUDA_SUCCESS);
  ASSERT_TRUE(a.synchronize());
  EXPECT_EQ(before, std::vector<float>(64, 1));
  EXPECT_EQ(after, std::vector<float>(64, 2));
}

TEST_F(Streams, EventsOrderStreamsInModelledTime) {
  auto buffer = buffer_of(std::vector<float>(1 << 16, 0));
  auto begin = get(jit::Event::create(context)), ready = get(jit::Event::create(context)),
       done = get(jit::Event::create(context));
  ASSERT_TRUE(begin.record(a));
  ASSERT_EQ(launch("increment", 1024, 64, a.handle(), buffer.address(), 65536u), CUDA_SUCCESS);
  ASSERT_TRUE(ready.record(a));
  ASSERT_EQ(api().cuStreamWaitEvent(b.handle(), ready.handle(), 0), CUDA_SUCCESS);
  ASSERT_EQ(launch("increment", 1024, 64, b.handle(), buffer.address(), 65536u), CUDA_SUCCESS);
  const double second = last_launch().modelled_us;
  ASSERT_TRUE(done.record(b));
  ASSERT_TRUE(done.synchronize());
  EXPECT_NEAR(get(done.elapsed_us(ready)), second, 1e-3);
  EXPECT_NEAR(get(done.elapsed_us(begin)), get(ready.elapsed_us(begin)) + second, 1e-3);
  EXPECT_EQ(values_of(buffer), std::vector<float>(1 << 16, 2));
}

TEST_F(Streams, AWaitAloneMovesAStreamForward) {
  auto buffer = buffer_of(std::vector<float>(64, 0));
  auto early = get(jit::Event::create(context)), late = get(jit::Event::create(context)),
       waited = get(jit::Event::create(context));
  ASSERT_TRUE(early.record(b));
  ASSERT_EQ(launch("set", 1, 64, a.handle(), buffer.address(), 1.0f, 64u), CUDA_SUCCESS);
  ASSERT_TRUE(late.record(a));
  ASSERT_EQ(api().cuStreamWaitEvent(b.handle(), late.handle(), 0), CUDA_SUCCESS);
  ASSERT_TRUE(waited.record(b));
  EXPECT_GT(get(late.elapsed_us(early)), 0);
  EXPECT_EQ(get(waited.elapsed_us(late)), 0);
}

TEST_F(Streams, ElapsedTimeKeepsFractionsOfAMicrosecond) {
  auto buffer = buffer_of(std::vector<float>(64, 0));
  auto begin = get(jit::Event::create(context)), end = get(jit::Event::create(context));
  double expected = 0;
  ASSERT_TRUE(begin.record(a));
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(launch("set", 1, 64, a.handle(), buffer.address(), 1.0f, 64u), CUDA_SUCCESS);
    expected += last_launch().modelled_us;
  }
  ASSERT_TRUE(end.record(a));
  EXPECT_NEAR(get(end.elapsed_us(begin)), expected, 1e-3);
  EXPECT_NE(expected, std::round(expected));
}

TEST_F(Streams, MisusedEventsAreRefused) {
  auto never = get(jit::Event::create(context)), recorded = get(jit::Event::create(context));
  ASSERT_TRUE(recorded.record(a));
  float milliseconds = 0;
  EXPECT_EQ(api().cuEventElapsedTime(&milliseconds, never.handle(), recorded.handle()),
            CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(api().cuEventQuery(never.handle()), CUDA_SUCCESS);
  CUevent untimed = nullptr;
  ASSERT_EQ(api().cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  ASSERT_EQ(api().cuEventRecord(untimed, a.handle()), CUDA_SUCCESS);
  EXPECT_EQ(api().cuEventElapsedTime(&milliseconds, recorded.handle(), untimed),
            CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(api().cuEventDestroy(untimed), CUDA_SUCCESS);
  EXPECT_EQ(api().cuEventDestroy(untimed), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(api().cuStreamQuery(a.handle()), CUDA_SUCCESS);
  EXPECT_EQ(api().cuStreamQuery(reinterpret_cast<CUstream>(&milliseconds)),
            CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(Streams, AReplayDoesWhatTheStreamDoesInLessTime) {
  auto buffer = buffer_of(std::vector<float>(256, 0));
  auto enqueue = [&] {
    EXPECT_EQ(api().cuMemsetD32Async(buffer.address(), 0x40a00000, 256, a.handle()), CUDA_SUCCESS);
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(launch("increment", 4, 64, a.handle(), buffer.address(), 200u), CUDA_SUCCESS);
  };
  auto begin = get(jit::Event::create(context)), end = get(jit::Event::create(context));
  ASSERT_TRUE(begin.record(a));
  enqueue();
  ASSERT_TRUE(end.record(a));
  const double in_stream = get(end.elapsed_us(begin));
  const auto expected = values_of(buffer);
  EXPECT_EQ(expected[0], 8);
  EXPECT_EQ(expected[255], 5);

  ASSERT_TRUE(buffer.fill(0, buffer.size()));
  ASSERT_TRUE(jit::Graph::begin_capture(a));
  enqueue();
  auto graph = get(jit::Graph::end_capture(a));
  EXPECT_EQ(values_of(buffer), std::vector<float>(256, 0)) << "a capture executes nothing";
  for (int replay = 0; replay < 2; ++replay) {
    ASSERT_TRUE(begin.record(a));
    ASSERT_TRUE(graph.launch(a));
    ASSERT_TRUE(end.record(a));
    ASSERT_TRUE(a.synchronize());
    EXPECT_EQ(values_of(buffer), expected);
    EXPECT_LT(get(end.elapsed_us(begin)), in_stream);
  }
}

TEST_F(Streams, ACaptureFollowsAForkAndItsJoin) {
  auto buffer = buffer_of(std::vector<float>(64, 0));
  auto other = buffer_of(std::vector<float>(64, 0));
  auto fork = get(jit::Event::create(context)), join = get(jit::Event::create(context));
  ASSERT_TRUE(jit::Graph::begin_capture(a));
  ASSERT_EQ(launch("set", 1, 64, a.handle(), buffer.address(), 2.0f, 64u), CUDA_SUCCESS);
  ASSERT_TRUE(fork.record(a));
  ASSERT_EQ(api().cuStreamWaitEvent(b.handle(), fork.handle(), 0), CUDA_SUCCESS);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  ASSERT_EQ(api().cuStreamIsCapturing(b.handle(), &status), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  ASSERT_EQ(launch("set", 1, 64, b.handle(), other.address(), 3.0f, 64u), CUDA_SUCCESS);
  ASSERT_TRUE(join.record(b));
  EXPECT_EQ(api().cuEventQuery(join.handle()), CUDA_ERROR_CAPTURED_EVENT);
  ASSERT_EQ(launch("increment", 1, 64, a.handle(), buffer.address(), 64u), CUDA_SUCCESS);
  ASSERT_EQ(api().cuStreamWaitEvent(a.handle(), join.handle(), 0), CUDA_SUCCESS);
  ASSERT_EQ(launch("increment", 1, 64, a.handle(), other.address(), 64u), CUDA_SUCCESS);
  auto graph = get(jit::Graph::end_capture(a));
  ASSERT_TRUE(graph.launch(a));
  EXPECT_EQ(values_of(buffer), std::vector<float>(64, 3));
  EXPECT_EQ(values_of(other), std::vector<float>(64, 4));
  ASSERT_EQ(api().cuStreamIsCapturing(b.handle(), &status), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
}

TEST_F(Streams, CapturesThatCannotBeEndInTheErrorOfHardware) {
  auto buffer = buffer_of(std::vector<float>(64, 0));
  auto event = get(jit::Event::create(context));
  CUgraph graph = nullptr;
  auto begin = [&](CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL) {
    ASSERT_EQ(api().cuStreamBeginCapture(a.handle(), mode), CUDA_SUCCESS);
    ASSERT_EQ(launch("increment", 1, 64, a.handle(), buffer.address(), 64u), CUDA_SUCCESS);
  };
  auto end = [&] { return api().cuStreamEndCapture(a.handle(), &graph); };

  begin();
  EXPECT_EQ(api().cuStreamSynchronize(a.handle()), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(graph, nullptr);

  begin();
  CUdeviceptr address = 0;
  EXPECT_EQ(api().cuMemAlloc(&address, 4), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

  begin(CU_STREAM_CAPTURE_MODE_RELAXED);
  EXPECT_EQ(api().cuMemAlloc(&address, 4), CUDA_SUCCESS) << "relaxed: it may allocate";
  EXPECT_EQ(end(), CUDA_SUCCESS);
  EXPECT_EQ(api().cuGraphDestroy(graph), CUDA_SUCCESS);

  begin();
  ASSERT_TRUE(event.record(a));
  ASSERT_EQ(api().cuStreamWaitEvent(b.handle(), event.handle(), 0), CUDA_SUCCESS);
  ASSERT_EQ(launch("increment", 1, 64, b.handle(), buffer.address(), 64u), CUDA_SUCCESS);
  EXPECT_EQ(api().cuStreamEndCapture(b.handle(), &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);

  ASSERT_TRUE(event.record(b));
  begin();
  EXPECT_EQ(api().cuStreamWaitEvent(a.handle(), event.handle(), 0),
            CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

  CUstream blocking = nullptr;
  ASSERT_EQ(api().cuStreamCreate(&blocking, CU_STREAM_DEFAULT), CUDA_SUCCESS);
  ASSERT_EQ(api().cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  EXPECT_EQ(launch("increment", 1, 64, nullptr, buffer.address(), 64u),
            CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EXPECT_EQ(api().cuStreamEndCapture(blocking, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(api().cuStreamDestroy(blocking), CUDA_SUCCESS);

  EXPECT_EQ(end(), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_EQ(api().cuStreamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL),
            CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(values_of(buffer), std::vector<float>(64, 0));
}

TEST_F(Streams, AGraphOutlivesItsModule) {
  auto buffer = buffer_of(std::vector<float>(64, 0));
  ASSERT_TRUE(jit::Graph::begin_capture(a));
  ASSERT_EQ(launch("increment", 1, 64, a.handle(), buffer.address(), 64u), CUDA_SUCCESS);
  auto graph = get(jit::Graph::end_capture(a));
  module.reset();
  ASSERT_TRUE(graph.launch(a));
  EXPECT_EQ(values_of(buffer), std::vector<float>(64, 1));
}

TEST_F(Streams, AFaultInAReplaySticks) {
  auto buffer = buffer_of({0});
  ASSERT_TRUE(jit::Graph::begin_capture(a));
  ASSERT_EQ(launch("poke", 2, 32, a.handle(), buffer.address() + 4096), CUDA_SUCCESS);
  auto graph = get(jit::Graph::end_capture(a));
  EXPECT_TRUE(graph.launch(a));
  auto failed = a.synchronize();
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kFault);
}

}  // namespace
}  // namespace tilewright::vgpu::testing
