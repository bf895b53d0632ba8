// The report of a deadlock: who waits for what.
#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "jit/virtual_gpu/execute/mbarrier.h"
#include "jit/virtual_gpu/execute/runtime.h"
#include "jit/virtual_gpu/execute/worker.h"

namespace tilewright::vgpu {
namespace {

std::string barrier_text(const Block& block, int id) {
  const Barrier& barrier = block.barriers[static_cast<std::size_t>(id)];
  int arrived = 0;
  for (std::uint32_t lanes : barrier.arrived) arrived += std::popcount(lanes);
  if (barrier.wanted == 0) return fmt::format("barrier {}", id);
  return fmt::format("barrier {} ({} of {} threads have arrived)", id, arrived, barrier.wanted);
}

std::string mbarrier_text(const Block& block, const Split& split) {
  std::string text = fmt::format("mbarrier {:#x} for the end of a phase of parity {}", split.wanted,
                                 split.barrier);
  const std::byte* at = block.at(split.wanted, 8);
  std::uint64_t word = 0;
  if (at != nullptr) std::memcpy(&word, at, 8);
  Mbarrier state;
  if (at == nullptr || !unpack(word, &state)) return text + " (it holds no mbarrier any more)";
  return text + fmt::format(" (in phase {}: {} of {} arrivals and {} bytes are missing)",
                            state.phase, state.pending, state.expected, state.tx_bytes);
}

std::string cluster_text(const Cluster& cluster) {
  int missing = 0;
  for (const Block& block : cluster.blocks)
    for (const Warp& warp : block.warps)
      missing += std::popcount(warp.live & ~warp.cluster_arrived);
  return fmt::format("the cluster's barrier ({} threads have not arrived)", missing);
}

}  // namespace

void report_deadlock(Cluster& cluster) {
  const Code& code = *cluster.context.code;
  std::string waiting;
  Warp* first = nullptr;
  const Split* example = nullptr;
  int done = 0, warps = 0;
  for (Block& block : cluster.blocks) {
    for (Warp& warp : block.warps) {
      ++warps;
      if (warp.status == WarpStatus::kDone) ++done;
      for (const Split& split : used_splits(warp)) {
        auto at = static_cast<std::size_t>(split.pc - code.steps.data());
        std::string where;
        switch (split.state) {
          case Split::State::kBarrier:
            where = barrier_text(block, split.barrier);
            break;
          case Split::State::kWarpSync:
            where = fmt::format("'{}' for lanes {:#010x}", code.texts[at],
                                split.wanted & warp.live & ~split.mask);
            break;
          case Split::State::kMbarrier:
            where = mbarrier_text(block, split);
            break;
          case Split::State::kClusterBarrier:
            where = cluster_text(cluster);
            break;
          case Split::State::kReady:  // only where all that run do nothing but poll
            where = fmt::format("'{}', again and again", code.texts[at]);
            break;
          default:
            continue;
        }
        if (first == nullptr) {
          first = &warp;
          example = &split;
        }
        waiting += "\n  ";
        if (cluster.blocks.size() > 1)
          waiting +=
              fmt::format("block ({}, {}, {}), ", block.index[0], block.index[1], block.index[2]);
        waiting += fmt::format("warp {} (lanes {:#010x}) waits at {}, ptx line {}", warp.index,
                               split.mask, where, code.lines[at]);
      }
    }
  }
  if (first == nullptr) return;
  std::string what =
      fmt::format("threads wait for what cannot come; {} of {} warps have exited", done, warps);
  vgpu::fault(example->pc, *first, FaultKind::kBarrier, std::countr_zero(example->mask), 0,
              what.c_str());
  cluster.worker.fault->report += waiting;
}

}  // namespace tilewright::vgpu
