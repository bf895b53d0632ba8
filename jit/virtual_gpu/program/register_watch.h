/// Which registers the tensor cores may read or write while a warp goes on, and which instructions
/// touch them: what the check of wgmma's registers follows at run time.
#pragma once

#include <cstdint>
#include <vector>

#include "jit/virtual_gpu/program/draft.h"

namespace tilewright::vgpu {

/// Of a kernel; `of[i]` is the index of the watch of draft i, or -1.
struct RegisterWatches {
  std::vector<RegisterWatch> watches;
  std::vector<std::int32_t> of;  ///< empty: nothing is to be watched
  std::uint32_t registers = 0;   ///< how many are followed
};

/// Accumulators and fragments of A of every wgmma, and whatever plain moves copy from or to them.
RegisterWatches watch_registers(const DraftKernel& kernel);

}  // namespace tilewright::vgpu
