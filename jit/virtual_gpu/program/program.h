/// The implementation of Program, and what only tests and the executor need of it.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "jit/virtual_gpu/execute/level.h"
#include "jit/virtual_gpu/machine.h"
#include "jit/virtual_gpu/program/code.h"
#include "jit/virtual_gpu/program/device_heap.h"
#include "jit/virtual_gpu/program/draft.h"
#include "jit/virtual_gpu/ptx/module.h"

namespace tilewright::vgpu {

class LoadedProgram final : public Program {
 public:
  explicit LoadedProgram(Memory& memory) : memory_(memory) {}
  ~LoadedProgram() override;
  LoadedProgram(const LoadedProgram&) = delete;
  LoadedProgram& operator=(const LoadedProgram&) = delete;

  static Result<std::shared_ptr<Program>> load(std::string_view ptx, Memory& memory,
                                               const Level& level);

  const KernelInfo* find(std::string_view kernel) const override;
  std::vector<std::string> kernels() const override;
  std::optional<Variable> variable(std::string_view name) const override;

  /// The PTX that was loaded.
  std::string_view text() const { return text_; }
  /// Code with the handlers of a check, made when first asked for; null: there is no such kernel.
  /// Thread-safe.
  /// `perturb`: approximate functions err as far as they may.
  const Code* code(std::string_view kernel, Check check = Check::kOff, bool perturb = false) const;

  /// What malloc gives out; null: nothing in the module calls it.
  DeviceHeap* heap() const { return heap_.get(); }
  /// Where the blocks of a cooperative launch count who has arrived, as CUDA's headers expect it;
  /// 0: nothing in the module asks for it.
  std::uint64_t grid_workspace() const { return grid_workspace_; }
  static constexpr std::uint64_t kGridWorkspaceBytes = 64;

 private:
  Result<void> allocate_services(const ptx::Module& module);

  struct Kernel {
    DraftKernel drafts;
    std::array<std::unique_ptr<Code>, 6> codes;  ///< by Check, perturbed ones behind the others
  };
  Memory& memory_;
  std::string text_;  ///< views of Code and error reports point into it
  const Level* level_ = nullptr;
  mutable std::mutex mutex_;  ///< of the codes of checks
  mutable std::map<std::string, Kernel, std::less<>> kernels_;
  std::map<std::string, Variable, std::less<>> variables_;
  std::unique_ptr<DeviceHeap> heap_;
  std::uint64_t grid_workspace_ = 0;
};

}  // namespace tilewright::vgpu
