#include "templates/headers.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <utility>

namespace tilewright::templates {

/// Made at build time (families/embed.cmake); the last pair is null.
extern const std::pair<const char*, const char*> kEmbeddedHeaders[];

const jit::HeaderSet& device_headers() {
  static const jit::HeaderSet headers = [] {
    jit::HeaderSet set;
    for (const auto* header = kEmbeddedHeaders; header->first; ++header) {
      set.emplace(header->first, header->second);
    }
    return set;
  }();
  return headers;
}

Result<jit::HeaderSet> load_headers(const std::filesystem::path& folder) {
  jit::HeaderSet headers;
  for (const char* part : {"device", "kernels"}) {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder / part, error)) {
      if (entry.path().extension() != ".cuh" || entry.path().filename() == "editor.cuh") continue;
      std::ifstream file(entry.path(), std::ios::binary);
      std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
      if (!file) {
        return fail(ErrorCode::kIo, fmt::format("{} cannot be read", entry.path().string()));
      }
      headers.emplace(fmt::format("{}/{}", part, entry.path().filename().string()),
                      std::move(text));
    }
    if (error) {
      return fail(ErrorCode::kNotFound, fmt::format("{}: {}, expected a folder of .cuh files",
                                                    (folder / part).string(), error.message()));
    }
  }
  return headers;
}

}  // namespace tilewright::templates
