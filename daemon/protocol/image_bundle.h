/// The images of a plan in one piece, with what a launch needs of each and nothing else.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "jit/image.h"

namespace tilewright::protocol {

/// What is carried: the cubin for a real device, the PTX for the virtual one.
enum class ImageCode { kCubin, kPtx };

std::string pack_images(std::span<const std::shared_ptr<const jit::Image>> images, ImageCode code);

/// `bytes`: aligned to 8. Errors: kCorrupt.
Result<std::vector<jit::Image>> unpack_images(std::string_view bytes);

}  // namespace tilewright::protocol
