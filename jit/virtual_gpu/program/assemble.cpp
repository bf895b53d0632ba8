#include "jit/virtual_gpu/program/assemble.h"

#include <fmt/format.h>

#include <algorithm>

#include "jit/virtual_gpu/execute/common/approximate.h"
#include "jit/virtual_gpu/program/control_flow.h"
#include "jit/virtual_gpu/program/rare_form.h"
#include "jit/virtual_gpu/program/register_watch.h"
#include "jit/virtual_gpu/program/registers.h"
#include "jit/virtual_gpu/program/tensor_form.h"

namespace tilewright::vgpu {
namespace {

constexpr std::uint32_t kNowhere = 0xffffffffu;

TensorType tensor_type(Element element) {
  if (element == kElementB1) return TensorType::kInt4;
  switch (element) {
    case Element::kF16:
      return TensorType::kF16;
    case Element::kBF16:
      return TensorType::kBF16;
    case Element::kTF32:
      return TensorType::kTF32;
    case Element::kS8:
    case Element::kU8:
      return TensorType::kInt8;
    case Element::kS4:
    case Element::kU4:
      return TensorType::kInt4;
    case Element::kF64:
      return TensorType::kF64;
    default:
      return TensorType::kFp8;
  }
}

class Assembler {
 public:
  Assembler(const DraftKernel& kernel, const Level& level, Check check, bool perturb)
      : kernel_(kernel),
        level_(level),
        check_(check),
        perturb_(perturb),
        flow_(control_flow(kernel_)),
        places_(place_registers(kernel_, flow_)) {
    if (check_ == Check::kFull) watches_ = watch_registers(kernel_);
  }

  Result<std::unique_ptr<Code>> run() {
    std::vector<char> joins(flow_.blocks.size(), 0);
    for (const FlowBlock& block : flow_.blocks)
      if (block.conditional && block.post_dominator >= 0)
        joins[static_cast<std::size_t>(block.post_dominator)] = 1;

    for (std::size_t b = 0; b < flow_.blocks.size(); ++b) {
      const FlowBlock& block = flow_.blocks[b];
      BasicBlock counted;
      counted.first = static_cast<int>(code_->steps.size());
      first_step_.push_back(counted.first);
      Draft head;
      head.form.op = joins[b] != 0 ? Op::kBlockJoin : Op::kBlock;
      head.immediate = static_cast<int>(b);
      const Draft& first = kernel_.drafts[static_cast<std::size_t>(block.first)];
      head.line = first.line;
      head.text = first.text;
      TILEWRIGHT_TRY(add(head));
      for (int i = block.first; i < block.end; ++i) {
        const Draft& draft = kernel_.drafts[static_cast<std::size_t>(i)];
        if (draft.guard >= 0) TILEWRIGHT_TRY(add_guard(draft));
        TILEWRIGHT_TRY(add(draft));
        watch(i);
        if (draft.guard >= 0) guarded_.push_back(static_cast<int>(code_->steps.size()) - 1);
        if (!draft.counted) continue;
        ++counted.instructions;
        ++counted.by_pipe[static_cast<std::size_t>(pipe_of(draft.form))];
        if (draft.form.op == Op::kBarrier || draft.form.op == Op::kBarrierReduce ||
            draft.form.op == Op::kBarrierArrive)
          ++counted.barriers;
        if (draft.form.op == Op::kMmaRare) {
          RareForm rare = RareForm::unpack(draft.immediate);
          counted.tensor_operations[static_cast<std::size_t>(
              tensor_type(static_cast<Element>(rare.a)))] += rare.operations();
        } else if (pipe_of(draft.form) == Pipe::kTensor) {
          TensorForm tensor = TensorForm::unpack(draft.immediate);
          counted.tensor_operations[static_cast<std::size_t>(tensor_type(tensor.element_a()))] +=
              tensor.operations();
        }
      }
      code_->blocks.push_back(counted);
    }
    resolve_branches();
    count_runs();
    fixed_places();
    if (!watches_.of.empty()) {
      code_->watch_of.resize(code_->steps.size(), -1);
      code_->unwatched.resize(code_->steps.size(), nullptr);
      code_->watches = std::move(watches_.watches);
      code_->watched_registers = watches_.registers;
    }
    code_->info = kernel_.info;
    code_->register_bytes = places_.bytes;
    code_->dynamic_shared_offset = kernel_.dynamic_shared_offset;
    code_->max_live_registers = places_.max_live;
    return std::move(code_);
  }

 private:
  std::uint32_t place(int value) const { return places_.offset[static_cast<std::size_t>(value)]; }

  Result<void> push(Step step, const Form& form, const Draft& draft) {
    step.run = level_.select(form);
    if (step.run == nullptr) step.run = select_common(form);
    if (step.run == nullptr)
      return fail(
          ErrorCode::kUnsupported,
          fmt::format("ptx line {}: instruction is not supported: '{}'", draft.line, draft.text));
    if (perturb_ && is_approximate(form)) {
      code_->exact.resize(code_->steps.size() + 1, nullptr);
      code_->exact.back() = step.run;
      step.run = perturbed_handler();
      step.immediate = perturbed_immediate(form);
      guarded_.push_back(static_cast<int>(code_->steps.size()));
    }
    if (check_ != Check::kOff) {
      code_->unchecked.push_back(step.run);
      if (Handler checked = select_checked(form, check_)) step.run = checked;
    }
    code_->steps.push_back(step);
    code_->lines.push_back(draft.line);
    code_->texts.push_back(draft.text);
    return {};
  }

  /// The step just made of draft i tells the checker which registers it touches. It is in no run.
  void watch(int i) {
    if (watches_.of.empty() || watches_.of[static_cast<std::size_t>(i)] < 0) return;
    Step& step = code_->steps.back();
    code_->watch_of.resize(code_->steps.size(), -1);
    code_->unwatched.resize(code_->steps.size(), nullptr);
    code_->watch_of.back() = watches_.of[static_cast<std::size_t>(i)];
    code_->unwatched.back() = step.run;
    step.run = watched_handler();
    guarded_.push_back(static_cast<int>(code_->steps.size()) - 1);
  }

  Result<void> add_guard(const Draft& draft) {
    Form form{.op = Op::kGuard};
    form.mode = draft.guard_negated ? 1 : 0;
    Step step;
    step.a = place(draft.guard);
    return push(step, form, draft);
  }

  /// The first definition and three uses go into the step. Where there are more, all of them, the
  /// definitions first, go into Code::operands at `c`.
  Result<void> add(const Draft& draft) {
    Step step;
    step.immediate = static_cast<std::int32_t>(draft.immediate);
    if (!draft.defs.empty()) step.d = place(draft.defs[0]);
    if (!draft.uses.empty()) step.a = place(draft.uses[0]);
    if (draft.uses.size() > 1) step.b = place(draft.uses[1]);
    if (draft.uses.size() > 2) step.c = place(draft.uses[2]);
    if (draft.defs.size() > 1 || draft.uses.size() > 3 || draft.form.vector > 1) {
      step.c = static_cast<std::uint32_t>(code_->operands.size());
      for (int v : draft.defs) code_->operands.push_back(place(v));
      for (int v : draft.uses) code_->operands.push_back(place(v));
    }
    if (draft.has_site) {
      if (code_->sites.size() > 0xffff)
        return fail(ErrorCode::kUnsupported,
                    fmt::format("{} has more than 65536 memory instructions", kernel_.info.name));
      step.site = static_cast<std::uint16_t>(code_->sites.size());
      code_->sites.push_back(draft.site);
    }
    if (draft.target >= 0 || !draft.targets.empty())
      branches_.push_back({static_cast<int>(code_->steps.size()),
                           static_cast<int>(first_step_.size()) - 1, &draft});
    return push(step, draft.form, draft);
  }

  int step_of_label(int label) const {
    int block = flow_.block_of_label[static_cast<std::size_t>(label)];
    return first_step_[static_cast<std::size_t>(block)];
  }

  void resolve_branches() {
    for (const auto& branch : branches_) {
      Step& step = code_->steps[static_cast<std::size_t>(branch.step)];
      int post = flow_.blocks[static_cast<std::size_t>(branch.block)].post_dominator;
      std::uint32_t reconverge =
          post < 0 ? kNowhere
                   : static_cast<std::uint32_t>(first_step_[static_cast<std::size_t>(post)]);
      const Draft& draft = *branch.draft;
      if (draft.form.op == Op::kBranchIndex) {
        step.immediate = static_cast<std::int32_t>(draft.targets.size());
        step.b = reconverge;
        step.c = static_cast<std::uint32_t>(code_->targets.size());
        for (int label : draft.targets) code_->targets.push_back(step_of_label(label));
        continue;
      }
      step.b = static_cast<std::uint32_t>(draft.immediate);
      step.c = reconverge;
      step.immediate = step_of_label(draft.target) - branch.step;
    }
  }

  void count_runs() {
    auto& steps = code_->steps;
    for (std::size_t i = steps.size() - 1; i-- > 0;)
      if (steps[i].run == steps[i + 1].run && steps[i + 1].count < 0xffff)
        steps[i].count = static_cast<std::uint16_t>(steps[i + 1].count + 1);
    for (int i : guarded_) steps[static_cast<std::size_t>(i)].count = 1;
  }

  void fixed_places() {
    for (std::size_t v = 0; v < kernel_.values.size(); ++v) {
      const Value& value = kernel_.values[v];
      if (value.kind == Value::Kind::kConstant)
        code_->constants.push_back({places_.offset[v], bytes(value.width), value.bits});
      if (value.kind == Value::Kind::kSpecial)
        code_->specials.push_back({places_.offset[v], bytes(value.width), value.special});
    }
    for (int v : places_.undefined)
      code_->undefined.push_back(
          {place(v), bytes(kernel_.values[static_cast<std::size_t>(v)].width), 0});
  }
  /// 0 for a predicate.
  static std::uint32_t bytes(Width width) {
    return width == Width::kPredicate ? 0 : lane_bytes(width);
  }

  struct Branch {
    int step, block;
    const Draft* draft;
  };

  const DraftKernel& kernel_;
  const Level& level_;
  const Check check_;
  const bool perturb_;
  ControlFlow flow_;
  RegisterPlaces places_;
  RegisterWatches watches_;
  std::unique_ptr<Code> code_ = std::make_unique<Code>();
  std::vector<int> first_step_;
  std::vector<Branch> branches_;
  std::vector<int> guarded_;  ///< steps that run alone
};

}  // namespace

Pipe pipe_of(const Form& form) {
  bool f64 = form.type == Type::kF64 || form.from == Type::kF64;
  bool floating = ptx::is_float(form.type);
  switch (form.op) {
    case Op::kAdd:
    case Op::kSub:
    case Op::kMul:
    case Op::kFma:
      return f64 ? Pipe::kDouble : floating ? Pipe::kFma : Pipe::kInteger;
    case Op::kRcp:
    case Op::kRsqrt:
    case Op::kSqrt:
    case Op::kSqrtApprox:
    case Op::kEx2:
    case Op::kLg2:
    case Op::kSin:
    case Op::kCos:
    case Op::kTanh:
      return f64 ? Pipe::kDouble : Pipe::kSpecial;
    case Op::kDiv:
      return f64 ? Pipe::kDouble : floating ? Pipe::kSpecial : Pipe::kInteger;
    case Op::kLoad:
    case Op::kStore:
    case Op::kLoadParam:
    case Op::kAtom:
    case Op::kCpAsync:
    case Op::kBulkCopy:
    case Op::kStoreAsync:
    case Op::kStoreBulk:
    case Op::kTensorCopy:
    case Op::kTensorMapReplace:
    case Op::kTensorMapCopy:
    case Op::kLoadMatrix:
    case Op::kStoreMatrix:
      return Pipe::kMemory;
    case Op::kMma:
    case Op::kMmaDouble:
    case Op::kMmaRare:
    case Op::kWgmma:
    case Op::kWgmmaRare:
      return Pipe::kTensor;
    case Op::kBlock:
    case Op::kBlockJoin:
    case Op::kGuard:
    case Op::kBranch:
    case Op::kBranchIf:
    case Op::kBranchIndex:
    case Op::kExit:
    case Op::kTrap:
    case Op::kBarrier:
    case Op::kBarrierArrive:
    case Op::kBarrierReduce:
    case Op::kWarpSync:
    case Op::kNanosleep:
    case Op::kSystemCall:
    case Op::kNop:
    case Op::kCpAsyncCommit:
    case Op::kCpAsyncWait:
    case Op::kMbarrier:
    case Op::kMbarrierTest:
    case Op::kCpAsyncArrive:
    case Op::kBulkPrefetch:
    case Op::kBulkCommit:
    case Op::kBulkWait:
    case Op::kFence:
    case Op::kPrefetch:
    case Op::kGridControl:
    case Op::kClusterLaunch:
    case Op::kClusterArrive:
    case Op::kClusterWait:
    case Op::kWgmmaFence:
    case Op::kWgmmaCommit:
    case Op::kWgmmaWait:
    case Op::kSetMaxRegisters:
      return Pipe::kControl;
    default:
      return f64 && form.op != Op::kMov ? Pipe::kDouble : Pipe::kInteger;
  }
}

Result<std::unique_ptr<Code>> assemble(const DraftKernel& kernel, const Level& level, Check check,
                                       bool perturb) {
  return Assembler(kernel, level, check, perturb).run();
}

}  // namespace tilewright::vgpu
