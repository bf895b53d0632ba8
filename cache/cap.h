/// How a store's cap is shared: a sixteenth at most for trials, the rest for images, which have what
/// trials do not use as well.
#pragma once

#include <fmt/format.h>

#include "cache/image_index.h"
#include "jit/result.h"

namespace tilewright::cache {

constexpr std::size_t trial_share(std::size_t cap_bytes) { return cap_bytes / 16; }

/// Errors: kInvalidArgument, when the images could not be held together.
inline Result<void> check_images(const ImageIndex::Sizes& images, std::size_t cap_bytes) {
  const std::size_t most = cap_bytes - trial_share(cap_bytes);
  std::uint64_t bytes = 0;
  for (const auto& [digest, size] : images) bytes += size;
  if (bytes <= most) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{} images that belong together have {} bytes, expected at most {}: the "
                          "cap of {} less the sixteenth for trials",
                          images.size(), bytes, most, cap_bytes));
}

/// Errors: kInvalidArgument, when there is no room for it even alone.
inline Result<void> check_trial(const std::string& id, std::size_t bytes, std::size_t cap_bytes) {
  const std::size_t most = trial_share(cap_bytes);
  if (bytes <= most) return {};
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("trial {} has {} bytes, expected at most {}: a sixteenth of the cap of {}", id,
                  bytes, most, cap_bytes));
}

}  // namespace tilewright::cache
