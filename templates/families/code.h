/// Text of generated code, line by line.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

namespace tilewright::templates {

/// In parentheses, unless it is one name or number.
inline std::string grouped(const std::string& text) {
  return text.find(' ') == std::string::npos ? text : fmt::format("({})", text);
}

class Code {
 public:
  template <typename... Args>
  Code& line(fmt::format_string<Args...> format, Args&&... args) {
    return append(format, fmt::make_format_args(args...));
  }
  Code& blank() {
    text_ += '\n';
    return *this;
  }
  /// `line`, and what follows indented, until close().
  template <typename... Args>
  Code& open(fmt::format_string<Args...> format, Args&&... args) {
    append(format, fmt::make_format_args(args...));
    indent_ += 2;
    return *this;
  }
  Code& close(std::string_view end = "}") {
    indent_ -= 2;
    return line("{}", end);
  }
  std::string take() { return std::move(text_); }

 private:
  Code& append(fmt::string_view format, fmt::format_args args) {
    text_.append(indent_, ' ');
    fmt::vformat_to(std::back_inserter(text_), format, args);
    text_ += '\n';
    return *this;
  }

  std::string text_;
  std::size_t indent_ = 0;
};

}  // namespace tilewright::templates
