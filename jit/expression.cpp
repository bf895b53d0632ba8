#include "jit/expression.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <charconv>
#include <limits>

namespace tilewright::jit {
namespace {

constexpr std::size_t kMaxStack = 64;  ///< operands waiting at once; evaluation keeps them inline
constexpr int kMaxNesting = 200;  ///< of parentheses, so that hostile text cannot end our stack
constexpr std::size_t kMaxText = 64 * 1024;

enum class Code : std::uint8_t {
  kConstant,  ///< push value
  kVariable,  ///< push values[argument]
  kNegate,
  kNot,
  kToBool,
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kRemainder,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kEqual,
  kNotEqual,
  kCeilDiv,
  kRoundUp,
  kPow2,
  kAbs,
  kMin,  ///< of `argument` operands, as kMax and kIn
  kMax,
  kIn,
  kJump,        ///< to instruction `argument`
  kJumpIfZero,  ///< pops
  kAndJump,     ///< top is 0: stays, jump; else popped
  kOrJump,      ///< top is not 0: becomes 1, jump; else popped
};

struct Instruction {
  Code code = Code::kConstant;
  std::uint32_t argument = 0;
  std::uint32_t column = 1;  ///< in the text, from 1
  std::int64_t value = 0;
};

using Int = std::int64_t;

enum class Trouble : std::uint8_t { kNone, kOverflow, kDivisionByZero, kMultiple };

Trouble divide(Int a, Int b, Int& quotient) {
  if (b == 0) return Trouble::kDivisionByZero;
  if (a == std::numeric_limits<Int>::min() && b == -1) return Trouble::kOverflow;
  quotient = a / b;
  return Trouble::kNone;
}

Trouble ceil_div(Int a, Int b, Int& out) {
  if (Trouble trouble = divide(a, b, out); trouble != Trouble::kNone) return trouble;
  if (a % b != 0 && (a > 0) == (b > 0)) ++out;  // truncation rounded down
  return Trouble::kNone;
}

Trouble binary(Code code, Int a, Int b, Int& out) {
  auto checked = [](bool overflow) { return overflow ? Trouble::kOverflow : Trouble::kNone; };
  switch (code) {
    case Code::kAdd:
      return checked(__builtin_add_overflow(a, b, &out));
    case Code::kSubtract:
      return checked(__builtin_sub_overflow(a, b, &out));
    case Code::kMultiply:
      return checked(__builtin_mul_overflow(a, b, &out));
    case Code::kDivide:
      return divide(a, b, out);
    case Code::kRemainder: {
      Int quotient = 0;
      if (Trouble trouble = divide(a, b, quotient); trouble != Trouble::kNone) return trouble;
      out = a % b;
      return Trouble::kNone;
    }
    case Code::kLess:
      out = a < b;
      return Trouble::kNone;
    case Code::kLessEqual:
      out = a <= b;
      return Trouble::kNone;
    case Code::kGreater:
      out = a > b;
      return Trouble::kNone;
    case Code::kGreaterEqual:
      out = a >= b;
      return Trouble::kNone;
    case Code::kEqual:
      out = a == b;
      return Trouble::kNone;
    case Code::kNotEqual:
      out = a != b;
      return Trouble::kNone;
    case Code::kCeilDiv:
      return ceil_div(a, b, out);
    case Code::kRoundUp: {
      if (b <= 0) return Trouble::kMultiple;
      Int count = 0;
      if (Trouble trouble = ceil_div(a, b, count); trouble != Trouble::kNone) return trouble;
      return checked(__builtin_mul_overflow(count, b, &out));
    }
    default:
      return Trouble::kNone;
  }
}

Trouble unary(Code code, Int a, Int& out) {
  switch (code) {
    case Code::kNot:
      out = a == 0;
      break;
    case Code::kToBool:
      out = a != 0;
      break;
    case Code::kPow2:
      out = a > 0 && std::has_single_bit(static_cast<std::uint64_t>(a));
      break;
    default:  // kNegate, kAbs
      if (a == std::numeric_limits<Int>::min()) return Trouble::kOverflow;
      out = code == Code::kNegate || a < 0 ? -a : a;
  }
  return Trouble::kNone;
}

struct Function {
  std::string_view name;
  Code code;
  std::uint32_t least, most;
};

constexpr std::uint32_t kAnyNumber = 60;  // less than kMaxStack
constexpr Function kFunctions[] = {
    {"ceil_div", Code::kCeilDiv, 2, 2}, {"round_up", Code::kRoundUp, 2, 2},
    {"min", Code::kMin, 1, kAnyNumber}, {"max", Code::kMax, 1, kAnyNumber},
    {"pow2", Code::kPow2, 1, 1},        {"abs", Code::kAbs, 1, 1},
    {"in", Code::kIn, 2, kAnyNumber},
};

struct BinaryOperator {
  std::string_view text;
  int level;  ///< tighter is higher
  Code code;
};

// Longer spellings stand before their prefixes.
constexpr BinaryOperator kOperators[] = {
    {"==", 3, Code::kEqual},        {"!=", 3, Code::kNotEqual}, {"<=", 4, Code::kLessEqual},
    {">=", 4, Code::kGreaterEqual}, {"<", 4, Code::kLess},      {">", 4, Code::kGreater},
    {"+", 5, Code::kAdd},           {"-", 5, Code::kSubtract},  {"*", 6, Code::kMultiply},
    {"/", 6, Code::kDivide},        {"%", 6, Code::kRemainder},
};
constexpr int kOrLevel = 1, kAndLevel = 2, kTightest = 6;

/// Recursive descent that writes instructions as it goes.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<void> parse() {
    if (text_.size() > kMaxText)
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("expression has {} characters, expected at most {}", text_.size(), kMaxText));
    TILEWRIGHT_TRY(conditional());
    skip_blanks();
    if (at_ != text_.size()) return expected("an operator or the end");
    return {};
  }

  std::vector<Instruction> code;
  std::vector<std::string> variables;

 private:
  tl::unexpected<Error> expected(std::string_view what) {
    skip_blanks();
    std::string seen = at_ < text_.size() ? fmt::format("'{}'", text_[at_]) : "the end";
    return wrong(at_, fmt::format("found {}, expected {}", seen, what));
  }
  tl::unexpected<Error> wrong(std::size_t at, std::string_view message) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("column {} of '{}': {}", at + 1, text_, message));
  }

  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n'))
      ++at_;
  }
  bool accept(std::string_view token) {
    skip_blanks();
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }

  std::uint32_t emit(Code op, std::size_t at, std::uint32_t argument = 0, Int value = 0) {
    code.push_back({op, argument, static_cast<std::uint32_t>(at + 1), value});
    return static_cast<std::uint32_t>(code.size() - 1);
  }
  void land(std::uint32_t jump) { code[jump].argument = static_cast<std::uint32_t>(code.size()); }
  /// Instructions push at most one operand; what is in flight is counted while parsing.
  Result<void> push(std::size_t at) {
    if (++depth_ > kMaxStack)
      return wrong(at, fmt::format("more than {} operands wait for their operators", kMaxStack));
    return {};
  }

  Result<void> conditional() {
    if (++nesting_ > kMaxNesting)
      return wrong(at_, fmt::format("nested deeper than {} levels", kMaxNesting));
    TILEWRIGHT_TRY(binary_level(kOrLevel));
    if (std::size_t at = at_; accept("?")) {
      std::uint32_t to_else = emit(Code::kJumpIfZero, at);
      --depth_;
      TILEWRIGHT_TRY(conditional());
      if (!accept(":")) return expected("':'");
      std::uint32_t to_end = emit(Code::kJump, at);
      land(to_else);
      --depth_;
      TILEWRIGHT_TRY(conditional());
      land(to_end);
    }
    --nesting_;
    return {};
  }

  Result<void> binary_level(int level) {
    if (level > kTightest) return prefix();
    TILEWRIGHT_TRY(binary_level(level + 1));
    while (true) {
      skip_blanks();
      const std::size_t at = at_;
      if (level == kOrLevel || level == kAndLevel) {
        if (!accept(level == kOrLevel ? "||" : "&&")) return {};
        std::uint32_t jump = emit(level == kOrLevel ? Code::kOrJump : Code::kAndJump, at);
        --depth_;
        TILEWRIGHT_TRY(binary_level(level + 1));
        emit(Code::kToBool, at);
        land(jump);
        continue;
      }
      auto op = std::find_if(std::begin(kOperators), std::end(kOperators), [&](const auto& known) {
        return text_.substr(at_).starts_with(known.text);
      });
      if (op == std::end(kOperators) || op->level != level) return {};
      at_ += op->text.size();
      TILEWRIGHT_TRY(binary_level(level + 1));
      emit(op->code, at);
      --depth_;
    }
  }

  Result<void> prefix() {
    skip_blanks();
    const std::size_t at = at_;
    if (at_ < text_.size() && (text_[at_] == '-' || text_[at_] == '!')) {
      if (++nesting_ > kMaxNesting)
        return wrong(at_, fmt::format("nested deeper than {} levels", kMaxNesting));
      const Code op = text_[at_++] == '-' ? Code::kNegate : Code::kNot;
      TILEWRIGHT_TRY(prefix());
      emit(op, at);
      --nesting_;
      return {};
    }
    return primary();
  }

  Result<void> primary() {
    skip_blanks();
    const std::size_t at = at_;
    if (accept("(")) {
      TILEWRIGHT_TRY(conditional());
      if (!accept(")")) return expected("')'");
      return {};
    }
    const auto is_name = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.';
    };
    while (at_ < text_.size() && is_name(text_[at_])) ++at_;
    const std::string_view word = text_.substr(at, at_ - at);
    if (word.empty()) return expected("a number, a variable, a function or '('");
    if (std::isdigit(static_cast<unsigned char>(word.front()))) return number(word, at);
    if (word.front() == '.') {
      at_ = at;
      return expected("a number, a variable, a function or '('");
    }
    if (accept("(")) return call(word, at);
    auto known = std::find(variables.begin(), variables.end(), word);
    const auto index = static_cast<std::uint32_t>(known - variables.begin());
    if (known == variables.end()) variables.emplace_back(word);
    emit(Code::kVariable, at, index);
    return push(at);
  }

  Result<void> number(std::string_view word, std::size_t at) {
    Int value = 0;
    auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error == std::errc::result_out_of_range)
      return wrong(at, fmt::format("number is {}, expected at most {}", word,
                                   std::numeric_limits<Int>::max()));
    if (end != word.data() + word.size())
      return wrong(at, fmt::format("found '{}', expected a decimal integer", word));
    emit(Code::kConstant, at, 0, value);
    return push(at);
  }

  Result<void> call(std::string_view name, std::size_t at) {
    auto function = std::find_if(std::begin(kFunctions), std::end(kFunctions),
                                 [&](const Function& known) { return known.name == name; });
    if (function == std::end(kFunctions))
      return wrong(at, fmt::format("unknown function '{}', expected ceil_div, round_up, min, max, "
                                   "pow2, abs or in",
                                   name));
    std::uint32_t count = 0;
    if (!accept(")")) {
      do {
        TILEWRIGHT_TRY(conditional());
        ++count;
      } while (accept(","));
      if (!accept(")")) return expected("',' or ')'");
    }
    if (count < function->least || count > function->most) {
      std::string wanted = function->least == function->most
                               ? fmt::format("{}", function->least)
                               : fmt::format("{} to {}", function->least, function->most);
      return wrong(at, fmt::format("{} has {} argument{}, expected {}", name, count,
                                   count == 1 ? "" : "s", wanted));
    }
    emit(function->code, at, count);
    depth_ -= count - 1;
    return {};
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t depth_ = 0;
  int nesting_ = 0;
};

}  // namespace

struct Expression::Program {
  std::string text;
  std::vector<std::string> variables;
  std::vector<Instruction> code;
  std::optional<Int> constant;

  tl::unexpected<Error> error(const Instruction& at, Trouble trouble) const {
    std::string_view what = trouble == Trouble::kOverflow ? "overflow"
                            : trouble == Trouble::kDivisionByZero
                                ? "division by zero"
                                : "multiple of round_up is not positive";
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("column {} of '{}': {}", at.column, text, what));
  }

  Result<Int> run(std::span<const Int> values) const {
    std::array<Int, kMaxStack> stack;
    std::size_t top = 0;  // number of operands; the parser has proven that they fit
    for (std::size_t pc = 0; pc < code.size(); ++pc) {
      const Instruction& at = code[pc];
      Trouble trouble = Trouble::kNone;
      switch (at.code) {
        case Code::kConstant:
          stack[top++] = at.value;
          break;
        case Code::kVariable:
          stack[top++] = values[at.argument];
          break;
        case Code::kNegate:
        case Code::kNot:
        case Code::kToBool:
        case Code::kPow2:
        case Code::kAbs:
          trouble = unary(at.code, stack[top - 1], stack[top - 1]);
          break;
        case Code::kMin:
        case Code::kMax:
        case Code::kIn: {
          const Int* first = stack.data() + top - at.argument;
          const Int* last = stack.data() + top;
          const Int result = at.code == Code::kMin   ? *std::min_element(first, last)
                             : at.code == Code::kMax ? *std::max_element(first, last)
                                                     : std::find(first + 1, last, *first) != last;
          top -= at.argument - 1;
          stack[top - 1] = result;
          break;
        }
        case Code::kJump:
          pc = at.argument - 1;
          break;
        case Code::kJumpIfZero:
          if (stack[--top] == 0) pc = at.argument - 1;
          break;
        case Code::kAndJump:
          if (stack[top - 1] == 0)
            pc = at.argument - 1;
          else
            --top;
          break;
        case Code::kOrJump:
          if (stack[top - 1] != 0) {
            stack[top - 1] = 1;
            pc = at.argument - 1;
          } else {
            --top;
          }
          break;
        default:
          --top;
          trouble = binary(at.code, stack[top - 1], stack[top], stack[top - 1]);
      }
      if (trouble != Trouble::kNone) return error(at, trouble);
    }
    return stack[0];
  }
};

Result<Expression> Expression::parse(std::string_view text) {
  Parser parser(text);
  TILEWRIGHT_TRY(parser.parse());
  auto program = std::make_shared<Program>();
  program->text = text;
  program->variables = std::move(parser.variables);
  program->code = std::move(parser.code);
  if (program->variables.empty()) {
    if (auto value = program->run({})) program->constant = *value;
  }
  Expression expression;
  expression.program_ = std::move(program);
  return expression;
}

Expression Expression::constant(std::int64_t value) {
  auto program = std::make_shared<Program>();
  program->text = std::to_string(value);
  program->code.push_back({Code::kConstant, 0, 1, value});
  program->constant = value;
  Expression expression;
  expression.program_ = std::move(program);
  return expression;
}

const std::string& Expression::text() const { return program_->text; }

const std::vector<std::string>& Expression::variables() const { return program_->variables; }

std::optional<std::int64_t> Expression::as_constant() const { return program_->constant; }

Result<std::int64_t> Expression::evaluate(const Lookup& value_of) const {
  std::vector<Int> values;
  values.reserve(variables().size());
  for (const std::string& name : variables()) {
    std::optional<Int> value = value_of(name);
    if (!value)
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("unknown variable '{}' in '{}'", name, text()));
    values.push_back(*value);
  }
  return program_->run(values);
}

Result<std::int64_t> Expression::evaluate(std::span<const std::int64_t> values) const {
  if (values.size() != variables().size())
    return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' got {} values, expected {}", text(),
                                                         values.size(), variables().size()));
  return program_->run(values);
}

}  // namespace tilewright::jit
