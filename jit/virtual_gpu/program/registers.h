/// Gives every value of a kernel a place in the register file of a warp. Values that are not live
/// at the same time share places, so that a warp's file stays in the L1 cache.
#pragma once

#include <cstdint>
#include <vector>

#include "jit/virtual_gpu/program/control_flow.h"
#include "jit/virtual_gpu/program/draft.h"

namespace tilewright::vgpu {

struct RegisterPlaces {
  std::vector<std::uint32_t> offset;  ///< of each value
  std::vector<int> undefined;         ///< values that may be read before they are written
  std::uint32_t bytes = 0;            ///< of a warp's file
  int max_live = 0;                   ///< registers of 32 bits
};

RegisterPlaces place_registers(const DraftKernel& kernel, const ControlFlow& flow);

}  // namespace tilewright::vgpu
