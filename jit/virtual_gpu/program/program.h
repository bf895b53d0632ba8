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
#include "jit/virtual_gpu/program/draft.h"

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
  const Code* code(std::string_view kernel, Check check = Check::kOff) const;

 private:
  struct Kernel {
    DraftKernel drafts;
    std::array<std::unique_ptr<Code>, 3> codes;  ///< by Check
  };
  Memory& memory_;
  std::string text_;  ///< views of Code and error reports point into it
  const Level* level_ = nullptr;
  mutable std::mutex mutex_;  ///< of the codes of checks
  mutable std::map<std::string, Kernel, std::less<>> kernels_;
  std::map<std::string, Variable, std::less<>> variables_;
};

}  // namespace tilewright::vgpu
