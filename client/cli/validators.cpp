#include "client/cli/validators.h"

#include <fmt/format.h>

#include "jit/device_choice.h"

namespace tilewright::cli {

CLI::Validator at_least(int least) {
  auto check = [least](std::string& text) {
    double value = 0;
    if (CLI::detail::lexical_cast(text, value) && value >= least) return std::string();
    return fmt::format("is {}, expected a number of at least {}", text, least);
  };
  return CLI::Validator(check, "NUMBER", "at_least");
}

CLI::Validator device_name() {
  auto check = [](std::string& text) {
    auto choice = jit::parse_device_choice(text, "value");
    return choice ? std::string() : choice.error().message;
  };
  return CLI::Validator(check, "DEVICE", "device_name");
}

}  // namespace tilewright::cli
