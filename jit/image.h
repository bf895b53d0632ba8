/// Source: CUDA text as the generator wrote it. Image: what NVRTC made of it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "jit/digest.h"

namespace tilewright::jit {

/// Include name ("kernels/simt_gemm.cuh") to text. All that generated code may include.
using HeaderSet = std::map<std::string, std::string>;

struct Source {
  std::string name;  ///< file name that compiler messages carry: "simt_gemm.cu"
  std::string text;
};

/// The architecture that NVRTC compiles for: "sm_90", "sm_90a".
struct Architecture {
  int major = 0, minor = 0;
  bool specific = false;  ///< the `a` suffix: wgmma, setmaxnreg, ...

  bool operator==(const Architecture&) const = default;
  std::string name() const;  ///< "sm_90a"
  static Result<Architecture> parse(std::string_view name);
};

/// Of one kernel of an image, from the compile log (--ptxas-options=-v).
struct KernelResources {
  std::string kernel;
  int registers = 0;
  int static_shared_bytes = 0;
  int spill_store_bytes = 0, spill_load_bytes = 0;
  int stack_bytes = 0;
  int max_threads = 0;  ///< of __launch_bounds__; 0 if the source has none

  bool operator==(const KernelResources&) const = default;
};

/// Its name is its digest: of source text, include closure, flags and NVRTC version.
struct Image {
  Digest digest;
  Architecture architecture;
  std::string ptx;    ///< begins with one "// tilewright: resources ..." comment per kernel
  std::string cubin;  ///< what a real device loads
  std::string log;
  std::vector<KernelResources> kernels;
  double compile_ms = 0;

  const KernelResources* find(std::string_view kernel) const;
};

/// The comment line with which resources reach the virtual GPU; parse is its inverse.
std::string resources_comment(const KernelResources& resources);
std::optional<KernelResources> parse_resources_comment(std::string_view line);

}  // namespace tilewright::jit
