// Launching: results, limits, parameters in both forms, sampling, functions' attributes.
#include "tests/virtual_gpu/driver_fixture.h"

namespace tilewright::vgpu::testing {
namespace {

class Launching : public DriverTest {};

TEST_F(Launching, AKernelWritesWhatItSays) {
  auto buffer = buffer_of(std::vector<float>(100, 1));
  ASSERT_EQ(launch("set", 2, 64, nullptr, buffer.address(), 5.0f, 99u), CUDA_SUCCESS);
  std::vector<float> expected(100, 5);
  expected[99] = 1;
  EXPECT_EQ(values_of(buffer), expected);
}

TEST_F(Launching, ParametersInOneBufferAreThoseByPointer) {
  auto buffer = buffer_of(std::vector<float>(4, 0));
  struct {
    CUdeviceptr out;
    float value;
    unsigned n;
  } packed{buffer.address(), 3.0f, 4};
  std::size_t bytes = sizeof packed;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                   CU_LAUNCH_PARAM_END};
  auto launch_with = [&](void** extra) {
    return api().cuLaunchKernel(function("set"), 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, extra);
  };
  ASSERT_EQ(launch_with(extra), CUDA_SUCCESS);
  EXPECT_EQ(values_of(buffer), std::vector<float>(4, 3));
  bytes = 12;
  EXPECT_EQ(launch_with(extra), CUDA_ERROR_INVALID_VALUE) << "a buffer that is too short";
  EXPECT_EQ(launch_with(nullptr), CUDA_ERROR_INVALID_VALUE) << "no parameters at all";
}

TEST_F(Launching, LimitsAreThoseOfHardware) {
  struct {
    const char* why;
    const char* kernel;
    std::array<unsigned, 3> grid, block;
    unsigned shared;
    CUresult expected;
  } cases[] = {
      {"zero grid", "bounded", {0, 1, 1}, {32, 1, 1}, 0, CUDA_ERROR_INVALID_VALUE},
      {"zero block", "bounded", {1, 1, 1}, {32, 0, 1}, 0, CUDA_ERROR_INVALID_VALUE},
      {"grid x", "bounded", {0x80000000u, 1, 1}, {1, 1, 1}, 0, CUDA_ERROR_INVALID_VALUE},
      {"grid y", "bounded", {1, 65536, 1}, {1, 1, 1}, 0, CUDA_ERROR_INVALID_VALUE},
      {"grid z", "bounded", {1, 1, 65536}, {1, 1, 1}, 0, CUDA_ERROR_INVALID_VALUE},
      {"most of grid y", "bounded", {1, 65535, 1}, {1, 1, 1}, 0, CUDA_SUCCESS},
      {"block z", "spin", {1, 1, 1}, {1, 1, 65}, 0, CUDA_ERROR_INVALID_VALUE},
      {"threads", "spin", {1, 1, 1}, {1024, 2, 1}, 0, CUDA_ERROR_INVALID_VALUE},
      {"launch bound", "bounded", {1, 1, 1}, {65, 1, 1}, 0, CUDA_ERROR_INVALID_VALUE},
      {"at the launch bound", "bounded", {1, 1, 1}, {64, 1, 1}, 0, CUDA_SUCCESS},
      {"shared", "bounded", {1, 1, 1}, {32, 1, 1}, 49153, CUDA_ERROR_INVALID_VALUE},
      {"most of shared", "bounded", {1, 1, 1}, {32, 1, 1}, 49152, CUDA_SUCCESS},
      {"static and dynamic", "banks", {1, 1, 1}, {32, 1, 1}, 45057, CUDA_ERROR_INVALID_VALUE},
      {"registers", "hungry", {1, 1, 1}, {512, 1, 1}, 0, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES},
      {"most of registers", "hungry", {1, 1, 1}, {256, 1, 1}, 0, CUDA_SUCCESS},
  };
  driver->virtual_api()->tilewrightVgpuSampleBlocks(4, 1);
  for (const auto& c : cases) {
    auto result =
        api().cuLaunchKernel(function(c.kernel), c.grid[0], c.grid[1], c.grid[2], c.block[0],
                             c.block[1], c.block[2], c.shared, nullptr, nullptr, nullptr);
    EXPECT_EQ(result, c.expected) << c.why;
  }
  driver->virtual_api()->tilewrightVgpuSampleBlocks(0, 1);
  EXPECT_TRUE(context.synchronize()) << "a refused launch leaves the context healthy";
}

TEST_F(Launching, MoreSharedMemoryMustBeOptedInTo) {
  const int limit = int(context.device().shared_per_block_optin);
  CUfunction bounded = get(module->function("bounded", limit));
  auto with = [&](unsigned bytes) {
    return api().cuLaunchKernel(bounded, 1, 1, 1, 32, 1, 1, bytes, nullptr, nullptr, nullptr);
  };
  EXPECT_EQ(with(unsigned(limit)), CUDA_SUCCESS);
  EXPECT_EQ(with(unsigned(limit) + 1), CUDA_ERROR_INVALID_VALUE);
  auto refused = module->function("bounded", limit + 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "cuFuncSetAttribute(bounded, dynamic shared 232449): CUDA_ERROR_INVALID_VALUE (1): "
            "invalid argument");
}

TEST_F(Launching, AttributesTellWhatTheCompilerSaid) {
  auto attribute = [&](const char* kernel, CUfunction_attribute which) {
    int value = -1;
    EXPECT_EQ(api().cuFuncGetAttribute(&value, which, function(kernel)), CUDA_SUCCESS);
    return value;
  };
  EXPECT_EQ(attribute("hungry", CU_FUNC_ATTRIBUTE_NUM_REGS), 255);
  EXPECT_EQ(attribute("hungry", CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK), 256);
  EXPECT_EQ(attribute("bounded", CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK), 64);
  EXPECT_EQ(attribute("banks", CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES), 4096);
  EXPECT_EQ(attribute("banks", CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES), 45056);
  EXPECT_EQ(attribute("banks", CU_FUNC_ATTRIBUTE_PTX_VERSION), 80);
  EXPECT_EQ(attribute("banks", CU_FUNC_ATTRIBUTE_BINARY_VERSION), 90);
}

TEST_F(Launching, OccupancyCountsRegistersAndSharedMemory) {
  auto blocks = [&](const char* kernel, int threads, std::size_t shared) {
    int count = -1;
    EXPECT_EQ(api().cuOccupancyMaxActiveBlocksPerMultiprocessor(&count, function(kernel), threads,
                                                                shared),
              CUDA_SUCCESS);
    return count;
  };
  EXPECT_EQ(blocks("set", 256, 0), 8);
  EXPECT_EQ(blocks("hungry", 256, 0), 1);
  EXPECT_EQ(blocks("hungry", 512, 0), 0);
  EXPECT_EQ(blocks("banks", 32, 45056), 4);
}

TEST_F(Launching, ASampleRunsCornersAndExtrapolates) {
  auto buffer = buffer_of(std::vector<float>(1000 * 32, 0));
  const auto* extra = driver->virtual_api();
  ASSERT_EQ(launch("set", 1000, 32, nullptr, buffer.address(), 1.0f, 32000u), CUDA_SUCCESS);
  const auto whole = last_launch();
  EXPECT_EQ(whole.blocks_executed, 1000u);
  EXPECT_EQ(extra->tilewrightVgpuExecutedBlocks(nullptr, 0), 1000u);

  extra->tilewrightVgpuSampleBlocks(10, 3);
  ASSERT_TRUE(buffer.fill(0, buffer.size()));
  ASSERT_EQ(launch("set", 1000, 32, nullptr, buffer.address(), 1.0f, 32000u), CUDA_SUCCESS);
  extra->tilewrightVgpuSampleBlocks(0, 1);
  const auto sampled = last_launch();
  EXPECT_EQ(sampled.blocks, 1000u);
  EXPECT_EQ(sampled.blocks_executed, 10u);
  EXPECT_NEAR(sampled.modelled_us, whole.modelled_us, 0.02 * whole.modelled_us);
  std::vector<std::uint64_t> executed(10);
  ASSERT_EQ(extra->tilewrightVgpuExecutedBlocks(executed.data(), 10), 10u);
  EXPECT_EQ(std::count(executed.begin(), executed.end(), 0), 1);
  EXPECT_EQ(std::count(executed.begin(), executed.end(), 999), 1);
  const auto values = values_of(buffer);
  for (std::uint64_t block = 0; block < 1000; ++block)
    EXPECT_EQ(values[block * 32],
              std::count(executed.begin(), executed.end(), block) ? 1.0f : 0.0f);
}

TEST_F(Launching, StridedAccessesAndBankConflictsCostModelledTime) {
  auto in = get(jit::DeviceBuffer::allocate(context, 4096 * 64 * sizeof(float)));
  auto out = get(jit::DeviceBuffer::allocate(context, 4096 * 64 * sizeof(float)));
  auto time = [&](const char* kernel, auto... parameters) {
    EXPECT_EQ(launch(kernel, 32, 128, nullptr, parameters...), CUDA_SUCCESS);
    return last_launch().modelled_us;
  };
  const double coalesced = time("strided", out.address(), in.address(), 1u);
  const double strided = time("strided", out.address(), in.address(), 16u);
  EXPECT_LT(coalesced, strided);
  const double conflict_free = time("banks", out.address(), 1u);
  const double two_way = time("banks", out.address(), 2u);
  const double all_one_bank = time("banks", out.address(), 32u);
  EXPECT_LT(conflict_free, two_way);
  EXPECT_LT(two_way, all_one_bank);
  EXPECT_EQ(time("banks", out.address(), 32u), all_one_bank) << "the same launch, the same time";
}

}  // namespace
}  // namespace tilewright::vgpu::testing
