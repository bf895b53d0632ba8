// cvt between integers and floats.
#include <algorithm>

#include "jit/virtual_gpu/program/conversion.h"
#include "jit/virtual_gpu/program/lowering.h"

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

void cvt(Lowering& l) {
  if (lower_convert_pack(l)) return;
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
  if (lower_narrow_convert(l, form)) return;
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
