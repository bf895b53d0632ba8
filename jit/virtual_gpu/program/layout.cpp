// Where parameters, shared and local variables lie.
#include <algorithm>

#include "jit/virtual_gpu/program/lowering.h"

namespace tilewright::vgpu {
namespace {

// As CUDA limits them; of shared memory more than any device has.
constexpr std::int64_t kMostLocalBytes = 512 << 10, kMostSharedBytes = 1 << 20,
                       kMostParameterBytes = 32764;

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return multiple <= 1 ? value : (value + multiple - 1) / multiple * multiple;
}

}  // namespace

int Lowering::allocate_local(std::int64_t bytes, int alignment) {
  local_end_ = round_up(local_end_, alignment);
  auto offset = static_cast<int>(local_end_);
  if (bytes > kMostLocalBytes || local_end_ + bytes > kLocalBase + kMostLocalBytes)
    invalid("more than 512 KiB of local memory per thread");
  local_end_ += bytes;
  return offset;
}

int Lowering::shared_offset(const ptx::Variable& variable) {
  shared_end_ = round_up(shared_end_, variable.alignment);
  auto offset = static_cast<int>(shared_end_);
  if (variable.bytes() > kMostSharedBytes || shared_end_ + variable.bytes() > kMostSharedBytes)
    invalid("more than 1 MiB of shared memory");
  shared_end_ += variable.bytes();
  return offset;
}

void Lowering::lay_out_parameters(const ptx::Function& kernel, Frame& frame) {
  std::int64_t offset = 0;
  for (const auto& parameter : kernel.parameters) {
    offset = round_up(offset, parameter.alignment);
    frame.parameter[parameter.name] = static_cast<int>(offset);
    kernel_.info.parameters.push_back(
        {static_cast<int>(offset), static_cast<int>(parameter.bytes()), parameter.alignment});
    offset += parameter.bytes();
    if (parameter.bytes() > kMostParameterBytes || offset > kMostParameterBytes)
      invalid("more than 32764 bytes of parameters");
  }
  kernel_.info.parameter_bytes = static_cast<int>(offset);
}

void Lowering::enter(Frame& frame, const ptx::Function& function) {
  frame.function = &function;
  for (const auto& reg : function.registers) {
    frame.registers.push_back(temporary(width_of(ptx::size_of(reg.type))));
    if (reg.type == Type::kB128) upper_[frame.registers.back()] = temporary(Width::k64);
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

void Lowering::lay_out_shared(const ptx::Function& kernel) {
  // Shared variables of the module that this kernel, or what it calls, may name.
  auto named = [&](std::string_view name) {
    auto mentions = [&](const ptx::Operand& operand, auto&& self) -> bool {
      if (operand.name == name || (name.front() == '%' && operand.name.starts_with(name)))
        return true;
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
  // What CUDA reserves for its own headers, where they ask for it.
  if (named("%reserved_smem_offset")) {
    shared_end_ = round_up(shared_end_, 128);
    reserved_shared_ = static_cast<int>(shared_end_);
    shared_end_ += kReservedSharedBytes;
  }
  kernel_.info.static_shared_bytes = static_cast<int>(shared_end_ - kSharedBase);
  std::int64_t dynamic_offset = round_up(shared_end_, 16);
  for (const auto* variable : dynamic)
    dynamic_offset = round_up(dynamic_offset, variable->alignment);
  for (const auto* variable : dynamic)
    module_shared_[variable->name] = static_cast<int>(dynamic_offset);
  kernel_.dynamic_shared_offset = static_cast<int>(dynamic_offset);
}

int Lowering::dynamic_stack() {
  if (dynamic_stack_ < 0) {
    dynamic_stack_ = temporary(Width::k64);
    dynamic_stack_base_ = static_cast<int>(kernel_.values.size());
    kernel_.values.push_back({Value::Kind::kConstant, Width::k64, Special::kZero, 0});
  }
  return dynamic_stack_;
}

void Lowering::allocate_dynamic_stack() {
  kernel_.values[static_cast<std::size_t>(dynamic_stack_base_)].bits =
      static_cast<std::uint64_t>(allocate_local(kDynamicStackBytes, 4096));
}

}  // namespace tilewright::vgpu
