#include "cache/store.h"

#include <fmt/format.h>

namespace tilewright::cache {

Result<void> Store::put_image(const jit::Image& image) {
  return put_images({std::make_shared<const jit::Image>(image)});
}

Result<bool> has_images(const Store& store, const Entry& entry) {
  Record record;
  record.entries = {entry};
  for (const Digest& digest : record.images()) {
    auto image = store.image(digest);
    if (!image && image.error().code != ErrorCode::kCorrupt) return fail(std::move(image.error()));
    if (!image || !*image) return false;
  }
  return true;
}

std::string to_text(const ImportCounts& counts) {
  std::string text =
      fmt::format("{} records taken, {} kept as they are here", counts.taken, counts.kept);
  if (counts.other_generator > 0)
    text +=
        fmt::format(", {} skipped: of another generator than what is here", counts.other_generator);
  if (counts.without_images > 0)
    text += fmt::format(", {} skipped: without their images", counts.without_images);
  return text + fmt::format(", {} images", counts.images);
}

}  // namespace tilewright::cache
