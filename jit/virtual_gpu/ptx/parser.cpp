#include "jit/virtual_gpu/ptx/parser.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <cstring>

#include "jit/virtual_gpu/ptx/grammar.h"

namespace tilewright::vgpu::ptx {
Module Parser::module() {
  while (token_.kind != Token::Kind::kEnd) top_level();
  module_.comments = lexer_.comments();
  return std::move(module_);
}

void Parser::fail_at(int line, std::string message) {
  throw SyntaxError{fmt::format("ptx line {}: {}", line, message)};
}

void Parser::unexpected(std::string_view wanted) {
  std::string seen =
      token_.kind == Kind::kEnd
          ? "the end of the text"
          : fmt::format("'{}{}'", token_.kind == Kind::kDirective ? "." : "", token_.text);
  fail_at(token_.line, fmt::format("found {}, expected {}", seen, wanted));
}

Token Parser::advance() {
  if (token_.kind == Kind::kBad) unexpected("a token of PTX");
  Token token = token_;
  token_ = ahead_;
  ahead_ = lexer_.next();
  return token;
}

bool Parser::accept(char c) {
  if (!token_.is(c)) return false;
  advance();
  return true;
}

void Parser::expect(char c) {
  if (!accept(c)) unexpected(fmt::format("'{}'", c));
}

bool Parser::accept_directive(std::string_view name) {
  if (token_.kind != Kind::kDirective || token_.text != name) return false;
  advance();
  return true;
}

std::string_view Parser::expect_word(std::string_view what) {
  if (token_.kind != Kind::kWord) unexpected(what);
  return advance().text;
}

std::int64_t Parser::expect_integer(std::string_view what) {
  bool negative = accept('-');
  if (token_.kind != Kind::kNumber) unexpected(what);
  Token token = advance();
  std::int64_t value = integer_of(token);
  return negative ? -value : value;
}

std::int64_t Parser::integer_of(const Token& token) {
  std::string digits(token.text);
  while (!digits.empty() && (digits.back() == 'U' || digits.back() == 'u')) digits.pop_back();
  int base = 10;
  const char* begin = digits.data();
  if (digits.size() > 1 && digits[0] == '0') {
    char kind = digits[1];
    base = kind == 'x' || kind == 'X' ? 16 : kind == 'b' || kind == 'B' ? 2 : 8;
    begin += base == 8 ? 1 : 2;
  }
  std::uint64_t value = 0;
  auto [end, error] = std::from_chars(begin, digits.data() + digits.size(), value, base);
  if (error != std::errc() || end != digits.data() + digits.size())
    fail_at(token.line, fmt::format("'{}' is not an integer of 64 bits", token.text));
  return static_cast<std::int64_t>(value);
}

Operand Parser::number(const Token& token) {
  Operand operand;
  std::string_view text = token.text;
  auto bits = [&](std::size_t digits) {
    std::uint64_t value = 0;
    auto [end, error] = std::from_chars(text.data() + 2, text.data() + text.size(), value, 16);
    if (error != std::errc() || end != text.data() + text.size() || text.size() != digits + 2)
      fail_at(token.line, fmt::format("'{}' is not a float of {} digits", text, digits));
    operand.integer = static_cast<std::int64_t>(value);
  };
  if (text.starts_with("0f") || text.starts_with("0F")) {
    operand.kind = Operand::Kind::kFloat32;
    bits(8);
  } else if (text.starts_with("0d") || text.starts_with("0D")) {
    operand.kind = Operand::Kind::kFloat64;
    bits(16);
  } else if (!text.starts_with("0x") && !text.starts_with("0X") &&
             text.find_first_of(".eE") != std::string_view::npos) {
    operand.kind = Operand::Kind::kFloat64;
    double value = std::strtod(std::string(text).c_str(), nullptr);
    std::memcpy(&operand.integer, &value, sizeof value);
  } else {
    operand.integer = integer_of(token);
  }
  return operand;
}

Type Parser::expect_type() {
  if (token_.kind != Kind::kDirective) unexpected("a type");
  Type type = parse_type(token_.text);
  if (type == Type::kNone) unexpected("a type");
  advance();
  return type;
}

void Parser::skip_line() {
  for (int line = token_.line; token_.kind != Kind::kEnd && token_.line == line;) advance();
}

void Parser::skip_braces() {
  while (!token_.is('{')) {
    if (token_.kind == Kind::kEnd) unexpected("'{'");
    advance();
  }
  int depth = 0;
  do {
    if (token_.kind == Kind::kEnd) unexpected("'}'");
    if (token_.is('{')) ++depth;
    if (token_.is('}')) --depth;
    advance();
  } while (depth > 0);
}

Result<Module> parse(std::string_view text) {
  try {
    return Parser(text).module();
  } catch (const SyntaxError& error) {
    return fail(ErrorCode::kInvalidArgument, error.message);
  }
}

}  // namespace tilewright::vgpu::ptx
