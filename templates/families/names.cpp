#include "templates/families/names.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>

namespace tilewright::templates {
std::string input_name(ValueId input) { return fmt::format("in{}", input); }

std::string output_name(std::size_t output) { return fmt::format("out{}", output); }

std::string statement_name(std::size_t statement) { return fmt::format("v{}", statement); }

std::string dimension_name(std::size_t dimension) { return fmt::format("n{}", dimension); }

std::string kernel_name(std::string_view family) { return fmt::format("tilewright_{}", family); }

std::string_view device_type(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "float";
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      return "bf16";
    default:
      return "void";
  }
}

std::string float_literal(double value) {
  const float rounded = static_cast<float>(value);
  if (!std::isfinite(rounded)) {
    return fmt::format("bits_as<float>({:#010x})", std::bit_cast<std::uint32_t>(rounded));
  }
  std::string text = fmt::format("{}", rounded);  // the shortest that reads back
  if (text.find_first_of(".e") == std::string::npos) text += ".";
  return text + "f";
}

}  // namespace tilewright::templates
