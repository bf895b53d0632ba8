/// Integer expressions over named variables: grid rules, workspace sizes, the domains of plans, and
/// the constraints of tuning spaces are all written in this one small language.
///
///   ceil_div(M, 128) * 2        M % 8 == 0 && x.align >= 16        pow2(threads) || K < 32
///
/// Values are 64-bit signed. Operators, loosest first: ?:  ||  &&  == !=  < <= > >=  + -  * / %
/// unary - !. Functions: ceil_div(a, b), round_up(a, multiple), min(a, b, ...), max(a, b, ...),
/// pow2(a) (1 if a is a power of two), abs(a), in(a, b, c, ...) (1 if a equals one of the others).
/// A variable is letters, digits, _ and dots. Overflow and division by zero are errors.
/// && and || and ?: evaluate only what they need.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "jit/result.h"

namespace tilewright::jit {

/// Immutable, cheap to copy, thread-safe. Parsing allocates; evaluating a bound one does not.
class Expression {
 public:
  /// Errors: kInvalidArgument, with the column and what was expected there.
  static Result<Expression> parse(std::string_view text);
  static Expression constant(std::int64_t value);

  const std::string& text() const;
  /// The distinct variables, in order of first use.
  const std::vector<std::string>& variables() const;
  std::optional<std::int64_t> as_constant() const;

  /// `value_of(name)`: nullopt for an unknown variable, which is an error that names it.
  using Lookup = std::function<std::optional<std::int64_t>(std::string_view)>;
  Result<std::int64_t> evaluate(const Lookup& value_of) const;

  /// `values[i]` belongs to `variables()[i]`: for the hot path.
  Result<std::int64_t> evaluate(std::span<const std::int64_t> values) const;

 private:
  struct Program;
  std::shared_ptr<const Program> program_;
};

}  // namespace tilewright::jit
