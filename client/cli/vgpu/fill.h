/// What buffers hold before a launch. Equal seeds, equal contents.
#pragma once

#include <vector>

#include "client/cli/vgpu/launch_spec.h"

namespace tilewright::cli {

using Bytes = std::vector<std::byte>;

/// The contents of `buffer`; `filled` are those of the buffers before it. Uninitialised ones are
/// empty. Errors: kInvalidArgument names the buffer and the element.
Result<Bytes> fill(const LaunchSpec& spec, const Buffer& buffer, const std::vector<Bytes>& filled);

/// Which elements the kernel finds initialised; empty: all of them. Errors as fill().
Result<std::vector<bool>> filled_elements(const LaunchSpec& spec, const Buffer& buffer);

}  // namespace tilewright::cli
