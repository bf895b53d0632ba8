// Logic, shifts and bit fields.
#include "jit/virtual_gpu/program/lowering.h"

namespace tilewright::vgpu {
namespace {

Type take_type(Lowering& l) {
  Type type = l.modifiers().take_type();
  if (type == Type::kNone) l.unsupported("the type is missing or not supported");
  return type;
}

void same_types(Lowering& l, Op op, int sources) {
  Form form{.op = op, .type = take_type(l)};
  std::vector<int> uses;
  for (int i = 1; i <= sources; ++i)
    uses.push_back(l.use(l.operand(static_cast<std::size_t>(i)), form.type));
  l.emit(form, {l.def(l.operand(0), form.type)}, uses);
}

void shift(Lowering& l, Op op) {
  Form form{.op = op, .type = take_type(l)};
  int a = l.use(l.operand(1), form.type), b = l.use(l.operand(2), Type::kU32);
  l.emit(form, {l.def(l.operand(0), form.type)}, {a, b});
}

void funnel_shift(Lowering& l) {
  auto& m = l.modifiers();
  Form form;
  form.op = m.take("l") ? Op::kShfLeft : Op::kShfRight;
  m.take("r");
  form.integral = m.take("wrap");
  m.take("clamp");
  form.type = take_type(l);
  int a = l.use(l.operand(1), form.type), b = l.use(l.operand(2), form.type);
  int c = l.use(l.operand(3), Type::kU32);
  l.emit(form, {l.def(l.operand(0), form.type)}, {a, b, c});
}

void lop3(Lowering& l) {
  auto& m = l.modifiers();
  Form test{.op = Op::kSetp, .type = Type::kPred, .from = Type::kU32, .compare = Compare::kNe};
  if (m.take("or")) test.boolean = Boolean::kOr;
  if (m.take("and")) test.boolean = Boolean::kAnd;
  Form form{.op = Op::kLop3, .type = take_type(l)};
  if (l.operand(4).kind != ptx::Operand::Kind::kInteger)
    l.unsupported("a lookup table that is not a constant");
  std::vector<int> uses;
  for (std::size_t i = 1; i <= 3; ++i) uses.push_back(l.use(l.operand(i), form.type));
  const auto& d = l.operand(0);
  const std::int64_t table = l.operand(4).integer & 0xff;
  if (test.boolean == Boolean::kNone) {
    l.emit(form, {l.def(d, form.type)}, uses, table);
    return;
  }
  // d|p: p is whether d is not zero, combined with a predicate.
  if (d.kind != ptx::Operand::Kind::kPair) l.invalid("expected two destinations");
  int q = l.use(l.operand(5), Type::kPred), value = l.def(d.elements[0], form.type);
  l.emit(form, {value}, uses, table);
  int p = l.def(d.elements[1], Type::kPred);
  l.emit(test, {p}, {value, l.constant(Width::k32, 0), q},
         static_cast<int>(test.compare) | static_cast<int>(test.boolean) << 8)
      .counted = false;
}

void prmt(Lowering& l) {
  auto& m = l.modifiers();
  Form form{.op = Op::kPrmt};
  form.type = take_type(l);
  constexpr std::string_view kModes[] = {"", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16"};
  for (std::size_t i = 1; i < std::size(kModes); ++i)
    if (m.take(kModes[i])) form.mode = static_cast<std::uint8_t>(i);
  std::vector<int> uses;
  for (std::size_t i = 1; i <= 3; ++i) uses.push_back(l.use(l.operand(i), form.type));
  l.emit(form, {l.def(l.operand(0), form.type)}, uses);
}

void bit_field(Lowering& l, bool insert) {
  Form form{.op = insert ? Op::kBfi : Op::kBfe, .type = take_type(l)};
  std::vector<int> uses;
  std::size_t i = 1;
  uses.push_back(l.use(l.operand(i++), form.type));
  if (insert) uses.push_back(l.use(l.operand(i++), form.type));
  uses.push_back(l.use(l.operand(i++), Type::kU32));
  uses.push_back(l.use(l.operand(i++), Type::kU32));
  l.emit(form, {l.def(l.operand(0), form.type)}, uses);
}

/// clz, popc, bfind: 32 bits come out, whatever goes in.
void count(Lowering& l, Op op) {
  Form form{.op = op};
  form.mode = l.modifiers().take("shiftamt") ? 1 : 0;
  form.from = take_type(l);
  form.type = Type::kU32;
  int a = l.use(l.operand(1), form.from);
  l.emit(form, {l.def(l.operand(0), Type::kU32)}, {a});
}

void fns(Lowering& l) {
  Form form{.op = Op::kFns, .type = take_type(l)};
  std::vector<int> uses;
  for (std::size_t i = 1; i <= 3; ++i) uses.push_back(l.use(l.operand(i), form.type));
  l.emit(form, {l.def(l.operand(0), form.type)}, uses);
}

void bmsk_szext(Lowering& l, Op op) {
  auto& m = l.modifiers();
  Form form{.op = op};
  form.integral = m.take("wrap");
  m.take("clamp");
  form.type = take_type(l);
  int a = l.use(l.operand(1), form.type), b = l.use(l.operand(2), Type::kU32);
  l.emit(form, {l.def(l.operand(0), form.type)}, {a, b});
}

}  // namespace

bool lower_bits(Lowering& l) {
  std::string_view opcode = l.instruction().opcode;
  auto is = [&](std::string_view name) { return opcode == name; };
  if (is("and")) return same_types(l, Op::kAnd, 2), true;
  if (is("or")) return same_types(l, Op::kOr, 2), true;
  if (is("xor")) return same_types(l, Op::kXor, 2), true;
  if (is("not")) return same_types(l, Op::kNot, 1), true;
  if (is("cnot")) return same_types(l, Op::kCnot, 1), true;
  if (is("brev")) return same_types(l, Op::kBrev, 1), true;
  if (is("shl")) return shift(l, Op::kShl), true;
  if (is("shr")) return shift(l, Op::kShr), true;
  if (is("shf")) return funnel_shift(l), true;
  if (is("lop3")) return lop3(l), true;
  if (is("prmt")) return prmt(l), true;
  if (is("bfi")) return bit_field(l, true), true;
  if (is("bfe")) return bit_field(l, false), true;
  if (is("clz")) return count(l, Op::kClz), true;
  if (is("popc")) return count(l, Op::kPopc), true;
  if (is("bfind")) return count(l, Op::kBfind), true;
  if (is("fns")) return fns(l), true;
  if (is("bmsk")) return bmsk_szext(l, Op::kBmsk), true;
  if (is("szext")) return bmsk_szext(l, Op::kSzext), true;
  return false;
}

}  // namespace tilewright::vgpu
