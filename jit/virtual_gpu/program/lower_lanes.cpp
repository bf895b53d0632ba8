// Exchange and votes between the lanes of a warp.
#include <algorithm>

#include "jit/virtual_gpu/program/lowering.h"

namespace tilewright::vgpu {
namespace {

using Kind = ptx::Operand::Kind;

/// The member mask is the last operand of the .sync forms; the older forms mean all lanes.
int member_mask(Lowering& l, bool sync, std::size_t index) {
  return sync ? l.use(l.operand(index), Type::kB32) : l.constant(Width::k32, 0xffffffffu);
}

/// `d|p`: p, or a place for what nobody reads.
std::vector<int> with_predicate(Lowering& l, Type type) {
  const auto& d = l.operand(0);
  if (d.kind == Kind::kPair) return {l.def(d.elements[0], type), l.def(d.elements[1], Type::kPred)};
  return {l.def(d, type), l.temporary(Width::kPredicate)};
}

void shfl(Lowering& l) {
  auto& m = l.modifiers();
  bool sync = m.take("sync");
  Form form{.op = Op::kShfl, .type = Type::kB32};
  constexpr std::string_view kModes[] = {"up", "down", "bfly", "idx"};
  for (std::size_t i = 0; i < std::size(kModes); ++i)
    if (m.take(kModes[i])) form.mode = static_cast<std::uint8_t>(i);
  if (m.take_type() != Type::kB32) l.unsupported("the type is not .b32");
  std::vector<int> uses;
  for (std::size_t i = 1; i <= 3; ++i) uses.push_back(l.use(l.operand(i), Type::kB32));
  uses.push_back(member_mask(l, sync, 4));
  l.emit(form, with_predicate(l, Type::kB32), uses);
}

void vote(Lowering& l) {
  auto& m = l.modifiers();
  bool sync = m.take("sync");
  Form form{.op = Op::kVote};
  if (m.take("ballot")) {
    form.op = Op::kBallot;
    m.take_type();
    int p = l.use(l.operand(1), Type::kPred);
    int mask = member_mask(l, sync, 2);
    l.emit(form, {l.def(l.operand(0), Type::kB32)}, {p, mask});
    return;
  }
  constexpr std::string_view kModes[] = {"all", "any", "uni"};
  for (std::size_t i = 0; i < std::size(kModes); ++i)
    if (m.take(kModes[i])) form.mode = static_cast<std::uint8_t>(i);
  m.take_type();
  int p = l.use(l.operand(1), Type::kPred);
  int mask = member_mask(l, sync, 2);
  l.emit(form, {l.def(l.operand(0), Type::kPred)}, {p, mask});
}

void redux(Lowering& l) {
  auto& m = l.modifiers();
  m.take("sync");
  Form form{.op = Op::kRedux};
  form.reduce = m.take("add")   ? Reduce::kAdd
                : m.take("min") ? Reduce::kMin
                : m.take("max") ? Reduce::kMax
                : m.take("and") ? Reduce::kAnd
                : m.take("or")  ? Reduce::kOr
                                : Reduce::kXor;
  m.take("xor");
  form.absolute = m.take("abs");
  form.nan = m.take("NaN");
  form.type = m.take_type();
  int a = l.use(l.operand(1), form.type);
  int mask = l.use(l.operand(2), Type::kB32);
  l.emit(form, {l.def(l.operand(0), form.type)}, {a, mask},
         (form.absolute ? 1 : 0) | (form.nan ? 2 : 0));
}

void match(Lowering& l) {
  auto& m = l.modifiers();
  bool all = m.take("all");
  m.take("any");
  m.take("sync");
  Form form{.op = all ? Op::kMatchAll : Op::kMatchAny};
  form.from = m.take_type();
  form.type = Type::kB32;
  int a = l.use(l.operand(1), form.from);
  int mask = l.use(l.operand(2), Type::kB32);
  l.emit(form, with_predicate(l, Type::kB32), {a, mask});
}

}  // namespace

bool lower_lanes(Lowering& l) {
  std::string_view opcode = l.instruction().opcode;
  constexpr std::string_view kMine[] = {"shfl", "vote", "redux", "match", "activemask", "elect"};
  if (std::find(std::begin(kMine), std::end(kMine), opcode) == std::end(kMine)) return false;
  l.guard_by_branch();  // they may have to wait for other lanes
  if (opcode == "shfl") return shfl(l), true;
  if (opcode == "vote") return vote(l), true;
  if (opcode == "redux") return redux(l), true;
  if (opcode == "match") return match(l), true;
  if (opcode == "activemask") {
    l.modifiers().take_type();
    l.emit({.op = Op::kActiveMask}, {l.def(l.operand(0), Type::kB32)}, {});
    return true;
  }
  if (opcode == "elect") {
    l.modifiers().take("sync");
    int mask = l.use(l.operand(1), Type::kB32);
    l.emit({.op = Op::kElect}, with_predicate(l, Type::kB32), {mask});
    return true;
  }
  return false;
}

}  // namespace tilewright::vgpu
