#include "jit/virtual_gpu/program/register_watch.h"

#include <algorithm>

#include "jit/virtual_gpu/program/tensor_form.h"

namespace tilewright::vgpu {
namespace {

bool is_move(const Draft& draft) {
  return draft.form.op == Op::kMov && draft.defs.size() == 1 && draft.uses.size() == 1;
}

}  // namespace

RegisterWatches watch_registers(const DraftKernel& kernel) {
  RegisterWatches result;
  std::vector<std::int32_t> number(kernel.values.size(), -1);
  std::vector<int> work;
  auto follow = [&](int value) {
    auto v = static_cast<std::size_t>(value);
    if (kernel.values[v].kind != Value::Kind::kRegister || number[v] >= 0) return;
    number[v] = static_cast<std::int32_t>(result.registers++);
    work.push_back(value);
  };
  auto accumulators = [](const Draft& draft) {
    return static_cast<std::size_t>(TensorForm::unpack(draft.immediate).accumulator_registers());
  };
  auto fragments = [](const Draft& draft) -> std::size_t {
    return TensorForm::unpack(draft.immediate).a_in_registers != 0 ? 4 : 0;
  };
  for (const Draft& draft : kernel.drafts) {
    if (draft.form.op != Op::kWgmma) continue;
    std::size_t count = accumulators(draft) + fragments(draft);
    for (std::size_t i = 0; i < count; ++i) follow(draft.uses[i]);
  }
  if (work.empty()) return result;
  std::vector<std::vector<int>> moved(kernel.values.size());
  for (const Draft& draft : kernel.drafts) {
    if (!is_move(draft)) continue;
    moved[static_cast<std::size_t>(draft.defs[0])].push_back(draft.uses[0]);
    moved[static_cast<std::size_t>(draft.uses[0])].push_back(draft.defs[0]);
  }
  while (!work.empty()) {
    int value = work.back();
    work.pop_back();
    for (int other : moved[static_cast<std::size_t>(value)]) follow(other);
  }

  result.of.assign(kernel.drafts.size(), -1);
  for (std::size_t i = 0; i < kernel.drafts.size(); ++i) {
    const Draft& draft = kernel.drafts[i];
    RegisterWatch watch;
    auto add = [&](int value, std::vector<std::uint32_t>* to) {
      if (std::int32_t n = number[static_cast<std::size_t>(value)]; n >= 0)
        to->push_back(static_cast<std::uint32_t>(n));
    };
    if (draft.form.op == Op::kWgmma) {
      watch.kind = RegisterWatch::Kind::kWgmma;
      std::size_t count = accumulators(draft);
      for (std::size_t k = 0; k < count; ++k) add(draft.defs[k], &watch.writes);
      for (std::size_t k = 0; k < fragments(draft); ++k) add(draft.uses[count + k], &watch.reads);
    } else {
      watch.kind = is_move(draft) ? RegisterWatch::Kind::kMove : RegisterWatch::Kind::kUse;
      for (int value : draft.uses) add(value, &watch.reads);
      for (int value : draft.defs) add(value, &watch.writes);
    }
    if (watch.reads.empty() && watch.writes.empty()) continue;
    result.of[i] = static_cast<std::int32_t>(result.watches.size());
    result.watches.push_back(std::move(watch));
  }
  return result;
}

}  // namespace tilewright::vgpu
