// Calls: the callee's instructions take the place of the call. A call through a pointer compares it
// with every function whose address the module takes.
#include <fmt/format.h>

#include <algorithm>

#include "jit/virtual_gpu/program/lowering.h"

namespace tilewright::vgpu {
namespace {

using Kind = ptx::Operand::Kind;

std::size_t count(const ptx::Operand* list) { return list == nullptr ? 0 : list->elements.size(); }

}  // namespace

void Lowering::leave() {
  if (frame_->end < 0) {
    emit({.op = Op::kExit}, {}, {});
    return;
  }
  emit({.op = Op::kBranch}, {}, {}).target = frame_->end;
}

void Lowering::call() {
  // call{.uni} (results), function, (parameters)
  const auto& operands = instruction_->operands;
  CallSite site;
  std::size_t i = 0;
  if (i < operands.size() && operands[i].kind == Kind::kList) site.results = &operands[i++];
  if (i >= operands.size()) invalid("the function to call is missing");
  site.callee = &operands[i++];
  if (i < operands.size() && operands[i].kind == Kind::kList) site.parameters = &operands[i];

  if (site.callee->kind == Kind::kRegister) {
    guard_by_branch();
    return call_pointer(site);
  }
  if (site.callee->kind != Kind::kSymbol) invalid("expected a function or a register");
  const ptx::Function* callee = nullptr;
  for (const auto& function : module_.functions)
    if (function.name == site.callee->name && !function.declaration) callee = &function;
  guard_by_branch();
  if (callee != nullptr) return expand(*callee, site);
  if (!call_system(site)) unsupported("the function called has no body in this module");
}

void Lowering::expand(const ptx::Function& callee, const CallSite& site) {
  for (const Frame* frame : stack_)
    if (frame->function == &callee) unsupported("a recursive call");
  Frame frame;
  auto bind = [&](const std::vector<ptx::Variable>& formal, const ptx::Operand* actual) {
    if (count(actual) != formal.size())
      invalid(fmt::format("passes {} values, expected {}", count(actual), formal.size()));
    for (std::size_t k = 0; k < formal.size(); ++k) {
      const auto& operand = actual->elements[k];
      auto it = frame_->local.find(operand.name);
      if (operand.kind != Kind::kSymbol || it == frame_->local.end() ||
          formal[k].space != Space::kParam)
        unsupported("a call whose parameters are not .param variables");
      frame.local[formal[k].name] = it->second;
    }
  };
  bind(callee.results, site.results);
  bind(callee.parameters, site.parameters);

  frame.end = new_label();
  Frame* outer = frame_;
  enter(frame, callee);
  frame_ = &frame;
  stack_.push_back(&frame);
  lower_body();
  stack_.pop_back();
  frame_ = outer;
  place_label(frame.end);
}

bool Lowering::address_taken(std::string_view function) const {
  for (const auto& variable : module_.variables)
    for (const auto& relocation : variable.relocations)
      if (relocation.symbol == function) return true;
  for (const auto& other : module_.functions)
    for (const auto& instruction : other.instructions)
      if (instruction.opcode != "call" &&
          std::any_of(instruction.operands.begin(), instruction.operands.end(),
                      [&](const auto& operand) { return operand.name == function; }))
        return true;
  return false;
}

void Lowering::call_pointer(const CallSite& site) {
  const int pointer = use(*site.callee, Type::kU64);
  const int done = new_label();
  for (const auto& function : module_.functions) {
    if (function.entry || function.declaration ||
        function.parameters.size() != count(site.parameters) ||
        function.results.size() != count(site.results) || !address_taken(function.name))
      continue;
    // One that is under way is called recursively, or not at all: the trap below.
    if (std::any_of(stack_.begin(), stack_.end(),
                    [&](const Frame* frame) { return frame->function == &function; }))
      continue;
    const int equal = temporary(Width::kPredicate), next = new_label();
    emit_auxiliary({.op = Op::kSetp, .type = Type::kPred, .from = Type::kU64}, {equal},
                   {pointer, constant(Width::k64, globals_.at(function.name))});
    Draft& branch = emit({.op = Op::kBranchIf}, {}, {equal}, 1);
    branch.target = next;
    branch.counted = false;
    expand(function, site);
    Draft& leave = emit({.op = Op::kBranch}, {}, {});
    leave.target = done;
    leave.counted = false;
    place_label(next);
  }
  emit({.op = Op::kTrap}, {}, {}, static_cast<int>(TrapReason::kNoFunction)).counted = false;
  place_label(done);
}

int Lowering::argument(const CallSite& site, std::size_t index, Type type) {
  if (index >= count(site.parameters)) invalid("passes too few values");
  auto it = frame_->local.find(site.parameters->elements[index].name);
  if (it == frame_->local.end()) unsupported("a call whose parameters are not .param variables");
  const int bytes = ptx::size_of(type);
  Form load{.op = Op::kLoad, .type = type, .space = Space::kLocal};
  load.register_bytes = static_cast<std::uint8_t>(bytes);
  Site place{Space::kLocal, static_cast<std::uint16_t>(bytes)};
  place.register_bytes = load.register_bytes;
  const int value = temporary(width_of(bytes));
  emit_memory(load, {value}, {constant(Width::k64, static_cast<std::uint64_t>(it->second))}, 0,
              place);
  kernel_.drafts.back().counted = false;
  return value;
}

bool Lowering::call_system(const CallSite& site) {
  std::string_view name = site.callee->name;
  SystemCall call = SystemCall::kPrintf;
  std::vector<int> uses;
  Type result = Type::kNone;
  if (name == "vprintf") {
    result = Type::kU32;
    uses = {argument(site, 0, Type::kU64), argument(site, 1, Type::kU64)};
  } else if (name == "malloc") {
    call = SystemCall::kMalloc;
    result = Type::kU64;
    uses = {argument(site, 0, Type::kU64)};
  } else if (name == "free") {
    call = SystemCall::kFree;
    uses = {argument(site, 0, Type::kU64)};
  } else if (name == "__assertfail") {
    // message, file, line, function, bytes of a character
    call = SystemCall::kAssertFail;
    if (count(site.parameters) < 4) return emit({.op = Op::kTrap}, {}, {}), true;
    uses = {argument(site, 0, Type::kU64), argument(site, 1, Type::kU64),
            argument(site, 2, Type::kU32), argument(site, 3, Type::kU64)};
  } else {
    return false;
  }
  Form form{.op = Op::kSystemCall, .type = result};
  form.mode = static_cast<std::uint8_t>(call);
  const int bytes = result == Type::kNone ? 4 : ptx::size_of(result);
  const int value = temporary(width_of(bytes));
  emit(form, {value}, uses);
  if (result == Type::kNone || count(site.results) == 0) return true;
  auto it = frame_->local.find(site.results->elements[0].name);
  if (it == frame_->local.end()) unsupported("a call whose result is not a .param variable");
  Form store{.op = Op::kStore, .type = result, .space = Space::kLocal};
  store.register_bytes = static_cast<std::uint8_t>(bytes);
  Site place{Space::kLocal, static_cast<std::uint16_t>(bytes), true};
  place.register_bytes = store.register_bytes;
  emit_memory(store, {}, {constant(Width::k64, static_cast<std::uint64_t>(it->second)), value}, 0,
              place);
  kernel_.drafts.back().counted = false;
  return true;
}

}  // namespace tilewright::vgpu
