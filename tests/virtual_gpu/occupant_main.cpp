// A process that uses the device as it is told on standard input, a line each, answered by "ok":
//   memory MIB      it holds so much of the device's memory, or answers "out of memory"
//   busy PERCENT    its work occupies the device for that share of the time
// It ends when its standard input does.
#include <cuda.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "jit/driver_api.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr char kWork[] = R"(.version 8.0
.target sm_80
.address_size 64
.visible .entry work()
{
  .reg .b32 %r<2>;
  .reg .f32 %f<2>;
  .reg .pred %p<2>;
  mov.b32 %r1, 0;
  mov.f32 %f1, 0f3F800000;
turn:
  fma.rn.f32 %f1, %f1, %f1, %f1;
  add.u32 %r1, %r1, 1;
  setp.lt.u32 %p1, %r1, 1000;
  @%p1 bra turn;
  ret;
}
)";
constexpr int kPeriod_ms = 20;

void must(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "occupant: %s: error %d\n", what, int(result));
  std::exit(1);
}

class Worker {
 public:
  Worker() {
    must(cuInit(0), "cuInit");
    CUcontext context = nullptr;
    must(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    CUmodule module = nullptr;
    must(cuModuleLoadData(&module, kWork), "cuModuleLoadData");
    must(cuModuleGetFunction(&function_, module, "work"), "cuModuleGetFunction");
    // Much modelled time for little of the host's.
    must(tilewright::jit::tilewrightVgpuSampleBlocks(1, 1), "tilewrightVgpuSampleBlocks");
    must(tilewright::jit::tilewrightVgpuReuseTimes(1), "tilewrightVgpuReuseTimes");
    const double unit_us = launch(1 << 16);
    blocks_per_ms_ = (1 << 16) / (unit_us / 1000);
  }

  double launch(unsigned blocks) {
    must(cuLaunchKernel(function_, blocks, 1, 1, 128, 1, 1, 0, nullptr, nullptr, nullptr),
         "cuLaunchKernel");
    must(cuCtxSynchronize(), "cuCtxSynchronize");
    tilewright::jit::VirtualLaunch last;
    must(tilewright::jit::tilewrightVgpuLastLaunch(&last), "tilewrightVgpuLastLaunch");
    return last.modelled_us;
  }

  void work(double milliseconds) {
    if (milliseconds > 0) launch(std::max(1u, unsigned(milliseconds * blocks_per_ms_)));
  }

  const char* hold(std::size_t mib) {
    if (memory_ != 0) must(cuMemFree(memory_), "cuMemFree");
    memory_ = 0;
    if (mib == 0) return "ok";
    const CUresult result = cuMemAlloc(&memory_, mib << 20);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) return "out of memory";
    must(result, "cuMemAlloc");
    return "ok";
  }

 private:
  CUfunction function_ = nullptr;
  CUdeviceptr memory_ = 0;
  double blocks_per_ms_ = 0;
};

void say(const char* text) {
  std::printf("%s\n", text);
  std::fflush(stdout);
}

}  // namespace

int main() {
  Worker worker;
  say("ok");
  int percent = 0;
  std::string line;
  for (auto next = Clock::now();;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(next - Clock::now());
    pollfd input{STDIN_FILENO, POLLIN, 0};
    if (::poll(&input, 1, std::max(0, int(left.count()))) > 0) {
      char byte = 0;
      if (::read(STDIN_FILENO, &byte, 1) != 1) return 0;
      if (byte != '\n') {
        line += byte;
        continue;
      }
      int number = 0;
      if (std::sscanf(line.c_str(), "busy %d", &number) == 1) {
        percent = number;
        next = Clock::now();
        // Busy from the moment of the answer on.
        if (percent > 0) worker.work(kPeriod_ms * percent / 100.0);
        say("ok");
      } else if (std::sscanf(line.c_str(), "memory %d", &number) == 1) {
        say(worker.hold(std::size_t(number)));
      } else {
        say("what?");
      }
      line.clear();
    }
    if (Clock::now() < next) continue;
    worker.work(kPeriod_ms * percent / 100.0);
    next += std::chrono::milliseconds(kPeriod_ms);
    // What a loaded machine has missed is made up for, but for long stops.
    next = std::max(next, Clock::now() - std::chrono::milliseconds(10 * kPeriod_ms));
  }
}
