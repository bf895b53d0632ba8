// What stands between the braces of a function: blocks, registers, labels, instructions, operands.
#include <fmt/format.h>

#include "jit/virtual_gpu/ptx/grammar.h"

namespace tilewright::vgpu::ptx {
void Parser::block() {
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

void Parser::make_labels_local(std::size_t label, std::size_t step, std::size_t targets) {
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

void Parser::statement() {
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

void Parser::body_directive() {
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

void Parser::registers() {
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

void Parser::instruction() {
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
  instruction.text = std::string_view(begin, static_cast<std::size_t>(token_.text.data() - begin));
  while (!instruction.text.empty() && instruction.text.back() == ' ')
    instruction.text.remove_suffix(1);
  expect(';');
  function_->instructions.push_back(std::move(instruction));
}

int Parser::register_named(std::string_view name) {
  int index = scopes_.find(name);
  if (index < 0) fail_at(token_.line, fmt::format("register '{}' is not declared", name));
  return index;
}

Operand Parser::operand() {
  Operand first = simple_operand();
  if (!accept('|')) return first;
  Operand pair;
  pair.kind = Operand::Kind::kPair;
  pair.elements.push_back(std::move(first));
  pair.elements.push_back(simple_operand());
  return pair;
}

Operand Parser::simple_operand() {
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
      operand.name =
          std::string_view(name.data(), static_cast<std::size_t>(token_.text.data() - name.data()) +
                                            advance().text.size());
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

Operand Parser::address() {
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

}  // namespace tilewright::vgpu::ptx
