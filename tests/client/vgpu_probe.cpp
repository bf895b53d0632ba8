// A program as others write them: opens libcuda by its name, adds one to n numbers, prints their sum.
// Usage: vgpu_probe [launches [extra threads [library]]]. Exit code 3: a call failed; it says which;
// 5: there is no such library.
#include <cuda.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr const char* kPtx = R"(
.version 8.0
.target sm_80
.address_size 64
.visible .entry increment(.param .u64 p) {
  .reg .u64 %d<4>;
  .reg .u32 %r<4>;
  .reg .f32 %f<2>;
  ld.param.u64 %d1, [p];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %d2, %r1, 4;
  add.u64 %d3, %d1, %d2;
  ld.global.f32 %f1, [%d3];
  add.f32 %f1, %f1, 0f3F800000;
  st.global.f32 [%d3], %f1;
  ret;
})";

void* library = nullptr;

template <typename F>
F* find(const char* name) {
  void* found = dlsym(library, name);
  if (!found) std::exit(4);
  return reinterpret_cast<F*>(found);
}

void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::printf("%s: %d\n", what, int(result));
  std::exit(3);
}

}  // namespace

int main(int argc, char** argv) {
  library = dlopen(argc > 3 ? argv[3] : "libcuda.so.1", RTLD_NOW);
  if (!library) return 5;
  const int launches = argc > 1 ? std::atoi(argv[1]) : 1;
  const unsigned threads = 64 + (argc > 2 ? unsigned(std::atoi(argv[2])) : 0u);
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  CUdeviceptr data = 0;
  std::vector<float> numbers(64);
  check(find<decltype(cuInit)>("cuInit")(0), "cuInit");
  check(find<decltype(cuDeviceGet)>("cuDeviceGet")(&device, 0), "cuDeviceGet");
  check(find<decltype(cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain")(&context, device),
        "cuDevicePrimaryCtxRetain");
  check(find<decltype(cuCtxSetCurrent)>("cuCtxSetCurrent")(context), "cuCtxSetCurrent");
  check(find<decltype(cuModuleLoadData)>("cuModuleLoadData")(&module, kPtx), "cuModuleLoadData");
  check(find<decltype(cuModuleGetFunction)>("cuModuleGetFunction")(&function, module, "increment"),
        "cuModuleGetFunction");
  check(find<decltype(cuMemAlloc)>("cuMemAlloc_v2")(&data, 64 * 4), "cuMemAlloc");
  check(find<decltype(cuMemcpyHtoD)>("cuMemcpyHtoD_v2")(data, numbers.data(), 64 * 4),
        "cuMemcpyHtoD");
  void* arguments[] = {&data};
  for (int i = 0; i < launches; ++i)
    check(find<decltype(cuLaunchKernel)>("cuLaunchKernel")(function, 1, 1, 1, threads, 1, 1, 0,
                                                           nullptr, arguments, nullptr),
          "cuLaunchKernel");
  check(find<decltype(cuCtxSynchronize)>("cuCtxSynchronize")(), "cuCtxSynchronize");
  check(find<decltype(cuMemcpyDtoH)>("cuMemcpyDtoH_v2")(numbers.data(), data, 64 * 4),
        "cuMemcpyDtoH");
  check(find<decltype(cuMemFree)>("cuMemFree_v2")(data), "cuMemFree");
  double sum = 0;
  for (float number : numbers) sum += number;
  std::printf("sum %g\n", sum);
  return 0;
}
