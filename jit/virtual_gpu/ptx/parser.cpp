#include "jit/virtual_gpu/ptx/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "jit/virtual_gpu/ptx/lexer.h"

namespace tilewright::vgpu::ptx {
namespace {

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

constexpr std::int64_t kMostElements = std::int64_t{1} << 40;
constexpr std::int64_t kLargestAlignment = 4096;

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text), lexer_(text) {
    token_ = lexer_.next();
    ahead_ = lexer_.next();
  }

  Module module() {
    while (token_.kind != Token::Kind::kEnd) top_level();
    module_.comments = lexer_.comments();
    return std::move(module_);
  }

 private:
  using Kind = Token::Kind;

  [[noreturn]] void fail_at(int line, std::string message) {
    throw SyntaxError{fmt::format("ptx line {}: {}", line, message)};
  }
  [[noreturn]] void unexpected(std::string_view wanted) {
    std::string seen =
        token_.kind == Kind::kEnd
            ? "the end of the text"
            : fmt::format("'{}{}'", token_.kind == Kind::kDirective ? "." : "", token_.text);
    fail_at(token_.line, fmt::format("found {}, expected {}", seen, wanted));
  }
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

  Token advance() {
    if (token_.kind == Kind::kBad) unexpected("a token of PTX");
    Token token = token_;
    token_ = ahead_;
    ahead_ = lexer_.next();
    return token;
  }
  bool accept(char c) {
    if (!token_.is(c)) return false;
    advance();
    return true;
  }
  void expect(char c) {
    if (!accept(c)) unexpected(fmt::format("'{}'", c));
  }
  bool accept_directive(std::string_view name) {
    if (token_.kind != Kind::kDirective || token_.text != name) return false;
    advance();
    return true;
  }
  std::string_view expect_word(std::string_view what) {
    if (token_.kind != Kind::kWord) unexpected(what);
    return advance().text;
  }
  std::int64_t expect_integer(std::string_view what) {
    bool negative = accept('-');
    if (token_.kind != Kind::kNumber) unexpected(what);
    Token token = advance();
    std::int64_t value = integer_of(token);
    return negative ? -value : value;
  }

  std::int64_t integer_of(const Token& token) {
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

  /// 0f and 0d hold bits, decimals with a point or an exponent are f64.
  Operand number(const Token& token) {
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

  Type expect_type() {
    if (token_.kind != Kind::kDirective) unexpected("a type");
    Type type = parse_type(token_.text);
    if (type == Type::kNone) unexpected("a type");
    advance();
    return type;
  }

  // Module scope ---------------------------------------------------------------------------------

  void skip_line() {
    for (int line = token_.line; token_.kind != Kind::kEnd && token_.line == line;) advance();
  }
  void skip_braces() {
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

  void top_level() {
    if (accept(';')) return;
    if (token_.kind != Kind::kDirective) unexpected("a directive");
    std::string_view name = token_.text;
    if (name == "version") return skip_line();
    if (name == "target") {
      advance();
      module_.target = expect_word("a target such as sm_90");
      while (accept(',')) expect_word("a target option");
      return;
    }
    if (name == "address_size") {
      advance();
      if (std::int64_t bits = expect_integer("an address size"); bits != 64)
        fail_at(token_.line, fmt::format("address size is {}, expected 64", bits));
      return;
    }
    if (name == "file" || name == "loc") return skip_line();
    if (name == "section") return skip_braces();
    if (name == "pragma" || name == "alias") {
      while (!token_.is(';')) {
        if (token_.kind == Kind::kEnd) unexpected("';'");
        advance();
      }
      return;
    }
    bool is_extern = false;
    while (token_.kind == Kind::kDirective &&
           (token_.text == "visible" || token_.text == "extern" || token_.text == "weak" ||
            token_.text == "common")) {
      is_extern |= token_.text == "extern";
      advance();
    }
    if (token_.kind != Kind::kDirective) unexpected("a directive");
    if (token_.text == "entry" || token_.text == "func") return function();
    if (token_.text == "global" || token_.text == "const" || token_.text == "shared") {
      variables(module_.variables, is_extern);
      return;
    }
    unexpected("a directive of module scope");
  }

  static std::optional<Space> space_of(std::string_view name) {
    if (name == "global") return Space::kGlobal;
    if (name == "const") return Space::kConst;
    if (name == "shared") return Space::kShared;
    if (name == "local") return Space::kLocal;
    if (name == "param") return Space::kParam;
    if (name == "reg") return Space::kRegister;
    return std::nullopt;
  }

  /// .space {.align n} {.v2|.v4} .type name{[n]...} {= initial} {, ...}
  Variable declarator(bool is_extern) {
    Variable variable;
    variable.line = token_.line;
    variable.is_extern = is_extern;
    variable.space = *space_of(advance().text);
    int vector = 1;
    bool aligned = false;
    for (;;) {
      if (accept_directive("align")) {
        // After .ptr it speaks of the pointee.
        const std::int64_t alignment = expect_integer("an alignment");
        if (alignment < 1 || alignment > kLargestAlignment || (alignment & (alignment - 1)) != 0)
          fail_at(token_.line, fmt::format("alignment is {}, expected a power of two up to {}",
                                           alignment, kLargestAlignment));
        variable.alignment = static_cast<int>(alignment);
        aligned = true;
      } else if (accept_directive("v2")) {
        vector = 2;
      } else if (accept_directive("v4")) {
        vector = 4;
      } else if (accept_directive("attribute")) {
        skip_parentheses();
      } else {
        break;
      }
    }
    variable.type = expect_type();
    if (!aligned) variable.alignment = std::max(1, size_of(variable.type) * vector);
    if (accept_directive("ptr")) {
      while (token_.kind == Kind::kDirective) {
        if (accept_directive("align"))
          expect_integer("an alignment");
        else
          advance();
      }
    }
    variable.count = vector;
    name_and_extent(variable);
    return variable;
  }

  void skip_parentheses() {
    expect('(');
    for (int depth = 1; depth > 0; advance()) {
      if (token_.kind == Kind::kEnd) unexpected("')'");
      if (token_.is('(')) ++depth;
      if (token_.is(')')) --depth;
    }
  }

  void name_and_extent(Variable& variable) {
    variable.name = expect_word("a name");
    while (accept('[')) {
      if (accept(']')) {
        variable.count = 0;
      } else {
        const int line = token_.line;
        const std::int64_t count = expect_integer("a number of elements");
        if (count < 0 || count > kMostElements ||
            variable.count > kMostElements / std::max<std::int64_t>(count, 1))
          fail_at(line, fmt::format("{} has more than {} elements", variable.name, kMostElements));
        variable.count *= count;
        expect(']');
      }
    }
  }

  void variables(std::vector<Variable>& into, bool is_extern) {
    Variable variable = declarator(is_extern);
    int vector = 1;
    for (;;) {
      if (accept('=')) {
        initializer(variable);
        std::int64_t elements =
            static_cast<std::int64_t>(variable.initial.size()) / size_of(variable.type);
        if (variable.count == 0) variable.count = elements;
        if (elements > variable.count)
          fail_at(variable.line, fmt::format("{} has {} initial values, expected at most {}",
                                             variable.name, elements, variable.count));
      }
      into.push_back(variable);
      if (!accept(',')) break;
      Variable next;
      next.space = variable.space;
      next.type = variable.type;
      next.alignment = variable.alignment;
      next.is_extern = is_extern;
      next.line = token_.line;
      next.count = vector;
      name_and_extent(next);
      variable = std::move(next);
    }
    expect(';');
  }

  void initializer(Variable& variable) {
    Depth depth(*this);
    if (accept('{')) {
      if (accept('}')) return;
      do initializer(variable);
      while (accept(','));
      expect('}');
      return;
    }
    std::uint64_t bits = 0;
    if (token_.kind == Kind::kWord) {
      Variable::Relocation relocation;
      relocation.offset = static_cast<std::int64_t>(variable.initial.size());
      relocation.symbol = advance().text;
      if (relocation.symbol == "generic") {
        expect('(');
        relocation.symbol = expect_word("a variable");
        expect(')');
        relocation.generic = true;
      }
      if (accept('+')) relocation.addend = expect_integer("an offset");
      variable.relocations.push_back(relocation);
    } else {
      bool negative = accept('-');
      if (token_.kind != Kind::kNumber) unexpected("an initial value");
      Operand value = number(advance());
      bits = static_cast<std::uint64_t>(value.integer);
      if (value.kind == Operand::Kind::kFloat64 && variable.type == Type::kF32) {
        double wide;
        std::memcpy(&wide, &bits, 8);
        auto narrow = static_cast<float>(wide);
        bits = 0;
        std::memcpy(&bits, &narrow, 4);
      }
      if (negative) {
        if (variable.type == Type::kF32)
          bits ^= 0x80000000u;
        else if (variable.type == Type::kF64)
          bits ^= std::uint64_t{1} << 63;
        else
          bits = -bits;
      }
    }
    auto at = variable.initial.size();
    auto size = static_cast<std::size_t>(size_of(variable.type));
    variable.initial.resize(at + size);
    std::memcpy(variable.initial.data() + at, &bits, std::min<std::size_t>(size, 8));
  }

  // Functions ------------------------------------------------------------------------------------

  std::vector<Variable> parameter_list() {
    std::vector<Variable> list;
    expect('(');
    if (accept(')')) return list;
    do {
      if (token_.kind != Kind::kDirective || (token_.text != "param" && token_.text != "reg"))
        unexpected("a parameter");
      list.push_back(declarator(false));
    } while (accept(','));
    expect(')');
    return list;
  }

  void function() {
    Function function;
    function.line = token_.line;
    function.entry = advance().text == "entry";
    if (token_.is('(')) function.results = parameter_list();
    function.name = expect_word("a function's name");
    if (token_.is('(')) function.parameters = parameter_list();
    attributes(function);
    if (accept(';')) {
      function.declaration = true;
      module_.functions.push_back(std::move(function));
      return;
    }
    if (!token_.is('{')) unexpected("'{' or ';'");
    function_ = &function;
    scopes_ = RegisterScopes();
    block();
    module_.functions.push_back(std::move(function));
  }

  void attributes(Function& function) {
    while (token_.kind == Kind::kDirective) {
      std::string_view name = advance().text;
      std::vector<int> numbers;
      if (name == "pragma") {
        if (token_.kind != Kind::kString) unexpected("a string");
        advance();
        expect(';');
        continue;
      }
      if (name == "attribute") {
        skip_parentheses();
        continue;
      }
      if (token_.kind == Kind::kNumber) {
        do numbers.push_back(static_cast<int>(expect_integer("a number")));
        while (accept(','));
      }
      if (name == "maxntid" || name == "reqntid") {
        function.max_threads = 1;
        for (int n : numbers)
          function.max_threads = static_cast<int>(
              std::clamp<std::int64_t>(std::int64_t{function.max_threads} * n, 1, 1024));
        function.required_threads = name == "reqntid";
      } else if (name == "maxnreg" && !numbers.empty()) {
        function.max_registers = numbers[0];
      } else if (name == "minnctapersm" && !numbers.empty()) {
        function.min_blocks = numbers[0];
      } else if (name == "reqnctapercluster") {
        function.cluster = numbers;
      } else if (name == "explicitcluster") {
        function.explicit_cluster = true;
      } else if (name == "maxclusterrank" && !numbers.empty()) {
        function.max_cluster_rank = numbers[0];
      }
    }
  }

  void block() {
    Depth depth(*this);
    expect('{');
    const std::size_t label = function_->labels.size(), step = function_->instructions.size(),
                      targets = function_->branch_targets.size();
    scopes_.enter();
    while (!accept('}')) {
      if (token_.kind == Kind::kEnd) unexpected("'}'");
      statement();
    }
    scopes_.leave();
    if (!scopes_.outside()) make_labels_local(label, step, targets);
  }

  /// Labels of an inner block, from `label` on, are known there only: each time an asm statement is
  /// expanded, it brings its labels along. They get names that no other block has.
  void make_labels_local(std::size_t label, std::size_t step, std::size_t targets) {
    for (; label < function_->labels.size(); ++label) {
      std::string_view& name = function_->labels[label].name;
      const std::string_view old = name;
      module_.label_names.push_back(fmt::format("{}.{}", old, module_.label_names.size()));
      name = module_.label_names.back();
      for (std::size_t i = step; i < function_->instructions.size(); ++i)
        for (Operand& operand : function_->instructions[i].operands)
          if (operand.kind == Operand::Kind::kSymbol && operand.name == old) operand.name = name;
      for (std::size_t i = targets; i < function_->branch_targets.size(); ++i)
        for (std::string_view& target : function_->branch_targets[i].labels)
          if (target == old) target = name;
    }
  }

  void statement() {
    if (accept(';')) return;
    if (token_.is('{')) return block();
    if (token_.kind == Kind::kDirective) return body_directive();
    if (token_.kind == Kind::kWord && ahead_.is(':')) {
      std::string_view name = advance().text;
      advance();
      if (accept_directive("branchtargets")) {
        BranchTargets targets{name, {}};
        do targets.labels.push_back(expect_word("a label"));
        while (accept(','));
        expect(';');
        function_->branch_targets.push_back(std::move(targets));
      } else if (token_.kind == Kind::kDirective && token_.text.starts_with("call")) {
        while (!token_.is(';')) {  // .callprototype, .calltargets
          if (token_.kind == Kind::kEnd) unexpected("';'");
          advance();
        }
        advance();
      } else {
        function_->labels.push_back({name, static_cast<int>(function_->instructions.size())});
      }
      return;
    }
    instruction();
  }

  void body_directive() {
    if (token_.text == "loc" || token_.text == "file") return skip_line();
    if (token_.text == "pragma") {
      advance();
      if (token_.kind != Kind::kString) unexpected("a string");
      advance();
      expect(';');
      return;
    }
    if (token_.text == "reg") return registers();
    bool is_extern = accept_directive("extern");
    auto space = token_.kind == Kind::kDirective ? space_of(token_.text) : std::nullopt;
    if (!space || *space == Space::kRegister) unexpected("an instruction or a declaration");
    variables(*space == Space::kGlobal || *space == Space::kConst ? module_.variables
                                                                  : function_->variables,
              is_extern);
  }

  void registers() {
    advance();
    if (token_.kind == Kind::kDirective && (token_.text == "v2" || token_.text == "v4"))
      unexpected("a scalar register");
    Type type = expect_type();
    do {
      std::string_view name = expect_word("a register's name");
      int first = static_cast<int>(function_->registers.size());
      if (accept('<')) {
        auto count = static_cast<int>(expect_integer("a number of registers"));
        if (count < 0 || count > 1 << 20)
          fail_at(token_.line,
                  fmt::format("{} registers {}, expected at most {}", count, name, 1 << 20));
        expect('>');
        for (int i = 0; i < count; ++i)
          function_->registers.push_back({fmt::format("{}{}", name, i), type});
        scopes_.declare_range(name, first, count);
      } else {
        function_->registers.push_back({std::string(name), type});
        scopes_.declare(name, first);
      }
    } while (accept(','));
    expect(';');
  }

  void instruction() {
    Instruction instruction;
    instruction.line = token_.line;
    const char* begin = token_.text.data();
    if (accept('@')) {
      instruction.guard_negated = accept('!');
      std::string_view name = expect_word("a predicate");
      instruction.guard = register_named(name);
    }
    instruction.opcode = expect_word("an instruction");
    while (token_.kind == Kind::kDirective) instruction.modifiers.push_back(advance().text);
    if (!token_.is(';')) {
      do instruction.operands.push_back(operand());
      while (accept(','));
    }
    instruction.text =
        std::string_view(begin, static_cast<std::size_t>(token_.text.data() - begin));
    while (!instruction.text.empty() && instruction.text.back() == ' ')
      instruction.text.remove_suffix(1);
    expect(';');
    function_->instructions.push_back(std::move(instruction));
  }

  int register_named(std::string_view name) {
    int index = scopes_.find(name);
    if (index < 0) fail_at(token_.line, fmt::format("register '{}' is not declared", name));
    return index;
  }

  Operand operand() {
    Operand first = simple_operand();
    if (!accept('|')) return first;
    Operand pair;
    pair.kind = Operand::Kind::kPair;
    pair.elements.push_back(std::move(first));
    pair.elements.push_back(simple_operand());
    return pair;
  }

  Operand simple_operand() {
    Depth depth(*this);
    Operand operand;
    if (accept('!')) {
      operand = simple_operand();
      operand.negated = !operand.negated;
      return operand;
    }
    if (accept('-')) {
      if (token_.kind != Kind::kNumber) unexpected("a number");
      operand = number(advance());
      if (operand.kind == Operand::Kind::kInteger)
        operand.integer = -operand.integer;
      else
        operand.integer ^= operand.kind == Operand::Kind::kFloat32 ? std::int64_t{0x80000000}
                                                                   : std::int64_t(1ull << 63);
      return operand;
    }
    if (token_.kind == Kind::kNumber) return number(advance());
    if (accept('{') || token_.is('(')) {
      bool list = accept('(');
      operand.kind = list ? Operand::Kind::kList : Operand::Kind::kVector;
      char close = list ? ')' : '}';
      if (accept(close)) return operand;
      do operand.elements.push_back(this->operand());
      while (accept(','));
      expect(close);
      return operand;
    }
    if (accept('[')) return address();
    std::string_view name = expect_word("an operand");
    if (name == "_") {
      operand.kind = Operand::Kind::kSink;
      return operand;
    }
    if (int index = scopes_.find(name); index >= 0) {
      operand.kind = Operand::Kind::kRegister;
      operand.index = index;
      return operand;
    }
    operand.name = name;
    if (name.front() == '%') {
      operand.kind = Operand::Kind::kSpecial;
      if (token_.kind == Kind::kDirective && token_.text.size() == 1)
        operand.name = std::string_view(
            name.data(),
            static_cast<std::size_t>(token_.text.data() - name.data()) + advance().text.size());
      return operand;
    }
    if (name == "WARP_SZ") {
      operand.integer = 32;
      return operand;
    }
    operand.kind = Operand::Kind::kSymbol;
    if (accept('+')) operand.integer = expect_integer("an offset");
    return operand;
  }

  Operand address() {
    Operand operand;
    operand.kind = Operand::Kind::kAddress;
    if (token_.kind == Kind::kNumber || token_.is('-')) {
      operand.integer = expect_integer("an address");
    } else {
      std::string_view name = expect_word("a register, a variable or an address");
      operand.index = scopes_.find(name);
      if (operand.index < 0) operand.name = name;
      if (operand.index < 0 && name.front() == '%') register_named(name);
      if (accept('+'))
        operand.integer = expect_integer("an offset");
      else if (token_.is('-'))
        operand.integer = expect_integer("an offset");
    }
    while (accept(',')) operand.elements.push_back(this->operand());
    expect(']');
    return operand;
  }

  std::string_view text_;
  Lexer lexer_;
  Token token_, ahead_;
  Module module_;
  Function* function_ = nullptr;
  int depth_ = 0;
  RegisterScopes scopes_;
};

}  // namespace

Result<Module> parse(std::string_view text) {
  try {
    return Parser(text).module();
  } catch (const SyntaxError& error) {
    return fail(ErrorCode::kInvalidArgument, error.message);
  }
}

}  // namespace tilewright::vgpu::ptx
