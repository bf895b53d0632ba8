/// What an st instruction is about to store: the registers that it names.
#pragma once

#include <cstdint>
#include <optional>

#include "jit/virtual_gpu/execute/state.h"

namespace tilewright::vgpu {

class StoreView {
 public:
  /// None of an instruction that is not a plain store of registers.
  static std::optional<StoreView> of(const Step* step, const Warp& warp);

  std::byte byte(int lane, std::uint64_t offset) const;
  std::uint64_t bytes() const { return site_->bytes; }  ///< of a lane

 private:
  StoreView(const Site& site, const Warp& warp, const std::uint32_t* places)
      : site_(&site), warp_(&warp), places_(places) {}

  const Site* site_;
  const Warp* warp_;
  const std::uint32_t* places_;  ///< of each element
};

}  // namespace tilewright::vgpu
