// Faults: what they are called, what their report names, and that they stick to the context.
#include <gmock/gmock.h>

#include "tests/virtual_gpu/driver_fixture.h"

namespace tilewright::vgpu::testing {
namespace {

using ::testing::HasSubstr;

class Faulting : public DriverTest {
 protected:
  std::string report() { return driver->virtual_api()->tilewrightVgpuReport(); }
};

TEST_F(Faulting, AFaultSurfacesAfterTheLaunchAndSticksUntilTheReset) {
  auto buffer = buffer_of({1, 2, 3, 4});
  const CUdeviceptr outside = buffer.address() + 1000 * 1000;
  EXPECT_EQ(launch("poke", 2, 32, nullptr, outside), CUDA_SUCCESS) << "it is asynchronous";
  // Later calls, whatever they ask for.
  EXPECT_EQ(api().cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(api().cuStreamSynchronize(nullptr), CUDA_ERROR_ILLEGAL_ADDRESS);
  CUdeviceptr address = 0;
  EXPECT_EQ(api().cuMemAlloc(&address, 16), CUDA_ERROR_ILLEGAL_ADDRESS);
  float value = 0;
  EXPECT_EQ(api().cuMemcpyDtoH(&value, buffer.address(), 4), CUDA_ERROR_ILLEGAL_ADDRESS);
  CUevent event = nullptr;
  EXPECT_EQ(api().cuEventCreate(&event, 0), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(api().cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr),
            CUDA_ERROR_ILLEGAL_ADDRESS);
  jit::VirtualLaunch last;
  EXPECT_EQ(driver->virtual_api()->tilewrightVgpuLastLaunch(&last), CUDA_ERROR_ILLEGAL_ADDRESS);
  int count = 0;
  EXPECT_EQ(api().cuDeviceGetCount(&count), CUDA_SUCCESS) << "the device is there still";

  ASSERT_EQ(api().cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);
  EXPECT_EQ(report(), "");
  EXPECT_EQ(api().cuMemAlloc(&address, 16), CUDA_SUCCESS);
  EXPECT_EQ(api().cuMemcpyDtoH(&value, address, 4), CUDA_SUCCESS);
}

TEST_F(Faulting, TheReportNamesKernelLineBlockThreadAndAddress) {
  auto buffer = buffer_of({1});
  const CUdeviceptr outside = buffer.address() + 0x10000000;
  ASSERT_EQ(launch("poke", 3, 32, nullptr, outside), CUDA_SUCCESS);
  // The line of the store, counted in the text that was loaded.
  const auto store = kKernels.find("st.global.u32 [%rd1], 7");
  const auto line =
      1 + std::count(kKernels.begin(), kKernels.begin() + std::ptrdiff_t(store), '\n');
  auto failed = context.synchronize();
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kFault);
  EXPECT_EQ(failed.error().message,
            "cuCtxSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access was "
            "encountered");
  const std::string& detail = failed.error().detail;
  EXPECT_THAT(detail, HasSubstr("poke"));
  EXPECT_THAT(detail, HasSubstr(std::to_string(line)));
  EXPECT_THAT(detail, HasSubstr("1, 0, 0"));  // block
  EXPECT_THAT(detail, HasSubstr("5, 0, 0"));  // thread
  char address[32];
  std::snprintf(address, sizeof address, "0x%llx", static_cast<unsigned long long>(outside));
  EXPECT_THAT(detail, HasSubstr(address));
  EXPECT_EQ(report(), detail);
}

TEST_F(Faulting, EachKindHasTheErrorOfHardware) {
  auto fresh = [&](const char* kernel, auto... parameters) {
    EXPECT_EQ(api().cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    EXPECT_EQ(api().cuModuleLoadData(&module, kKernels.c_str()), CUDA_SUCCESS);
    EXPECT_EQ(api().cuModuleGetFunction(&function, module, kernel), CUDA_SUCCESS);
    void* pointers[] = {&parameters..., nullptr};
    EXPECT_EQ(api().cuLaunchKernel(function, 2, 1, 1, 32, 1, 1, 0, nullptr, pointers, nullptr),
              CUDA_SUCCESS);
    return api().cuCtxSynchronize();
  };
  EXPECT_EQ(fresh("poke", CUdeviceptr(0)), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(fresh("stop"), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(fresh("stuck"), CUDA_ERROR_LAUNCH_TIMEOUT) << "at once, without a deadline";
  EXPECT_THAT(report(), HasSubstr("stuck"));
  driver->virtual_api()->tilewrightVgpuSetDeadline(0.05);
  EXPECT_EQ(fresh("spin"), CUDA_ERROR_LAUNCH_TIMEOUT);
  driver->virtual_api()->tilewrightVgpuSetDeadline(0);
  EXPECT_EQ(driver->check(CUDA_ERROR_LAUNCH_TIMEOUT, "x").error().code, ErrorCode::kHang);
}

TEST_F(Faulting, AMisalignedAddressIsNoIllegalOne) {
  auto buffer = buffer_of({1, 2, 3, 4});
  ASSERT_EQ(launch("poke", 2, 32, nullptr, buffer.address() + 2), CUDA_SUCCESS);
  EXPECT_EQ(api().cuCtxSynchronize(), CUDA_ERROR_MISALIGNED_ADDRESS);
}

TEST_F(Faulting, HostCallsOutsideAnAllocationAreRefusedAndDoNotStick) {
  auto buffer = buffer_of({1, 2, 3, 4});
  const CUdeviceptr at = buffer.address();
  char bytes[64] = {};
  EXPECT_EQ(api().cuMemcpyHtoD(at + 8, bytes, 9), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api().cuMemcpyDtoH(bytes, at, 17), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api().cuMemcpyDtoH(nullptr, at, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api().cuMemsetD8(at, 0, 17), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api().cuMemsetD32Async(at + 2, 0, 1, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api().cuMemFree(at + 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api().cuMemAlloc(nullptr, 4), CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr huge = 0;
  EXPECT_EQ(api().cuMemAlloc(&huge, std::size_t(1) << 50), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(api().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(values_of(buffer), (std::vector<float>{1, 2, 3, 4}));
}

TEST_F(Faulting, ImagesThatCannotRunAreRefusedWithTheReason) {
  struct {
    std::string image;
    CUresult expected;
    const char* reason;
  } cases[] = {
      {std::string("\x7f") + "ELF and so on", CUDA_ERROR_NO_BINARY_FOR_GPU, "machine code"},
      {"hello", CUDA_ERROR_INVALID_IMAGE, "expected .version and .target"},
      {".version 9.9\n.target sm_80\n", CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "PTX version is 9.9"},
      {".version 8.0\n.target sm_100\n", CUDA_ERROR_INVALID_PTX, "PTX target is sm_100"},
      {".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry f()\n{\n  ret\n}\n",
       CUDA_ERROR_INVALID_PTX, ""},
  };
  for (const auto& c : cases) {
    CUmodule out = nullptr;
    EXPECT_EQ(api().cuModuleLoadData(&out, c.image.c_str()), c.expected) << c.image;
    EXPECT_THAT(report(), HasSubstr(c.reason));
    EXPECT_NE(report(), "") << c.image;
  }
  CUfunction out = nullptr;
  CUmodule loaded = nullptr;
  ASSERT_EQ(api().cuModuleLoadData(&loaded, kKernels.c_str()), CUDA_SUCCESS);
  EXPECT_EQ(report(), "");
  EXPECT_EQ(api().cuModuleGetFunction(&out, loaded, "nothing"), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(api().cuModuleUnload(loaded), CUDA_SUCCESS);
  EXPECT_EQ(api().cuModuleUnload(loaded), CUDA_ERROR_INVALID_HANDLE);
}

TEST(Calls, NeedACurrentContext) {
  auto driver = open_virtual();
  CUdeviceptr address = 0;
  EXPECT_EQ(driver->api().cuMemAlloc(&address, 4), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(driver->api().cuDevicePrimaryCtxRelease(0), CUDA_ERROR_INVALID_CONTEXT);
}

TEST(Drivers, OneVirtualDevicePerProcessUntilItIsClosed) {
  auto first = open_virtual("l4");
  EXPECT_EQ(first->device(0).name, "NVIDIA L4 (virtual)");
  auto again = open_virtual("l4");
  jit::DriverOptions options;
  options.kind = jit::DriverKind::kVirtual;
  options.virtual_device = "a100";
  options.virtual_library = TILEWRIGHT_BINARY_DIR "/bin/libtilewright_vgpu.so";
  options.configs = TILEWRIGHT_SOURCE_DIR "/configs";
  auto other = jit::Driver::open(options);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ErrorCode::kBusy);
  EXPECT_EQ(other.error().message,
            "the virtual GPU of this process is already 'l4', expected the same description as "
            "before");
  first.reset();
  again.reset();
  EXPECT_EQ(open_virtual("a100")->device(0).name, "NVIDIA A100-SXM4-80GB (virtual)");
}

}  // namespace
}  // namespace tilewright::vgpu::testing
