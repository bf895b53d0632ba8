// cvt to and from formats of 8, 6 and 4 bits, to tf32, and cvt.pack.
#include <algorithm>

#include "jit/virtual_gpu/program/lowering.h"
#include "jit/virtual_gpu/program/narrow_conversion.h"

namespace tilewright::vgpu {
namespace {

using Kind = NarrowConversion::Kind;
using Format = NarrowConversion::Format;
using Rounding = NarrowConversion::Rounding;

struct Named {
  std::string_view name;
  Format format;
};
constexpr Named kPairs[] = {{"e4m3x2", Format::kE4M3}, {"e5m2x2", Format::kE5M2},
                            {"e2m3x2", Format::kE2M3}, {"e3m2x2", Format::kE3M2},
                            {"e2m1x2", Format::kE2M1}, {"ue8m0x2", Format::kUE8M0}};

void tf32(Lowering& l, Form form, const NarrowConversion& c) {
  if (l.modifiers().take_type() != Type::kF32) l.unsupported("the conversion is not supported");
  const int a = l.use(l.operand(1), Type::kF32);
  l.emit(form, {l.def(l.operand(0), Type::kB32, true)}, {a}, c.pack());
}

/// From a pair.
void widened(Lowering& l, Form form, NarrowConversion c, Type pair, Type other) {
  const bool scale = c.format == Format::kUE8M0;
  if (other != (scale ? Type::kBF16x2 : Type::kF16x2))
    l.unsupported("the conversion is not supported");
  c.kind = scale ? Kind::kToBf16 : Kind::kToHalves;
  const int a = l.use(l.operand(1), pair);
  l.emit(form, {l.def(l.operand(0), other)}, {a}, c.pack());
}

/// To a pair.
void narrowed(Lowering& l, Form form, NarrowConversion c, Type pair, Type other) {
  const bool scale = c.format == Format::kUE8M0;
  if (scale ? c.rounding == Rounding::kNearestEven : !c.satfinite)
    l.invalid(scale ? "expected .rz or .rp" : "expected .satfinite");
  if (other == Type::kF32) {
    c.kind = Kind::kFromFloats;
    const int a = l.use(l.operand(1), Type::kF32), b = l.use(l.operand(2), Type::kF32);
    l.emit(form, {l.def(l.operand(0), pair)}, {a, b}, c.pack());
    return;
  }
  c.kind = other == Type::kF16x2 ? Kind::kFromHalves : Kind::kFromBf16;
  if (other != Type::kF16x2 && other != Type::kBF16x2)
    l.unsupported("the conversion is not supported");
  const int a = l.use(l.operand(1), other);
  l.emit(form, {l.def(l.operand(0), pair)}, {a}, c.pack());
}

}  // namespace

bool lower_narrow_convert(Lowering& l, Form form) {
  auto& m = l.modifiers();
  NarrowConversion c;
  c.relu = form.relu;
  c.satfinite = form.absolute;
  const bool away = m.take("rna");
  c.rounding = away                         ? Rounding::kNearestAway
               : form.round == Round::kZero ? Rounding::kZero
               : form.round == Round::kUp   ? Rounding::kUp
                                            : Rounding::kNearestEven;
  form.mode = kNarrowConversion;
  if (m.take("tf32")) return tf32(l, form, c), true;
  if (away) l.unsupported("the conversion is not supported");
  const auto& names = l.instruction().modifiers;
  for (const Named& named : kPairs) {
    if (!m.take(named.name)) continue;
    c.format = named.format;
    const Type other = m.take_type();
    const Type pair = named.format == Format::kE2M1 ? Type::kB8 : Type::kB16;
    const bool target_first = std::find(names.begin(), names.end(), named.name) <
                              std::find(names.begin(), names.end(), ptx::to_string(other));
    if (target_first)
      narrowed(l, form, c, pair, other);
    else
      widened(l, form, c, pair, other);
    return true;
  }
  return false;
}

bool lower_convert_pack(Lowering& l) {
  auto& m = l.modifiers();
  if (!m.take("pack")) return false;
  if (!m.take("sat")) l.invalid("expected .sat");
  struct Target {
    std::string_view name;
    int bits;
    bool is_signed;
  };
  constexpr Target kTargets[] = {{"u16", 16, false}, {"s16", 16, true}, {"u8", 8, false},
                                 {"s8", 8, true},    {"u4", 4, false},  {"s4", 4, true},
                                 {"u2", 2, false},   {"s2", 2, true}};
  for (const Target& target : kTargets) {
    if (!m.take(target.name)) continue;
    if (m.take_type() != Type::kS32) l.invalid("expected .s32");
    std::vector<int> uses{l.use(l.operand(1), Type::kS32), l.use(l.operand(2), Type::kS32)};
    if (target.bits < 16) {
      if (m.take_type() != Type::kB32) l.invalid("expected .b32");
      uses.push_back(l.use(l.operand(3), Type::kB32));
    } else {
      uses.push_back(uses[0]);  // nothing lies above
    }
    l.emit({.op = Op::kCvtPack, .type = Type::kU32}, {l.def(l.operand(0), Type::kB32)}, uses,
           target.bits | (target.is_signed ? 0x100 : 0));
    return true;
  }
  l.unsupported("the conversion is not supported");
}

}  // namespace tilewright::vgpu
