#include "jit/virtual_gpu/program/lowering.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace tilewright::vgpu {
namespace {

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return multiple <= 1 ? value : (value + multiple - 1) / multiple * multiple;
}

/// Bits of an immediate operand as an operand of `type`.
std::uint64_t immediate_bits(const ptx::Operand& operand, Type type) {
  auto bits = static_cast<std::uint64_t>(operand.integer);
  if (operand.kind == ptx::Operand::Kind::kFloat64 && type == Type::kF32) {
    double wide;
    std::memcpy(&wide, &bits, 8);
    auto narrow = static_cast<float>(wide);
    std::uint32_t narrow_bits;
    std::memcpy(&narrow_bits, &narrow, 4);
    return narrow_bits;
  }
  if (operand.kind == ptx::Operand::Kind::kFloat32 && type == Type::kF64) {
    auto narrow_bits = static_cast<std::uint32_t>(bits);
    float narrow;
    std::memcpy(&narrow, &narrow_bits, 4);
    double wide = narrow;
    std::memcpy(&bits, &wide, 8);
    return bits;
  }
  return bits;
}

std::uint64_t truncate(std::uint64_t bits, int bytes) {
  return bytes >= 8 ? bits : bits & ((std::uint64_t{1} << (8 * bytes)) - 1);
}

}  // namespace

Modifiers::Modifiers(const ptx::Instruction& instruction) : names_(instruction.modifiers) {}

bool Modifiers::take(std::string_view name) {
  auto it = std::find(names_.begin(), names_.end(), name);
  if (it == names_.end()) return false;
  names_.erase(it);
  return true;
}
Type Modifiers::take_type() {
  for (auto it = names_.begin(); it != names_.end(); ++it) {
    Type type = ptx::parse_type(*it);
    if (type == Type::kNone) continue;
    names_.erase(it);
    return type;
  }
  return Type::kNone;
}
Round Modifiers::take_round() {
  constexpr std::pair<std::string_view, Round> kRounds[] = {
      {"rn", Round::kNearest}, {"rz", Round::kZero}, {"rm", Round::kDown}, {"rp", Round::kUp}};
  for (auto [name, round] : kRounds) {
    if (take(name)) {
      round_given_ = true;
      return round;
    }
  }
  return Round::kNearest;
}
int Modifiers::take_vector() { return take("v2") ? 2 : take("v4") ? 4 : take("v8") ? 8 : 1; }
std::string_view Modifiers::left() const {
  return names_.empty() ? std::string_view() : names_.front();
}
std::string_view Modifiers::next() {
  if (names_.empty()) return {};
  std::string_view name = names_.front();
  names_.erase(names_.begin());
  return name;
}

void Lowering::unsupported(std::string_view why) {
  throw LoweringError{
      ErrorCode::kUnsupported,
      fmt::format("ptx line {}: {}: '{}'", instruction_->line, why, instruction_->text)};
}
void Lowering::invalid(std::string_view why) {
  throw LoweringError{
      ErrorCode::kInvalidArgument,
      fmt::format("ptx line {}: {}: '{}'", instruction_->line, why, instruction_->text)};
}

const ptx::Operand& Lowering::operand(std::size_t index) {
  if (index >= instruction_->operands.size())
    invalid(fmt::format("has {} operands, expected more", instruction_->operands.size()));
  return instruction_->operands[index];
}

int Lowering::register_bytes(const ptx::Operand& operand) const {
  if (operand.kind != ptx::Operand::Kind::kRegister) return -1;
  Width width = kernel_
                    .values[static_cast<std::size_t>(
                        frame_->registers[static_cast<std::size_t>(operand.index)])]
                    .width;
  return width == Width::kPredicate ? 0 : static_cast<int>(lane_bytes(width));
}

int Lowering::constant(Width width, std::uint64_t bits) {
  auto [it, fresh] = constants_.try_emplace({static_cast<int>(width), bits}, 0);
  if (fresh) {
    it->second = static_cast<int>(kernel_.values.size());
    kernel_.values.push_back({Value::Kind::kConstant, width, Special::kZero, bits});
  }
  return it->second;
}
int Lowering::special(Width width, Special special) {
  auto [it, fresh] = specials_.try_emplace({static_cast<int>(width), static_cast<int>(special)}, 0);
  if (fresh) {
    it->second = static_cast<int>(kernel_.values.size());
    kernel_.values.push_back({Value::Kind::kSpecial, width, special, 0});
  }
  return it->second;
}
int Lowering::temporary(Width width) {
  kernel_.values.push_back({Value::Kind::kRegister, width, Special::kZero, 0});
  return static_cast<int>(kernel_.values.size()) - 1;
}

int Lowering::special_register(std::string_view name, Type type) {
  struct Named {
    std::string_view name;
    Special special;
  };
  static constexpr Named kNamed[] = {
      {"%tid.x", Special::kTidX},
      {"%tid.y", Special::kTidY},
      {"%tid.z", Special::kTidZ},
      {"%ntid.x", Special::kNtidX},
      {"%ntid.y", Special::kNtidY},
      {"%ntid.z", Special::kNtidZ},
      {"%ctaid.x", Special::kCtaidX},
      {"%ctaid.y", Special::kCtaidY},
      {"%ctaid.z", Special::kCtaidZ},
      {"%nctaid.x", Special::kNctaidX},
      {"%nctaid.y", Special::kNctaidY},
      {"%nctaid.z", Special::kNctaidZ},
      {"%laneid", Special::kLaneId},
      {"%warpid", Special::kWarpId},
      {"%nwarpid", Special::kNwarpId},
      {"%lanemask_eq", Special::kLanemaskEq},
      {"%lanemask_le", Special::kLanemaskLe},
      {"%lanemask_lt", Special::kLanemaskLt},
      {"%lanemask_ge", Special::kLanemaskGe},
      {"%lanemask_gt", Special::kLanemaskGt},
      {"%dynamic_smem_size", Special::kDynamicSmemSize},
      {"%total_smem_size", Special::kTotalSmemSize},
      {"%aggr_smem_size", Special::kTotalSmemSize},
      {"%gridid", Special::kGridId},
      {"%smid", Special::kZero},
      {"%nsmid", Special::kOne},
      {"%clusterid.x", Special::kClusterIdX},
      {"%clusterid.y", Special::kClusterIdY},
      {"%clusterid.z", Special::kClusterIdZ},
      {"%nclusterid.x", Special::kNclusterIdX},
      {"%nclusterid.y", Special::kNclusterIdY},
      {"%nclusterid.z", Special::kNclusterIdZ},
      {"%cluster_ctaid.x", Special::kClusterCtaidX},
      {"%cluster_ctaid.y", Special::kClusterCtaidY},
      {"%cluster_ctaid.z", Special::kClusterCtaidZ},
      {"%cluster_nctaid.x", Special::kClusterNctaidX},
      {"%cluster_nctaid.y", Special::kClusterNctaidY},
      {"%cluster_nctaid.z", Special::kClusterNctaidZ},
      {"%cluster_ctarank", Special::kClusterCtarank},
      {"%cluster_nctarank", Special::kClusterNctarank},
      {"%is_explicit_cluster", Special::kIsExplicitCluster},
  };
  Width width = width_of(ptx::size_of(type));
  for (const auto& named : kNamed)
    if (named.name == name) return special(width, named.special);
  constexpr std::string_view kClocks[] = {"%clock",       "%clock_hi",       "%clock64",
                                          "%globaltimer", "%globaltimer_lo", "%globaltimer_hi"};
  for (std::size_t i = 0; i < std::size(kClocks); ++i) {
    if (kClocks[i] != name) continue;
    int value = temporary(width);
    emit_auxiliary({.op = Op::kClock, .type = type, .mode = static_cast<std::uint8_t>(i)}, {value},
                   {});
    return value;
  }
  unsupported(fmt::format("special register {} is not supported", name));
}

int Lowering::use(const ptx::Operand& operand, Type type, bool wider) {
  using Kind = ptx::Operand::Kind;
  int bytes = ptx::size_of(type);
  switch (operand.kind) {
    case Kind::kRegister: {
      int value = frame_->registers[static_cast<std::size_t>(operand.index)];
      Width width = kernel_.values[static_cast<std::size_t>(value)].width;
      bool fits =
          width == width_of(bytes) || (wider && width != Width::kPredicate && type != Type::kPred &&
                                       lane_bytes(width) > static_cast<std::uint32_t>(bytes));
      if (!fits)
        invalid(
            fmt::format("register {} does not fit the type .{}",
                        frame_->function->registers[static_cast<std::size_t>(operand.index)].name,
                        ptx::to_string(type)));
      if (operand.negated) {
        if (type != Type::kPred) invalid("only a predicate can be negated");
        int negated = temporary(Width::kPredicate);
        emit_auxiliary({.op = Op::kNot, .type = Type::kPred}, {negated}, {value});
        return negated;
      }
      return value;
    }
    case Kind::kInteger:
    case Kind::kFloat32:
    case Kind::kFloat64:
      if (type == Type::kPred)
        return constant(Width::kPredicate, operand.integer != 0 ? 0xffffffffu : 0);
      return constant(width_of(bytes), truncate(immediate_bits(operand, type), bytes));
    case Kind::kSymbol:
      return constant(width_of(bytes), truncate(symbol_address(operand), bytes));
    case Kind::kSpecial:
      return special_register(operand.name, type);
    default:
      invalid("an operand is not a register or a constant");
  }
}

int Lowering::def(const ptx::Operand& operand, Type type, bool wider) {
  if (operand.kind == ptx::Operand::Kind::kSink) return temporary(width_of(ptx::size_of(type)));
  if (operand.kind != ptx::Operand::Kind::kRegister) invalid("the destination is not a register");
  return use(operand, type, wider);
}

Draft& Lowering::emit(const Form& form, std::vector<int> defs, std::vector<int> uses,
                      std::int64_t immediate) {
  Draft draft;
  draft.form = form;
  draft.defs = std::move(defs);
  draft.uses = std::move(uses);
  draft.immediate = immediate;
  draft.line = instruction_->line;
  draft.text = instruction_->text;
  if (instruction_->guard >= 0 && around_ < 0) {
    draft.guard = frame_->registers[static_cast<std::size_t>(instruction_->guard)];
    draft.guard_negated = instruction_->guard_negated;
  }
  kernel_.drafts.push_back(std::move(draft));
  return kernel_.drafts.back();
}

void Lowering::emit_auxiliary(const Form& form, std::vector<int> defs, std::vector<int> uses) {
  Draft& draft = emit(form, std::move(defs), std::move(uses));
  draft.guard = -1;
  draft.counted = false;
}

void Lowering::emit_memory(const Form& form, std::vector<int> defs, std::vector<int> uses,
                           std::int64_t immediate, Site site) {
  Draft& draft = emit(form, std::move(defs), std::move(uses), immediate);
  draft.site = site;
  draft.has_site = true;
}

int Lowering::new_label() {
  kernel_.labels.push_back(-1);
  return static_cast<int>(kernel_.labels.size()) - 1;
}
void Lowering::place_label(int label) {
  kernel_.labels[static_cast<std::size_t>(label)] = static_cast<int>(kernel_.drafts.size());
}
int Lowering::label(std::string_view name) {
  auto it = frame_->labels.find(name);
  if (it == frame_->labels.end()) invalid(fmt::format("label '{}' is not defined", name));
  return it->second;
}
std::vector<int> Lowering::branch_targets(std::string_view name) {
  for (const auto& targets : frame_->function->branch_targets) {
    if (targets.name != name) continue;
    std::vector<int> labels;
    for (std::string_view target : targets.labels) labels.push_back(label(target));
    return labels;
  }
  invalid(fmt::format("branch targets '{}' are not defined", name));
}

int Lowering::allocate_local(std::int64_t bytes, int alignment) {
  local_end_ = round_up(local_end_, alignment);
  auto offset = static_cast<int>(local_end_);
  local_end_ += bytes;
  return offset;
}

int Lowering::shared_offset(const ptx::Variable& variable) {
  shared_end_ = round_up(shared_end_, variable.alignment);
  auto offset = static_cast<int>(shared_end_);
  shared_end_ += variable.bytes();
  return offset;
}

std::uint64_t Lowering::symbol_address(const ptx::Operand& operand) {
  auto offset = static_cast<std::uint64_t>(operand.integer);
  auto in = [&](const std::unordered_map<std::string_view, int>& map) {
    auto it = map.find(operand.name);
    return it == map.end() ? -1 : it->second;
  };
  if (int at = in(frame_->local); at >= 0) return static_cast<std::uint64_t>(at) + offset;
  if (int at = in(frame_->shared); at >= 0) return static_cast<std::uint64_t>(at) + offset;
  if (int at = in(frame_->parameter); at >= 0) return static_cast<std::uint64_t>(at) + offset;
  if (int at = in(module_shared_); at >= 0) return static_cast<std::uint64_t>(at) + offset;
  if (auto it = globals_.find(operand.name); it != globals_.end()) return it->second + offset;
  if (module_.find(operand.name) != nullptr) unsupported("the address of a function is taken");
  invalid(fmt::format("'{}' is not defined", operand.name));
}

Lowering::Address Lowering::address(const ptx::Operand& operand, Space space) {
  if (operand.kind != ptx::Operand::Kind::kAddress) invalid("expected an address in brackets");
  if (!operand.elements.empty()) unsupported("an address of several parts");
  Address result;
  result.space = space;
  if (operand.index >= 0) {
    result.value = frame_->registers[static_cast<std::size_t>(operand.index)];
    Width width = kernel_.values[static_cast<std::size_t>(result.value)].width;
    if (width != Width::k32 && width != Width::k64) invalid("the address is not of 32 or 64 bits");
    result.bytes = width == Width::k32 ? 4 : 8;
    if (result.bytes == 4 && space != Space::kShared && space != Space::kLocal &&
        space != Space::kParam)
      invalid("an address of 32 bits outside of shared and local memory");
    result.offset = static_cast<std::int32_t>(operand.integer);
    if (result.offset != operand.integer) {
      Type type = result.bytes == 4 ? Type::kU32 : Type::kU64;
      int sum = temporary(width);
      int offset =
          constant(width, truncate(static_cast<std::uint64_t>(operand.integer), result.bytes));
      emit_auxiliary({.op = Op::kAdd, .type = type}, {sum}, {result.value, offset});
      result.value = sum;
      result.offset = 0;
    }
    return result;
  }
  std::uint64_t at = static_cast<std::uint64_t>(operand.integer);
  if (!operand.name.empty()) {
    if (space == Space::kParam && frame_->local.contains(operand.name))
      result.space = Space::kLocal;  // parameters of a call lie in local memory
    else if (space == Space::kParam && frame_->parameter.contains(operand.name))
      result.kernel_parameter = true;
    at = symbol_address(operand);
    if (result.space == Space::kGeneric) {
      if (frame_->local.contains(operand.name))
        at += kLocalWindow;
      else if (frame_->shared.contains(operand.name) || module_shared_.contains(operand.name))
        at += kSharedWindow;
    }
  }
  if (result.kernel_parameter) {
    result.offset = static_cast<std::int32_t>(at);
    return result;
  }
  result.value = constant(Width::k64, at);
  return result;
}

void Lowering::lay_out_parameters(const ptx::Function& kernel, Frame& frame) {
  std::int64_t offset = 0;
  for (const auto& parameter : kernel.parameters) {
    offset = round_up(offset, parameter.alignment);
    frame.parameter[parameter.name] = static_cast<int>(offset);
    kernel_.info.parameters.push_back(
        {static_cast<int>(offset), static_cast<int>(parameter.bytes()), parameter.alignment});
    offset += parameter.bytes();
  }
  kernel_.info.parameter_bytes = static_cast<int>(offset);
}

void Lowering::enter(Frame& frame, const ptx::Function& function) {
  frame.function = &function;
  for (const auto& reg : function.registers) {
    if (reg.type == Type::kB128)
      throw LoweringError{ErrorCode::kUnsupported,
                          fmt::format("ptx line {}: {}: register {} has 128 bits", function.line,
                                      function.name, reg.name)};
    frame.registers.push_back(temporary(width_of(ptx::size_of(reg.type))));
  }
  for (const auto& target : function.labels) frame.labels[target.name] = new_label();

  // Call sequences declare the same names again and again, with sizes of their own.
  std::unordered_map<std::string_view, std::pair<std::int64_t, int>> locals;
  for (const auto& variable : function.variables) {
    if (variable.space == Space::kShared) {
      if (!function.entry || (variable.is_extern && variable.count == 0)) continue;
      frame.shared[variable.name] = shared_offset(variable);
    } else if (variable.space == Space::kLocal || variable.space == Space::kParam) {
      auto& [bytes, alignment] = locals[variable.name];
      bytes = std::max(bytes, variable.bytes());
      alignment = std::max(alignment, variable.alignment);
      if (!frame.local.contains(variable.name)) frame.local[variable.name] = -1;
    }
  }
  for (const auto& variable : function.variables) {
    auto it = frame.local.find(variable.name);
    if (it == frame.local.end() || it->second >= 0) continue;
    auto [bytes, alignment] = locals[variable.name];
    it->second = allocate_local(bytes, alignment);
  }
}

DraftKernel Lowering::run(const ptx::Function& kernel) {
  kernel_.info.name = std::string(kernel.name);
  kernel_.info.max_threads = kernel.max_threads > 0 ? kernel.max_threads : 1024;
  for (std::size_t i = 0; i < kernel.cluster.size() && i < 3; ++i)
    kernel_.info.cluster[i] = static_cast<unsigned>(std::max(kernel.cluster[i], 1));
  if (!kernel.cluster.empty())
    for (unsigned& n : kernel_.info.cluster) n = std::max(n, 1u);
  kernel_.info.explicit_cluster = kernel.explicit_cluster;
  kernel_.info.max_cluster_blocks = static_cast<unsigned>(std::max(kernel.max_cluster_rank, 0));
  Frame frame;
  frame_ = &frame;
  stack_ = {&frame};

  // Shared variables of the module that this kernel, or what it calls, may name.
  auto named = [&](std::string_view name) {
    auto mentions = [&](const ptx::Operand& operand, auto&& self) -> bool {
      if (operand.name == name) return true;
      return std::any_of(operand.elements.begin(), operand.elements.end(),
                         [&](const auto& element) { return self(element, self); });
    };
    for (const auto& function : module_.functions) {
      if (function.entry && &function != &kernel) continue;
      for (const auto& instruction : function.instructions)
        for (const auto& operand : instruction.operands)
          if (mentions(operand, mentions)) return true;
    }
    return false;
  };
  ptx::Instruction nowhere;
  nowhere.line = kernel.line;
  nowhere.text = kernel.name;
  instruction_ = &nowhere;
  lay_out_parameters(kernel, frame);
  enter(frame, kernel);
  std::vector<const ptx::Variable*> dynamic;
  for (const auto& variable : kernel.variables)
    if (variable.space == Space::kShared && variable.is_extern && variable.count == 0)
      dynamic.push_back(&variable);
  for (const auto& variable : module_.variables) {
    if (variable.space != Space::kShared || !named(variable.name)) continue;
    if (variable.is_extern && variable.count == 0)
      dynamic.push_back(&variable);
    else
      module_shared_[variable.name] = shared_offset(variable);
  }
  // Callees may have shared variables of their own; their static sizes are known only as they are
  // lowered, hence they are laid out before the dynamic part.
  for (const auto& function : module_.functions) {
    if (function.entry) continue;
    for (const auto& variable : function.variables)
      if (variable.space == Space::kShared && !variable.is_extern)
        module_shared_[variable.name] = shared_offset(variable);
  }
  kernel_.info.static_shared_bytes = static_cast<int>(shared_end_ - kSharedBase);
  std::int64_t dynamic_offset = round_up(shared_end_, 16);
  for (const auto* variable : dynamic)
    dynamic_offset = round_up(dynamic_offset, variable->alignment);
  for (const auto* variable : dynamic)
    module_shared_[variable->name] = static_cast<int>(dynamic_offset);
  kernel_.dynamic_shared_offset = static_cast<int>(dynamic_offset);

  lower_body();
  instruction_ = &nowhere;
  emit({.op = Op::kExit}, {}, {}).counted = false;  // a body may end without ret
  kernel_.info.local_bytes = static_cast<int>(local_end_ - kLocalBase);
  return std::move(kernel_);
}

void Lowering::lower_body() {
  const ptx::Function& function = *frame_->function;
  std::size_t next_label = 0;
  for (std::size_t i = 0; i <= function.instructions.size(); ++i) {
    for (; next_label < function.labels.size() &&
           function.labels[next_label].position == static_cast<int>(i);
         ++next_label)
      place_label(frame_->labels[function.labels[next_label].name]);
    if (i < function.instructions.size()) lower_instruction(function.instructions[i]);
  }
}

void Lowering::lower_instruction(const ptx::Instruction& instruction) {
  const ptx::Instruction* outer = instruction_;
  Modifiers* outer_modifiers = modifiers_;
  int outer_around = std::exchange(around_, -1);
  Modifiers modifiers(instruction);
  instruction_ = &instruction;
  modifiers_ = &modifiers;
  bool known = lower_move(*this) || lower_async(*this) || lower_memory(*this) ||
               lower_arithmetic(*this) || lower_bits(*this) || lower_compare(*this) ||
               lower_convert(*this) || lower_lanes(*this) || lower_tensor(*this) ||
               lower_tensor_copy(*this) || lower_tensor_map(*this) || lower_control(*this);
  if (!known) unsupported("instruction is not supported");
  if (!modifiers.left().empty())
    unsupported(fmt::format("modifier '.{}' is not supported", modifiers.left()));
  if (around_ >= 0) place_label(around_);
  around_ = outer_around;
  instruction_ = outer;
  modifiers_ = outer_modifiers;
}

void Lowering::guard_by_branch() {
  if (instruction_->guard < 0) return;
  int label = new_label();
  Draft& draft = emit({.op = Op::kBranchIf}, {}, {});
  draft.uses = {draft.guard};
  draft.immediate = draft.guard_negated ? 0 : 1;  // taken where the guard does not hold
  draft.guard = -1;
  draft.target = label;
  draft.counted = false;
  around_ = label;
}

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
  std::size_t i = 0;
  const ptx::Operand* results = nullptr;
  if (i < operands.size() && operands[i].kind == ptx::Operand::Kind::kList)
    results = &operands[i++];
  if (i >= operands.size() || operands[i].kind != ptx::Operand::Kind::kSymbol)
    unsupported("a call through a pointer");
  if (operands[i].name == "__assertfail") {  // of the system: a failed assert() ends the launch
    emit({.op = Op::kTrap}, {}, {});
    return;
  }
  const ptx::Function* callee = module_.find(operands[i].name);
  if (callee == nullptr || callee->declaration) {
    callee = nullptr;
    for (const auto& function : module_.functions)
      if (function.name == operands[i].name && !function.declaration) callee = &function;
  }
  if (callee == nullptr) unsupported("the function called has no body in this module");
  for (const Frame* frame : stack_)
    if (frame->function == callee) unsupported("a recursive call");
  const ptx::Operand* parameters = i + 1 < operands.size() ? &operands[i + 1] : nullptr;

  Frame frame;
  auto bind = [&](const std::vector<ptx::Variable>& formal, const ptx::Operand* actual) {
    std::size_t count = actual == nullptr ? 0 : actual->elements.size();
    if (count != formal.size())
      invalid(fmt::format("passes {} values, expected {}", count, formal.size()));
    for (std::size_t k = 0; k < count; ++k) {
      const auto& operand = actual->elements[k];
      auto it = frame_->local.find(operand.name);
      if (operand.kind != ptx::Operand::Kind::kSymbol || it == frame_->local.end() ||
          formal[k].space != Space::kParam)
        unsupported("a call whose parameters are not .param variables");
      frame.local[formal[k].name] = it->second;
    }
  };
  bind(callee->results, results);
  bind(callee->parameters, parameters);

  guard_by_branch();
  frame.end = new_label();
  Frame* outer = frame_;
  enter(frame, *callee);
  frame_ = &frame;
  stack_.push_back(&frame);
  lower_body();
  stack_.pop_back();
  frame_ = outer;
  place_label(frame.end);
}

Result<DraftKernel> lower(const ptx::Module& module, const ptx::Function& kernel,
                          const GlobalAddresses& globals) {
  try {
    return Lowering(module, globals).run(kernel);
  } catch (LoweringError& error) {
    return fail(error.code, std::move(error.message));
  }
}

}  // namespace tilewright::vgpu
