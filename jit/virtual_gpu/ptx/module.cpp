#include "jit/virtual_gpu/ptx/module.h"

#include <algorithm>
#include <array>
#include <utility>

namespace tilewright::vgpu::ptx {
namespace {

struct TypeFacts {
  std::string_view name;
  int bytes;
  bool floating, is_signed;
};

constexpr std::array<TypeFacts, 23> kTypes = {{
    {"pred", 0, false, false}, {"b8", 1, false, false},    {"u8", 1, false, false},
    {"s8", 1, false, true},    {"b16", 2, false, false},   {"u16", 2, false, false},
    {"s16", 2, false, true},   {"f16", 2, true, true},     {"bf16", 2, true, true},
    {"b32", 4, false, false},  {"u32", 4, false, false},   {"s32", 4, false, true},
    {"f32", 4, true, true},    {"f16x2", 4, true, true},   {"bf16x2", 4, true, true},
    {"b64", 8, false, false},  {"u64", 8, false, false},   {"s64", 8, false, true},
    {"f64", 8, true, true},    {"b128", 16, false, false}, {"u16x2", 4, false, false},
    {"s16x2", 4, false, true}, {"f32x2", 8, true, true},
}};

}  // namespace

int size_of(Type type) {
  return type == Type::kNone ? 0 : kTypes[static_cast<std::size_t>(type)].bytes;
}
bool is_float(Type type) {
  return type != Type::kNone && kTypes[static_cast<std::size_t>(type)].floating;
}
bool is_signed(Type type) {
  return type != Type::kNone && kTypes[static_cast<std::size_t>(type)].is_signed;
}
Type parse_type(std::string_view name) {
  for (std::size_t i = 0; i < kTypes.size(); ++i)
    if (kTypes[i].name == name) return static_cast<Type>(i);
  return Type::kNone;
}
std::string_view to_string(Type type) {
  return type == Type::kNone ? "none" : kTypes[static_cast<std::size_t>(type)].name;
}

bool Instruction::has(std::string_view modifier) const {
  return std::find(modifiers.begin(), modifiers.end(), modifier) != modifiers.end();
}

const Function* Module::find(std::string_view name) const {
  for (const auto& function : functions)
    if (function.name == name) return &function;
  return nullptr;
}

}  // namespace tilewright::vgpu::ptx
