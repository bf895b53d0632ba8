/// The envelope of stored bytes: a magic word with a kind, a version and a checksum before the
/// FlatBuffer. FlatBuffers' verifier proves that offsets stay inside the bytes; it does not notice a
/// flipped bit in a number, which is what the checksum is for.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "jit/digest.h"

namespace tilewright::cache {

/// 24 bytes, so that what follows stays aligned to 8: little-endian, as FlatBuffers is.
struct Envelope {
  char magic[4];  ///< "TWR" or "TWI" and a NUL
  std::uint32_t version;
  std::uint64_t checksum_high, checksum_low;
};
static_assert(sizeof(Envelope) == 24);

inline std::string seal(std::string_view magic, std::uint32_t version, std::string_view payload) {
  Envelope envelope{};
  std::memcpy(envelope.magic, magic.data(), magic.size());
  envelope.version = version;
  Digest checksum = digest_of(payload);
  envelope.checksum_high = checksum.high;
  envelope.checksum_low = checksum.low;
  std::string sealed(reinterpret_cast<const char*>(&envelope), sizeof envelope);
  sealed.append(payload);
  return sealed;
}

/// The payload, in memory of its own that is aligned as FlatBuffers are read; nullopt for another
/// version. Errors: kCorrupt, with `what` in the message.
inline Result<std::optional<std::string>> unseal(std::string_view what, std::string_view magic,
                                                 std::uint32_t version, std::string_view bytes) {
  Envelope envelope;
  if (bytes.size() < sizeof envelope) {
    return fail(ErrorCode::kCorrupt, std::string(what) + " has " + std::to_string(bytes.size()) +
                                         " bytes, expected an envelope of 24");
  }
  std::memcpy(&envelope, bytes.data(), sizeof envelope);
  char wanted[4] = {};
  std::memcpy(wanted, magic.data(), magic.size());
  if (std::memcmp(envelope.magic, wanted, sizeof wanted) != 0) {
    return fail(ErrorCode::kCorrupt,
                std::string(what) + " does not begin with '" + std::string(magic) + "'");
  }
  if (envelope.version != version) return std::optional<std::string>();
  std::string_view payload = bytes.substr(sizeof envelope);
  Digest checksum = digest_of(payload);
  if (checksum != Digest{envelope.checksum_high, envelope.checksum_low}) {
    return fail(ErrorCode::kCorrupt,
                std::string(what) + " has checksum " + checksum.hex() + ", expected " +
                    Digest{envelope.checksum_high, envelope.checksum_low}.hex());
  }
  return std::optional<std::string>(std::in_place, payload);
}

}  // namespace tilewright::cache
