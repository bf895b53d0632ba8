/// The device headers and kernel templates as the compiler gets them.
#pragma once

#include <filesystem>

#include "jit/image.h"

namespace tilewright::templates {

/// Embedded in the binary: "device/types.cuh", "kernels/simt_gemm.cuh", ...
const jit::HeaderSet& device_headers();

/// From a folder with device/ and kernels/ in it: for who edits templates, and for planted errors.
Result<jit::HeaderSet> load_headers(const std::filesystem::path& folder);

}  // namespace tilewright::templates
