/// Functions as they are for programs whose stream 0 is one of each thread.
#pragma once

#include "jit/virtual_gpu/driver/state.h"

namespace tilewright::vgpu {

template <auto* kFunction>
struct PerThread;
template <typename... Parameters, CUresult(CUDAAPI* kFunction)(Parameters...)>
struct PerThread<kFunction> {
  static CUresult CUDAAPI call(Parameters... parameters) {
    null_is_per_thread() = true;
    const CUresult result = kFunction(parameters...);
    null_is_per_thread() = false;
    return result;
  }
};

}  // namespace tilewright::vgpu
