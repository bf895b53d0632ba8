/// Images as bytes in the store.
#pragma once

#include <optional>
#include <string>

#include "jit/image.h"

namespace tilewright::cache {

/// The form that pack writes. Another one is a miss, never an error.
inline constexpr std::uint32_t kImageVersion = 1;

/// FlatBuffers (wire.fbs) behind a version and a checksum. Errors: kCorrupt. A version that is not
/// ours is nullopt: a miss.
std::string pack(const jit::Image& image);
Result<std::optional<jit::Image>> unpack_image(std::string_view bytes);

}  // namespace tilewright::cache
