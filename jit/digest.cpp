#include "jit/digest.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <charconv>
#include <cstring>

namespace tilewright {

std::string Digest::hex() const { return fmt::format("{:016x}{:016x}", high, low); }

Result<Digest> Digest::parse(std::string_view hex) {
  auto wrong = [&] {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("digest is '{}', expected 32 hexadecimal digits", hex));
  };
  if (hex.size() != 32) return wrong();
  Digest digest;
  const char* text = hex.data();
  auto high = std::from_chars(text, text + 16, digest.high, 16);
  auto low = std::from_chars(text + 16, text + 32, digest.low, 16);
  if (high.ec != std::errc() || high.ptr != text + 16) return wrong();
  if (low.ec != std::errc() || low.ptr != text + 32) return wrong();
  return digest;
}

Digest digest_of(std::string_view bytes) {
  XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return Digest{hash.high64, hash.low64};
}

Hasher& Hasher::add(std::string_view field) {
  add(std::uint64_t(field.size()));
  framed_.append(field);
  return *this;
}

Hasher& Hasher::add(std::uint64_t value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  framed_.append(bytes, sizeof value);
  return *this;
}

Digest Hasher::finish() const { return digest_of(framed_); }

}  // namespace tilewright
