#include "jit/virtual_gpu/program/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "jit/virtual_gpu/program/assemble.h"
#include "jit/virtual_gpu/program/lowering.h"
#include "jit/virtual_gpu/ptx/parser.h"

namespace tilewright::vgpu {
namespace {

/// Without a compile log: as many registers as values are live at once, and a few for addresses
/// that ptxas makes. Good enough to reason about occupancy of foreign PTX, and marked nowhere as
/// more than that.
jit::KernelResources estimate(const KernelInfo& info, int live) {
  jit::KernelResources resources;
  resources.kernel = info.name;
  resources.registers = std::clamp((live + 8 + 7) / 8 * 8, 16, 255);
  resources.static_shared_bytes = info.static_shared_bytes;
  resources.stack_bytes = info.local_bytes;
  resources.max_threads = info.max_threads;
  return resources;
}

}  // namespace

LoadedProgram::~LoadedProgram() {
  for (const auto& [name, variable] : variables_) static_cast<void>(memory_.free(variable.address));
}

Result<std::shared_ptr<Program>> Program::load(std::string_view ptx, Memory& memory) {
  return LoadedProgram::load(ptx, memory, best_level());
}

Result<std::shared_ptr<Program>> LoadedProgram::load(std::string_view ptx, Memory& memory,
                                                     const Level& level) {
  auto program = std::make_shared<LoadedProgram>(memory);
  program->text_ = ptx;
  program->level_ = &level;
  TILEWRIGHT_ASSIGN_OR_RETURN(ptx::Module module, ptx::parse(program->text_));

  GlobalAddresses globals;
  for (const auto& variable : module.variables) {
    if (variable.space == Space::kShared || globals.contains(variable.name)) continue;
    if (variable.is_extern)
      return fail(ErrorCode::kUnsupported,
                  fmt::format("ptx line {}: variable {} is defined in another module",
                              variable.line, variable.name));
    auto bytes = static_cast<std::uint64_t>(std::max<std::int64_t>(variable.bytes(), 1));
    TILEWRIGHT_ASSIGN_OR_RETURN(std::uint64_t address, memory.allocate(bytes));
    globals[variable.name] = address;
    program->variables_[std::string(variable.name)] = {address, bytes};
    auto* host = static_cast<std::byte*>(memory.at(address, bytes));
    std::memset(host, 0, bytes);
    if (!variable.initial.empty())
      std::memcpy(host, variable.initial.data(), variable.initial.size());
  }
  std::uint64_t next_function = kFunctionWindow;
  for (const auto& function : module.functions)
    if (globals.try_emplace(function.name, next_function).second) next_function += kFunctionStride;
  for (const auto& variable : module.variables) {
    for (const auto& relocation : variable.relocations) {
      auto it = globals.find(relocation.symbol);
      if (it == globals.end())
        return fail(
            ErrorCode::kUnsupported,
            fmt::format("ptx line {}: variable {} holds the address of {}, which is neither "
                        "a variable in global memory nor a function",
                        variable.line, variable.name, relocation.symbol));
      std::uint64_t value = it->second + static_cast<std::uint64_t>(relocation.addend);
      auto* host = static_cast<std::byte*>(
          memory.at(globals[variable.name] + static_cast<std::uint64_t>(relocation.offset), 8));
      if (host != nullptr) std::memcpy(host, &value, 8);
    }
  }

  TILEWRIGHT_TRY(program->allocate_services(module));
  for (const auto& function : module.functions) {
    if (!function.entry || function.declaration) continue;
    TILEWRIGHT_ASSIGN_OR_RETURN(DraftKernel drafts, lower(module, function, globals));
    TILEWRIGHT_ASSIGN_OR_RETURN(auto code, assemble(drafts, level, Check::kOff));
    code->info.resources = estimate(code->info, code->max_live_registers);
    for (std::string_view comment : module.comments)
      if (auto resources = jit::parse_resources_comment(comment);
          resources && resources->kernel == function.name) {
        code->info.resources = *resources;
        code->info.registers_at_entry = resources->registers;
      }
    drafts.info = code->info;
    Kernel& kernel = program->kernels_[std::string(function.name)];
    kernel.drafts = std::move(drafts);
    kernel.codes[0] = std::move(code);
  }
  return std::shared_ptr<Program>(std::move(program));
}

Result<void> LoadedProgram::allocate_services(const ptx::Module& module) {
  bool heap = false, workspace = false;
  for (const auto& function : module.functions)
    for (const auto& instruction : function.instructions)
      for (const auto& operand : instruction.operands) {
        heap |= instruction.opcode == "call" && operand.name == "malloc";
        workspace |= operand.name == "%envreg1";
      }
  auto allocate = [&](const char* name, std::uint64_t bytes) -> Result<std::uint64_t> {
    TILEWRIGHT_ASSIGN_OR_RETURN(std::uint64_t address, memory_.allocate(bytes));
    variables_[name] = {address, bytes};
    return address;
  };
  if (heap) {
    TILEWRIGHT_ASSIGN_OR_RETURN(std::uint64_t address, allocate("malloc heap", DeviceHeap::kBytes));
    heap_ = std::make_unique<DeviceHeap>(address);
  }
  if (workspace) {
    TILEWRIGHT_ASSIGN_OR_RETURN(grid_workspace_, allocate("grid workspace", kGridWorkspaceBytes));
  }
  return {};
}

const Code* LoadedProgram::code(std::string_view kernel, Check check, bool perturb) const {
  auto it = kernels_.find(kernel);
  if (it == kernels_.end()) return nullptr;
  if (check == Check::kOff && !perturb) return it->second.codes[0].get();
  std::lock_guard lock(mutex_);
  auto& code = it->second.codes[static_cast<std::size_t>(check) + (perturb ? 3 : 0)];
  if (code == nullptr) {
    // What has a handler without checks has one with them.
    auto assembled = assemble(it->second.drafts, *level_, check, perturb);
    if (assembled) code = std::move(*assembled);
  }
  return code.get();
}
const KernelInfo* LoadedProgram::find(std::string_view kernel) const {
  const Code* found = code(kernel);
  return found == nullptr ? nullptr : &found->info;
}
std::vector<std::string> LoadedProgram::kernels() const {
  std::vector<std::string> names;
  for (const auto& [name, code] : kernels_) names.push_back(name);
  return names;
}
std::optional<Program::Variable> LoadedProgram::variable(std::string_view name) const {
  auto it = variables_.find(name);
  if (it == variables_.end()) return std::nullopt;
  return it->second;
}

}  // namespace tilewright::vgpu
