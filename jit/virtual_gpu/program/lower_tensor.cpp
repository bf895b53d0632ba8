// Instructions of the tensor cores: mma, wgmma, and the moves of 8x8 matrices around them.
#include "jit/virtual_gpu/program/lower_tensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace tilewright::vgpu {

using Kind = ptx::Operand::Kind;

std::optional<Element> element_of(std::string_view name) {
  constexpr std::pair<std::string_view, Element> kNames[] = {
      {"f16", Element::kF16},   {"bf16", Element::kBF16}, {"tf32", Element::kTF32},
      {"e4m3", Element::kE4M3}, {"e5m2", Element::kE5M2}, {"e2m1", Element::kE2M1},
      {"e3m2", Element::kE3M2}, {"e2m3", Element::kE2M3}, {"s8", Element::kS8},
      {"u8", Element::kU8},     {"s4", Element::kS4},     {"u4", Element::kU4},
      {"f64", Element::kF64},
  };
  for (auto [text, element] : kNames)
    if (text == name) return element;
  return std::nullopt;
}

std::optional<Accumulator> accumulator_of(std::string_view name) {
  if (name == "f32") return Accumulator::kF32;
  if (name == "f16") return Accumulator::kF16;
  if (name == "s32") return Accumulator::kS32;
  if (name == "f64") return Accumulator::kF64;
  return std::nullopt;
}

MmaShape take_shape(Lowering& l) {
  std::string_view name = l.modifiers().next();
  MmaShape shape;
  int* part = nullptr;
  for (char c : name) {
    if (c == 'm' && part == nullptr)
      part = &shape.m;
    else if (c == 'n' && part == &shape.m)
      part = &shape.n;
    else if (c == 'k' && part == &shape.n)
      part = &shape.k;
    else if (c >= '0' && c <= '9' && part != nullptr && *part < 10000)
      *part = *part * 10 + (c - '0');
    else
      l.unsupported(fmt::format("expected a shape, not '.{}'", name));
  }
  return shape;
}

std::vector<const ptx::Operand*> parts(Lowering& l, const ptx::Operand& operand, int count,
                                       const char* what) {
  std::vector<const ptx::Operand*> result;
  if (operand.kind == Kind::kVector)
    for (const auto& element : operand.elements) result.push_back(&element);
  else
    result.push_back(&operand);
  if (static_cast<int>(result.size()) != count)
    l.invalid(fmt::format("{} has {} registers, expected {}", what, result.size(), count));
  return result;
}

Type register_type(Accumulator d) {
  return d == Accumulator::kF64 ? Type::kF64 : d == Accumulator::kF32 ? Type::kF32 : Type::kB32;
}

bool negates(Lowering& l, std::size_t index) {
  const auto& operand = l.operand(index);
  if (operand.kind != Kind::kInteger || (operand.integer != 1 && operand.integer != -1))
    l.invalid("the scale of A or B is not 1 or -1");
  return operand.integer < 0;
}

bool transposes(Lowering& l, std::size_t index) {
  const auto& operand = l.operand(index);
  if (operand.kind != Kind::kInteger || (operand.integer != 0 && operand.integer != 1))
    l.invalid("the transposition of A or B is not 0 or 1");
  return operand.integer != 0;
}

namespace {

bool is_fp8(Element e) { return e == Element::kE4M3 || e == Element::kE5M2; }
bool is_six_or_four(Element e) {
  return e == Element::kE2M1 || e == Element::kE3M2 || e == Element::kE2M3;
}

/// Whether mma has this shape for these types. PTX ISA, "mma": table of shapes; .kind::f8f6f4 has
/// m16n8k32 alone.
bool has_shape(const MmaShape& s, Element a, bool f8f6f4) {
  if (s.n != 8) return false;
  if (f8f6f4) return s.m == 16 && s.k == 32;
  auto one_of = [&](std::initializer_list<int> ks) {
    return std::find(ks.begin(), ks.end(), s.k) != ks.end();
  };
  switch (a) {
    case Element::kF16:
    case Element::kBF16:
      return s.m == 16 && one_of({8, 16});
    case Element::kTF32:
      return s.m == 16 && one_of({4, 8});
    case Element::kE4M3:
    case Element::kE5M2:
      return s.m == 16 && one_of({16, 32});
    case Element::kS8:
    case Element::kU8:
      return s.m == 16 ? one_of({16, 32}) : s.m == 8 && s.k == 16;
    case Element::kS4:
    case Element::kU4:
      return s.m == 16 ? one_of({32, 64}) : s.m == 8 && s.k == 32;
    case Element::kF64:
      return s.m == 16 ? one_of({4, 8, 16}) : s.m == 8 && s.k == 4;
    default:
      return false;
  }
}

/// A and B may differ within these groups only.
bool go_together(Element a, Element b, bool f8f6f4) {
  auto narrow = [&](Element e) { return is_fp8(e) || (f8f6f4 && is_six_or_four(e)); };
  if (narrow(a) && narrow(b)) return true;
  auto int8 = [](Element e) { return e == Element::kS8 || e == Element::kU8; };
  auto int4 = [](Element e) { return e == Element::kS4 || e == Element::kU4; };
  return a == b || (int8(a) && int8(b)) || (int4(a) && int4(b));
}

bool accumulates(Element a, Accumulator d) {
  if (a == Element::kF64) return d == Accumulator::kF64;
  if (is_integer(a)) return d == Accumulator::kS32;
  if (a == Element::kBF16 || a == Element::kTF32) return d == Accumulator::kF32;
  return d == Accumulator::kF32 || d == Accumulator::kF16;
}

struct Types {
  Element a, b;
  Accumulator d;
};

/// .d.a.b{.c}
Types take_types(Lowering& l, bool with_c) {
  auto& m = l.modifiers();
  std::string_view d_name = m.next(), a_name = m.next(), b_name = m.next();
  std::string_view c_name = with_c ? m.next() : d_name;
  auto d = accumulator_of(d_name), c = accumulator_of(c_name);
  auto a = element_of(a_name), b = element_of(b_name);
  if (!a || !b || !c || !d)
    l.unsupported(
        fmt::format("types .{}.{}.{}.{} are not supported", d_name, a_name, b_name, c_name));
  if (*d != *c) l.invalid(fmt::format("accumulates .{} to .{}", c_name, d_name));
  if (!accumulates(*a, *d)) l.invalid(fmt::format(".{} is not accumulated in .{}", a_name, d_name));
  return {*a, *b, *d};
}

/// mma.sync.aligned.SHAPE.row.col{.kind}{.satfinite}.d.a.b.c d, a, b, c
void mma(Lowering& l) {
  auto& m = l.modifiers();
  if (!m.take("sync") || !m.take("aligned")) l.invalid("mma has to be .sync.aligned");
  if (lower_rare_mma(l)) return;
  bool f8f6f4 = m.take("kind::f8f6f4");
  MmaShape shape = take_shape(l);
  if (!m.take("row") || !m.take("col")) l.unsupported("the layout is not .row.col");
  TensorForm form;
  form.saturate = m.take("satfinite") ? 1 : 0;
  Types types = take_types(l, true);
  if (form.saturate != 0 && types.d != Accumulator::kS32) l.invalid(".satfinite is for integers");
  if (!go_together(types.a, types.b, f8f6f4))
    l.invalid("these types of A and B do not go together");
  if (!has_shape(shape, types.a, f8f6f4))
    l.unsupported(
        fmt::format("shape m{}n{}k{} is not supported for these types", shape.m, shape.n, shape.k));
  bool f64 = types.a == Element::kF64;
  if (f64) m.take("rn");
  form.a = static_cast<std::uint32_t>(types.a);
  form.b = static_cast<std::uint32_t>(types.b);
  form.d = static_cast<std::uint32_t>(types.d);
  form.row_halves = static_cast<std::uint32_t>(shape.m / 8);
  int blocks = f64 ? shape.k / 4 : shape.k * bits_of_element(types.a) / 128;
  form.k_blocks = static_cast<std::uint32_t>(blocks);

  Type type = register_type(types.d), multiplicand = f64 ? Type::kF64 : Type::kB32;
  std::vector<int> defs, uses;
  for (const auto* part : parts(l, l.operand(0), form.accumulator_registers(), "D"))
    defs.push_back(l.def(*part, type));
  for (const auto* part : parts(l, l.operand(1), blocks * shape.m / 8, "A"))
    uses.push_back(l.use(*part, multiplicand));
  for (const auto* part : parts(l, l.operand(2), blocks, "B"))
    uses.push_back(l.use(*part, multiplicand));
  for (const auto* part : parts(l, l.operand(3), form.accumulator_registers(), "C"))
    uses.push_back(l.use(*part, type));
  l.emit({.op = f64 ? Op::kMmaDouble : Op::kMma,
          .vector = static_cast<std::uint8_t>(f64 ? 1 : parts_of(types.a)),
          .mode = static_cast<std::uint8_t>(types.d),
          .integral = is_integer(types.a),
          .nan = types.a == Element::kBF16 || types.a == Element::kTF32},
         defs, uses, form.pack());
}

/// wgmma.mma_async.sync.aligned.SHAPE{.satfinite}.d.a.b d, a, b-desc, scale-d{, imm-scale-a,
/// imm-scale-b{, imm-trans-a{, imm-trans-b}}}
void wgmma(Lowering& l) {
  auto& m = l.modifiers();
  if (!m.take("sync") || !m.take("aligned")) l.invalid("wgmma has to be .sync.aligned");
  if (m.take("fence")) {
    l.emit({.op = Op::kWgmmaFence}, {}, {});
    return;
  }
  if (m.take("commit_group")) {
    l.emit({.op = Op::kWgmmaCommit}, {}, {});
    return;
  }
  if (m.take("wait_group")) {
    if (l.operand(0).kind != Kind::kInteger) l.invalid("expected a number of groups");
    l.emit({.op = Op::kWgmmaWait}, {}, {}, l.operand(0).integer);
    return;
  }
  if (!m.take("mma_async")) l.unsupported("instruction is not supported");
  if (m.take("sp")) return lower_sparse_wgmma(l);
  MmaShape shape = take_shape(l);
  TensorForm form;
  form.saturate = m.take("satfinite") ? 1 : 0;
  Types types = take_types(l, false);
  int bits = bits_of_element(types.a);
  bool integer = is_integer(types.a);
  if (bits < 8 || bits > 32 || is_six_or_four(types.a) || !go_together(types.a, types.b, false))
    l.invalid("wgmma does not multiply these types");
  if (form.saturate != 0 && !integer) l.invalid(".satfinite is for integers");
  bool n_is_valid = shape.n % 8 == 0 && shape.n >= 8 && shape.n <= 256 &&
                    (!integer || shape.n % 16 == 0 || shape.n == 8 || shape.n == 24);
  if (shape.m != 64 || !n_is_valid || shape.k * bits != 256)
    l.unsupported(
        fmt::format("shape m{}n{}k{} is not supported for these types", shape.m, shape.n, shape.k));
  form.a = static_cast<std::uint32_t>(types.a);
  form.b = static_cast<std::uint32_t>(types.b);
  form.d = static_cast<std::uint32_t>(types.d);
  form.k_blocks = 2;
  form.columns = static_cast<std::uint32_t>(shape.n / 8);
  form.a_in_registers = l.operand(1).kind == Kind::kVector ? 1 : 0;

  Type type = register_type(types.d);
  std::vector<int> defs, uses;
  for (const auto* part : parts(l, l.operand(0), form.accumulator_registers(), "D")) {
    if (part->kind != Kind::kRegister) l.invalid("D is not made of registers");
    defs.push_back(l.def(*part, type));
  }
  uses = defs;
  if (form.a_in_registers != 0)
    for (const auto* part : parts(l, l.operand(1), 4, "A"))
      uses.push_back(l.use(*part, Type::kB32));
  else
    uses.push_back(l.use(l.operand(1), Type::kB64));
  uses.push_back(l.use(l.operand(2), Type::kB64));
  uses.push_back(l.use(l.operand(3), Type::kPred));
  std::size_t next = 4;
  if (!integer) {
    form.negate_a = negates(l, next++) ? 1 : 0;
    form.negate_b = negates(l, next++) ? 1 : 0;
  }
  if (bits == 16) {
    if (form.a_in_registers == 0) form.mn_major_a = transposes(l, next++) ? 1 : 0;
    form.mn_major_b = transposes(l, next++) ? 1 : 0;
  }
  if (l.operand_count() != next)
    l.invalid(fmt::format("has {} operands, expected {}", l.operand_count(), next));
  l.emit_memory({.op = Op::kWgmma,
                 .space = Space::kShared,
                 .vector = 2,
                 .mode = static_cast<std::uint8_t>(types.d),
                 .register_bytes = static_cast<std::uint8_t>(bits / 8),
                 .integral = integer,
                 .nan = types.a == Element::kBF16 || types.a == Element::kTF32},
                defs, uses, form.pack(), Site{Space::kShared, 16, false, false});
}

/// setmaxnreg.{inc,dec}.sync.aligned.u32 count
void set_max_registers(Lowering& l) {
  auto& m = l.modifiers();
  bool more = m.take("inc"), less = m.take("dec");
  if (more == less || !m.take("sync") || !m.take("aligned") || !m.take("u32"))
    l.invalid("expected setmaxnreg.inc or .dec.sync.aligned.u32");
  const auto& count = l.operand(0);
  if (count.kind != Kind::kInteger || count.integer < 24 || count.integer > 256 ||
      count.integer % 8 != 0)
    l.invalid("the number of registers is not a multiple of 8 from 24 to 256");
  l.emit({.op = Op::kSetMaxRegisters, .mode = static_cast<std::uint8_t>(more ? 1 : 0)}, {}, {},
         count.integer);
}

/// Which matrix of narrow elements it is: takes its type. `count` becomes that of its rows in eights,
/// which is that of its registers.
ByteMatrix take_byte_matrix(Lowering& l, std::string_view shape, bool store, bool transposed,
                            int* count) {
  auto& m = l.modifiers();
  bool six = m.take("b6x16_p32"), four = m.take("b4x16_p64");
  if (six || four ? store || !m.take("b8x16") : !m.take("b8"))
    l.unsupported("the type is not .b8, .b8x16.b6x16_p32 or .b8x16.b4x16_p64");
  if (store) {
    if (shape != "m16n8" || !transposed) l.unsupported("stores of .b8 are of .m16n8 with .trans");
    return ByteMatrix::kStore;
  }
  if (shape == "m8n16") {
    if (transposed || (!six && !four))
      l.unsupported(".m8n16 is for elements of 4 and 6 bits, without .trans");
    return six ? ByteMatrix::kSix : ByteMatrix::kFour;
  }
  if (shape != "m16n16" || !transposed || *count > 2)
    l.unsupported("loads of .b8 are of .m16n16.x1 or .x2 with .trans");
  *count *= 2;
  return six    ? ByteMatrix::kSixTransposed
         : four ? ByteMatrix::kFourTransposed
                : ByteMatrix::kTransposed;
}

/// {ld,st}matrix.sync.aligned.m8n8.x{1,2,4}{.trans}{.shared}.b16, and those of narrower elements
void matrix(Lowering& l, bool store) {
  auto& m = l.modifiers();
  if (!m.take("sync") || !m.take("aligned")) l.invalid("has to be .sync.aligned");
  std::string_view shape;
  for (std::string_view each : {"m8n8", "m16n16", "m8n16", "m16n8"})
    if (shape.empty() && m.take(each)) shape = each;
  if (shape.empty()) l.unsupported("the shape is missing or not supported");
  int count = m.take("x1") ? 1 : m.take("x2") ? 2 : m.take("x4") ? 4 : 0;
  if (count == 0) l.invalid("the number of matrices is missing");
  Form form{.op = store ? Op::kStoreMatrix : Op::kLoadMatrix};
  form.mode = m.take("trans") ? 1 : 0;
  Space space = m.take("shared") || m.take("shared::cta") ? Space::kShared : Space::kGeneric;
  auto bytes = ByteMatrix::kTransposed;
  if (shape == "m8n8") {
    if (!m.take("b16")) l.unsupported("the type is not .b16");
  } else {
    bytes = take_byte_matrix(l, shape, store, form.mode != 0, &count);
    form.type = Type::kB8;
  }
  Lowering::Address at = l.address(l.operand(store ? 0 : 1), space);
  form.space = at.space;
  form.vector = static_cast<std::uint8_t>(count);
  form.address_bytes = static_cast<std::uint8_t>(at.bytes);
  std::vector<int> defs, uses{at.value};
  for (const auto* part : parts(l, l.operand(store ? 1 : 0), count, "the matrix operand"))
    if (store)
      uses.push_back(l.use(*part, Type::kB32));
    else
      defs.push_back(l.def(*part, Type::kB32));
  Site site{at.space, 16, store, false};
  site.vector = 1;
  site.register_bytes = static_cast<std::uint8_t>(bytes);
  site.address_bytes = form.address_bytes;
  l.emit_memory(form, defs, uses, at.offset, site);
}

/// movmatrix.sync.aligned.m8n8.trans.b16 d, a
void move_matrix(Lowering& l) {
  auto& m = l.modifiers();
  if (!m.take("sync") || !m.take("aligned")) l.invalid("has to be .sync.aligned");
  if (!m.take("m8n8") || !m.take("trans") || !m.take("b16"))
    l.unsupported("movmatrix is not .m8n8.trans.b16");
  int a = l.use(l.operand(1), Type::kB32);
  l.emit({.op = Op::kMoveMatrix}, {l.def(l.operand(0), Type::kB32)}, {a});
}

}  // namespace

bool lower_tensor(Lowering& l) {
  std::string_view opcode = l.instruction().opcode;
  constexpr std::string_view kMine[] = {"mma",       "ldmatrix", "stmatrix",
                                        "movmatrix", "wgmma",    "setmaxnreg"};
  if (std::find(std::begin(kMine), std::end(kMine), opcode) == std::end(kMine)) return false;
  l.guard_by_branch();  // they may have to wait for other lanes
  if (opcode == "mma") return mma(l), true;
  if (opcode == "ldmatrix") return matrix(l, false), true;
  if (opcode == "stmatrix") return matrix(l, true), true;
  if (opcode == "movmatrix") return move_matrix(l), true;
  if (opcode == "wgmma") return wgmma(l), true;
  if (opcode == "setmaxnreg") return set_max_registers(l), true;
  return false;
}

}  // namespace tilewright::vgpu
