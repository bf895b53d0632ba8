/// What NVRTC's text output says: resources of the kernels, and what went wrong first.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "jit/image.h"

namespace tilewright::jit {

/// Of the log that --ptxas-options=-v makes, in the order of the PTX, whose launch bounds
/// (.maxntid, .reqntid) complete them.
std::vector<KernelResources> parse_resources(std::string_view log, std::string_view ptx);

/// The first error as "kernels/simt_gemm.cuh:41: what is wrong", or "ptx line 27: what is wrong: the
/// line". Where NVRTC says nothing (it does not when a kernel's static shared memory is too large),
/// the resources may explain it.
std::string first_error(std::string_view log, std::string_view ptx);

/// Says which kernel has more static shared memory than any launch may have.
std::optional<std::string> oversized_static_shared(const std::vector<KernelResources>& kernels);

/// The log without what differs from run to run (compile times), so that it can be compared.
std::string stable_log(std::string_view log);

}  // namespace tilewright::jit
