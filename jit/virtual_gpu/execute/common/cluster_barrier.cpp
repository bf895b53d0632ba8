// barrier.cluster. Arrival is counted by lanes, like that at the barriers of a block.
#include "jit/virtual_gpu/check/checker.h"
#include "jit/virtual_gpu/execute/common/families.h"
#include "jit/virtual_gpu/execute/common/per_lane.h"
#include "jit/virtual_gpu/execute/worker.h"

namespace tilewright::vgpu {
namespace {

const Step* arrive(const Step* s, std::byte*, Warp& w) {
  if (std::uint32_t twice = w.cluster_outstanding & w.mask; twice != 0)
    return fault(s, w, FaultKind::kIllegalInstruction, std::countr_zero(twice), 0,
                 "a second arrival at the cluster's barrier without a wait");
  Cluster& cluster = *w.block->cluster;
  cluster.barrier_used = true;
  w.cluster_arrived |= w.mask;
  w.cluster_outstanding |= w.mask;
  if (Checker* checker = cluster.context.checker)
    checker->cluster_arrive(s, w, w.mask, w.code->sites[s->site].order);
  open_cluster_barrier(cluster);
  return s + 1;
}

const Step* wait(const Step* s, std::byte*, Warp& w) {
  if (std::uint32_t missing = w.mask & ~w.cluster_outstanding; missing != 0)
    return fault(s, w, FaultKind::kIllegalInstruction, std::countr_zero(missing), 0,
                 "a wait at the cluster's barrier without an arrival");
  if ((w.cluster_arrived & w.mask) != 0) {
    Split& split = w.splits[w.current];
    split.state = Split::State::kClusterBarrier;
    split.mask = w.mask;
    split.pc = s;
    return stop_split(w);
  }
  w.cluster_outstanding &= ~w.mask;
  if (Checker* checker = w.worker->context.checker)
    checker->cluster_pass(s, w, w.mask, w.code->sites[s->site].order);
  return s + 1;
}

}  // namespace

void open_cluster_barrier(Cluster& cluster) {
  for (const Block& block : cluster.blocks)
    for (const Warp& warp : block.warps)
      if ((warp.live & ~warp.cluster_arrived) != 0) return;
  cluster.barrier_used = false;
  cluster.stalls = 0;
  if (Checker* checker = cluster.context.checker) checker->cluster_open(cluster);
  for (Block& block : cluster.blocks)
    for (Warp& warp : block.warps) {
      warp.cluster_arrived = 0;
      for (Split& split : used_splits(warp)) {
        if (split.state != Split::State::kClusterBarrier) continue;
        split.state = Split::State::kReady;
        if (warp.status == WarpStatus::kBlocked) warp.status = WarpStatus::kReady;
      }
    }
}

Handler select_cluster(const Form& form) {
  switch (form.op) {
    case Op::kClusterArrive:
      return arrive;
    case Op::kClusterWait:
      return wait;
    default:
      return nullptr;
  }
}

}  // namespace tilewright::vgpu
