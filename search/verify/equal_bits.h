/// Bits that have to be equal: those of a plan that runs twice, those of a row whatever the rows
/// beside it, and those of two plans of which either may compute a row.
#pragma once

#include <string>
#include <vector>

#include "search/verify/plan_run.h"

namespace tilewright::search {

/// Runs the plan once more, on poison of another value and, on the virtual GPU, with its warps and
/// blocks in another order. `first`: by output, what the run before has written.
/// Errors: kWrongResult at the first element that has other bits.
Result<void> check_second_run(const jit::Context& context, const Tensors& tensors,
                              const jit::LoadedPlan& plan, PlanRunner& runner, Inputs& inputs,
                              DataKind kind, std::uint64_t sample_blocks, const BlockChoice& choice,
                              const PlanRun& run, const std::vector<jit::FilledBytes>& first);

/// The dynamic dimensions that number rows: each output has them before its last axis, and nothing
/// is contracted or reduced along them.
std::vector<std::string> batch_dimensions(const templates::Operator& op);

/// Runs the plan at other extents of each batch dimension, as far as the plan is for them: each row
/// alone or among more and other ones, all in another order. `first` as above, of `run` on
/// random-normal data. Errors: kWrongResult at the first element that has other bits.
Result<void> check_batch_invariance(const jit::Context& context, const VerifyJob& job,
                                    const Tensors& tensors, Memory memory,
                                    const jit::LoadedPlan& plan, std::uint64_t sample_blocks,
                                    const BlockChoice& choice, const PlanRun& run,
                                    const std::vector<jit::FilledBytes>& first);

/// Runs `anchor` on the same random-normal data, where `run` has written, and compares. `first` as
/// above. Errors: kUnsupported at the first element that has other bits, which is not wrong but
/// another order of sums, and where the anchor cannot run; whatever its launch fails with.
Result<void> check_anchor(const Tensors& tensors, const jit::LoadedPlan& anchor, PlanRunner& runner,
                          Inputs& inputs, std::uint64_t sample_blocks, const BlockChoice& choice,
                          const PlanRun& run, const std::vector<jit::FilledBytes>& first);

}  // namespace tilewright::search
