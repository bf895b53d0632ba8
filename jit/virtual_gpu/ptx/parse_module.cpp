// Directives of a module: versions, variables and their values, functions and their attributes.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "jit/virtual_gpu/ptx/grammar.h"

namespace tilewright::vgpu::ptx {
namespace {

constexpr std::int64_t kMostElements = std::int64_t{1} << 40;
constexpr std::int64_t kLargestAlignment = 4096;

}  // namespace

void Parser::top_level() {
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
  while (token_.kind == Kind::kDirective && (token_.text == "visible" || token_.text == "extern" ||
                                             token_.text == "weak" || token_.text == "common")) {
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

std::optional<Space> Parser::space_of(std::string_view name) {
  if (name == "global") return Space::kGlobal;
  if (name == "const") return Space::kConst;
  if (name == "shared") return Space::kShared;
  if (name == "local") return Space::kLocal;
  if (name == "param") return Space::kParam;
  if (name == "reg") return Space::kRegister;
  return std::nullopt;
}

Variable Parser::declarator(bool is_extern) {
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

void Parser::skip_parentheses() {
  expect('(');
  for (int depth = 1; depth > 0; advance()) {
    if (token_.kind == Kind::kEnd) unexpected("')'");
    if (token_.is('(')) ++depth;
    if (token_.is(')')) --depth;
  }
}

void Parser::name_and_extent(Variable& variable) {
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

void Parser::variables(std::vector<Variable>& into, bool is_extern) {
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

void Parser::initializer(Variable& variable) {
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

std::vector<Variable> Parser::parameter_list() {
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

void Parser::function() {
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

void Parser::attributes(Function& function) {
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

}  // namespace tilewright::vgpu::ptx
