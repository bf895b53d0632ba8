/// The driver API as programs that link it call it, with the test kernels loaded.
#pragma once

#include <cuda.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/virtual_gpu/driver_kernels.h"

namespace tilewright::vgpu::testing {

/// Each test has the primary context to itself.
class DriverCalls : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
    ASSERT_EQ(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
    ASSERT_EQ(cuModuleLoadData(&module, kKernels.c_str()), CUDA_SUCCESS);
  }

  void TearDown() override {
    EXPECT_EQ(cuCtxSetCurrent(nullptr), CUDA_SUCCESS);
    EXPECT_EQ(cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
  }

  CUfunction function(const char* name) {
    CUfunction out = nullptr;
    EXPECT_EQ(cuModuleGetFunction(&out, module, name), CUDA_SUCCESS);
    return out;
  }

  static CUdeviceptr floats(std::size_t count, float value = 0) {
    CUdeviceptr out = 0;
    unsigned bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    EXPECT_EQ(cuMemAlloc(&out, count * sizeof(float)), CUDA_SUCCESS);
    EXPECT_EQ(cuMemsetD32(out, bits, count), CUDA_SUCCESS);
    return out;
  }

  static std::vector<float> values(CUdeviceptr address, std::size_t count) {
    std::vector<float> out(count);
    EXPECT_EQ(cuMemcpyDtoH(out.data(), address, count * sizeof(float)), CUDA_SUCCESS);
    return out;
  }

  /// A node that runs increment(data, n).
  CUDA_KERNEL_NODE_PARAMS increment(void** parameters) {
    CUDA_KERNEL_NODE_PARAMS node{};
    node.func = function("increment");
    node.gridDimX = node.gridDimY = node.gridDimZ = node.blockDimY = node.blockDimZ = 1;
    node.blockDimX = 32;
    node.kernelParams = parameters;
    return node;
  }

  CUcontext context = nullptr;
  CUmodule module = nullptr;
};

}  // namespace tilewright::vgpu::testing
