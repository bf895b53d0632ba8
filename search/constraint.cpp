#include "search/constraint.h"

namespace tilewright::search {

Result<Constraint> Constraint::parse(const std::string& text, const std::string& file, int line) {
  auto expression = jit::Expression::parse(text);
  const std::string where = file + ":" + std::to_string(line);
  if (!expression)
    return fail(with_context(expression.error(), where + ": constraint `" + text + "`"));
  return Constraint{*expression, file, line};
}

}  // namespace tilewright::search
