// A program that knows cuda.h only, linked with the library as it would be with libcuda: what it
// is comes from the environment.
#include <cuda.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tests/virtual_gpu/driver_kernels.h"

namespace {

TEST(ForeignProgram, FindsTheDeviceOfTheEnvironmentAndRunsAKernel) {
  ASSERT_EQ(cuDeviceGetCount(nullptr), CUDA_ERROR_NOT_INITIALIZED);
  setenv("TILEWRIGHT_VGPU_DEVICE", "/no/such/device.yaml", 1);
  ASSERT_EQ(cuInit(0), CUDA_ERROR_INVALID_VALUE);
  setenv("TILEWRIGHT_VGPU_DEVICE", TILEWRIGHT_SOURCE_DIR "/configs/devices/rtx4090.yaml", 1);
  ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
  int count = 0, version = 0, sms = 0, capability = 0;
  ASSERT_EQ(cuDeviceGetCount(&count), CUDA_SUCCESS);
  EXPECT_EQ(count, 1);
  ASSERT_EQ(cuDriverGetVersion(&version), CUDA_SUCCESS);
  EXPECT_EQ(version, 13000);
  CUdevice device = -1;
  EXPECT_EQ(cuDeviceGet(&device, 1), CUDA_ERROR_INVALID_DEVICE);
  ASSERT_EQ(cuDeviceGet(&device, 0), CUDA_SUCCESS);
  char name[64];
  ASSERT_EQ(cuDeviceGetName(name, sizeof name, device), CUDA_SUCCESS);
  EXPECT_STREQ(name, "NVIDIA GeForce RTX 4090 (virtual)");
  ASSERT_EQ(cuDeviceGetName(name, 7, device), CUDA_SUCCESS);
  EXPECT_STREQ(name, "NVIDIA");
  ASSERT_EQ(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device),
            CUDA_SUCCESS);
  EXPECT_EQ(sms, 128);
  ASSERT_EQ(cuDeviceGetAttribute(&capability, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device),
            CUDA_SUCCESS);
  EXPECT_EQ(capability, 9);

  CUcontext context = nullptr;
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&context, device), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
  CUmodule module = nullptr;
  CUfunction set = nullptr;
  ASSERT_EQ(cuModuleLoadData(&module, tilewright::vgpu::testing::kKernels.c_str()), CUDA_SUCCESS);
  ASSERT_EQ(cuModuleGetFunction(&set, module, "set"), CUDA_SUCCESS);
  CUdeviceptr data = 0;
  std::size_t free_before = 0, free_after = 0, total = 0;
  ASSERT_EQ(cuMemGetInfo(&free_before, &total), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAlloc(&data, 1 << 20), CUDA_SUCCESS);
  ASSERT_EQ(cuMemGetInfo(&free_after, &total), CUDA_SUCCESS);
  EXPECT_EQ(free_before - free_after, 1u << 20);
  EXPECT_EQ(data % 256, 0u);
  float value = 2.5f, read[4] = {};
  unsigned n = 4;
  void* parameters[] = {&data, &value, &n};
  ASSERT_EQ(cuLaunchKernel(set, 1, 1, 1, 32, 1, 1, 0, nullptr, parameters, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyDtoH(read, data, sizeof read), CUDA_SUCCESS);
  for (float each : read) EXPECT_EQ(each, 2.5f);
  ASSERT_EQ(cuMemcpyDtoD(data + 16, data, 16), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyDtoH(read, data + 16, sizeof read), CUDA_SUCCESS);
  for (float each : read) EXPECT_EQ(each, 2.5f);

  const char* text = nullptr;
  ASSERT_EQ(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text), CUDA_SUCCESS);
  EXPECT_STREQ(text, "CUDA_ERROR_OUT_OF_MEMORY");
  ASSERT_EQ(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text), CUDA_SUCCESS);
  EXPECT_STREQ(text, "out of memory");
  EXPECT_EQ(cuGetErrorName(static_cast<CUresult>(12345), &text), CUDA_ERROR_INVALID_VALUE);

  ASSERT_EQ(cuMemFree(data), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree(data), CUDA_ERROR_INVALID_VALUE) << "freed twice";
  ASSERT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
  ASSERT_EQ(cuDevicePrimaryCtxRelease(device), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
}

}  // namespace
