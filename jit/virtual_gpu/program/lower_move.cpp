// mov, cvta, isspacep.
#include "jit/virtual_gpu/program/lowering.h"

namespace tilewright::vgpu {
namespace {

using Kind = ptx::Operand::Kind;

Type bits_type(int bytes) {
  return bytes == 1 ? Type::kB8 : bytes == 2 ? Type::kB16 : bytes == 4 ? Type::kB32 : Type::kB64;
}

/// mov.b128, to or from a pair of 64 bits or between registers: the halves, one after the other.
void mov_128(Lowering& l) {
  const auto& d = l.operand(0);
  const auto& a = l.operand(1);
  auto parts = [&](const ptx::Operand& operand, bool define) -> std::array<int, 2> {
    if (operand.kind != Kind::kVector) return l.halves(operand);
    if (operand.elements.size() != 2) l.invalid("a vector is not of 2 elements");
    auto part = [&](std::size_t i) {
      const auto& element = operand.elements[i];
      return define ? l.def(element, Type::kB64) : l.use(element, Type::kB64);
    };
    return {part(0), part(1)};
  };
  std::array<int, 2> from = parts(a, false), to = parts(d, true);
  // By way of temporaries, since {x, y} may be a vector of what is written first.
  std::array<int, 2> between{l.temporary(Width::k64), l.temporary(Width::k64)};
  const Form form{.op = Op::kMov, .type = Type::kB64};
  for (std::size_t i = 0; i < 2; ++i) l.emit_auxiliary(form, {between[i]}, {from[i]});
  for (std::size_t i = 0; i < 2; ++i) l.emit(form, {to[i]}, {between[i]}).counted = i == 0;
}

void mov(Lowering& l) {
  Type type = l.modifiers().take_type();
  if (type == Type::kNone) l.invalid("mov has no type");
  if (type == Type::kB128) return mov_128(l);
  int bytes = ptx::size_of(type);
  const auto& d = l.operand(0);
  const auto& a = l.operand(1);
  if (a.kind == Kind::kVector) {
    auto count = static_cast<int>(a.elements.size());
    if (count != 2 && count != 4) l.invalid("a vector is not of 2 or 4 elements");
    Type element = bits_type(bytes / count);
    std::vector<int> uses;
    for (const auto& part : a.elements) uses.push_back(l.use(part, element));
    Form form{.op = Op::kPack, .type = type, .from = element};
    form.vector = static_cast<std::uint8_t>(count);
    l.emit(form, {l.def(d, type)}, uses);
    return;
  }
  if (d.kind == Kind::kVector) {
    auto count = static_cast<int>(d.elements.size());
    if (count != 2 && count != 4) l.invalid("a vector is not of 2 or 4 elements");
    Type element = bits_type(bytes / count);
    int source = l.use(a, type);
    std::vector<int> defs;
    for (const auto& part : d.elements) defs.push_back(l.def(part, element));
    Form form{.op = Op::kUnpack, .type = type, .from = element};
    form.vector = static_cast<std::uint8_t>(count);
    l.emit(form, defs, {source});
    return;
  }
  int source = l.use(a, type);
  l.emit({.op = Op::kMov, .type = type == Type::kPred ? type : bits_type(bytes)}, {l.def(d, type)},
         {source});
}

std::uint64_t window_of(Space space) {
  return space == Space::kShared  ? kSharedWindow
         : space == Space::kLocal ? kLocalWindow
         : space == Space::kParam ? kParamWindow
                                  : 0;
}

Space take_space(Lowering& l) {
  auto& m = l.modifiers();
  if (m.take("global")) return Space::kGlobal;
  if (m.take("shared") || m.take("shared::cta") || m.take("shared::cluster")) return Space::kShared;
  if (m.take("local")) return Space::kLocal;
  if (m.take("const")) return Space::kConst;
  if (m.take("param") || m.take("param::entry")) return Space::kParam;
  l.unsupported("the address space is not supported");
}

/// Generic addresses are those of global memory; the other spaces have windows among them.
void cvta(Lowering& l) {
  bool to = l.modifiers().take("to");
  Space space = take_space(l);
  Type type = l.modifiers().take_type();
  if (type != Type::kU64) l.unsupported("cvta of addresses that are not .u64");
  int source = l.use(l.operand(1), type);
  int target = l.def(l.operand(0), type);
  if (std::uint64_t window = window_of(space)) {
    Op op = to ? Op::kSub : Op::kAdd;
    l.emit({.op = op, .type = Type::kU64}, {target}, {source, l.constant(Width::k64, window)});
  } else {
    l.emit({.op = Op::kMov, .type = Type::kB64}, {target}, {source});
  }
}

void isspacep(Lowering& l) {
  Form form{.op = Op::kIsSpace, .type = Type::kPred};
  if (l.instruction().has("shared::cluster")) form.mode = 1;
  form.space = take_space(l);
  int source = l.use(l.operand(1), Type::kU64);
  l.emit(form, {l.def(l.operand(0), Type::kPred)}, {source});
}

}  // namespace

bool lower_move(Lowering& l) {
  std::string_view opcode = l.instruction().opcode;
  if (opcode == "mov") return mov(l), true;
  if (opcode == "cvta") return cvta(l), true;
  if (opcode == "isspacep") return isspacep(l), true;
  return false;
}

}  // namespace tilewright::vgpu
