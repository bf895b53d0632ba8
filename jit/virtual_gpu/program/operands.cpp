// Operands as values: registers, constants, symbols and addresses.
#include <fmt/format.h>

#include <cstring>

#include "jit/virtual_gpu/program/lowering.h"

namespace tilewright::vgpu {
namespace {

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
      if (!fits || upper_.contains(value))
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

std::array<int, 2> Lowering::halves(const ptx::Operand& operand) {
  if (operand.kind == ptx::Operand::Kind::kSink)
    return {temporary(Width::k64), temporary(Width::k64)};
  if (operand.kind == ptx::Operand::Kind::kRegister) {
    int low = frame_->registers[static_cast<std::size_t>(operand.index)];
    if (auto it = upper_.find(low); it != upper_.end()) return {low, it->second};
  }
  invalid("expected a register of 128 bits");
}

int Lowering::def(const ptx::Operand& operand, Type type, bool wider) {
  if (operand.kind == ptx::Operand::Kind::kSink) return temporary(width_of(ptx::size_of(type)));
  if (operand.kind != ptx::Operand::Kind::kRegister) invalid("the destination is not a register");
  return use(operand, type, wider);
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

}  // namespace tilewright::vgpu
