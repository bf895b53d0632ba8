#include "jit/virtual_gpu/execute/mbarrier.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "jit/virtual_gpu/execute/runtime.h"

namespace tilewright::vgpu {

bool unpack(std::uint64_t word, Mbarrier* state) {
  state->pending = static_cast<std::uint32_t>(word & kMaxArrivals);
  state->expected = static_cast<std::uint32_t>(word >> 20 & kMaxArrivals);
  // Bit 60 is the sign.
  state->tx_bytes = static_cast<std::int32_t>(static_cast<std::int64_t>(word << 3) >> 43);
  state->phase = static_cast<std::uint32_t>(word >> 61 & 1);
  return word >> 62 == 1;
}

std::uint64_t pack(const Mbarrier& state) {
  return std::uint64_t{1} << 62 | std::uint64_t{state.phase} << 61 |
         (static_cast<std::uint64_t>(state.tx_bytes) & 0x1fffff) << 40 |
         std::uint64_t{state.expected} << 20 | state.pending;
}

bool change_mbarrier(const Step* step, Warp& warp, int lane, const SharedPlace& place,
                     const MbarrierChange& change, std::uint64_t* before, bool* completed) {
  auto refuse = [&](std::string what) {
    fault(step, warp, FaultKind::kIllegalInstruction, lane, place.address,
          fmt::format("mbarrier {:#x}: {}", place.address, what).c_str());
    return false;
  };
  std::byte* at = place.block->at(place.address, 8);
  if (at == nullptr) return refuse("not within shared memory");
  std::memcpy(before, at, 8);
  *completed = false;
  Mbarrier state;
  if (!unpack(*before, &state)) return refuse("not initialised");
  std::int64_t tx = state.tx_bytes + change.expect_tx - change.complete_tx;
  if (tx > kMaxTxBytes || tx < -kMaxTxBytes)
    return refuse(fmt::format("{} bytes are expected, the limit is {}", tx, kMaxTxBytes));
  std::int64_t pending = state.pending + change.more_pending;
  if (pending > kMaxArrivals)
    return refuse(fmt::format("{} arrivals are pending, the limit is {}", pending, kMaxArrivals));
  if (change.arrivals > pending)
    return refuse(
        fmt::format("arrival of {}, but the phase waits for {} only", change.arrivals, pending));
  state.tx_bytes = static_cast<std::int32_t>(tx);
  state.pending = static_cast<std::uint32_t>(pending) - change.arrivals;
  state.expected -= std::min(change.drops, state.expected);
  // An expect_tx or a drop alone cannot end a phase: it needs an arrival or completed bytes.
  if (state.pending == 0 && state.tx_bytes == 0) {
    if (!change.may_complete) return refuse("an arrival with .noComplete completes the phase");
    state.phase ^= 1;
    state.pending = state.expected;
    *completed = true;
  }
  std::uint64_t after = pack(state);
  std::memcpy(at, &after, 8);
  if (*completed) {
    place.block->cluster->stalls = 0;
    wake_mbarrier(*place.block, place.address);
  }
  return true;
}

void wake_mbarrier(Block& block, std::uint32_t address) {
  for (Warp& warp : block.warps) {
    if (warp.mbarrier_waits == 0) continue;
    for (Split& split : used_splits(warp)) {
      if (split.state != Split::State::kMbarrier || split.wanted != address) continue;
      split.state = Split::State::kReady;
      --warp.mbarrier_waits;
      if (warp.status == WarpStatus::kBlocked) warp.status = WarpStatus::kReady;
    }
  }
}

}  // namespace tilewright::vgpu
