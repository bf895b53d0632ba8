/// A text as a JSON string.
#pragma once

#include <string>

namespace tilewright::vgpu {

std::string quoted(const std::string& text);

}  // namespace tilewright::vgpu
