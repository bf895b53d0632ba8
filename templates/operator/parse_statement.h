/// The text of one body line: `y = mul(silu(gate), up)`.
///
///   statement := name '=' call
///   call      := op '(' [argument {',' argument}] ')'
///   argument  := call | name | number | attribute '=' (name | number)
///
/// Operands come before attributes. What names mean is the business of parse.cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "jit/result.h"

namespace tilewright::templates {

struct ParsedAttribute {
  std::string name;
  std::string value;  ///< as written
};

struct ParsedExpression {
  enum class Kind { kName, kNumber, kCall } kind = Kind::kName;
  std::string text;  ///< name, number as written, or op
  double number = 0;
  std::vector<ParsedExpression> operands;
  std::vector<ParsedAttribute> attributes;
};

struct ParsedStatement {
  std::string name;
  ParsedExpression call;
};

/// Errors: kInvalidArgument with what was seen and what was expected; no location.
Result<ParsedStatement> parse_statement(std::string_view text);

/// "0.5", "1e-5", "-inf"; nothing else around it.
bool parse_number(std::string_view text, double& number);

}  // namespace tilewright::templates
