// cvt.
#include <algorithm>

#include "jit/virtual_gpu/program/conversion.h"
#include "jit/virtual_gpu/program/lowering.h"
#include "jit/virtual_gpu/program/narrow_conversion.h"

namespace tilewright::vgpu {
namespace {

bool is_integer(Type type) { return !ptx::is_float(type); }

/// Between integers without saturation: the low bytes of the narrower type, extended as that type
/// of source or target says. PTX ISA, "cvt".
void integers(Lowering& l, Form form, int a, int d, int from_bytes, int to_bytes) {
  int from = ptx::size_of(form.from), to = ptx::size_of(form.type);
  Type narrow = to <= from ? form.type : form.from;
  form.register_bytes = static_cast<std::uint8_t>(to_bytes);
  form.address_bytes = static_cast<std::uint8_t>(from_bytes);
  form.type = narrow;
  form.from = Type::kNone;
  form.mode = 1;
  l.emit(form, {d}, {a});
}

/// fp8 pairs and tf32. False, with nothing taken, where it is another conversion.
bool narrow(Lowering& l, Form form) {
  auto& m = l.modifiers();
  NarrowConversion c;
  c.relu = form.relu;
  c.satfinite = form.absolute;
  const bool away = m.take("rna");
  if (away) {
    c.rounding = NarrowConversion::Rounding::kNearestAway;
  } else if (form.round == Round::kZero) {
    c.rounding = NarrowConversion::Rounding::kZero;
  }
  form.mode = kNarrowConversion;
  const bool e4m3 = m.take("e4m3x2");
  c.e5m2 = !e4m3 && m.take("e5m2x2");
  if (m.take("tf32")) {
    c.kind = NarrowConversion::Kind::kTf32;
    if (m.take_type() != Type::kF32) l.unsupported("the conversion is not supported");
    const int a = l.use(l.operand(1), Type::kF32);
    l.emit(form, {l.def(l.operand(0), Type::kB32, true)}, {a}, c.pack());
    return true;
  }
  if (!e4m3 && !c.e5m2) {
    if (away) l.unsupported("the conversion is not supported");
    return false;
  }
  const auto& names = l.instruction().modifiers;
  const auto position = [&](std::string_view name) {
    return std::find(names.begin(), names.end(), name) - names.begin();
  };
  const bool from_fp8 = position(e4m3 ? "e4m3x2" : "e5m2x2") > position("f16x2");
  const Type other = m.take_type();
  if (from_fp8) {
    c.kind = NarrowConversion::Kind::kFp8ToHalf;
    const int a = l.use(l.operand(1), Type::kB16);
    l.emit(form, {l.def(l.operand(0), Type::kF16x2)}, {a}, c.pack());
    return true;
  }
  if (!c.satfinite) l.invalid("expected .satfinite");
  if (other == Type::kF32) {
    c.kind = NarrowConversion::Kind::kPairToFp8;
    const int a = l.use(l.operand(1), Type::kF32), b = l.use(l.operand(2), Type::kF32);
    l.emit(form, {l.def(l.operand(0), Type::kB16)}, {a, b}, c.pack());
  } else if (other == Type::kF16x2) {
    c.kind = NarrowConversion::Kind::kHalfToFp8;
    const int a = l.use(l.operand(1), Type::kF16x2);
    l.emit(form, {l.def(l.operand(0), Type::kB16)}, {a}, c.pack());
  } else {
    l.unsupported("the conversion is not supported");
  }
  return true;
}

void cvt(Lowering& l) {
  auto& m = l.modifiers();
  Form form{.op = Op::kCvt};
  constexpr std::pair<std::string_view, Round> kIntegral[] = {
      {"rni", Round::kNearest}, {"rzi", Round::kZero}, {"rmi", Round::kDown}, {"rpi", Round::kUp}};
  for (auto [name, round] : kIntegral) {
    if (m.take(name)) {
      form.integral = true;
      form.round = round;
    }
  }
  if (!form.integral) form.round = m.take_round();
  form.ftz = m.take("ftz");
  form.relu = m.take("relu");
  form.saturate = m.take("sat");
  if (m.take("satfinite")) form.absolute = true;
  if (narrow(l, form)) return;
  form.type = m.take_type();
  form.from = m.take_type();
  if (form.type == Type::kNone || form.from == Type::kNone)
    l.unsupported("a type is missing or not supported");
  if (form.type == Type::kF16x2 || form.type == Type::kBF16x2) {
    if (form.from != Type::kF32) l.unsupported("the conversion is not supported");
    int a = l.use(l.operand(1), Type::kF32), b = l.use(l.operand(2), Type::kF32);
    l.emit(form, {l.def(l.operand(0), form.type)}, {a, b}, Conversion::of(form).pack());
    return;
  }
  const auto& source = l.operand(1);
  const auto& target = l.operand(0);
  if (l.operand_count() != 2) l.unsupported("the conversion is not supported");
  int a = l.use(source, form.from, true);
  int d = l.def(target, form.type, true);
  int from_bytes = l.register_bytes(source), to_bytes = l.register_bytes(target);
  if (from_bytes < 0) from_bytes = std::max(2, ptx::size_of(form.from));
  if (to_bytes < 0) to_bytes = std::max(2, ptx::size_of(form.type));
  if (is_integer(form.from) && is_integer(form.type) && !form.saturate)
    return integers(l, form, a, d, from_bytes, to_bytes);
  form.register_bytes = static_cast<std::uint8_t>(to_bytes);
  form.address_bytes = static_cast<std::uint8_t>(from_bytes);
  l.emit(form, {d}, {a}, Conversion::of(form).pack());
}

}  // namespace

bool lower_convert(Lowering& l) {
  if (l.instruction().opcode != "cvt") return false;
  return cvt(l), true;
}

}  // namespace tilewright::vgpu
