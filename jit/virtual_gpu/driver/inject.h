/// Carries out the faults that were asked for: what Faults decides of a launch.
#pragma once

#include <utility>
#include <vector>

#include "jit/virtual_gpu/driver/state.h"

namespace tilewright::vgpu {

/// False: the launch does not run, and the error of the context or of the call says why. A hang
/// lasts until the deadline, and for ever without one.
bool inject_before(Gpu& gpu, CUctx_st& context, const Faults::Decision& decision,
                   const std::string& kernel);

/// What lies in the memory that a launch is given, to damage what it wrote there.
class OutputDamage {
 public:
  OutputDamage(CUctx_st& context, const std::vector<Range>& ranges);
  /// Flips a bit of one of the bytes that differ from what was there. False: none does.
  bool apply(CUctx_st& context, std::uint64_t random);

 private:
  std::vector<std::pair<CUdeviceptr, std::vector<std::byte>>> before_;
};

}  // namespace tilewright::vgpu
