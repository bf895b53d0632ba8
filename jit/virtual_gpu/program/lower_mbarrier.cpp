#include "jit/virtual_gpu/program/async_form.h"
#include "jit/virtual_gpu/program/lower_async.h"

namespace tilewright::vgpu {
namespace {

using Kind = ptx::Operand::Kind;

/// mbarrier.{test_wait,try_wait}{.parity}{.sem.scope}{.shared}.b64 p, [m], state{, time}
void mbarrier_test(Lowering& l, bool tries) {
  auto& m = l.modifiers();
  bool parity = m.take("parity");
  take_semantics(l);
  SharedSpace at = take_shared(l);
  if (at.cluster) l.invalid("a wait is for an mbarrier of the own block");
  if (m.take_type() != Type::kB64) l.unsupported("the type is not .b64");
  if (tries) l.guard_by_branch();  // it may have to wait
  int address = wide_address(l, l.operand(1), at.space);
  int state = l.use(l.operand(2), parity ? Type::kU32 : Type::kB64);
  if (l.operand_count() > 3) l.use(l.operand(3), Type::kU32);
  Form form{.op = Op::kMbarrierTest};
  int def = l.def(l.operand(0), Type::kPred);
  l.emit_memory(form, {def}, {address, state},
                (parity ? kTestParity : 0) | (tries ? kTestTries : 0),
                site_of(l, at.space, false, 8, false));
}

/// mbarrier.{arrive,arrive_drop}{.expect_tx}{.noComplete}{.sem.scope}{.space}.b64 state, [m]{, count}
void mbarrier_arrive(Lowering& l, std::int32_t flags) {
  auto& m = l.modifiers();
  bool expects = m.take("expect_tx");
  if (expects) flags |= kMbarrierExpects;
  if (m.take("noComplete")) flags |= kMbarrierNoComplete;
  take_semantics(l);
  SharedSpace at = take_shared(l);
  if (m.take_type() != Type::kB64) l.unsupported("the type is not .b64");
  // The old form without a state: [m]{, count}.
  std::size_t i = l.operand(0).kind == Kind::kAddress ? 0 : 1;
  bool returns = i == 1 && l.operand(0).kind == Kind::kRegister;
  if (returns && at.cluster) l.invalid("an arrival at .shared::cluster returns no state");
  if (returns) flags |= kMbarrierReturnsState;
  int address = wide_address(l, l.operand(i), at.space);
  bool counted = l.operand_count() > i + 1;
  if (expects && !counted) l.invalid("expected a number of bytes");
  int count = counted ? l.use(l.operand(i + 1), Type::kU32) : l.constant(Width::k32, 1);
  std::vector<int> defs;
  if (returns) defs.push_back(l.def(l.operand(0), Type::kB64));
  l.emit_memory({.op = Op::kMbarrier}, defs, {address, count}, flags,
                site_of(l, at.space, at.cluster, 8, true));
}

void mbarrier_other(Lowering& l, std::int32_t flags) {
  take_semantics(l);
  SharedSpace at = take_shared(l);
  l.modifiers().take_type();
  int address = wide_address(l, l.operand(0), at.space);
  int count =
      flags == kMbarrierInvalidate ? l.constant(Width::k32, 0) : l.use(l.operand(1), Type::kU32);
  l.emit_memory({.op = Op::kMbarrier}, {}, {address, count}, flags,
                site_of(l, at.space, at.cluster, 8, true));
}

}  // namespace

bool lower_mbarrier(Lowering& l) {
  if (l.instruction().opcode != "mbarrier") return false;
  auto& m = l.modifiers();
  if (m.take("test_wait")) return mbarrier_test(l, false), true;
  if (m.take("try_wait")) return mbarrier_test(l, true), true;
  if (m.take("arrive")) return mbarrier_arrive(l, kMbarrierArrives), true;
  if (m.take("arrive_drop")) return mbarrier_arrive(l, kMbarrierArrives | kMbarrierDrops), true;
  if (m.take("init")) return mbarrier_other(l, kMbarrierInit), true;
  if (m.take("inval")) return mbarrier_other(l, kMbarrierInvalidate), true;
  if (m.take("expect_tx")) return mbarrier_other(l, kMbarrierExpects), true;
  if (m.take("complete_tx")) return mbarrier_other(l, kMbarrierCompletes), true;
  if (m.take("pending_count")) {
    m.take_type();
    int state = l.use(l.operand(1), Type::kB64);
    l.emit({.op = Op::kMbarrierCount}, {l.def(l.operand(0), Type::kB32)}, {state});
    return true;
  }
  l.unsupported("instruction is not supported");
}

}  // namespace tilewright::vgpu
