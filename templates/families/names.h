/// Names in generated code: those of the operator, made legal and unique.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "jit/dtype.h"
#include "jit/result.h"

namespace tilewright::templates {

/// Hands out identifiers that are no keyword of C++ and nothing that templates/device or the
/// generated code itself uses.
class Namer {
 public:
  /// "x", or "x_2" where that is taken or reserved; with `suffix`, x_suffix is taken as well.
  std::string unique(std::string_view wanted, std::string_view suffix = {});

 private:
  std::set<std::string, std::less<>> taken_;
};

/// "bf16".
std::string_view device_type(DType dtype);

/// A float constant that reads back to the nearest f32: "0.5f", "bits_as<float>(0x7f800000)".
std::string float_literal(double value);

}  // namespace tilewright::templates
