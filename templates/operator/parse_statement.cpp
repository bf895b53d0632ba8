#include "templates/operator/parse_statement.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "templates/operator/names.h"

namespace tilewright::templates {
namespace {

constexpr int kMaxDepth = 64;

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<ParsedStatement> statement() {
    ParsedStatement result;
    std::string_view name = word();
    if (!is_identifier(name)) return expected("a name to define", name);
    result.name = name;
    if (!take('=')) return expected(fmt::format("'=' after '{}'", name));
    std::string_view op = word();
    if (!is_identifier(op)) return expected("a call such as add(a, b)", op);
    if (!take('(')) return expected(fmt::format("'(' after '{}'", op));
    TILEWRIGHT_ASSIGN_OR_RETURN(result.call, call(op, 0));
    if (!at_end()) return expected("the end of the statement");
    return result;
  }

 private:
  void skip_space() {
    while (position_ < text_.size() &&
           (text_[position_] == ' ' || text_[position_] == '\t' || text_[position_] == '\n')) {
      ++position_;
    }
  }
  bool at_end() {
    skip_space();
    return position_ >= text_.size();
  }
  bool take(char c) {
    if (at_end() || text_[position_] != c) return false;
    ++position_;
    return true;
  }
  /// A name or a number: whatever reaches to the next punctuation.
  std::string_view word() {
    skip_space();
    std::size_t begin = position_;
    while (position_ < text_.size() &&
           std::string_view(" \t\n(),=").find(text_[position_]) == std::string_view::npos) {
      ++position_;
    }
    return text_.substr(begin, position_ - begin);
  }
  tl::unexpected<Error> expected(std::string_view wanted, std::string_view seen = {}) {
    std::string what = fmt::format("'{}'", seen);
    if (seen.empty()) {
      what = at_end() ? "the end of the statement" : fmt::format("'{}'", text_[position_]);
    }
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("statement '{}' has {} at column {}, expected {}", text_, what,
                            position_ - seen.size() + 1, wanted));
  }

  // After "op(".
  Result<ParsedExpression> call(std::string_view op, int depth) {
    ParsedExpression result;
    result.kind = ParsedExpression::Kind::kCall;
    result.text = op;
    if (depth > kMaxDepth) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("statement nests more than {} calls, expected fewer", kMaxDepth));
    }
    if (take(')')) return result;
    do {
      TILEWRIGHT_TRY(argument(result, depth));
    } while (take(','));
    if (!take(')')) return expected(fmt::format("',' or ')' in the arguments of {}", op));
    return result;
  }

  Result<void> argument(ParsedExpression& parent, int depth) {
    std::string_view text = word();
    if (text.empty()) return expected("an operand");
    double number = 0;
    if (parse_number(text, number)) {
      if (!parent.attributes.empty()) return operand_after_attribute(parent, text);
      parent.operands.push_back(
          {ParsedExpression::Kind::kNumber, std::string(text), number, {}, {}});
      return {};
    }
    if (!is_identifier(text)) return expected("a name, a number or a call", text);
    if (take('=')) {
      std::string_view value = word();
      if (value.empty()) return expected(fmt::format("a value for '{}'", text));
      for (const ParsedAttribute& other : parent.attributes) {
        if (other.name == text) {
          return fail(
              ErrorCode::kInvalidArgument,
              fmt::format("{} has '{}' twice, expected each attribute once", parent.text, text));
        }
      }
      parent.attributes.push_back({std::string(text), std::string(value)});
      return {};
    }
    if (!parent.attributes.empty()) return operand_after_attribute(parent, text);
    if (take('(')) {
      TILEWRIGHT_ASSIGN_OR_RETURN(auto inner, call(text, depth + 1));
      parent.operands.push_back(std::move(inner));
      return {};
    }
    parent.operands.push_back({ParsedExpression::Kind::kName, std::string(text), 0, {}, {}});
    return {};
  }

  static tl::unexpected<Error> operand_after_attribute(const ParsedExpression& parent,
                                                       std::string_view text) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} has the operand '{}' after '{}=', expected operands before "
                            "attributes",
                            parent.text, text, parent.attributes.back().name));
  }

  std::string_view text_;
  std::size_t position_ = 0;
};

}  // namespace

Result<ParsedStatement> parse_statement(std::string_view text) { return Parser(text).statement(); }

bool parse_number(std::string_view text, double& number) {
  const char* end = text.data() + text.size();
  auto [rest, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && rest == end && !std::isnan(number);
}

}  // namespace tilewright::templates
