// A program as others write them: opens libcuda by its name, adds one to n numbers, prints their sum.
// Usage: vgpu_probe [launches [extra threads [library [mode]]]]. Modes: `leave` gives nothing back;
// `reset` to a context that is reset, `close` to a library that is closed and opened again; `fork` leaves
// it to a child process as well; `order` prints in which order the two warps of a block
// came, `reciprocal` the bits of 64 approximate reciprocals, `unordered` the sum of a copy that does not
// wait for the launch. Exit code 3: a call failed; it says which; 5: there is no such library.
#include <cuda.h>
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
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
}
.visible .entry order(.param .u64 p) {
  .reg .u64 %d<4>;
  .reg .u32 %r<4>;
  .reg .pred %p<2>;
  .reg .f32 %f<2>;
  ld.param.u64 %d1, [p];
  mov.u32 %r1, %tid.x;
  and.b32 %r2, %r1, 31;
  setp.ne.u32 %p1, %r2, 0;
  @%p1 ret;
  atom.global.add.f32 %f1, [%d1], 0f3F800000;
  add.u32 %r1, %r1, 1;
  mul.wide.u32 %d2, %r1, 4;
  add.u64 %d3, %d1, %d2;
  atom.global.add.f32 %f1, [%d3], %f1;
  ret;
}
.visible .entry reciprocal(.param .u64 p) {
  .reg .u64 %d<4>;
  .reg .u32 %r<4>;
  .reg .f32 %f<3>;
  ld.param.u64 %d1, [p];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %d2, %r1, 4;
  add.u64 %d3, %d1, %d2;
  add.u32 %r2, %r1, 3;
  cvt.rn.f32.u32 %f1, %r2;
  rcp.approx.f32 %f2, %f1;
  st.global.f32 [%d3], %f2;
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
  const std::string_view mode = argc > 4 ? argv[4] : "";
  const bool leaves = mode == "leave" || mode == "fork" || mode == "reset" || mode == "close";
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  CUstream stream = nullptr;
  CUdeviceptr data = 0;
  std::vector<float> numbers(64);
  check(find<decltype(cuInit)>("cuInit")(0), "cuInit");
  check(find<decltype(cuDeviceGet)>("cuDeviceGet")(&device, 0), "cuDeviceGet");
  check(find<decltype(cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain")(&context, device),
        "cuDevicePrimaryCtxRetain");
  check(find<decltype(cuCtxSetCurrent)>("cuCtxSetCurrent")(context), "cuCtxSetCurrent");
  check(find<decltype(cuModuleLoadData)>("cuModuleLoadData")(&module, kPtx), "cuModuleLoadData");
  const char* kernel = mode == "order" || mode == "reciprocal" ? argv[4] : "increment";
  check(find<decltype(cuModuleGetFunction)>("cuModuleGetFunction")(&function, module, kernel),
        "cuModuleGetFunction");
  if (mode == "unordered" || leaves)
    check(find<decltype(cuStreamCreate)>("cuStreamCreate")(&stream, CU_STREAM_NON_BLOCKING),
          "cuStreamCreate");
  check(find<decltype(cuMemAlloc)>("cuMemAlloc_v2")(&data, 64 * 4), "cuMemAlloc");
  check(find<decltype(cuMemcpyHtoD)>("cuMemcpyHtoD_v2")(data, numbers.data(), 64 * 4),
        "cuMemcpyHtoD");
  void* arguments[] = {&data};
  for (int i = 0; i < launches; ++i)
    check(find<decltype(cuLaunchKernel)>("cuLaunchKernel")(function, 1, 1, 1, threads, 1, 1, 0,
                                                           stream, arguments, nullptr),
          "cuLaunchKernel");
  auto synchronise = [] {
    check(find<decltype(cuCtxSynchronize)>("cuCtxSynchronize")(), "cuCtxSynchronize");
  };
  if (mode != "unordered") synchronise();
  check(find<decltype(cuMemcpyDtoH)>("cuMemcpyDtoH_v2")(numbers.data(), data, 64 * 4),
        "cuMemcpyDtoH");
  if (mode == "unordered") {
    synchronise();
    check(find<decltype(cuStreamDestroy)>("cuStreamDestroy_v2")(stream), "cuStreamDestroy");
  }
  if (!leaves) {
    check(find<decltype(cuMemFree)>("cuMemFree_v2")(data), "cuMemFree");
    check(find<decltype(cuModuleUnload)>("cuModuleUnload")(module), "cuModuleUnload");
  }
  if (mode == "order") {
    std::printf("order %g %g\n", double(numbers[1]), double(numbers[33]));
  } else if (mode == "reciprocal") {
    for (float number : numbers) {
      std::uint32_t bits;
      std::memcpy(&bits, &number, sizeof bits);
      std::printf("%08x ", bits);
    }
  } else {
    double sum = 0;
    for (float number : numbers) sum += number;
    std::printf("sum %g\n", sum);
  }
  if (mode == "reset")
    check(find<decltype(cuDevicePrimaryCtxReset)>("cuDevicePrimaryCtxReset_v2")(device),
          "cuDevicePrimaryCtxReset");
  if (mode == "close") {
    dlclose(library);
    library = dlopen(argv[3], RTLD_NOW);
    check(find<decltype(cuInit)>("cuInit")(0), "cuInit");
  }
  if (mode == "fork") {
    std::fflush(stdout);
    if (const pid_t child = fork(); child > 0)
      waitpid(child, nullptr, 0);
    else
      std::exit(0);
  }
  return 0;
}
