/// A constraint of a space: an integer expression (jit/expression.h) that must be non-zero, and
/// where it was written.
#pragma once

#include <string>

#include "jit/expression.h"

namespace tilewright::search {

struct Constraint {
  jit::Expression expression;
  std::string file;
  int line = 0;

  /// Errors: kInvalidArgument, "FILE:LINE: ...".
  static Result<Constraint> parse(const std::string& text, const std::string& file, int line);
  std::string where() const { return file + ":" + std::to_string(line); }
};

}  // namespace tilewright::search
