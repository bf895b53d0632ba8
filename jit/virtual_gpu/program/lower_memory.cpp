// Loads, stores and atomics.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "jit/virtual_gpu/program/lowering.h"

namespace tilewright::vgpu {
namespace {

using Kind = ptx::Operand::Kind;

Space take_space(Lowering& l) {
  auto& m = l.modifiers();
  if (m.take("global")) return Space::kGlobal;
  if (m.take("shared") || m.take("shared::cta") || m.take("shared::cluster")) return Space::kShared;
  if (m.take("local")) return Space::kLocal;
  if (m.take("const")) return Space::kConst;
  if (m.take("param") || m.take("param::entry") || m.take("param::func")) return Space::kParam;
  return Space::kGeneric;
}

/// Semantics, scopes, cache operators and eviction hints: without effect in a sequence of steps.
/// Returns whether a cache policy follows as an operand.
bool take_hints(Lowering& l) {
  auto& m = l.modifiers();
  constexpr std::string_view kHints[] = {"weak",
                                         "volatile",
                                         "relaxed",
                                         "acquire",
                                         "release",
                                         "acq_rel",
                                         "mmio",
                                         "cta",
                                         "cluster",
                                         "gpu",
                                         "sys",
                                         "ca",
                                         "cg",
                                         "cs",
                                         "lu",
                                         "cv",
                                         "wb",
                                         "wt",
                                         "nc",
                                         "noftz",
                                         "L1::evict_normal",
                                         "L1::evict_unchanged",
                                         "L1::evict_first",
                                         "L1::evict_last",
                                         "L1::no_allocate",
                                         "L2::evict_first",
                                         "L2::evict_last",
                                         "L2::evict_normal",
                                         "L2::64B",
                                         "L2::128B",
                                         "L2::256B",
                                         "unified"};
  for (std::string_view hint : kHints) m.take(hint);
  return m.take("L2::cache_hint");
}

/// What matters of a type in memory: its size, and the sign by which a load extends it.
Type bits_of(Type type, bool store) {
  switch (ptx::size_of(type)) {
    case 1:
      return type == Type::kS8 && !store ? Type::kS8 : Type::kU8;
    case 2:
      return type == Type::kS16 && !store ? Type::kS16 : Type::kU16;
    case 4:
      return type == Type::kS32 && !store ? Type::kS32 : Type::kU32;
    default:
      return Type::kU64;
  }
}

/// What a checker wants to know of an access.
void say_semantics(const Lowering& l, Site* site) {
  site->cluster = l.instruction().has("shared::cluster");
  site->order = order_of(l.instruction());
  site->scope = scope_of(l.instruction());
}

/// ptxas also takes a vector of one, without .v1.
const ptx::Operand& scalar(const ptx::Operand& operand) {
  return operand.kind == Kind::kVector && operand.elements.size() == 1 ? operand.elements[0]
                                                                       : operand;
}

void load_parameter(Lowering& l, Form form, const Lowering::Address& at,
                    const std::vector<const ptx::Operand*>& targets, Type type) {
  int bytes = ptx::size_of(type);
  form.op = Op::kLoadParam;
  form.vector = 1;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (targets[i]->kind == Kind::kSink) continue;
    form.register_bytes = static_cast<std::uint8_t>(l.register_bytes(*targets[i]));
    Draft& draft =
        l.emit(form, {l.def(*targets[i], type, true)}, {}, at.offset + static_cast<int>(i) * bytes);
    draft.counted = i == 0;
  }
}

/// As a vector of two .b64.
void load_store_128(Lowering& l, Form form, const Lowering::Address& at, bool store) {
  if (at.kernel_parameter) l.unsupported("a parameter of 128 bits");
  std::array<int, 2> halves = l.halves(l.operand(store ? 1 : 0));
  form.type = Type::kU64;
  form.space = at.space;
  form.vector = 2;
  form.register_bytes = 8;
  form.address_bytes = static_cast<std::uint8_t>(at.bytes);
  Site site{at.space, 16, store, false};
  site.vector = 2;
  site.register_bytes = 8;
  site.address_bytes = form.address_bytes;
  say_semantics(l, &site);
  if (store)
    l.emit_memory(form, {}, {at.value, halves[0], halves[1]}, at.offset, site);
  else
    l.emit_memory(form, {halves[0], halves[1]}, {at.value}, at.offset, site);
}

void load_store(Lowering& l, bool store) {
  auto& m = l.modifiers();
  Form form{.op = store ? Op::kStore : Op::kLoad};
  take_hints(l);
  Space space = take_space(l);
  int vector = m.take_vector();
  Type type = m.take_type();
  if (type == Type::kNone) l.unsupported("the type is missing or not supported");
  if (type == Type::kB128 && vector > 1) l.invalid("there are no vectors of .b128");
  Lowering::Address at = l.address(l.operand(store ? 0 : 1), space);
  if (type == Type::kB128) return load_store_128(l, form, at, store);
  const auto& data = l.operand(store ? 1 : 0);
  std::vector<const ptx::Operand*> parts;
  if (vector > 1) {
    if (data.kind != Kind::kVector || data.elements.size() != static_cast<std::size_t>(vector))
      l.invalid(fmt::format("expected a vector of {} elements", vector));
    for (const auto& element : data.elements) parts.push_back(&element);
  } else {
    parts.push_back(&scalar(data));
  }

  form.type = bits_of(type, store);
  form.space = at.space;
  form.vector = static_cast<std::uint8_t>(vector);
  form.address_bytes = static_cast<std::uint8_t>(at.bytes);
  if (at.kernel_parameter) {
    if (store) l.invalid("a kernel cannot store to its parameters");
    return load_parameter(l, form, at, parts, type);
  }
  int register_bytes = 0;
  for (const auto* part : parts)
    if (part->kind == Kind::kRegister) register_bytes = l.register_bytes(*part);
  if (register_bytes == 0) register_bytes = std::max(2, ptx::size_of(type));
  form.register_bytes = static_cast<std::uint8_t>(register_bytes);

  std::vector<int> defs, uses{at.value};
  for (const auto* part : parts) {
    if (store) {
      uses.push_back(l.use(*part, type, true));
    } else if (part->kind == Kind::kSink) {
      defs.push_back(l.temporary(width_of(register_bytes)));
    } else {
      defs.push_back(l.def(*part, type, true));
    }
  }
  Site site{at.space, static_cast<std::uint16_t>(vector * ptx::size_of(type)), store, false};
  site.vector = form.vector;
  site.register_bytes = form.register_bytes;
  site.address_bytes = form.address_bytes;
  say_semantics(l, &site);
  site.sign = form.type == Type::kS8 || form.type == Type::kS16 || form.type == Type::kS32;
  l.emit_memory(form, defs, uses, at.offset, site);
}

constexpr std::pair<std::string_view, Reduce> kReductions[] = {
    {"and", Reduce::kAnd}, {"or", Reduce::kOr},   {"xor", Reduce::kXor}, {"exch", Reduce::kExch},
    {"add", Reduce::kAdd}, {"inc", Reduce::kInc}, {"dec", Reduce::kDec}, {"min", Reduce::kMin},
    {"max", Reduce::kMax}, {"cas", Reduce::kCas},
};

void atomic(Lowering& l, bool returns) {
  auto& m = l.modifiers();
  Form form{.op = Op::kAtom};
  take_hints(l);
  Space space = take_space(l);
  bool found = false;
  for (auto [name, reduce] : kReductions) {
    if (!m.take(name)) continue;
    form.reduce = reduce;
    found = true;
    break;
  }
  if (!found) l.unsupported("the operation is missing or not supported");
  int vector = m.take_vector();
  form.type = m.take_type();
  if (form.type == Type::kNone) l.unsupported("the type is missing or not supported");
  if (space != Space::kGeneric && space != Space::kGlobal && space != Space::kShared)
    l.unsupported("atomics exist in global and shared memory");
  std::size_t i = returns ? 1 : 0;
  Lowering::Address at = l.address(l.operand(i), space);
  const auto& data = l.operand(i + 1);
  form.space = at.space;
  form.vector = static_cast<std::uint8_t>(vector);
  form.address_bytes = static_cast<std::uint8_t>(at.bytes);
  std::vector<int> defs, uses{at.value};
  Site site{at.space, static_cast<std::uint16_t>(vector * ptx::size_of(form.type)), true, true};
  site.vector = form.vector;
  site.address_bytes = form.address_bytes;
  site.reduce = form.reduce;
  say_semantics(l, &site);
  // Both have defaults of their own, other than those of loads. PTX ISA, "atom".
  if (site.order == Order::kWeak) site.order = Order::kRelaxed;
  if (site.scope == Scope::kCta && !l.instruction().has("cta")) site.scope = Scope::kGpu;
  if (form.type == Type::kB128) {
    if (vector > 1 || !returns) l.invalid("expected one .b128 and a destination");
    form.vector = 2;
    site.vector = 2;
    site.register_bytes = 8;
    for (std::size_t k = i + 1; k < l.operand_count() && k < i + 3; ++k)
      for (int half : l.halves(l.operand(k))) uses.push_back(half);
    if (uses.size() != (form.reduce == Reduce::kCas ? 5u : 3u)) l.invalid("too few operands");
    for (int half : l.halves(l.operand(0))) defs.push_back(half);
    l.emit_memory(form, defs, uses, at.offset, site);
    return;
  }
  auto elements = [&](const ptx::Operand& operand) {
    std::vector<const ptx::Operand*> parts;
    if (vector == 1) return std::vector<const ptx::Operand*>{&scalar(operand)};
    if (operand.kind != Kind::kVector ||
        operand.elements.size() != static_cast<std::size_t>(vector))
      l.invalid(fmt::format("expected a vector of {} elements", vector));
    for (const auto& element : operand.elements) parts.push_back(&element);
    return parts;
  };
  for (const auto* part : elements(data)) uses.push_back(l.use(*part, form.type));
  if (form.reduce == Reduce::kCas) uses.push_back(l.use(l.operand(i + 2), form.type));
  for (const auto* part : elements(returns ? l.operand(0) : data))
    defs.push_back(returns && part->kind == Kind::kRegister
                       ? l.def(*part, form.type)
                       : l.temporary(width_of(ptx::size_of(form.type))));
  l.emit_memory(form, defs, uses, at.offset, site);
}

}  // namespace

bool lower_memory(Lowering& l) {
  std::string_view opcode = l.instruction().opcode;
  if (opcode == "ld" || opcode == "ldu") return load_store(l, false), true;
  if (opcode == "st") return load_store(l, true), true;
  if (opcode == "atom") return atomic(l, true), true;
  if (opcode == "red") return atomic(l, false), true;
  return false;
}

}  // namespace tilewright::vgpu
