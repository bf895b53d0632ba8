/// The virtual GPU through jit::Driver, as the product opens it, with the test kernels loaded.
#pragma once

#include <gtest/gtest.h>

#include <numeric>

#include "jit/driver.h"
#include "tests/virtual_gpu/driver_kernels.h"

namespace tilewright::vgpu::testing {

/// The value, or a failure of the test with the error's message.
template <typename T>
T get(Result<T> result, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  if (!result) {
    ADD_FAILURE_AT(file, line) << result.error().message << "\n" << result.error().detail;
    std::abort();
  }
  return std::move(*result);
}

inline std::shared_ptr<jit::Driver> open_virtual(const std::string& device = "h200") {
  jit::DriverOptions options;
  options.kind = jit::DriverKind::kVirtual;
  options.virtual_device = device;
  options.virtual_library = TILEWRIGHT_BINARY_DIR "/bin/libtilewright_vgpu.so";
  options.configs = TILEWRIGHT_SOURCE_DIR "/configs";
  return get(jit::Driver::open(options));
}

inline jit::Image image_of(const std::string& ptx) {
  jit::Image image;
  image.digest = digest_of(ptx);
  image.architecture = {8, 0, false};
  image.ptx = ptx;
  return image;
}

class DriverTest : public ::testing::Test {
 protected:
  explicit DriverTest(const std::string& device = "h200")
      : driver(open_virtual(device)),
        context(get(jit::Context::create(driver, 0))),
        module(get(jit::Module::load(context, image_of(kKernels)))) {
    EXPECT_TRUE(context.activate());
  }

  const jit::DriverApi& api() const { return driver->api(); }

  CUfunction function(const std::string& name) { return get(module->function(name, 0)); }

  /// One dimension, parameters by value in order.
  template <typename... Parameters>
  CUresult launch(const std::string& name, unsigned blocks, unsigned threads, CUstream stream,
                  Parameters... parameters) {
    void* pointers[] = {&parameters..., nullptr};
    return api().cuLaunchKernel(function(name), blocks, 1, 1, threads, 1, 1, 0, stream, pointers,
                                nullptr);
  }

  jit::DeviceBuffer buffer_of(const std::vector<float>& values) {
    auto buffer = get(jit::DeviceBuffer::allocate(context, values.size() * sizeof(float)));
    EXPECT_TRUE(buffer.upload(values.data(), values.size() * sizeof(float)));
    return buffer;
  }

  std::vector<float> values_of(const jit::DeviceBuffer& buffer) {
    std::vector<float> values(buffer.size() / sizeof(float));
    EXPECT_TRUE(buffer.download(values.data(), buffer.size()));
    return values;
  }

  jit::VirtualLaunch last_launch() {
    jit::VirtualLaunch out;
    EXPECT_EQ(driver->virtual_api()->tilewrightVgpuLastLaunch(&out), CUDA_SUCCESS);
    return out;
  }

  std::shared_ptr<jit::Driver> driver;
  jit::Context context;
  std::shared_ptr<jit::Module> module;
};

}  // namespace tilewright::vgpu::testing
