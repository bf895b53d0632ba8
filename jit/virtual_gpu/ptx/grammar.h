/// The parser of PTX, by recursive descent. Private to ptx/: parse() of parser.h is what others call.
/// parser.cpp has the words, parse_module.cpp the directives of a module, parse_body.cpp what stands
/// between the braces of a function.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "jit/virtual_gpu/ptx/lexer.h"
#include "jit/virtual_gpu/ptx/module.h"

namespace tilewright::vgpu::ptx {

/// Thrown by the parser's own functions and caught in parse(): a syntax error ends the parse.
struct SyntaxError {
  std::string message;
};

/// Names of registers in the scopes of one function body; `%f<8>` declares a range by its prefix.
class RegisterScopes {
 public:
  void enter() { scopes_.emplace_back(); }
  void leave() { scopes_.pop_back(); }
  bool outermost() const { return scopes_.size() <= 1; }
  bool outside() const { return scopes_.empty(); }

  void declare(std::string_view name, int index) {
    scopes_.back().names[std::string(name)] = {index, 0};
  }
  void declare_range(std::string_view prefix, int first, int count) {
    scopes_.back().names[std::string(prefix) + '<'] = {first, count};
  }
  int find(std::string_view name) const {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      if (auto it = scope->names.find(std::string(name)); it != scope->names.end())
        return it->second.first;
      std::size_t digits = name.size();
      while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') --digits;
      if (digits == name.size()) continue;
      auto it = scope->names.find(std::string(name.substr(0, digits)) + '<');
      if (it == scope->names.end()) continue;
      int number = 0;
      std::from_chars(name.data() + digits, name.data() + name.size(), number);
      if (number < it->second.second) return it->second.first + number;
    }
    return -1;
  }

 private:
  struct Scope {
    std::unordered_map<std::string, std::pair<int, int>> names;  ///< first index, count of a range
  };
  std::vector<Scope> scopes_;
};

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text), lexer_(text) {
    token_ = lexer_.next();
    ahead_ = lexer_.next();
  }

  Module module();

 private:
  using Kind = Token::Kind;

  [[noreturn]] void fail_at(int line, std::string message);
  [[noreturn]] void unexpected(std::string_view wanted);
  /// Nesting that no compiler makes, and that would use up the stack.
  class Depth {
   public:
    explicit Depth(Parser& parser) : parser_(parser) {
      if (++parser_.depth_ > 100) parser_.fail_at(parser_.token_.line, "nested more than 100 deep");
    }
    ~Depth() { --parser_.depth_; }

   private:
    Parser& parser_;
  };

  Token advance();
  bool accept(char c);
  void expect(char c);
  bool accept_directive(std::string_view name);
  std::string_view expect_word(std::string_view what);
  std::int64_t expect_integer(std::string_view what);

  std::int64_t integer_of(const Token& token);

  /// 0f and 0d hold bits, decimals with a point or an exponent are f64.
  Operand number(const Token& token);

  Type expect_type();

  // Module scope ---------------------------------------------------------------------------------

  void skip_line();
  void skip_braces();

  void top_level();

  static std::optional<Space> space_of(std::string_view name);

  /// .space {.align n} {.v2|.v4} .type name{[n]...} {= initial} {, ...}
  Variable declarator(bool is_extern);

  void skip_parentheses();

  void name_and_extent(Variable& variable);

  void variables(std::vector<Variable>& into, bool is_extern);

  void initializer(Variable& variable);

  // Functions ------------------------------------------------------------------------------------

  std::vector<Variable> parameter_list();

  void function();

  void attributes(Function& function);

  void block();

  /// Labels of an inner block, from `label` on, are known there only: each time an asm statement is
  /// expanded, it brings its labels along. They get names that no other block has.
  void make_labels_local(std::size_t label, std::size_t step, std::size_t targets);

  void statement();

  void body_directive();

  void registers();

  void instruction();

  int register_named(std::string_view name);

  Operand operand();

  Operand simple_operand();

  Operand address();

  std::string_view text_;
  Lexer lexer_;
  Token token_, ahead_;
  Module module_;
  Function* function_ = nullptr;
  int depth_ = 0;
  RegisterScopes scopes_;
};

}  // namespace tilewright::vgpu::ptx
