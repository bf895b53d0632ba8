/// PTX text -> ptx::Module. Grammar: PTX ISA, "Syntax" and "Directives".
#pragma once

#include <string_view>

#include "jit/result.h"
#include "jit/virtual_gpu/ptx/module.h"

namespace tilewright::vgpu::ptx {

/// `text` has to outlive the module. Errors: kInvalidArgument, "ptx line N: ...".
Result<Module> parse(std::string_view text);

}  // namespace tilewright::vgpu::ptx
