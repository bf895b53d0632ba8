#include "jit/virtual_gpu/check/checker.h"

#include "jit/virtual_gpu/check/race_checker.h"

namespace tilewright::vgpu {

std::unique_ptr<Checker> make_checker(Check check, const LaunchContext& context, Memory& memory) {
  auto& arena = static_cast<Arena&>(memory);
  switch (check) {
    case Check::kMemory:
      return std::make_unique<MemoryChecker>(context, arena);
    case Check::kFull:
      return std::make_unique<RaceChecker>(context, arena);
    default:
      return nullptr;
  }
}

}  // namespace tilewright::vgpu
