/// Splits PTX text into tokens. Comments and blanks are skipped; those comments that begin with
/// "// tilewright:" are kept aside.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tilewright::vgpu::ptx {

struct Token {
  enum class Kind : std::uint8_t {
    kWord,       ///< identifier, register (%r1), label ($L1) or opcode piece; may contain "::"
    kDirective,  ///< .word; the text is without its dot
    kNumber,
    kString,  ///< without its quotes
    kPunctuation,
    kEnd,
    kBad,  ///< a character that PTX has no use for, or an unfinished string or comment
  };
  Kind kind = Kind::kEnd;
  std::string_view text;
  int line = 1;

  bool is(char c) const {
    return kind == Kind::kPunctuation && text.size() == 1 && text.front() == c;
  }
};

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}
  Token next();
  const std::vector<std::string_view>& comments() const { return comments_; }

 private:
  bool skip_blanks();  ///< false: a block comment has no end
  char at(std::size_t offset) const {
    return position_ + offset < text_.size() ? text_[position_ + offset] : '\0';
  }
  Token take(Token::Kind kind, std::size_t length);

  std::string_view text_;
  std::size_t position_ = 0;
  int line_ = 1;
  std::vector<std::string_view> comments_;
};

}  // namespace tilewright::vgpu::ptx
