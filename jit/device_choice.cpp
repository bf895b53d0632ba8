#include "jit/device_choice.h"

#include <fmt/format.h>

#include <charconv>

namespace tilewright::jit {

Result<DeviceChoice> parse_device_choice(const std::string& text, const std::string& name) {
  DeviceChoice choice;
  if (text == "auto") return choice;
  auto colon = text.find(':');
  auto kind = text.substr(0, colon);
  auto rest = colon == std::string::npos ? std::string() : text.substr(colon + 1);
  if (kind == "virtual") {
    choice.driver.kind = DriverKind::kVirtual;
    if (!rest.empty()) choice.driver.virtual_device = rest;
    return choice;
  }
  if (kind == "cuda") {
    choice.driver.kind = DriverKind::kReal;
    auto end = std::from_chars(rest.data(), rest.data() + rest.size(), choice.ordinal);
    bool number = end.ec == std::errc() && end.ptr == rest.data() + rest.size();
    if (colon == std::string::npos || (number && choice.ordinal >= 0)) return choice;
  }
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("{} is '{}', expected auto, cuda, cuda:N, virtual or virtual:ID", name, text));
}

}  // namespace tilewright::jit
