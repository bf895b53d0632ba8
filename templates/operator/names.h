/// Names in operators, and how messages say where something stands.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "templates/operator/operator.h"

namespace tilewright::templates {

inline constexpr std::string_view kIdentifierForm =
    "letters, digits and _, not starting with a digit";
inline constexpr std::string_view kOperatorNameForm = "letters, digits, '_', '-' and '.'";

namespace names_detail {
inline bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
}  // namespace names_detail

inline bool is_identifier(std::string_view name) {
  using namespace names_detail;
  return !name.empty() && !is_digit(name[0]) && name.size() <= 64 &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return is_letter(c) || is_digit(c) || c == '_'; });
}

inline bool is_operator_name(std::string_view name) {
  using namespace names_detail;
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
    return is_letter(c) || is_digit(c) || c == '_' || c == '-' || c == '.';
  });
}

/// "swiglu.yaml:12", or "operator 'swiglu'" for what no text stands behind.
inline std::string place(const Operator& op, const SourceLocation& at) {
  return at.line > 0 ? at.file + ":" + std::to_string(at.line) : "operator '" + op.name + "'";
}

/// "K, M, N"; "none" for an empty list.
inline std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "none" : text;
}

}  // namespace tilewright::templates
