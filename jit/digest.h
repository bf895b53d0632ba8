/// 128-bit content hashes (XXH3) that name images, sources, operators and keys.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "jit/result.h"

namespace tilewright {

struct Digest {
  std::uint64_t high = 0, low = 0;

  auto operator<=>(const Digest&) const = default;
  bool empty() const { return high == 0 && low == 0; }
  /// 32 lower-case hexadecimal digits.
  std::string hex() const;
  static Result<Digest> parse(std::string_view hex);
};

Digest digest_of(std::string_view bytes);

/// Hashes a sequence of fields; each is framed by its length, so that ("ab","c") != ("a","bc").
class Hasher {
 public:
  Hasher& add(std::string_view field);
  Hasher& add(std::uint64_t value);
  Digest finish() const;

 private:
  std::string framed_;
};

}  // namespace tilewright

template <>
struct std::hash<tilewright::Digest> {
  std::size_t operator()(const tilewright::Digest& digest) const noexcept { return digest.low; }
};
