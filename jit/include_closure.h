/// Which headers a source is made of: they, and they alone, enter its image's digest.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "jit/compiler.h"

namespace tilewright::jit {

/// A header set prepared for many questions. Immutable, thread-safe.
class HeaderIndex {
 public:
  explicit HeaderIndex(const HeaderSet& headers);

  /// Names of the headers that `text` includes, directly or not, sorted. A name that the set does
  /// not have is among them: compiling will fail on it.
  std::vector<std::string> closure(std::string_view text) const;

  /// Of source text, closure (names and texts), flags and NVRTC's version. Not of the source's
  /// name, unless line information makes it part of the code.
  Digest image_digest(const Source& source, const CompileOptions& options,
                      std::string_view nvrtc_version) const;

 private:
  struct Header {
    Digest text;
    std::vector<std::string> includes;  ///< direct ones
  };
  std::unordered_map<std::string, Header> headers_;
};

/// Names in the #include lines of `text`, in order. A line in a block comment counts too: that
/// costs a recompilation at worst, never a stale image.
std::vector<std::string> direct_includes(std::string_view text);

/// All flags of one compile in the order in which NVRTC gets them. docs/cache-key.md says why each.
std::vector<std::string> nvrtc_flags(const CompileOptions& options);

}  // namespace tilewright::jit
