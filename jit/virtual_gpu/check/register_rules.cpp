// Registers that the tensor cores read and write on their own: accumulators and fragments of A of a
// wgmma, from its issue to the wait for its group. PTX ISA, "wgmma.fence", "wgmma.mma_async". And
// setmaxnreg: who may have how many registers.
//
// Plain moves are no accesses: a compiler of PTX makes them of the places where values of two paths
// meet, and they are gone in machine code. What they copy stays under way under its other name.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "jit/virtual_gpu/check/race_checker.h"

namespace tilewright::vgpu {

void WarpRegisters::clear() {
  accumulates.clear();
  read.clear();
  written.clear();
  committed = complete = fences = 0;
  fenced = false;
}

void RaceChecker::registers(const Step* step, Warp& warp, const RegisterWatch& watch) {
  constexpr std::string_view kCheck = "wgmma-register";
  WarpRegisters& state = state_of(warp).registers;
  if (state.accumulates.empty()) {
    state.accumulates.resize(context_.code->watched_registers);
    state.read.resize(context_.code->watched_registers);
    state.written.resize(context_.code->watched_registers);
  }
  int lane = warp.mask == 0 ? 0 : std::countr_zero(warp.mask);
  auto under_way = [&](std::uint32_t group) { return group > state.complete; };
  if (watch.kind == RegisterWatch::Kind::kMove) {
    std::uint32_t from = watch.reads.empty() ? 0 : watch.reads[0];
    for (std::uint32_t to : watch.writes) {
      state.accumulates[to] = watch.reads.empty() ? 0 : state.accumulates[from];
      state.written[to] = watch.reads.empty() ? 0 : state.written[from];
    }
    return;
  }
  const char* what = nullptr;
  for (std::uint32_t i : watch.reads)
    if (under_way(state.accumulates[i])) what = "reads a register that a wgmma accumulates in";
  const std::uint32_t group = state.committed + 1;
  if (watch.kind == RegisterWatch::Kind::kWgmma) {
    bool touched = false;
    auto unfenced = [&](std::uint32_t i) { touched |= state.written[i] == state.fences + 1; };
    std::for_each(watch.reads.begin(), watch.reads.end(), unfenced);
    std::for_each(watch.writes.begin(), watch.writes.end(), unfenced);
    if (what == nullptr && state.fences == 0)
      what = "is the first of its warp, without wgmma.fence before it";
    else if (what == nullptr && touched && !state.fenced)
      what = "uses registers that were written without wgmma.fence since";
    for (std::uint32_t i : watch.writes) {
      state.accumulates[i] = group;
      state.written[i] = 0;
    }
    for (std::uint32_t i : watch.reads) state.read[i] = group;
  } else {
    for (std::uint32_t i : watch.writes) {
      if (under_way(state.accumulates[i])) what = "writes a register that a wgmma accumulates in";
      if (under_way(state.read[i])) what = "writes a register that a wgmma reads as A";
      state.accumulates[i] = state.read[i] = 0;
      state.written[i] = state.fences + 1;
    }
  }
  if (what == nullptr) return;
  misuse(step, warp, lane, kCheck,
         fmt::format("'{}' {}{}",
                     context_.code->texts[static_cast<std::size_t>(reporter_.index_of(step))], what,
                     watch.kind == RegisterWatch::Kind::kWgmma
                         ? ""
                         : ", before a wgmma.wait_group that covers it"));
}

// setmaxnreg ---------------------------------------------------------------------------------------

void RaceChecker::set_max_registers(const Step* step, Warp& warp, int count, bool more) {
  constexpr std::string_view kCheck = "register-budget";
  RegisterBudget& budget = state_of(warp).budget;
  const int at_entry = context_.code->info.registers_at_entry;
  int before = budget.count != 0 ? budget.count : at_entry;
  if (at_entry == 0)
    misuse(
        step, warp, 0, kCheck,
        "the kernel says by none of .maxntid, .reqntid and .maxnreg how many registers it begins "
        "with: setmaxnreg is ignored");
  else if (more ? count < before : count > before)
    misuse(step, warp, 0, kCheck,
           fmt::format("setmaxnreg.{} to {} registers, the warp has {}", more ? "inc" : "dec",
                       count, before));
  budget.count = count;
  budget.steps.push_back(step);
}

void RaceChecker::check_register_budget(Block& block) {
  BlockRaces& races = races_of(block);
  constexpr std::size_t kWarps = 4;
  std::uint64_t wanted = 0;
  std::size_t last = 0;
  const int at_entry = context_.code->info.registers_at_entry;
  for (std::size_t i = 0; i < races.warps.size(); ++i) {
    const RegisterBudget& budget = races.warps[i].budget;
    wanted += static_cast<std::uint64_t>(budget.count != 0 ? budget.count : at_entry);
    if (budget.count > at_entry) last = i;
    const RegisterBudget& first = races.warps[i / kWarps * kWarps].budget;
    if (budget.steps == first.steps) continue;
    const bool mine = budget.steps.size() >= first.steps.size();
    const auto& steps = mine ? budget.steps : first.steps;
    misuse(steps.back(), block.warps[mine ? i : i / kWarps * kWarps], 0, "register-budget",
           fmt::format("warps {} and {} of a warpgroup execute setmaxnreg {} and {} times, or not "
                       "the same ones",
                       i / kWarps * kWarps, i, first.steps.size(), budget.steps.size()));
    return;
  }
  if (at_entry == 0 || races.warps[last].budget.steps.empty()) return;
  std::uint64_t there = static_cast<std::uint64_t>(at_entry) * races.warps.size();
  if (wanted <= there) return;
  misuse(
      races.warps[last].budget.steps.back(), block.warps[last], 0, "deadlock",
      fmt::format("setmaxnreg.inc waits for registers that no warp releases: the block's {} warps "
                  "ask for {} a thread on average, they began with {}",
                  races.warps.size(), wanted / races.warps.size(), at_entry));
}

}  // namespace tilewright::vgpu
