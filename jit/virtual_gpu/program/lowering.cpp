#include "jit/virtual_gpu/program/lowering.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tilewright::vgpu {
namespace {

/// Calls are expanded where they stand: a text of a few pages can ask for any number of them.
constexpr std::size_t kMaxDrafts = std::size_t{1} << 21;

}  // namespace

void Lowering::unsupported(std::string_view why) {
  throw LoweringError{
      ErrorCode::kUnsupported,
      fmt::format("ptx line {}: {}: '{}'", instruction_->line, why, instruction_->text)};
}
void Lowering::invalid(std::string_view why) {
  throw LoweringError{
      ErrorCode::kInvalidArgument,
      fmt::format("ptx line {}: {}: '{}'", instruction_->line, why, instruction_->text)};
}

Draft& Lowering::emit(const Form& form, std::vector<int> defs, std::vector<int> uses,
                      std::int64_t immediate) {
  Draft draft;
  draft.form = form;
  draft.defs = std::move(defs);
  draft.uses = std::move(uses);
  draft.immediate = immediate;
  draft.line = instruction_->line;
  draft.text = instruction_->text;
  if (instruction_->guard >= 0 && around_ < 0) {
    draft.guard = frame_->registers[static_cast<std::size_t>(instruction_->guard)];
    draft.guard_negated = instruction_->guard_negated;
  }
  kernel_.drafts.push_back(std::move(draft));
  return kernel_.drafts.back();
}

void Lowering::emit_auxiliary(const Form& form, std::vector<int> defs, std::vector<int> uses,
                              std::int64_t immediate) {
  Draft& draft = emit(form, std::move(defs), std::move(uses), immediate);
  draft.guard = -1;
  draft.counted = false;
}

void Lowering::emit_memory(const Form& form, std::vector<int> defs, std::vector<int> uses,
                           std::int64_t immediate, Site site) {
  Draft& draft = emit(form, std::move(defs), std::move(uses), immediate);
  draft.site = site;
  draft.has_site = true;
}

int Lowering::new_label() {
  kernel_.labels.push_back(-1);
  return static_cast<int>(kernel_.labels.size()) - 1;
}
void Lowering::place_label(int label) {
  kernel_.labels[static_cast<std::size_t>(label)] = static_cast<int>(kernel_.drafts.size());
}
int Lowering::label(std::string_view name) {
  auto it = frame_->labels.find(name);
  if (it == frame_->labels.end()) invalid(fmt::format("label '{}' is not defined", name));
  return it->second;
}
std::vector<int> Lowering::branch_targets(std::string_view name) {
  for (const auto& targets : frame_->function->branch_targets) {
    if (targets.name != name) continue;
    std::vector<int> labels;
    for (std::string_view target : targets.labels) labels.push_back(label(target));
    return labels;
  }
  invalid(fmt::format("branch targets '{}' are not defined", name));
}

DraftKernel Lowering::run(const ptx::Function& kernel) {
  kernel_.info.name = std::string(kernel.name);
  kernel_.info.max_threads = kernel.max_threads > 0 ? kernel.max_threads : 1024;
  if (kernel.max_registers > 0) {
    kernel_.info.registers_at_entry = kernel.max_registers;
  } else if (kernel.max_threads > 0) {
    // As many as there are for the threads that are to be resident, in steps of eight.
    constexpr int kRegisters = 65536;
    int threads = (kernel.max_threads + 31) / 32 * 32 * std::max(kernel.min_blocks, 1);
    kernel_.info.registers_at_entry = std::min(kRegisters / threads, 255) / 8 * 8;
    if (kRegisters / threads >= 255) kernel_.info.registers_at_entry = 255;
  }
  for (std::size_t i = 0; i < kernel.cluster.size() && i < 3; ++i)
    kernel_.info.cluster[i] = static_cast<unsigned>(std::max(kernel.cluster[i], 1));
  if (!kernel.cluster.empty())
    for (unsigned& n : kernel_.info.cluster) n = std::max(n, 1u);
  kernel_.info.explicit_cluster = kernel.explicit_cluster;
  kernel_.info.max_cluster_blocks = static_cast<unsigned>(std::max(kernel.max_cluster_rank, 0));
  Frame frame;
  frame_ = &frame;
  stack_ = {&frame};

  ptx::Instruction nowhere;
  nowhere.line = kernel.line;
  nowhere.text = kernel.name;
  instruction_ = &nowhere;
  lay_out_parameters(kernel, frame);
  enter(frame, kernel);
  lay_out_shared(kernel);

  lower_body();
  instruction_ = &nowhere;
  emit({.op = Op::kExit}, {}, {}).counted = false;  // a body may end without ret
  if (dynamic_stack_ >= 0) allocate_dynamic_stack();
  kernel_.info.local_bytes = static_cast<int>(local_end_ - kLocalBase);
  return std::move(kernel_);
}

void Lowering::lower_body() {
  const ptx::Function& function = *frame_->function;
  std::size_t next_label = 0;
  for (std::size_t i = 0; i <= function.instructions.size(); ++i) {
    for (; next_label < function.labels.size() &&
           function.labels[next_label].position == static_cast<int>(i);
         ++next_label)
      place_label(frame_->labels[function.labels[next_label].name]);
    if (i < function.instructions.size()) lower_instruction(function.instructions[i]);
  }
}

void Lowering::lower_instruction(const ptx::Instruction& instruction) {
  const ptx::Instruction* outer = instruction_;
  Modifiers* outer_modifiers = modifiers_;
  int outer_around = std::exchange(around_, -1);
  Modifiers modifiers(instruction);
  instruction_ = &instruction;
  modifiers_ = &modifiers;
  bool known = lower_move(*this) || lower_async(*this) || lower_mbarrier(*this) ||
               lower_memory(*this) || lower_arithmetic(*this) || lower_bits(*this) ||
               lower_compare(*this) || lower_convert(*this) || lower_lanes(*this) ||
               lower_tensor(*this) || lower_tensor_copy(*this) || lower_tensor_map(*this) ||
               lower_control(*this) || lower_stack(*this) || lower_video(*this);
  if (!known) unsupported("instruction is not supported");
  if (!modifiers.left().empty())
    unsupported(fmt::format("modifier '.{}' is not supported", modifiers.left()));
  if (kernel_.drafts.size() > kMaxDrafts)
    unsupported("with what it calls, the kernel has too many instructions");
  if (around_ >= 0) place_label(around_);
  around_ = outer_around;
  instruction_ = outer;
  modifiers_ = outer_modifiers;
}

void Lowering::guard_by_branch() {
  if (instruction_->guard < 0) return;
  int label = new_label();
  Draft& draft = emit({.op = Op::kBranchIf}, {}, {});
  draft.uses = {draft.guard};
  draft.immediate = draft.guard_negated ? 0 : 1;  // taken where the guard does not hold
  draft.guard = -1;
  draft.target = label;
  draft.counted = false;
  around_ = label;
}

Result<DraftKernel> lower(const ptx::Module& module, const ptx::Function& kernel,
                          const GlobalAddresses& globals) {
  try {
    return Lowering(module, globals).run(kernel);
  } catch (LoweringError& error) {
    return fail(error.code, std::move(error.message));
  }
}

}  // namespace tilewright::vgpu
