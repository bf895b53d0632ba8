#include "cache/base64.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>

namespace tilewright::cache {
namespace {

constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr std::array<std::int8_t, 256> make_inverse() {
  std::array<std::int8_t, 256> inverse{};
  for (auto& value : inverse) value = -1;
  for (std::size_t i = 0; i < kAlphabet.size(); ++i)
    inverse[static_cast<unsigned char>(kAlphabet[i])] = static_cast<std::int8_t>(i);
  return inverse;
}
constexpr auto kInverse = make_inverse();

}  // namespace

std::string base64_encode(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t word = 0;
    std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    for (std::size_t j = 0; j < 3; ++j)
      word = word << 8 | (j < count ? static_cast<unsigned char>(bytes[i + j]) : 0u);
    for (std::size_t j = 0; j < 4; ++j)
      text += j <= count ? kAlphabet[word >> (18 - 6 * j) & 63] : '=';
  }
  return text;
}

Result<std::string> base64_decode(std::string_view text) {
  if (text.size() % 4 != 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("base64 has {} characters, expected a multiple of 4", text.size()));
  }
  std::size_t padding = 0;
  while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=') ++padding;
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  std::uint32_t word = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    bool pad = i >= text.size() - padding;
    int value = pad ? 0 : kInverse[static_cast<unsigned char>(text[i])];
    if (value < 0) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("base64 has byte 0x{:02x} at offset {}",
                                                           static_cast<unsigned char>(text[i]), i));
    }
    word = word << 6 | std::uint32_t(value);
    if (i % 4 == 3) {
      bytes += static_cast<char>(word >> 16 & 255);
      bytes += static_cast<char>(word >> 8 & 255);
      bytes += static_cast<char>(word & 255);
      word = 0;
    }
  }
  bytes.resize(bytes.size() - padding);
  return bytes;
}

}  // namespace tilewright::cache
