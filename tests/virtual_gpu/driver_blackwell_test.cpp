// The virtual RTX 5090 (sm_120), by the driver API: the limits of its capability.
#include <cuda.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace {

const std::string kKernels = R"(.version 8.7
.target sm_120
.address_size 64
.extern .shared .align 16 .b8 dynamic[];
.visible .entry touch() { .reg .b32 %r<2>; mov.u32 %r0, dynamic; st.shared.b32 [%r0], %r0; ret; }
)";

TEST(Blackwell, HasTheLimitsOfCapability120) {
  setenv("TILEWRIGHT_VGPU_DEVICE", TILEWRIGHT_SOURCE_DIR "/configs/devices/rtx5090.yaml", 1);
  ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
  CUdevice device = -1;
  ASSERT_EQ(cuDeviceGet(&device, 0), CUDA_SUCCESS);
  const struct {
    CUdevice_attribute attribute;
    int value;
  } attributes[] = {
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 12},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 170},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 99 << 10},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 100 << 10},
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 48 * 32},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 24},
      {CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, 1},
  };
  for (const auto& each : attributes) {
    int value = -1;
    ASSERT_EQ(cuDeviceGetAttribute(&value, each.attribute, device), CUDA_SUCCESS);
    EXPECT_EQ(value, each.value) << each.attribute;
  }

  CUcontext context = nullptr;
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&context, device), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
  CUmodule module = nullptr;
  CUfunction touch = nullptr;
  ASSERT_EQ(cuModuleLoadData(&module, kKernels.c_str()), CUDA_SUCCESS);
  ASSERT_EQ(cuModuleGetFunction(&touch, module, "touch"), CUDA_SUCCESS);

  // 99 KiB of shared memory where the kernel allows it, and no more.
  const auto attribute = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
  EXPECT_EQ(cuFuncSetAttribute(touch, attribute, (99 << 10) + 16), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuFuncSetAttribute(touch, attribute, 99 << 10), CUDA_SUCCESS);
  EXPECT_EQ(cuLaunchKernel(touch, 1, 1, 1, 32, 1, 1, 99 << 10, nullptr, nullptr, nullptr),
            CUDA_SUCCESS);

  // Clusters of eight blocks; of sixteen, which Hopper has, nothing is documented here.
  CUlaunchAttribute cluster{};
  cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  CUlaunchConfig config{};
  config.gridDimX = 16;
  config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.blockDimX = 32;
  config.sharedMemBytes = 16;
  config.attrs = &cluster;
  config.numAttrs = 1;
  ASSERT_EQ(cuFuncSetAttribute(touch, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1),
            CUDA_SUCCESS);
  cluster.value.clusterDim = {8, 1, 1};
  EXPECT_EQ(cuLaunchKernelEx(&config, touch, nullptr, nullptr), CUDA_SUCCESS);
  cluster.value.clusterDim = {16, 1, 1};
  EXPECT_EQ(cuLaunchKernelEx(&config, touch, nullptr, nullptr), CUDA_ERROR_INVALID_CLUSTER_SIZE);
  int largest = 0;
  ASSERT_EQ(cuOccupancyMaxPotentialClusterSize(&largest, touch, &config), CUDA_SUCCESS);
  EXPECT_EQ(largest, 8);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  ASSERT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
  ASSERT_EQ(cuDevicePrimaryCtxRelease(device), CUDA_SUCCESS);
}

}  // namespace
