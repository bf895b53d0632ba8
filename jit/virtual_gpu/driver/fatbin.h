/// Fat binaries, as nvcc embeds them in programs: code for several devices, of which the virtual GPU
/// takes the PTX.
#pragma once

#include <string>
#include <vector>

namespace tilewright::vgpu {

/// Whether an image is a fat binary, or the object by which programs refer to one.
bool is_fatbin(const void* image);

/// The PTX texts that it holds, the newest target first; machine code is left out.
/// `broken`: set where a part cannot be read.
std::vector<std::string> ptx_of_fatbin(const void* image, bool* broken);

}  // namespace tilewright::vgpu
