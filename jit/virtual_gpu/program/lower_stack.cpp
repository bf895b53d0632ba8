// alloca, stacksave, stackrestore: a stack in local memory, of kDynamicStackBytes a thread.
#include <bit>

#include "jit/virtual_gpu/program/lowering.h"

namespace tilewright::vgpu {
namespace {

constexpr Form kAdd64{.op = Op::kAdd, .type = Type::kU64};
constexpr Form kSub64{.op = Op::kSub, .type = Type::kU64};

Type take_type(Lowering& l) {
  Type type = l.modifiers().take_type();
  if (type != Type::kU64) l.unsupported("the type is not .u64");
  return type;
}

/// Ends the launch where a > b.
void trap_if_greater(Lowering& l, int a, int b) {
  Form compare{.op = Op::kSetp, .type = Type::kPred, .from = Type::kU64, .compare = Compare::kGt};
  int greater = l.temporary(Width::kPredicate), fits = l.new_label();
  l.emit_auxiliary(compare, {greater}, {a, b}, static_cast<int>(Compare::kGt));
  Draft& branch = l.emit({.op = Op::kBranchIf}, {}, {greater}, 1);
  branch.target = fits;
  branch.counted = false;
  l.emit({.op = Op::kTrap}, {}, {}, static_cast<int>(TrapReason::kStackOverflow)).counted = false;
  l.place_label(fits);
}

void allocate(Lowering& l) {
  Type type = take_type(l);
  std::int64_t alignment = l.operand_count() > 2 ? l.operand(2).integer : 8;
  if (alignment < 1 || alignment > 4096 ||
      !std::has_single_bit(static_cast<std::uint64_t>(alignment)))
    l.invalid("the alignment is not a power of two up to 4096");
  l.guard_by_branch();
  int stack = l.dynamic_stack(), size = l.use(l.operand(1), type);
  int limit = l.constant(Width::k64, kDynamicStackBytes);
  int raised = l.temporary(Width::k64), begin = l.temporary(Width::k64);
  int end = l.temporary(Width::k64);
  trap_if_greater(l, size, limit);
  auto low_bits = static_cast<std::uint64_t>(alignment) - 1;
  l.emit_auxiliary(kAdd64, {raised}, {stack, l.constant(Width::k64, low_bits)});
  l.emit_auxiliary({.op = Op::kAnd, .type = Type::kB64}, {begin},
                   {raised, l.constant(Width::k64, ~low_bits)});
  l.emit_auxiliary(kAdd64, {end}, {begin, size});
  trap_if_greater(l, end, limit);
  l.emit_auxiliary({.op = Op::kMov, .type = Type::kB64}, {stack}, {end});
  l.emit(kAdd64, {l.def(l.operand(0), type)}, {l.dynamic_stack_base(), begin});
}

}  // namespace

bool lower_stack(Lowering& l) {
  std::string_view opcode = l.instruction().opcode;
  if (opcode == "alloca") return allocate(l), true;
  if (opcode == "stacksave") {
    Type type = take_type(l);
    int stack = l.dynamic_stack();
    l.emit(kAdd64, {l.def(l.operand(0), type)}, {l.dynamic_stack_base(), stack});
    return true;
  }
  if (opcode == "stackrestore") {
    Type type = take_type(l);
    int stack = l.dynamic_stack();
    l.emit(kSub64, {stack}, {l.use(l.operand(0), type), l.dynamic_stack_base()});
    return true;
  }
  return false;
}

}  // namespace tilewright::vgpu
