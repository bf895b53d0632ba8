/// Drafts -> Code: control flow, places of registers, handlers.
#pragma once

#include <memory>

#include "jit/result.h"
#include "jit/virtual_gpu/execute/level.h"
#include "jit/virtual_gpu/program/code.h"
#include "jit/virtual_gpu/program/draft.h"

namespace tilewright::vgpu {

/// Errors: kUnsupported where no handler has the form of an instruction.
/// `perturb`: approximate functions err as far as they may (execute/common/approximate.h).
Result<std::unique_ptr<Code>> assemble(const DraftKernel& kernel, const Level& level, Check check,
                                       bool perturb = false);

}  // namespace tilewright::vgpu
