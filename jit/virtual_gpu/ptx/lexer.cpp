#include "jit/virtual_gpu/ptx/lexer.h"

#include <algorithm>

namespace tilewright::vgpu::ptx {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' || c == '%';
}

}  // namespace

bool Lexer::skip_blanks() {
  while (position_ < text_.size()) {
    char c = text_[position_];
    if (c == '\n') {
      ++line_;
      ++position_;
    } else if (c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v' || c == '\0') {
      ++position_;
    } else if (c == '/' && at(1) == '/') {
      std::size_t end = std::min(text_.find('\n', position_), text_.size());
      std::string_view comment = text_.substr(position_, end - position_);
      if (comment.starts_with("// tilewright:")) comments_.push_back(comment);
      position_ = end;
    } else if (c == '/' && at(1) == '*') {
      std::size_t end = text_.find("*/", position_ + 2);
      if (end == std::string_view::npos) return false;
      line_ += static_cast<int>(
          std::count(text_.begin() + position_, text_.begin() + static_cast<long>(end), '\n'));
      position_ = end + 2;
    } else {
      break;
    }
  }
  return true;
}

Token Lexer::take(Token::Kind kind, std::size_t length) {
  Token token{kind, text_.substr(position_, length), line_};
  position_ += length;
  return token;
}

Token Lexer::next() {
  if (!skip_blanks()) {
    Token token{Token::Kind::kBad, text_.substr(position_, 2), line_};
    position_ = text_.size();
    return token;
  }
  if (position_ >= text_.size()) return Token{Token::Kind::kEnd, text_.substr(text_.size()), line_};

  auto word_length = [&](std::size_t from) {
    std::size_t n = from;
    while (is_letter(at(n)) || is_digit(at(n)) || (at(n) == ':' && at(n + 1) == ':' && n > from)) {
      n += at(n) == ':' ? 2 : 1;
    }
    return n;
  };
  char c = at(0);
  if (is_digit(c)) {
    std::size_t n = 1;
    // 0x1F, 0f3F800000, 0d..., 1.5, 1e-3, 10U
    bool decimal = !(c == '0' && (at(1) == 'x' || at(1) == 'X' || at(1) == 'f' || at(1) == 'F' ||
                                  at(1) == 'd' || at(1) == 'D' || at(1) == 'b'));
    while (is_digit(at(n)) || is_letter(at(n)) ||
           (decimal && at(n) == '.' && is_digit(at(n + 1))) ||
           (decimal && (at(n) == '-' || at(n) == '+') && (at(n - 1) == 'e' || at(n - 1) == 'E')))
      ++n;
    return take(Token::Kind::kNumber, n);
  }
  if (is_letter(c)) return take(Token::Kind::kWord, word_length(0));
  if (c == '.' && (is_letter(at(1)) || is_digit(at(1)))) {
    Token token = take(Token::Kind::kDirective, word_length(1));
    token.text.remove_prefix(1);
    return token;
  }
  if (c == '"') {
    std::size_t end = text_.find('"', position_ + 1);
    if (end == std::string_view::npos) {
      Token token{Token::Kind::kBad, text_.substr(position_, 1), line_};
      position_ = text_.size();
      return token;
    }
    Token token{Token::Kind::kString, text_.substr(position_ + 1, end - position_ - 1), line_};
    line_ += static_cast<int>(std::count(token.text.begin(), token.text.end(), '\n'));
    position_ = end + 1;
    return token;
  }
  constexpr std::string_view kPunctuation = "()[]{},;:+-*/=<>@!|.&~^?";
  if (kPunctuation.find(c) != std::string_view::npos) return take(Token::Kind::kPunctuation, 1);
  return take(Token::Kind::kBad, 1);
}

}  // namespace tilewright::vgpu::ptx
