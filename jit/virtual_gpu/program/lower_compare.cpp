// setp, set, selp, slct.
#include "jit/virtual_gpu/program/lowering.h"

namespace tilewright::vgpu {
namespace {

struct NamedCompare {
  std::string_view name;
  Compare compare;
  bool unordered_integer;  ///< lo, ls, hi, hs: the type's sign is ignored
};
constexpr NamedCompare kCompares[] = {
    {"eq", Compare::kEq, false},   {"ne", Compare::kNe, false},   {"lt", Compare::kLt, false},
    {"le", Compare::kLe, false},   {"gt", Compare::kGt, false},   {"ge", Compare::kGe, false},
    {"lo", Compare::kLt, true},    {"ls", Compare::kLe, true},    {"hi", Compare::kGt, true},
    {"hs", Compare::kGe, true},    {"equ", Compare::kEqu, false}, {"neu", Compare::kNeu, false},
    {"ltu", Compare::kLtu, false}, {"leu", Compare::kLeu, false}, {"gtu", Compare::kGtu, false},
    {"geu", Compare::kGeu, false}, {"num", Compare::kNum, false}, {"nan", Compare::kNan, false},
};

Type unsigned_of(Type type) {
  switch (type) {
    case Type::kB16:
    case Type::kS16:
      return Type::kU16;
    case Type::kB32:
    case Type::kS32:
      return Type::kU32;
    case Type::kB64:
    case Type::kS64:
      return Type::kU64;
    default:
      return type;
  }
}

Form compare_form(Lowering& l, Op op) {
  auto& m = l.modifiers();
  Form form{.op = op};
  bool found = false, as_unsigned = false;
  for (const auto& named : kCompares) {
    if (!m.take(named.name)) continue;
    form.compare = named.compare;
    as_unsigned = named.unordered_integer;
    found = true;
    break;
  }
  if (!found) l.invalid("a comparison is missing");
  form.boolean = m.take("and")   ? Boolean::kAnd
                 : m.take("or")  ? Boolean::kOr
                 : m.take("xor") ? Boolean::kXor
                                 : Boolean::kNone;
  form.ftz = m.take("ftz");
  if (op == Op::kSet) form.type = m.take_type();
  form.from = m.take_type();
  if (form.from == Type::kNone) l.unsupported("the type is missing or not supported");
  bool bits = form.from == Type::kB16 || form.from == Type::kB32 || form.from == Type::kB64;
  if (as_unsigned || bits || form.compare == Compare::kEq || form.compare == Compare::kNe)
    form.from = unsigned_of(form.from);
  return form;
}

/// For the handlers that look at it as they run.
std::int64_t packed(const Form& form) {
  return static_cast<int>(form.compare) | static_cast<int>(form.boolean) << 8;
}

void setp(Lowering& l) {
  Form form = compare_form(l, Op::kSetp);
  form.type = Type::kPred;
  const auto& d = l.operand(0);
  std::vector<int> uses{l.use(l.operand(1), form.from), l.use(l.operand(2), form.from)};
  if (form.boolean != Boolean::kNone) uses.push_back(l.use(l.operand(3), Type::kPred));
  std::vector<int> defs;
  if (d.kind == ptx::Operand::Kind::kPair) {
    defs = {l.def(d.elements[0], Type::kPred), l.def(d.elements[1], Type::kPred)};
    form.vector = 2;
  } else {
    defs = {l.def(d, Type::kPred)};
  }
  l.emit(form, defs, uses, packed(form));
}

void set(Lowering& l) {
  Form form = compare_form(l, Op::kSet);
  std::vector<int> uses{l.use(l.operand(1), form.from), l.use(l.operand(2), form.from)};
  if (form.boolean != Boolean::kNone) uses.push_back(l.use(l.operand(3), Type::kPred));
  l.emit(form, {l.def(l.operand(0), form.type)}, uses, packed(form));
}

void selp(Lowering& l) {
  Form form{.op = Op::kSelp, .type = l.modifiers().take_type()};
  if (form.type == Type::kNone) l.unsupported("the type is missing or not supported");
  int a = l.use(l.operand(1), form.type), b = l.use(l.operand(2), form.type);
  int p = l.use(l.operand(3), Type::kPred);
  l.emit(form, {l.def(l.operand(0), form.type)}, {a, b, p});
}

void slct(Lowering& l) {
  Form form{.op = Op::kSlct};
  form.ftz = l.modifiers().take("ftz");
  form.type = l.modifiers().take_type();
  form.from = l.modifiers().take_type();
  int a = l.use(l.operand(1), form.type), b = l.use(l.operand(2), form.type);
  int c = l.use(l.operand(3), form.from);
  l.emit(form, {l.def(l.operand(0), form.type)}, {a, b, c});
}

}  // namespace

bool lower_compare(Lowering& l) {
  std::string_view opcode = l.instruction().opcode;
  if (opcode == "setp") return setp(l), true;
  if (opcode == "set") return set(l), true;
  if (opcode == "selp") return selp(l), true;
  if (opcode == "slct") return slct(l), true;
  return false;
}

}  // namespace tilewright::vgpu
