// mma with a sparse A, with block scales, of single bits, m8n8k4 of f16; sparse wgmma. PTX ISA, "mma",
// "mma.sp", "Block Scaling for mma.sync", "wgmma.mma_async.sp".
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <initializer_list>

#include "jit/virtual_gpu/program/lower_tensor.h"
#include "jit/virtual_gpu/program/rare_form.h"

namespace tilewright::vgpu {
namespace {

using Kind = ptx::Operand::Kind;

enum class MmaKind : std::uint8_t { kNone, kF8F6F4, kMxF8F6F4, kMxF4, kMxF4NvF4 };

MmaKind take_kind(Lowering& l) {
  auto& m = l.modifiers();
  return m.take("kind::f8f6f4")     ? MmaKind::kF8F6F4
         : m.take("kind::mxf8f6f4") ? MmaKind::kMxF8F6F4
         : m.take("kind::mxf4")     ? MmaKind::kMxF4
         : m.take("kind::mxf4nvf4") ? MmaKind::kMxF4NvF4
                                    : MmaKind::kNone;
}

bool one_of(int value, std::initializer_list<int> values) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

bool is_narrow_float(Element e) { return e >= Element::kE4M3 && e <= Element::kE2M3; }

/// The k of the sparse shapes m16n8k and of the scaled ones, by the types and the kind.
bool has_k(Element a, MmaKind kind, bool sparse, int k) {
  int factor = sparse ? 2 : 1;
  switch (kind) {
    case MmaKind::kF8F6F4:
    case MmaKind::kMxF8F6F4:
      return k == 32 * factor;
    case MmaKind::kMxF4:
    case MmaKind::kMxF4NvF4:
      return k == 64 * factor;
    case MmaKind::kNone:
      break;
  }
  switch (a) {
    case Element::kF16:
    case Element::kBF16:
      return one_of(k, {16, 32});
    case Element::kTF32:
      return one_of(k, {8, 16});
    case Element::kE4M3:
    case Element::kE5M2:
      return k == 64;
    case Element::kS8:
    case Element::kU8:
      return one_of(k, {32, 64});
    case Element::kS4:
    case Element::kU4:
      return one_of(k, {64, 128});
    default:
      return false;
  }
}

/// How many threads of four give the metadata, of a sparse A of `k` columns: 1, 2 or 4.
int metadata_threads(Element a, int k) {
  // Two bits for each of two elements of 4 (of tf32: four for one of 2; of 4 bits: of two of 4
  // pairs), of two rows, in words of 32.
  int chunk = a == Element::kTF32 ? 2 : bits_of_rare(a) == 4 ? 8 : 4;
  return k / chunk * 4 * 2 / 32;
}

int selector(Lowering& l, std::size_t index, int threads) {
  const auto& operand = l.operand(index);
  if (operand.kind != Kind::kInteger || operand.integer < 0 || operand.integer >= 4 / threads)
    l.invalid(fmt::format("the sparsity selector is not an integer from 0 to {}", 4 / threads - 1));
  return static_cast<int>(operand.integer);
}

Accumulator take_accumulator(Lowering& l) {
  std::string_view name = l.modifiers().next();
  auto found = accumulator_of(name);
  if (!found || *found == Accumulator::kF64) l.unsupported(fmt::format("accumulator .{}", name));
  return *found;
}
Element take_element(Lowering& l) {
  std::string_view name = l.modifiers().next();
  if (name == "b1") return kElementB1;
  auto found = element_of(name);
  if (!found || *found == Element::kF64) l.unsupported(fmt::format("type .{}", name));
  return *found;
}

/// Whether the types of a sparse or scaled mma go together.
bool valid_types(Element a, Element b, Accumulator d, MmaKind kind) {
  auto within = [&](Element first, Element last) {
    return a >= first && a <= last && b >= first && b <= last;
  };
  switch (kind) {
    case MmaKind::kF8F6F4:
      return within(Element::kE4M3, Element::kE2M3) && d != Accumulator::kS32;
    case MmaKind::kMxF8F6F4:
      return within(Element::kE4M3, Element::kE2M3) && d == Accumulator::kF32;
    case MmaKind::kMxF4:
    case MmaKind::kMxF4NvF4:
      return a == Element::kE2M1 && b == Element::kE2M1 && d == Accumulator::kF32;
    case MmaKind::kNone:
      break;
  }
  if (a == Element::kF16) return b == a && d != Accumulator::kS32;
  if (a == Element::kBF16 || a == Element::kTF32) return b == a && d == Accumulator::kF32;
  if (within(Element::kE4M3, Element::kE5M2)) return d != Accumulator::kS32;
  return (within(Element::kS8, Element::kU8) || within(Element::kS4, Element::kU4)) &&
         d == Accumulator::kS32;
}

/// Takes .block_scale{.scale_vec::NX}.
int take_scales(Lowering& l, MmaKind kind) {
  auto& m = l.modifiers();
  if (kind < MmaKind::kMxF8F6F4) return 0;
  if (!m.take("block_scale")) l.invalid("expected .block_scale");
  int given = m.take("scale_vec::1X")   ? 1
              : m.take("scale_vec::2X") ? 2
              : m.take("scale_vec::4X") ? 4
                                        : 0;
  int usual = kind == MmaKind::kMxF8F6F4 ? 1 : kind == MmaKind::kMxF4 ? 2 : 0;
  if (given == 0) given = usual;
  bool valid = usual != 0 ? given == usual : one_of(given, {2, 4});
  if (!valid) l.invalid("this .kind does not have this number of scales");
  return given;
}

struct Operands {
  std::vector<int> defs, uses;
  void use_all(Lowering& l, std::size_t index, int count, Type type, const char* what) {
    for (const auto* part : parts(l, l.operand(index), count, what))
      uses.push_back(l.use(*part, type));
  }
  void define_all(Lowering& l, int count, Type type) {
    for (const auto* part : parts(l, l.operand(0), count, "D")) defs.push_back(l.def(*part, type));
  }
};

int registers_of(Accumulator d, int halves) { return d == Accumulator::kF16 ? halves : 2 * halves; }

/// {data}, {byte, thread} of A or B.
void use_scales(Lowering& l, std::size_t index, const RareForm& form, int threads, Operands* to) {
  to->use_all(l, index, 1, Type::kB32, "the scales");
  const int limits[] = {form.scales == 4 ? 1 : 4, threads};
  auto selectors = parts(l, l.operand(index + 1), 2, "the selector of the scales");
  for (std::size_t i = 0; i < 2; ++i) {
    const auto& operand = *selectors[i];
    if (operand.kind == Kind::kInteger &&
        (operand.integer < 0 || operand.integer >= limits[i] ||
         (i == 0 && form.scales == 2 && operand.integer % 2 != 0)))
      l.invalid(fmt::format("{} is {}, which these scales do not have",
                            i == 0 ? "the byte id" : "the thread id", operand.integer));
    to->uses.push_back(l.use(operand, Type::kU16));
  }
}

void emit(Lowering& l, const RareForm& form, const Operands& operands) {
  l.emit({.op = Op::kMmaRare, .mode = static_cast<std::uint8_t>(form.quads)}, operands.defs,
         operands.uses, form.pack());
}

/// mma{.sp}.sync.aligned.m16n8kK.row.col{.kind{.block_scale{.scale_vec}}}{.satfinite}.d.a.b.c{.stype}
/// d, a, b, c{, metadata, selector}{, scales, {byte, thread}, scales, {byte, thread}}
void sparse_or_scaled(Lowering& l, MmaKind kind, bool sparse, bool ordered) {
  auto& m = l.modifiers();
  RareForm form;
  form.scales = static_cast<std::uint32_t>(take_scales(l, kind));
  MmaShape shape = take_shape(l);
  if (!m.take("row") || !m.take("col")) l.unsupported("the layout is not .row.col");
  form.saturate = m.take("satfinite") ? 1 : 0;
  Accumulator d = take_accumulator(l);
  Element a = take_element(l), b = take_element(l);
  if (take_accumulator(l) != d) l.invalid("C and D are of different types");
  if (!valid_types(a, b, d, kind)) l.invalid("these types do not go together");
  if (form.saturate != 0 && d != Accumulator::kS32) l.invalid(".satfinite is for integers");
  if (shape.m != 16 || shape.n != 8 || !has_k(a, kind, sparse, shape.k))
    l.unsupported(
        fmt::format("shape m{}n{}k{} is not supported for these types", shape.m, shape.n, shape.k));
  if (form.scales != 0) {
    bool e4m3 = m.take("ue4m3");
    if (!e4m3 && !m.take("ue8m0")) l.unsupported("expected .ue8m0 or .ue4m3");
    if (e4m3 && (kind != MmaKind::kMxF4NvF4 || form.scales != 4))
      l.invalid(".ue4m3 is for four scales of .kind::mxf4nvf4");
    form.scale_e4m3 = e4m3 ? 1 : 0;
  }
  if (kind == MmaKind::kMxF4 || kind == MmaKind::kMxF4NvF4) a = b = kElementE2M1Packed;
  form.a = static_cast<std::uint32_t>(a);
  form.b = static_cast<std::uint32_t>(b);
  form.c = form.d = static_cast<std::uint32_t>(d);
  form.log_k = static_cast<std::uint32_t>(std::countr_zero(static_cast<unsigned>(shape.k)));
  form.sparse = sparse ? 1 : 0;
  form.ordered = ordered ? 1 : 0;
  const int blocks = shape.k * bits_of_rare(a) / 128;
  if (sparse)
    form.selector = static_cast<std::uint32_t>(selector(l, 5, metadata_threads(a, shape.k)));
  Operands o;
  o.define_all(l, registers_of(d, 2), register_type(d));
  o.use_all(l, 1, blocks * 2 / (sparse ? 2 : 1), Type::kB32, "A");
  o.use_all(l, 2, blocks, Type::kB32, "B");
  o.use_all(l, 3, registers_of(d, 2), register_type(d), "C");
  if (sparse) o.uses.push_back(l.use(l.operand(4), Type::kB32));
  if (form.scales != 0) {
    std::size_t first = sparse ? 6 : 4;
    use_scales(l, first, form, 2, &o);
    use_scales(l, first + 2, form, 4, &o);
  }
  emit(l, form, o);
}

/// mma.sync.aligned.{m8n8k128,m16n8k128,m16n8k256}.row.col.s32.b1.b1.s32.{xor,and}.popc d, a, b, c
void binary(Lowering& l) {
  auto& m = l.modifiers();
  MmaShape shape = take_shape(l);
  if (!m.take("row") || !m.take("col")) l.unsupported("the layout is not .row.col");
  RareForm form;
  if (take_accumulator(l) != Accumulator::kS32 || take_element(l) != kElementB1 ||
      take_element(l) != kElementB1 || take_accumulator(l) != Accumulator::kS32)
    l.invalid("bits are accumulated as .s32.b1.b1.s32");
  form.conjunction = m.take("and") ? 1 : 0;
  if (form.conjunction == 0 && !m.take("xor")) l.unsupported("expected .xor or .and");
  if (!m.take("popc")) l.unsupported("expected .popc");
  bool valid = shape.n == 8 &&
               ((shape.m == 8 && shape.k == 128) || (shape.m == 16 && one_of(shape.k, {128, 256})));
  if (!valid)
    l.unsupported(
        fmt::format("shape m{}n{}k{} is not supported for bits", shape.m, shape.n, shape.k));
  form.a = form.b = static_cast<std::uint32_t>(kElementB1);
  form.c = form.d = static_cast<std::uint32_t>(Accumulator::kS32);
  form.log_k = shape.k == 128 ? 7 : 8;
  form.row_halves = static_cast<std::uint32_t>(shape.m / 8);
  const int halves = shape.m / 8, blocks = shape.k / 128;
  Operands o;
  o.define_all(l, 2 * halves, Type::kB32);
  o.use_all(l, 1, blocks * halves, Type::kB32, "A");
  o.use_all(l, 2, blocks, Type::kB32, "B");
  o.use_all(l, 3, 2 * halves, Type::kB32, "C");
  emit(l, form, o);
}

/// mma.sync.aligned.m8n8k4.alayout.blayout.d.f16.f16.c d, a, b, c
void quads(Lowering& l) {
  auto& m = l.modifiers();
  take_shape(l);
  std::string_view a = m.next(), b = m.next();
  if ((a != "row" && a != "col") || (b != "row" && b != "col"))
    l.invalid("the layouts are missing");
  RareForm form;
  form.quads = 1;
  form.row_halves = 1;
  form.column_a = a == "col" ? 1 : 0;
  form.row_b = b == "row" ? 1 : 0;
  form.log_k = 2;
  Accumulator d = take_accumulator(l);
  Element first = take_element(l), second = take_element(l);
  Accumulator c = take_accumulator(l);
  if (first != Element::kF16 || second != Element::kF16 || d == Accumulator::kS32 ||
      c == Accumulator::kS32 || (c == Accumulator::kF32 && d != c))
    l.invalid("m8n8k4 does not have these types");
  form.a = form.b = static_cast<std::uint32_t>(Element::kF16);
  form.c = static_cast<std::uint32_t>(c);
  form.d = static_cast<std::uint32_t>(d);
  auto count = [](Accumulator type) { return type == Accumulator::kF16 ? 4 : 8; };
  Operands o;
  o.define_all(l, count(d), register_type(d));
  o.use_all(l, 1, 2, Type::kB32, "A");
  o.use_all(l, 2, 2, Type::kB32, "B");
  o.use_all(l, 3, count(c), register_type(c), "C");
  emit(l, form, o);
}

}  // namespace

bool lower_rare_mma(Lowering& l) {
  auto& m = l.modifiers();
  const ptx::Instruction& instruction = l.instruction();
  bool ordered = m.take("sp::ordered_metadata"), sparse = ordered || m.take("sp");
  bool scaled = instruction.has("block_scale");
  if (sparse || scaled) {
    sparse_or_scaled(l, take_kind(l), sparse, ordered);
    return true;
  }
  if (instruction.has("b1")) {
    binary(l);
    return true;
  }
  if (instruction.has("m8n8k4") && instruction.has("f16")) {
    quads(l);
    return true;
  }
  return false;
}

/// wgmma.mma_async.sp.sync.aligned.m64nNkK{.satfinite}.d.a.b d, a, b-desc, metadata, selector, scale-d
/// {, imm-scale-a, imm-scale-b{, imm-trans-a{, imm-trans-b}}}. Operands as of wgmma, then the metadata
/// and the selector.
void lower_sparse_wgmma(Lowering& l) {
  auto& m = l.modifiers();
  MmaShape shape = take_shape(l);
  TensorForm form;
  form.saturate = m.take("satfinite") ? 1 : 0;
  Accumulator d = take_accumulator(l);
  Element a = take_element(l), b = take_element(l);
  int bits = bits_of_rare(a);
  bool integer = is_integer(a);
  bool narrow = is_narrow_float(a) && a > Element::kE5M2;
  if (bits < 8 || narrow || !valid_types(a, b, d, MmaKind::kNone))
    l.invalid("wgmma does not multiply these types");
  if (form.saturate != 0 && !integer) l.invalid(".satfinite is for integers");
  bool n_is_valid = shape.n % 8 == 0 && shape.n >= 8 && shape.n <= 256 &&
                    (!integer || shape.n % 16 == 0 || shape.n == 8 || shape.n == 24);
  if (shape.m != 64 || !n_is_valid || shape.k * bits != 512)
    l.unsupported(
        fmt::format("shape m{}n{}k{} is not supported for these types", shape.m, shape.n, shape.k));
  form.a = static_cast<std::uint32_t>(a);
  form.b = static_cast<std::uint32_t>(b);
  form.d = static_cast<std::uint32_t>(d);
  form.k_blocks = 4;
  form.columns = static_cast<std::uint32_t>(shape.n / 8);
  form.a_in_registers = l.operand(1).kind == Kind::kVector ? 1 : 0;
  Operands o;
  for (const auto* part : parts(l, l.operand(0), form.accumulator_registers(), "D")) {
    if (part->kind != Kind::kRegister) l.invalid("D is not made of registers");
    o.defs.push_back(l.def(*part, register_type(d)));
  }
  o.uses = o.defs;
  if (form.a_in_registers != 0)
    o.use_all(l, 1, 4, Type::kB32, "A");
  else
    o.uses.push_back(l.use(l.operand(1), Type::kB64));
  o.uses.push_back(l.use(l.operand(2), Type::kB64));
  o.uses.push_back(l.use(l.operand(5), Type::kPred));
  o.uses.push_back(l.use(l.operand(3), Type::kB32));
  int chosen = selector(l, 4, metadata_threads(a, shape.k));
  o.uses.push_back(l.constant(Width::k32, static_cast<std::uint64_t>(chosen)));
  std::size_t next = 6;
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
  l.emit_memory({.op = Op::kWgmmaRare, .space = Space::kShared}, o.defs, o.uses, form.pack(),
                Site{Space::kShared, 16, false, false});
}

}  // namespace tilewright::vgpu
