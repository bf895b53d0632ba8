// What frameworks do with graphs while they capture: memory, events, other graphs, dependencies.
#include <cuda.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/virtual_gpu/driver_calls.h"

namespace tilewright::vgpu::testing {
namespace {

class Graphs : public DriverCalls {
 protected:
  void SetUp() override {
    DriverCalls::SetUp();
    ASSERT_EQ(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  }
  void begin() {
    ASSERT_EQ(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
  }
  CUgraphExec end(unsigned long long flags = 0) {
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphInstantiate(&exec, graph, flags), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
    return exec;
  }
  void add_one(CUdeviceptr data, CUstream where) {
    unsigned n = 32;
    void* parameters[] = {&data, &n};
    EXPECT_EQ(
        cuLaunchKernel(function("increment"), 1, 1, 1, 32, 1, 1, 0, where, parameters, nullptr),
        CUDA_SUCCESS);
  }
  void launch(CUgraphExec exec) {
    EXPECT_EQ(cuStreamSynchronize(nullptr), CUDA_SUCCESS);  // which filled what it works on
    EXPECT_EQ(cuGraphLaunch(exec, stream), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  }
  CUstream stream = nullptr;
};

TEST_F(Graphs, MemoryOfACaptureIsAllocatedByEachLaunch) {
  const CUdeviceptr result = floats(32);
  CUdeviceptr data = 0;
  begin();
  ASSERT_EQ(cuMemAllocAsync(&data, 128, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuMemsetD32Async(data, 0x40000000, 32, stream), CUDA_SUCCESS);  // 2.0f
  add_one(data, stream);
  ASSERT_EQ(cuMemcpyDtoDAsync(result, data, 128, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuMemFreeAsync(data, stream), CUDA_SUCCESS);
  const CUgraphExec exec = end();
  for (int i = 0; i < 3; ++i) launch(exec);
  EXPECT_EQ(values(result, 32), std::vector<float>(32, 3));
  EXPECT_EQ(cuMemFreeAsync(data, stream), CUDA_ERROR_INVALID_VALUE) << "the graph freed it";
  EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
}

TEST_F(Graphs, MemoryThatAGraphLeavesIsFreedBeforeItsNextLaunch) {
  CUdeviceptr data = 0;
  for (const bool itself : {false, true}) {
    begin();
    ASSERT_EQ(cuMemAllocAsync(&data, 128, stream), CUDA_SUCCESS);
    ASSERT_EQ(cuMemsetD32Async(data, 0x40000000, 32, stream), CUDA_SUCCESS);
    const CUgraphExec exec = end(itself ? CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH : 0);
    launch(exec);
    EXPECT_EQ(values(data, 32), std::vector<float>(32, 2));
    EXPECT_EQ(cuGraphLaunch(exec, stream), itself ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemFreeAsync(data, stream), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphLaunch(exec, stream), CUDA_SUCCESS);
    EXPECT_EQ(cuMemFree(data), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
  }
}

TEST_F(Graphs, NodesAllocateAndFree) {
  CUgraph graph = nullptr, clone = nullptr;
  ASSERT_EQ(cuGraphCreate(&graph, 0), CUDA_SUCCESS);
  CUDA_MEM_ALLOC_NODE_PARAMS given{};
  given.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  given.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  given.bytesize = 128;
  CUgraphNode made = nullptr, freed = nullptr;
  ASSERT_EQ(cuGraphAddMemAllocNode(&made, graph, nullptr, 0, &given), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphAddMemFreeNode(&freed, graph, &made, 1, given.dptr), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphAddMemFreeNode(&freed, graph, &made, 1, given.dptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGraphAddMemFreeNode(&freed, graph, &made, 1, floats(1)), CUDA_ERROR_INVALID_VALUE);
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  EXPECT_EQ(cuGraphNodeGetType(made, &type), CUDA_SUCCESS);
  EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_MEM_ALLOC);
  EXPECT_EQ(cuGraphClone(&clone, graph), CUDA_ERROR_NOT_SUPPORTED);
  CUgraphNode next[2] = {};
  std::size_t count = 2;
  EXPECT_EQ(cuGraphNodeGetDependentNodes(made, next, nullptr, &count), CUDA_SUCCESS);
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
}

TEST_F(Graphs, ALaunchWhileCapturingIsAChildGraph) {
  const CUdeviceptr data = floats(32);
  begin();
  add_one(data, stream);
  const CUgraphExec inner = end();
  begin();
  ASSERT_EQ(cuGraphLaunch(inner, stream), CUDA_SUCCESS);
  add_one(data, stream);
  ASSERT_EQ(cuGraphLaunch(inner, stream), CUDA_SUCCESS);
  const CUgraphExec outer = end();
  EXPECT_EQ(cuGraphExecDestroy(inner), CUDA_SUCCESS);
  launch(outer);
  EXPECT_EQ(values(data, 32), std::vector<float>(32, 3));
}

TEST_F(Graphs, ACaptureTellsItsGraphAndTakesNodesIntoItsDependencies) {
  const CUdeviceptr data = floats(32);
  begin();
  add_one(data, stream);
  CUstreamCaptureStatus status;
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* after = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  std::size_t count = 0;
  ASSERT_EQ(cuStreamGetCaptureInfo(stream, &status, &id, &graph, &after, &edges, &count),
            CUDA_SUCCESS);
  ASSERT_EQ(count, 1u);
  EXPECT_NE(id, 0u);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE) << "it is being captured";
  // A node by hand, that the next one of the stream comes after.
  const CUDA_MEMSET_NODE_PARAMS zero{data, 0, 0x40a00000, 4, 32, 1};  // 5.0f
  CUgraphNode node = nullptr;
  ASSERT_EQ(cuGraphAddMemsetNode(&node, graph, after, count, &zero, context), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamUpdateCaptureDependencies(stream, &node, nullptr, 1,
                                              CU_STREAM_SET_CAPTURE_DEPENDENCIES),
            CUDA_SUCCESS);
  add_one(data, stream);
  launch(end());
  EXPECT_EQ(values(data, 32), std::vector<float>(32, 6));
}

TEST_F(Graphs, ACaptureGoesIntoAGraphThatIsThere) {
  const CUdeviceptr data = floats(32);
  CUgraph graph = nullptr, ended = nullptr;
  CUgraphNode first = nullptr;
  ASSERT_EQ(cuGraphCreate(&graph, 0), CUDA_SUCCESS);
  const CUDA_MEMSET_NODE_PARAMS five{data, 0, 0x40a00000, 4, 32, 1};
  ASSERT_EQ(cuGraphAddMemsetNode(&first, graph, nullptr, 0, &five, context), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamBeginCaptureToGraph(stream, graph, &first, nullptr, 1,
                                        CU_STREAM_CAPTURE_MODE_RELAXED),
            CUDA_SUCCESS);
  add_one(data, stream);
  ASSERT_EQ(cuStreamEndCapture(stream, &ended), CUDA_SUCCESS);
  EXPECT_EQ(ended, graph);
  CUgraphExec exec = nullptr;
  ASSERT_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
  launch(exec);
  EXPECT_EQ(values(data, 32), std::vector<float>(32, 6));
}

TEST_F(Graphs, EventsAreRecordedAndWaitedForByNodes) {
  const CUdeviceptr data = floats(32);
  CUevent begun = nullptr, ended = nullptr;
  ASSERT_EQ(cuEventCreate(&begun, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuEventCreate(&ended, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuEventRecordWithFlags(begun, stream, CU_EVENT_RECORD_EXTERNAL),
            CUDA_ERROR_ILLEGAL_STATE);
  begin();
  ASSERT_EQ(cuEventRecordWithFlags(begun, stream, CU_EVENT_RECORD_EXTERNAL), CUDA_SUCCESS);
  add_one(data, stream);
  ASSERT_EQ(cuEventRecordWithFlags(ended, stream, CU_EVENT_RECORD_EXTERNAL), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamWaitEvent(stream, begun, CU_EVENT_WAIT_EXTERNAL), CUDA_SUCCESS);
  const CUgraphExec exec = end();
  float milliseconds = -1;
  EXPECT_EQ(cuEventElapsedTime(&milliseconds, begun, ended), CUDA_ERROR_INVALID_HANDLE);
  launch(exec);
  EXPECT_EQ(cuEventQuery(ended), CUDA_SUCCESS);
  ASSERT_EQ(cuEventElapsedTime(&milliseconds, begun, ended), CUDA_SUCCESS);
  EXPECT_GT(milliseconds, 0);
}

TEST_F(Graphs, AnObjectLivesAsLongAsWhatRefersToIt) {
  int destroyed = 0;
  CUuserObject object = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  ASSERT_EQ(cuUserObjectCreate(
                &object, &destroyed, [](void* at) { ++*static_cast<int*>(at); }, 1,
                CU_USER_OBJECT_NO_DESTRUCTOR_SYNC),
            CUDA_SUCCESS);
  ASSERT_EQ(cuGraphCreate(&graph, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphReleaseUserObject(graph, object, 2), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(destroyed, 0);
  ASSERT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(destroyed, 1);
  EXPECT_EQ(cuUserObjectRelease(object, 1), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace tilewright::vgpu::testing
