// Branches, calls, exits, barriers.
#include "jit/virtual_gpu/program/lowering.h"

namespace tilewright::vgpu {
namespace {

using Kind = ptx::Operand::Kind;

void bra(Lowering& l) {
  l.modifiers().take("uni");
  int target = l.label(l.operand(0).name);
  Draft& draft = l.emit({.op = Op::kBranch}, {}, {});
  draft.target = target;
  if (draft.guard >= 0) {
    draft.form.op = Op::kBranchIf;
    draft.uses = {draft.guard};
    draft.immediate = draft.guard_negated ? 1 : 0;
    draft.guard = -1;
  }
}

void brx(Lowering& l) {
  l.modifiers().take("idx");
  l.modifiers().take("uni");
  l.guard_by_branch();
  int index = l.use(l.operand(0), Type::kU32);
  std::vector<int> targets = l.branch_targets(l.operand(1).name);
  l.emit({.op = Op::kBranchIndex}, {}, {index}).targets = std::move(targets);
}

/// bar{.cta}.{sync,arrive,red} and barrier{.cta}.{sync,arrive,red}{.aligned}
void barrier(Lowering& l) {
  auto& m = l.modifiers();
  m.take("cta");
  if (m.take("warp")) {
    m.take("sync");
    l.guard_by_branch();
    int mask = l.use(l.operand(0), Type::kB32);
    l.emit({.op = Op::kWarpSync}, {}, {mask});
    return;
  }
  l.guard_by_branch();
  Form form{.op = Op::kBarrier};
  bool reduce = m.take("red");
  if (m.take("arrive"))
    form.op = Op::kBarrierArrive;
  else
    m.take("sync");
  m.take("aligned");
  std::size_t i = 0;
  std::vector<int> defs;
  if (reduce) {
    form.op = Op::kBarrierReduce;
    form.reduce = m.take("popc") ? Reduce::kPopc : m.take("and") ? Reduce::kAnd : Reduce::kOr;
    m.take("or");
    form.type = m.take_type();
    defs.push_back(l.def(l.operand(i++), form.type));
  }
  std::vector<int> uses{l.use(l.operand(i++), Type::kU32)};
  std::size_t rest = l.operand_count() - i - (reduce ? 1 : 0);
  uses.push_back(rest > 0 ? l.use(l.operand(i++), Type::kU32) : l.constant(Width::k32, 0));
  if (reduce) uses.push_back(l.use(l.operand(i++), Type::kPred));
  l.emit(form, defs, uses);
}

}  // namespace

bool lower_control(Lowering& l) {
  std::string_view opcode = l.instruction().opcode;
  auto& m = l.modifiers();
  if (opcode == "bra") return bra(l), true;
  if (opcode == "brx") return brx(l), true;
  if (opcode == "bar" || opcode == "barrier") return barrier(l), true;
  if (opcode == "call") {
    m.take("uni");
    return l.call(), true;
  }
  if (opcode == "ret" || opcode == "exit") {
    m.take("uni");
    l.guard_by_branch();
    if (opcode == "ret")
      l.leave();
    else
      l.emit({.op = Op::kExit}, {}, {});
    return true;
  }
  if (opcode == "trap" || opcode == "brkpt") {
    l.emit({.op = opcode == "trap" ? Op::kTrap : Op::kNop}, {}, {});
    return true;
  }
  if (opcode == "nanosleep") {
    m.take_type();
    l.use(l.operand(0), Type::kU32);
    l.emit({.op = Op::kNanosleep}, {}, {});
    return true;
  }
  if (opcode == "pmevent") {
    m.next();
    l.emit({.op = Op::kNop}, {}, {});
    return true;
  }
  return false;
}

}  // namespace tilewright::vgpu
