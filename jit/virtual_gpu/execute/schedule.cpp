// Which warp of a cluster runs next, and what happens when none can.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "jit/virtual_gpu/check/checker.h"
#include "jit/virtual_gpu/execute/runtime.h"
#include "jit/virtual_gpu/execute/worker.h"

namespace tilewright::vgpu {
namespace {

/// After so many turns without an end, lanes that wait for others of their warp go on without them:
/// these may be spinning until they do.
constexpr std::uint32_t kPatience = 4;
constexpr std::int32_t kLongTurn = 256;  ///< basic blocks
/// Times that all try_waits of a cluster may return false with nothing happening in between.
constexpr std::uint32_t kStalls = 64;
/// Rounds in which warps do nothing but poll mbarriers that nobody is going to complete.
constexpr std::uint32_t kPollRounds = 1u << 20;

bool runnable(const Warp& warp) {
  return warp.status == WarpStatus::kReady || warp.status == WarpStatus::kYielded;
}

/// A split of the warp that can go on. They take turns: one may spin until another has done its part.
int choose_split(const Warp& warp, Random* random) {
  const int splits = warp.top;
  int from = std::max<int>(warp.current, 0);
  if (random != nullptr && warp.used > 1)
    from = static_cast<int>(random->below(static_cast<std::uint64_t>(splits)));
  else if (warp.status == WarpStatus::kYielded)
    ++from;
  for (int k = 0; k < splits; ++k, ++from) {
    if (from >= splits) from = 0;
    if (warp.splits[from].state == Split::State::kReady) return from;
  }
  return -1;
}

/// Rounds without a wait, an end or a landing after which it is another cluster's turn, even if the
/// warps seem to compute.
constexpr int kLongRounds = 64;

/// Whether a warp that has yielded spins: it said so, or its registers are as they were before.
bool spins(Warp& warp) {
  if (warp.polled || warp.slept) return true;
  const auto* pc = warp.splits[warp.current].pc;
  auto digest = reinterpret_cast<std::uintptr_t>(pc) ^ std::uint64_t{warp.mask} << 32;
  for (std::uint32_t at = 0; at + 8 <= warp.code->register_bytes; at += 8) {
    std::uint64_t word;
    std::memcpy(&word, warp.registers + at, 8);
    digest = (digest ^ word) * 0x9e3779b97f4a7c15;
    digest ^= digest >> 32;
  }
  bool known = false;
  for (std::uint64_t seen : warp.seen) known |= seen == digest;
  warp.seen[warp.yields % std::size(warp.seen)] = digest;
  return known;
}

/// One turn of a warp that can run; false after a fault.
bool run_warp(Cluster& cluster, Warp& warp, std::int32_t budget, Random* random) {
  int split = choose_split(warp, random);
  warp.budget = budget;
  const Step* step = activate(warp, split);
  std::byte* registers = warp.registers;
  while (step != nullptr) step = step->run(step, registers, warp);
  if (warp.status == WarpStatus::kFaulted) return false;
  if (warp.status == WarpStatus::kDone) {
    --cluster.alive;
    cluster.stalls = 0;
    if (--warp.block->alive == 0 && cluster.context.checker != nullptr)
      cluster.context.checker->block_exit(*warp.block);
    return true;
  }
  if (warp.status != WarpStatus::kYielded) return true;
  // Not after the short turns of a seed: these say nothing of how long lanes have been spinning.
  if (budget >= kLongTurn && ++warp.yields % kPatience == 0) let_joins_go(warp);
  const LaunchContext& context = cluster.context;
  if (context.deadline && std::chrono::steady_clock::now() > *context.deadline) {
    const Step* at = warp.splits[warp.current].pc;
    fault(at, warp, FaultKind::kTimeout, std::countr_zero(warp.mask), 0,
          fmt::format("still running after {} s", context.launch->deadline_s).c_str());
    return false;
  }
  return true;
}

/// Lanes that wait to reconverge go on without the others of their warp; whether there were any.
bool release_joins(Cluster& cluster) {
  bool any = false;
  for (Block& block : cluster.blocks)
    for (Warp& warp : block.warps)
      if (warp.status == WarpStatus::kBlocked && let_joins_go(warp)) {
        warp.status = WarpStatus::kReady;
        any = true;
      }
  return any;
}

/// The time limit of all try_waits has come; whether there were any.
bool end_waits(Cluster& cluster) {
  bool any = false;
  for (Block& block : cluster.blocks)
    for (Warp& warp : block.warps) {
      if (warp.mbarrier_waits == 0) continue;
      for (Split& split : used_splits(warp)) {
        if (split.state != Split::State::kMbarrier) continue;
        split.state = Split::State::kReady;
        split.passed = true;
        any = true;
      }
      warp.mbarrier_waits = 0;
      warp.status = WarpStatus::kReady;
    }
  return any;
}

/// No warp can run, and nothing is under way that could change that.
Turn stuck(Cluster& cluster) {
  if (++cluster.stalls <= kStalls && end_waits(cluster)) return Turn::kSpins;
  report_deadlock(cluster);
  return Turn::kFaulted;
}

Turn run_in_order(Cluster& cluster, const Patience& patience) {
  Worker& worker = cluster.worker;
  int idle = 0, busy = 0;
  for (;;) {
    bool ran = false, progressed = false, polled = true, spinning = true;
    for (Block& block : cluster.blocks) {
      for (Warp& warp : block.warps) {
        if (!runnable(warp)) continue;
        ran = true;
        warp.polled = warp.slept = false;
        if (!run_warp(cluster, warp, patience.budget, nullptr)) return Turn::kFaulted;
        if (warp.status != WarpStatus::kYielded)
          progressed = true;
        else
          spinning &= spins(warp);
        polled &= warp.polled;
      }
    }
    if (cluster.alive == 0) return Turn::kDone;
    if (progressed) {
      idle = busy = 0;
      cluster.polls = 0;
      continue;
    }
    if (!spinning && ++busy < kLongRounds) continue;
    // All wait or spin, or have been at it for long.
    if (cluster.async.land_next()) {
      if (worker.fault) return Turn::kFaulted;
      idle = busy = 0;
      continue;
    }
    if (!spinning) return Turn::kOver;
    if (!ran) {
      if (release_joins(cluster)) continue;
      return stuck(cluster);
    }
    if (polled && ++cluster.polls > kPollRounds) {
      report_deadlock(cluster);
      return Turn::kFaulted;
    }
    if (!polled) cluster.polls = 0;
    if (++idle >= patience.rounds) return Turn::kSpins;
  }
}

Turn run_shuffled(Cluster& cluster) {
  Worker& worker = cluster.worker;
  Random& random = cluster.random;
  std::vector<Warp*> ready;
  for (auto turns = 1 + random.below(std::uint64_t{1} << random.below(8)); turns > 0; --turns) {
    ready.clear();
    for (Block& block : cluster.blocks)
      for (Warp& warp : block.warps)
        if (runnable(warp)) ready.push_back(&warp);
    // Something lands because it has to, or early.
    if (ready.empty() || random.below(4) == 0) {
      bool landed = cluster.async.land_next(&random);
      if (worker.fault) return Turn::kFaulted;
      if (ready.empty()) {
        if (landed || release_joins(cluster)) continue;
        return stuck(cluster);
      }
    }
    Warp& warp = *ready[random.below(ready.size())];
    // Mostly short turns; now and then one that lets a warp get far ahead.
    auto budget = static_cast<std::int32_t>(
        random.below(16) == 0 ? 4096 : 1 + random.below(std::uint64_t{1} << random.below(8)));
    warp.polled = warp.slept = false;
    if (!run_warp(cluster, warp, budget, &random)) return Turn::kFaulted;
    if (cluster.alive == 0) return Turn::kDone;
    cluster.polls = warp.polled ? cluster.polls + 1 : 0;
    if (cluster.polls > kPollRounds) {
      report_deadlock(cluster);
      return Turn::kFaulted;
    }
  }
  return Turn::kOver;
}

}  // namespace

Turn run_cluster(Cluster& cluster, const Patience& patience) {
  Turn turn = cluster.context.launch->schedule_seed != 0 ? run_shuffled(cluster)
                                                         : run_in_order(cluster, patience);
  if (turn == Turn::kDone) cluster.async.finish();
  if (turn == Turn::kFaulted) cluster.async.reset();
  if (turn == Turn::kDone && cluster.context.checker != nullptr)
    cluster.context.checker->cluster_end(cluster);
  return turn;
}

}  // namespace tilewright::vgpu
