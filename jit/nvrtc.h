/// libnvrtc, opened at run time. Generated code goes through compiler.h; only kernels of others, which
/// include what they like, are compiled beside it.
#pragma once

#include <nvrtc.h>

#include <string>

#include "jit/result.h"

namespace tilewright::jit {

#define TILEWRIGHT_NVRTC_FUNCTIONS(apply)                                          \
  apply(nvrtcVersion) apply(nvrtcGetErrorString) apply(nvrtcCreateProgram)         \
      apply(nvrtcDestroyProgram) apply(nvrtcCompileProgram) apply(nvrtcGetPTXSize) \
          apply(nvrtcGetPTX) apply(nvrtcGetCUBINSize) apply(nvrtcGetCUBIN)         \
              apply(nvrtcGetProgramLogSize) apply(nvrtcGetProgramLog)

struct Nvrtc {
#define TILEWRIGHT_DECLARE(name) decltype(&::name) name = nullptr;
  TILEWRIGHT_NVRTC_FUNCTIONS(TILEWRIGHT_DECLARE)
#undef TILEWRIGHT_DECLARE
  std::string path;  ///< as it was opened
};

/// `library`: a path, or empty to search: $TILEWRIGHT_NVRTC, next to the executable and in ../lib of
/// it, the toolkit or wheels that this was built with, the loader's path, /usr/local/cuda/lib64.
/// Never closed: NVRTC keeps threads and allocations of its own.
/// Errors: kNotFound lists all the places that were tried; kUnsupported: it is older than 12.8.
Result<Nvrtc> open_nvrtc(const std::string& library);

}  // namespace tilewright::jit
