// What programs that know cuda.h only call beside launches: contexts, libraries, memory of every kind,
// graphs built by hand, clusters, occupancy; and NVML.
#include <cuda.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "jit/virtual_gpu/driver/telemetry.h"
#include "tests/virtual_gpu/driver_calls.h"

namespace tilewright::vgpu::testing {
namespace {

TEST_F(DriverCalls, AContextOwnsWhatIsMadeInIt) {
  const CUdeviceptr kept = floats(8, 3);
  std::size_t free_before = 0, free_after = 0, total = 0;
  ASSERT_EQ(cuMemGetInfo(&free_before, &total), CUDA_SUCCESS);
  CUcontext other = nullptr, current = nullptr;
  ASSERT_EQ(cuCtxCreate(&other, nullptr, CU_CTX_SCHED_SPIN, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxGetCurrent(&current), CUDA_SUCCESS);
  EXPECT_EQ(current, other);
  unsigned flags = 0;
  EXPECT_EQ(cuCtxGetFlags(&flags), CUDA_SUCCESS);
  EXPECT_EQ(flags, unsigned(CU_CTX_SCHED_SPIN));
  floats(1 << 16);
  CUstream stream = nullptr;
  ASSERT_EQ(cuStreamCreate(&stream, 0), CUDA_SUCCESS);
  CUfunction found = nullptr;
  EXPECT_EQ(cuModuleGetFunction(&found, module, "set"), CUDA_ERROR_INVALID_HANDLE);
  ASSERT_EQ(cuCtxDestroy(other), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxGetDevice(nullptr), CUDA_ERROR_INVALID_VALUE) << "the one below is current again";
  EXPECT_EQ(cuStreamSynchronize(stream), CUDA_ERROR_INVALID_HANDLE);
  ASSERT_EQ(cuMemGetInfo(&free_after, &total), CUDA_SUCCESS);
  EXPECT_EQ(free_after, free_before);
  EXPECT_EQ(values(kept, 8), std::vector<float>(8, 3));
  EXPECT_EQ(cuCtxSetCurrent(other), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(DriverCalls, AFaultIsTheFaultOfItsContext) {
  CUcontext other = nullptr;
  ASSERT_EQ(cuCtxCreate(&other, nullptr, 0, 0), CUDA_SUCCESS);
  CUmodule mine = nullptr;
  CUfunction stop = nullptr;
  ASSERT_EQ(cuModuleLoadData(&mine, kKernels.c_str()), CUDA_SUCCESS);
  ASSERT_EQ(cuModuleGetFunction(&stop, mine, "stop"), CUDA_SUCCESS);
  ASSERT_EQ(cuLaunchKernel(stop, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
  ASSERT_EQ(cuCtxDestroy(other), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
}

TEST_F(DriverCalls, CopiesAndFillsOfRowsStayWithinTheAllocation) {
  const CUdeviceptr data = floats(64, 1);
  EXPECT_EQ(cuMemsetD2D32(data, 64, 0, 8, 4), CUDA_SUCCESS);
  std::vector<float> expected(64, 1);
  for (int row = 0; row < 4; ++row)
    for (int column = 0; column < 8; ++column) expected[std::size_t(row * 16 + column)] = 0;
  EXPECT_EQ(values(data, 64), expected);
  EXPECT_EQ(cuMemsetD2D32(data, 64, 0, 17, 4), CUDA_ERROR_INVALID_VALUE) << "wider than the pitch";
  EXPECT_EQ(cuMemsetD2D32(data, 64, 0, 8, 5), CUDA_ERROR_INVALID_VALUE) << "one row too many";
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = copy.dstDevice = data;
  copy.srcPitch = copy.dstPitch = 64;
  copy.dstXInBytes = 32;
  copy.WidthInBytes = 32;
  copy.Height = 4;
  EXPECT_EQ(cuMemcpy2D(&copy), CUDA_SUCCESS);
  EXPECT_EQ(values(data, 64), std::vector<float>(64, 0));
  copy.Height = 5;
  EXPECT_EQ(cuMemcpy2D(&copy), CUDA_ERROR_INVALID_VALUE);
  copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  EXPECT_EQ(cuMemcpy2D(&copy), CUDA_ERROR_NOT_SUPPORTED);
}

TEST_F(DriverCalls, APoolGoesAndItsMemoryStays) {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemoryPool pool = nullptr;
  ASSERT_EQ(cuMemPoolCreate(&pool, &properties), CUDA_SUCCESS);
  CUdeviceptr data = 0;
  ASSERT_EQ(cuMemAllocFromPoolAsync(&data, 4096, pool, nullptr), CUDA_SUCCESS);
  cuuint64_t used = 0;
  ASSERT_EQ(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &used), CUDA_SUCCESS);
  EXPECT_EQ(used, 4096u);
  ASSERT_EQ(cuMemPoolDestroy(pool), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAllocFromPoolAsync(&data, 1, pool, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemsetD8(data, 1, 4096), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFreeAsync(data, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFreeAsync(data, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DriverCalls, AHostFunctionMustNotCallTheDriver) {
  CUresult seen = CUDA_SUCCESS;
  auto call = [](void* out) { *static_cast<CUresult*>(out) = cuCtxSynchronize(); };
  ASSERT_EQ(cuLaunchHostFunc(nullptr, call, &seen), CUDA_SUCCESS);
  EXPECT_EQ(seen, CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
}

TEST_F(DriverCalls, AGraphRunsItsNodesInTheOrderOfTheirEdges) {
  const CUdeviceptr data = floats(32, 7);
  unsigned n = 32;
  void* parameters[] = {const_cast<CUdeviceptr*>(&data), &n};
  CUgraph graph = nullptr;
  ASSERT_EQ(cuGraphCreate(&graph, 0), CUDA_SUCCESS);
  const auto kernel = increment(parameters);
  CUgraphNode add = nullptr, clear = nullptr, host = nullptr;
  ASSERT_EQ(cuGraphAddKernelNode(&add, graph, nullptr, 0, &kernel), CUDA_SUCCESS);
  CUDA_MEMSET_NODE_PARAMS zero{data, 0, 0, 4, 32, 1};
  ASSERT_EQ(cuGraphAddMemsetNode(&clear, graph, nullptr, 0, &zero, context), CUDA_SUCCESS);
  int calls = 0;
  CUDA_HOST_NODE_PARAMS count{[](void* out) { ++*static_cast<int*>(out); }, &calls};
  ASSERT_EQ(cuGraphAddHostNode(&host, graph, &add, 1, &count), CUDA_SUCCESS);
  // The fill was added after the kernel, and comes before it.
  ASSERT_EQ(cuGraphAddDependencies(graph, &clear, &add, nullptr, 1), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphAddDependencies(graph, &clear, &add, nullptr, 1), CUDA_ERROR_INVALID_VALUE);
  std::size_t edges = 0;
  ASSERT_EQ(cuGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges), CUDA_SUCCESS);
  EXPECT_EQ(edges, 2u);
  CUgraphExec exec = nullptr;
  ASSERT_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(cuGraphLaunch(exec, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(values(data, 32), std::vector<float>(32, 1));
  EXPECT_EQ(calls, 2);

  // A graph of the same shape takes its place; one of another shape does not.
  CUgraph clone = nullptr;
  CUgraphNode cleared = nullptr;
  ASSERT_EQ(cuGraphClone(&clone, graph), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphNodeFindInClone(&cleared, clear, clone), CUDA_SUCCESS);
  zero.value = 0x40000000;  // 2.0f
  ASSERT_EQ(cuGraphMemsetNodeSetParams(cleared, &zero), CUDA_SUCCESS);
  CUgraphExecUpdateResultInfo info{};
  ASSERT_EQ(cuGraphExecUpdate(exec, clone, &info), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphLaunch(exec, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(values(data, 32), std::vector<float>(32, 3));
  ASSERT_EQ(cuGraphDestroyNode(cleared), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphExecUpdate(exec, clone, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);

  ASSERT_EQ(cuGraphAddDependencies(graph, &host, &clear, nullptr, 1), CUDA_SUCCESS);
  CUgraphExec cyclic = nullptr;
  EXPECT_EQ(cuGraphInstantiate(&cyclic, graph, 0), CUDA_ERROR_INVALID_VALUE) << "a cycle";
  EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphDestroy(clone), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DriverCalls, AChildGraphIsWhatItWasWhenItWasAdded) {
  const CUdeviceptr data = floats(32);
  unsigned n = 32;
  void* parameters[] = {const_cast<CUdeviceptr*>(&data), &n};
  CUgraph outer = nullptr, inner = nullptr;
  ASSERT_EQ(cuGraphCreate(&outer, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphCreate(&inner, 0), CUDA_SUCCESS);
  const auto kernel = increment(parameters);
  CUgraphNode node = nullptr;
  ASSERT_EQ(cuGraphAddKernelNode(&node, inner, nullptr, 0, &kernel), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphAddChildGraphNode(&node, outer, nullptr, 0, inner), CUDA_SUCCESS);
  CUgraphNode further = nullptr;
  ASSERT_EQ(cuGraphAddKernelNode(&further, inner, nullptr, 0, &kernel), CUDA_SUCCESS);
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  ASSERT_EQ(cuGraphNodeGetType(node, &type), CUDA_SUCCESS);
  EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_GRAPH);
  CUgraph child = nullptr;
  ASSERT_EQ(cuGraphChildGraphNodeGetGraph(node, &child), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphDestroy(child), CUDA_ERROR_INVALID_VALUE) << "its node owns it";
  CUgraphExec exec = nullptr;
  ASSERT_EQ(cuGraphInstantiate(&exec, outer, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphDestroy(inner), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphDestroy(outer), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphLaunch(exec, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(values(data, 32), std::vector<float>(32, 1));
}

TEST_F(DriverCalls, CopiesOfPlanesKeepWhatLiesBetween) {
  // 2 planes of 3 rows of 4 floats, out of 3 x 5 x 8 and into 2 x 4 x 6.
  std::vector<float> source(3 * 5 * 8), expected(2 * 4 * 6, -1);
  for (std::size_t i = 0; i < source.size(); ++i) source[i] = float(i);
  const CUdeviceptr target = floats(expected.size(), -1);
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = source.data();
  copy.srcPitch = 8 * 4;
  copy.srcHeight = 5;
  copy.srcXInBytes = 2 * 4;
  copy.srcY = copy.srcZ = 1;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = target;
  copy.dstPitch = 6 * 4;
  copy.dstHeight = 4;
  copy.dstXInBytes = 4;
  copy.WidthInBytes = 4 * 4;
  copy.Height = 3;
  copy.Depth = 2;
  for (int z = 0; z < 2; ++z)
    for (int y = 0; y < 3; ++y)
      for (int x = 0; x < 4; ++x)
        expected[std::size_t((z * 4 + y) * 6 + x + 1)] =
            source[std::size_t(((z + 1) * 5 + y + 1) * 8 + x + 2)];
  ASSERT_EQ(cuMemcpy3D(&copy), CUDA_SUCCESS);
  EXPECT_EQ(values(target, expected.size()), expected);
  const CUdeviceptr other = floats(expected.size());
  ASSERT_EQ(cuMemcpyPeer(other, context, target, context, expected.size() * 4), CUDA_SUCCESS);
  EXPECT_EQ(values(other, expected.size()), expected);
  copy.srcHeight = 2;
  EXPECT_EQ(cuMemcpy3D(&copy), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DriverCalls, TextsAreLinkedToOne) {
  const std::string header = ".version 8.0\n.target sm_80\n.address_size 64\n";
  std::string user = header + R"(
.extern .func (.param .b32 out) twice (.param .b32 in)
;
.visible .entry fill(.param .u64 data)
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [data];
  mov.u32 %r1, %tid.x;
  {
  .param .b32 in;
  .param .b32 out;
  st.param.b32 [in], %r1;
  call.uni (out), twice, (in);
  ld.param.b32 %r2, [out];
  }
  mul.wide.u32 %rd2, %r1, 4;
  add.s64 %rd2, %rd1, %rd2;
  st.global.u32 [%rd2], %r2;
  ret;
}
)";
  std::string provider = header + R"(
.visible .func (.param .b32 out) twice(.param .b32 in)
{
  .reg .b32 %r<3>;
  ld.param.b32 %r1, [in];
  add.s32 %r2, %r1, %r1;
  st.param.b32 [out], %r2;
  ret;
}
)";
  CUlinkState state = nullptr;
  ASSERT_EQ(cuLinkCreate(0, nullptr, nullptr, &state), CUDA_SUCCESS);
  for (std::string* text : {&user, &provider})
    ASSERT_EQ(cuLinkAddData(state, CU_JIT_INPUT_PTX, text->data(), text->size() + 1, "text", 0,
                            nullptr, nullptr),
              CUDA_SUCCESS);
  EXPECT_EQ(cuLinkAddData(state, CU_JIT_INPUT_CUBIN, user.data(), user.size(), "code", 0, nullptr,
                          nullptr),
            CUDA_ERROR_NO_BINARY_FOR_GPU);
  void* image = nullptr;
  std::size_t bytes = 0;
  ASSERT_EQ(cuLinkComplete(state, &image, &bytes), CUDA_SUCCESS);
  EXPECT_EQ(std::strlen(static_cast<char*>(image)) + 1, bytes);
  CUmodule linked = nullptr;
  CUfunction fill = nullptr;
  ASSERT_EQ(cuModuleLoadData(&linked, image), CUDA_SUCCESS);
  ASSERT_EQ(cuLinkDestroy(state), CUDA_SUCCESS);
  ASSERT_EQ(cuModuleGetFunction(&fill, linked, "fill"), CUDA_SUCCESS);
  CUdeviceptr data = floats(32);
  void* parameters[] = {&data};
  ASSERT_EQ(cuLaunchKernel(fill, 1, 1, 1, 32, 1, 1, 0, nullptr, parameters, nullptr), CUDA_SUCCESS);
  std::vector<int> out(32);
  ASSERT_EQ(cuMemcpyDtoH(out.data(), data, 128), CUDA_SUCCESS);
  EXPECT_EQ(out[31], 62);

  ASSERT_EQ(cuLinkCreate(0, nullptr, nullptr, &state), CUDA_SUCCESS);
  for (int i = 0; i < 2; ++i)
    ASSERT_EQ(cuLinkAddData(state, CU_JIT_INPUT_PTX, provider.data(), provider.size() + 1, "text",
                            0, nullptr, nullptr),
              CUDA_SUCCESS);
  EXPECT_EQ(cuLinkComplete(state, &image, &bytes), CUDA_ERROR_INVALID_PTX) << "defined twice";
  ASSERT_EQ(cuLinkDestroy(state), CUDA_SUCCESS);
}

TEST_F(DriverCalls, ClustersHaveTheLimitsOfTheDevice) {
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  CUlaunchConfig config{};
  config.gridDimX = 48;
  config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.blockDimX = 32;
  config.attrs = &attribute;
  config.numAttrs = 1;
  const CUfunction bounded = function("bounded");
  auto launch = [&](unsigned x) {
    attribute.value.clusterDim = {x, 1, 1};
    return cuLaunchKernelEx(&config, bounded, nullptr, nullptr);
  };
  EXPECT_EQ(launch(8), CUDA_SUCCESS);
  EXPECT_EQ(launch(5), CUDA_ERROR_INVALID_VALUE) << "48 is no multiple";
  EXPECT_EQ(launch(16), CUDA_ERROR_INVALID_CLUSTER_SIZE) << "not portable";
  ASSERT_EQ(cuFuncSetAttribute(bounded, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1),
            CUDA_SUCCESS);
  EXPECT_EQ(launch(16), CUDA_SUCCESS);
  EXPECT_EQ(launch(48), CUDA_ERROR_INVALID_CLUSTER_SIZE);
  int clusters = 0, blocks = 0;
  attribute.value.clusterDim = {16, 1, 1};
  ASSERT_EQ(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, bounded, 32, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuOccupancyMaxActiveClusters(&clusters, bounded, &config), CUDA_SUCCESS);
  EXPECT_EQ(clusters, blocks * 132 / 16);
  attribute.id = static_cast<CUlaunchAttributeID>(99);
  EXPECT_EQ(cuLaunchKernelEx(&config, bounded, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DriverCalls, TheBlockThatIsProposedFillsAnSm) {
  int blocks = 0, threads = 0, resident = 0;
  ASSERT_EQ(cuOccupancyMaxPotentialBlockSize(&blocks, &threads, function("set"), nullptr, 0, 0),
            CUDA_SUCCESS);
  ASSERT_EQ(cuOccupancyMaxActiveBlocksPerMultiprocessor(&resident, function("set"), threads, 0),
            CUDA_SUCCESS);
  EXPECT_EQ(resident * threads, 2048);
  EXPECT_EQ(blocks, resident * 132);
  std::size_t shared = 0;
  ASSERT_EQ(cuOccupancyAvailableDynamicSMemPerBlock(&shared, function("set"), 8, 128),
            CUDA_SUCCESS);
  ASSERT_EQ(cuOccupancyMaxActiveBlocksPerMultiprocessor(&resident, function("set"), 128, shared),
            CUDA_SUCCESS);
  EXPECT_GE(resident, 8);
  ASSERT_EQ(
      cuOccupancyMaxActiveBlocksPerMultiprocessor(&resident, function("set"), 128, shared + 1),
      CUDA_SUCCESS);
  EXPECT_LT(resident, 8) << shared;
}

/// NVML has no header here: its functions are found by name, as its users' loaders do.
template <typename... Parameters>
int nvml(const char* name, Parameters... parameters) {
  auto* call = reinterpret_cast<int (*)(Parameters...)>(dlsym(RTLD_DEFAULT, name));
  EXPECT_TRUE(call) << name;
  return call ? call(parameters...) : -1;
}

TEST_F(DriverCalls, TheManagementLibraryTellsWhatWasSet) {
  constexpr int kUninitialised = 1, kLost = 15, kTooShort = 7;
  unsigned count = 0;
  EXPECT_EQ(nvml("nvmlDeviceGetCount_v2", &count), kUninitialised);
  ASSERT_EQ(nvml("nvmlInit_v2"), 0);
  ASSERT_EQ(nvml("nvmlDeviceGetCount_v2", &count), 0);
  EXPECT_EQ(count, 1u);
  void* device = nullptr;
  ASSERT_EQ(nvml("nvmlDeviceGetHandleByIndex_v2", 0u, &device), 0);
  char text[96] = {};
  EXPECT_EQ(nvml("nvmlDeviceGetName", device, text, 4u), kTooShort);
  ASSERT_EQ(nvml("nvmlDeviceGetName", device, text, 96u), 0);
  EXPECT_STREQ(text, "NVIDIA H200 (virtual)");
  unsigned clock = 0, highest = 0, celsius = 0;
  ASSERT_EQ(nvml("nvmlDeviceGetMaxClockInfo", device, 1u, &highest), 0);
  Telemetry hot;
  hot.sm_clock_mhz = 1200;
  hot.temperature_c = 92;
  hot.throttle_reasons = 0x20;  // SW thermal slowdown
  ASSERT_EQ(tilewrightVgpuSetTelemetry(&hot), 0);
  ASSERT_EQ(nvml("nvmlDeviceGetClockInfo", device, 1u, &clock), 0);
  ASSERT_EQ(nvml("nvmlDeviceGetTemperature", device, 0u, &celsius), 0);
  unsigned long long reasons = 0, energy = 0, later = 0;
  ASSERT_EQ(nvml("nvmlDeviceGetCurrentClocksThrottleReasons", device, &reasons), 0);
  EXPECT_EQ(clock, 1200u);
  EXPECT_LT(clock, highest);
  EXPECT_EQ(celsius, 92u);
  EXPECT_EQ(reasons, 0x20u);

  struct {
    unsigned long long total, free, used;
  } before{}, after{};
  ASSERT_EQ(nvml("nvmlDeviceGetMemoryInfo", device, static_cast<void*>(&before)), 0);
  ASSERT_EQ(nvml("nvmlDeviceGetTotalEnergyConsumption", device, &energy), 0);
  const CUdeviceptr data = floats(1 << 20);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(cuMemsetD32(data, 0, 1 << 20), CUDA_SUCCESS);
  std::vector<float> host(1 << 20);
  for (int i = 0; i < 20; ++i)
    ASSERT_EQ(cuMemcpyDtoH(host.data(), data, host.size() * 4), CUDA_SUCCESS);
  ASSERT_EQ(nvml("nvmlDeviceGetMemoryInfo", device, static_cast<void*>(&after)), 0);
  ASSERT_EQ(nvml("nvmlDeviceGetTotalEnergyConsumption", device, &later), 0);
  EXPECT_EQ(after.used - before.used, 4u << 20);
  EXPECT_GT(later, energy);

  hot.lost = true;
  ASSERT_EQ(tilewrightVgpuSetTelemetry(&hot), 0);
  EXPECT_EQ(nvml("nvmlDeviceGetTemperature", device, 0u, &celsius), kLost);
  ASSERT_EQ(tilewrightVgpuSetTelemetry(nullptr), 0);
  ASSERT_EQ(nvml("nvmlDeviceGetClockInfo", device, 1u, &clock), 0);
  EXPECT_EQ(clock, highest);
  EXPECT_EQ(nvml("nvmlShutdown"), 0);
  EXPECT_EQ(nvml("nvmlDeviceGetCount_v2", &count), kUninitialised);
}

}  // namespace
}  // namespace tilewright::vgpu::testing
