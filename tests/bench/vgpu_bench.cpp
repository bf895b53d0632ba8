// The virtual GPU on one core, as a ratio to a calibration loop of the same run.
//
//   calibration          a plain f32 fma loop over 4 KiB on this host, 16.8 million fmas: what a
//                        256^3 product takes at best with the vector units of one core
//   gemm/N               N^3 f32 product, tile 64x64x16, 4x4 per thread; unchecked, not counted
//   gemm_counted/N       the same with counters
//   elementwise/N        N f32 elements, silu and multiply, one element per thread
//   mma_bf16/N           N^3 product of bf16: cp.async, ldmatrix, mma.sync; unchecked, not counted
//   wgmma_bf16/N         N^3 product of bf16: cp.async, wgmma; unchecked, not counted
//   .../checked          the same with Check::kFull
//   softmax/rows         rows of 4096 f32, one block per row
//   load                 decoding the module of the gemm
#include <benchmark/benchmark.h>

#include <cstring>
#include <vector>

#include "jit/virtual_gpu/machine.h"
#include "tests/virtual_gpu/nvrtc.h"
#include "tests/virtual_gpu/sample_kernels.h"
#include "tests/virtual_gpu/tensor_kernels.h"

namespace tilewright::vgpu {
namespace {

void calibration(benchmark::State& state) {
  alignas(64) static float a[1024], b[1024];
  for (int i = 0; i < 1024; ++i) {
    a[i] = 1.0f + static_cast<float>(i) * 1e-6f;
    b[i] = 1e-6f * static_cast<float>(i);
  }
  for (auto _ : state) {
    for (int k = 0; k < 16384; ++k) {
      for (int i = 0; i < 1024; ++i) b[i] = b[i] * 0.999f + a[i];
      benchmark::ClobberMemory();
    }
  }
}
BENCHMARK(calibration)->Unit(benchmark::kMillisecond);

class Device {
 public:
  Device(const char* source, const char* kernel, const char* arch = "sm_90") : kernel_(kernel) {
    std::string log;
    Nvrtc nvrtc;
    if (!nvrtc.available()) return;
    auto ptx = nvrtc.compile(source, arch, &log);
    if (!ptx) return;
    this->ptx = *ptx;
    auto loaded = Program::load(*ptx, *memory);
    if (loaded) program_ = *loaded;
  }
  explicit operator bool() const { return program_ != nullptr; }

  std::uint64_t buffer(std::size_t count, float value) {
    std::uint64_t address = *memory->allocate(count * 4);
    auto* host = static_cast<float*>(memory->at(address, count * 4));
    for (std::size_t i = 0; i < count; ++i) host[i] = value + static_cast<float>(i % 17);
    return address;
  }
  template <class... A>
  Launch launch(std::array<unsigned, 3> grid, unsigned threads, bool count, A... arguments) {
    Launch launch;
    launch.program = program_.get();
    launch.kernel = kernel_;
    launch.grid = grid;
    launch.block = {threads, 1, 1};
    launch.count = count;
    launch.check = check;
    const KernelInfo* info = program_->find(kernel_);
    launch.parameters.resize(static_cast<std::size_t>(info->parameter_bytes));
    std::size_t i = 0;
    ((std::memcpy(launch.parameters.data() + info->parameters[i++].offset, &arguments,
                  sizeof arguments)),
     ...);
    return launch;
  }
  void run(benchmark::State& state, const Launch& launch) {
    for (auto _ : state) {
      Outcome outcome = execute(*memory, launch);
      if (outcome.fault || !outcome.reports.empty()) {
        state.SkipWithError(outcome.fault ? outcome.fault->report.c_str()
                                          : outcome.reports[0].text.c_str());
        return;
      }
    }
  }

  std::unique_ptr<Memory> memory = Memory::create(std::uint64_t{1} << 30);
  std::string ptx;
  Check check = Check::kOff;

 private:
  std::string kernel_;
  std::shared_ptr<Program> program_;
};

void gemm(benchmark::State& state, bool count, Check check = Check::kOff) {
  Device device(samples::kGemm, "gemm");
  device.check = check;
  if (!device) return state.SkipWithError("NVRTC is not here");
  auto n = static_cast<std::size_t>(state.range(0));
  auto size = static_cast<int>(n);
  auto launch = device.launch({static_cast<unsigned>(n / 64), static_cast<unsigned>(n / 64), 1},
                              256, count, device.buffer(n * n, 1), device.buffer(n * n, 2),
                              device.buffer(n * n, 0), size, size, size);
  device.run(state, launch);
}
BENCHMARK_CAPTURE(gemm, plain, false)->Arg(256)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(gemm, counted, true)->Arg(256)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(gemm, checked, false, Check::kFull)->Arg(256)->Unit(benchmark::kMillisecond);

void tensor_gemm(benchmark::State& state, const char* source, const char* kernel, unsigned shared,
                 Check check = Check::kOff) {
  Device device(source, kernel, "sm_90a");
  device.check = check;
  if (!device) return state.SkipWithError("NVRTC is not here");
  auto n = static_cast<std::size_t>(state.range(0));
  auto size = static_cast<int>(n);
  auto launch = device.launch({static_cast<unsigned>(n / 128), static_cast<unsigned>(n / 128), 1},
                              256, false, device.buffer(n * n / 2, 1), device.buffer(n * n / 2, 2),
                              device.buffer(n * n, 0), size, size, size);
  launch.dynamic_shared_bytes = shared;
  device.run(state, launch);
}
BENCHMARK_CAPTURE(tensor_gemm, mma_bf16, samples::kMmaGemm, "mma_gemm", samples::kMmaGemmShared)
    ->Name("mma_bf16")
    ->Arg(256)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(tensor_gemm, wgmma_bf16, samples::kWgmmaGemm, "wgmma_gemm",
                  samples::kWgmmaGemmShared)
    ->Name("wgmma_bf16")
    ->Arg(256)
    ->Unit(benchmark::kMillisecond);

BENCHMARK_CAPTURE(tensor_gemm, mma_bf16, samples::kMmaGemm, "mma_gemm", samples::kMmaGemmShared,
                  Check::kFull)
    ->Name("mma_bf16/checked")
    ->Arg(256)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(tensor_gemm, wgmma_bf16, samples::kWgmmaGemm, "wgmma_gemm",
                  samples::kWgmmaGemmShared, Check::kFull)
    ->Name("wgmma_bf16/checked")
    ->Arg(256)
    ->Unit(benchmark::kMillisecond);

void elementwise(benchmark::State& state, Check check) {
  Device device(samples::kElementwise, "elementwise");
  device.check = check;
  if (!device) return state.SkipWithError("NVRTC is not here");
  auto n = static_cast<std::size_t>(state.range(0));
  auto launch = device.launch({static_cast<unsigned>((n + 255) / 256), 1, 1}, 256, false,
                              device.buffer(n, -8), device.buffer(n, 1), device.buffer(n, 0),
                              static_cast<int>(n));
  device.run(state, launch);
}
BENCHMARK_CAPTURE(elementwise, plain, Check::kOff)->Arg(1 << 20)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(elementwise, checked, Check::kFull)->Arg(1 << 20)->Unit(benchmark::kMillisecond);

void softmax(benchmark::State& state) {
  Device device(samples::kSoftmax, "softmax");
  if (!device) return state.SkipWithError("NVRTC is not here");
  auto rows = static_cast<std::size_t>(state.range(0));
  auto launch = device.launch({static_cast<unsigned>(rows), 1, 1}, 256, false,
                              device.buffer(rows * 4096, -8), device.buffer(rows * 4096, 0), 4096);
  device.run(state, launch);
}
BENCHMARK(softmax)->Arg(64)->Unit(benchmark::kMillisecond);

void load(benchmark::State& state) {
  Device device(samples::kGemm, "gemm");
  if (!device) return state.SkipWithError("NVRTC is not here");
  for (auto _ : state) benchmark::DoNotOptimize(Program::load(device.ptx, *device.memory));
}
BENCHMARK(load)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tilewright::vgpu

BENCHMARK_MAIN();
