// Integer and floating-point arithmetic, extended precision, approximations.
#include "jit/virtual_gpu/program/lowering.h"

namespace tilewright::vgpu {
namespace {

bool is_half(Type type) {
  return type == Type::kF16 || type == Type::kBF16 || type == Type::kF16x2 || type == Type::kBF16x2;
}
bool is_integer(Type type) {
  return type != Type::kNone && type != Type::kPred && !ptx::is_float(type);
}
/// .b32 and the like stand for the unsigned type where an instruction takes either.
Type integer_type(Type type) {
  switch (type) {
    case Type::kB8:
      return Type::kU8;
    case Type::kB16:
      return Type::kU16;
    case Type::kB32:
      return Type::kU32;
    case Type::kB64:
      return Type::kU64;
    default:
      return type;
  }
}
/// Where signedness makes no difference.
Type unsigned_of(Type type) {
  switch (type) {
    case Type::kS16:
      return Type::kU16;
    case Type::kS32:
      return Type::kU32;
    case Type::kS64:
      return Type::kU64;
    default:
      return integer_type(type);
  }
}
Type widened(Lowering& l, Type type) {
  switch (type) {
    case Type::kS16:
      return Type::kS32;
    case Type::kU16:
      return Type::kU32;
    case Type::kS32:
      return Type::kS64;
    case Type::kU32:
      return Type::kU64;
    default:
      l.invalid(".wide needs a type of 16 or 32 bits");
  }
}

Type take_type(Lowering& l) {
  Type type = l.modifiers().take_type();
  if (type == Type::kNone) l.unsupported("the type is missing or not supported");
  return integer_type(type);
}

/// What float instructions share.
Form float_form(Lowering& l, Op op) {
  Form form{.op = op};
  auto& m = l.modifiers();
  form.round = m.take_round();
  form.ftz = m.take("ftz");
  form.saturate = m.take("sat");
  form.relu = m.take("relu");
  m.take("noftz");
  return form;
}

/// For the handlers that look at them as they run: execute/common/rare_minmax.cpp.
std::int64_t min_max_flags(const Form& form) {
  return (form.nan ? 1 : 0) | (form.ftz ? 2 : 0) | (form.absolute ? 4 : 0) |
         (form.mode == 1 ? 8 : 0);
}

void emit_n(Lowering& l, Form form, int sources, std::int64_t immediate = 0) {
  std::vector<int> uses;
  for (int i = 1; i <= sources; ++i)
    uses.push_back(l.use(l.operand(static_cast<std::size_t>(i)), form.type));
  l.emit(form, {l.def(l.operand(0), form.type)}, uses, immediate);
}

/// Two f32 in 64 bits: the halves are computed one after the other.
void packed_floats(Lowering& l, Form form, int sources) {
  std::vector<int> halves[2];
  for (int i = 1; i <= sources; ++i) {
    int source = l.use(l.operand(static_cast<std::size_t>(i)), Type::kF32x2);
    int low = l.temporary(Width::k32), high = l.temporary(Width::k32);
    Form unpack{.op = Op::kUnpack, .type = Type::kB64, .from = Type::kB32};
    unpack.vector = 2;
    l.emit_auxiliary(unpack, {low, high}, {source});
    halves[0].push_back(low);
    halves[1].push_back(high);
  }
  form.type = Type::kF32;
  int results[2];
  for (int k = 0; k < 2; ++k) {
    results[k] = l.temporary(Width::k32);
    l.emit_auxiliary(form, {results[k]}, halves[k]);
  }
  Form pack{.op = Op::kPack, .type = Type::kB64, .from = Type::kB32};
  pack.vector = 2;
  l.emit(pack, {l.def(l.operand(0), Type::kF32x2)}, {results[0], results[1]});
}

/// add, sub and fma of f32 whose sources, the last one excepted, are halves, which widen exactly.
void mixed(Lowering& l, Form form, Type half, int sources) {
  std::vector<int> uses;
  for (int i = 1; i <= sources; ++i) {
    const auto& operand = l.operand(static_cast<std::size_t>(i));
    if (i == sources) {
      uses.push_back(l.use(operand, Type::kF32));
      break;
    }
    Form widen{.op = Op::kCvt, .type = Type::kF32, .from = half};
    widen.register_bytes = 4;
    widen.address_bytes = 2;
    int source = l.use(operand, half), wide = l.temporary(Width::k32);
    l.emit_auxiliary(widen, {wide}, {source});
    uses.push_back(wide);
  }
  l.emit(form, {l.def(l.operand(0), Type::kF32)}, uses);
}

/// Instructions that are made of others; false: this one is not.
bool composed(Lowering& l, const Form& form, int sources) {
  if (form.type == Type::kF32x2) return packed_floats(l, form, sources), true;
  if (form.type != Type::kF32) return false;
  for (Type half : {Type::kF16, Type::kBF16})
    if (l.modifiers().take(ptx::to_string(half))) return mixed(l, form, half, sources), true;
  return false;
}

void add_sub(Lowering& l, Op op) {
  auto& m = l.modifiers();
  bool carry_out = m.take("cc");
  Form form = float_form(l, op);
  form.type = take_type(l);
  if (composed(l, form, 2)) return;
  if (is_integer(form.type) && !form.saturate) form.type = unsigned_of(form.type);
  if (is_integer(form.type) && form.saturate && form.type != Type::kS32)
    l.invalid(".sat needs .s32");
  if (carry_out) {
    form.op = op == Op::kAdd ? Op::kAddCarry : Op::kSubCarry;
    form.mode = 1;  // carry out
  }
  emit_n(l, form, 2);
}

/// addc, subc: carry in; .cc: carry out, too.
void add_sub_carry(Lowering& l, Op op) {
  Form form{.op = op};
  form.mode = static_cast<std::uint8_t>(2 | (l.modifiers().take("cc") ? 1 : 0));
  form.type = unsigned_of(take_type(l));
  emit_n(l, form, 2);
}

void mul(Lowering& l) {
  auto& m = l.modifiers();
  bool lo = m.take("lo"), hi = m.take("hi"), wide = m.take("wide");
  Form form = float_form(l, Op::kMul);
  form.type = take_type(l);
  if (form.type == Type::kF32x2) return packed_floats(l, form, 2);
  if (!is_integer(form.type)) return emit_n(l, form, 2);
  if (wide) {
    form.op = Op::kMulWide;
    form.from = form.type;
    form.type = widened(l, form.from);
    int a = l.use(l.operand(1), form.from), b = l.use(l.operand(2), form.from);
    l.emit(form, {l.def(l.operand(0), form.type)}, {a, b});
    return;
  }
  if (!lo && !hi) l.invalid("mul of integers needs .lo, .hi or .wide");
  if (hi)
    form.op = Op::kMulHi;
  else
    form.type = unsigned_of(form.type);
  emit_n(l, form, 2);
}

void mad(Lowering& l, bool carry_in) {
  auto& m = l.modifiers();
  bool lo = m.take("lo"), hi = m.take("hi"), wide = m.take("wide");
  bool carry_out = m.take("cc");
  Form form = float_form(l, Op::kMad);
  form.type = take_type(l);
  if (!is_integer(form.type)) {
    form.op = Op::kFma;
    return emit_n(l, form, 3);
  }
  if (carry_in || carry_out) {
    form.op = hi ? Op::kMadCarryHi : Op::kMadCarryLo;
    form.mode = static_cast<std::uint8_t>((carry_in ? 2 : 0) | (carry_out ? 1 : 0));
    return emit_n(l, form, 3);
  }
  if (wide) {
    form.op = Op::kMadWide;
    form.from = form.type;
    form.type = widened(l, form.from);
    int a = l.use(l.operand(1), form.from), b = l.use(l.operand(2), form.from);
    int c = l.use(l.operand(3), form.type);
    l.emit(form, {l.def(l.operand(0), form.type)}, {a, b, c});
    return;
  }
  if (!lo && !hi) l.invalid("mad of integers needs .lo, .hi or .wide");
  if (form.saturate && !hi) l.invalid(".sat needs .hi.s32");
  if (hi)
    form.op = Op::kMadHi;
  else
    form.type = unsigned_of(form.type);
  emit_n(l, form, 3);
}

void mul24(Lowering& l, Op op) {
  auto& m = l.modifiers();
  Form form{.op = op};
  form.mode = m.take("hi") ? 1 : 0;
  m.take("lo");
  form.saturate = op == Op::kMad24 && m.take("sat");
  form.type = take_type(l);
  if (form.saturate && (form.mode == 0 || form.type != Type::kS32)) l.invalid(".sat needs .hi.s32");
  emit_n(l, form, op == Op::kMul24 ? 2 : 3);
}

void div(Lowering& l) {
  auto& m = l.modifiers();
  bool approximate = m.take("approx");
  approximate |= m.take("full");
  Form form = float_form(l, Op::kDiv);
  form.type = take_type(l);
  if (approximate) form.mode = 1;
  emit_n(l, form, 2);
}

void min_max(Lowering& l, Op op) {
  auto& m = l.modifiers();
  Form form = float_form(l, op);
  form.nan = m.take("NaN");
  form.mode = m.take("xorsign") ? 1 : 0;
  form.absolute = m.take("abs");
  form.type = take_type(l);
  const bool three = l.operand_count() == 4;
  if (three) form.op = op == Op::kMin ? Op::kMin3 : Op::kMax3;
  if (three ? form.mode == 1 : form.absolute != (form.mode == 1))
    l.invalid("expected .xorsign.abs with two sources, .abs with three");
  emit_n(l, form, three ? 3 : 2, min_max_flags(form));
}

void unary(Lowering& l, Op op) {
  Form form = float_form(l, op);
  form.type = take_type(l);
  emit_n(l, form, 1);
}

/// rcp, sqrt, rsqrt, ...: .approx, or rounded as IEEE 754 says.
void root(Lowering& l, Op op) {
  bool approximate = l.modifiers().take("approx");
  Form form = float_form(l, op);
  form.type = take_type(l);
  if (op == Op::kSqrt && approximate) form.op = Op::kSqrtApprox;
  if (is_half(form.type) && op != Op::kEx2 && op != Op::kTanh)
    l.unsupported("the type is not supported");
  form.mode = approximate ? 1 : 0;
  emit_n(l, form, 1);
}

void dot(Lowering& l, Op op) {
  auto& m = l.modifiers();
  Form form{.op = op};
  if (op == Op::kDp2a) {
    form.integral = m.take("hi");
    m.take("lo");
  }
  Type a = integer_type(m.take_type()), b = integer_type(m.take_type());
  form.mode = static_cast<std::uint8_t>((ptx::is_signed(a) ? 1 : 0) | (ptx::is_signed(b) ? 2 : 0));
  form.type = form.mode != 0 ? Type::kS32 : Type::kU32;
  emit_n(l, form, 3);
}

void testp(Lowering& l) {
  auto& m = l.modifiers();
  constexpr std::string_view kTests[] = {"finite",     "infinite", "number",
                                         "notanumber", "normal",   "subnormal"};
  Form form{.op = Op::kTestp};
  for (std::size_t i = 0; i < std::size(kTests); ++i)
    if (m.take(kTests[i])) form.mode = static_cast<std::uint8_t>(i);
  form.type = take_type(l);
  int a = l.use(l.operand(1), form.type);
  l.emit(form, {l.def(l.operand(0), Type::kPred)}, {a}, form.mode);
}

}  // namespace

bool lower_arithmetic(Lowering& l) {
  std::string_view opcode = l.instruction().opcode;
  auto is = [&](std::string_view name) { return opcode == name; };
  if (is("add")) return add_sub(l, Op::kAdd), true;
  if (is("sub")) return add_sub(l, Op::kSub), true;
  if (is("addc")) return add_sub_carry(l, Op::kAddCarry), true;
  if (is("subc")) return add_sub_carry(l, Op::kSubCarry), true;
  if (is("mul")) return mul(l), true;
  if (is("mad")) return mad(l, false), true;
  if (is("madc")) return mad(l, true), true;
  if (is("mul24")) return mul24(l, Op::kMul24), true;
  if (is("mad24")) return mul24(l, Op::kMad24), true;
  if (is("div")) return div(l), true;
  if (is("min")) return min_max(l, Op::kMin), true;
  if (is("max")) return min_max(l, Op::kMax), true;
  if (is("abs")) return unary(l, Op::kAbs), true;
  if (is("neg")) return unary(l, Op::kNeg), true;
  if (is("rcp")) return root(l, Op::kRcp), true;
  if (is("sqrt")) return root(l, Op::kSqrt), true;
  if (is("rsqrt")) return root(l, Op::kRsqrt), true;
  if (is("ex2")) return root(l, Op::kEx2), true;
  if (is("lg2")) return root(l, Op::kLg2), true;
  if (is("sin")) return root(l, Op::kSin), true;
  if (is("cos")) return root(l, Op::kCos), true;
  if (is("tanh")) return root(l, Op::kTanh), true;
  if (is("dp4a")) return dot(l, Op::kDp4a), true;
  if (is("dp2a")) return dot(l, Op::kDp2a), true;
  if (is("testp")) return testp(l), true;
  if (is("fma")) {
    Form form = float_form(l, Op::kFma);
    form.type = take_type(l);
    if (composed(l, form, 3)) return true;
    return emit_n(l, form, 3), true;
  }
  if (is("rem") || is("sad")) {
    Form form{.op = is("rem") ? Op::kRem : Op::kSad, .type = take_type(l)};
    return emit_n(l, form, is("rem") ? 2 : 3), true;
  }
  if (is("copysign")) {
    Form form{.op = Op::kCopysign, .type = take_type(l)};
    return emit_n(l, form, 2), true;
  }
  return false;
}

}  // namespace tilewright::vgpu
