#include "jit/virtual_gpu/execute/worker.h"

#include <algorithm>

namespace tilewright::vgpu {
namespace {

/// Once a cluster was found to wait for others, turns are short: most of them will spin.
constexpr Patience kShort{.budget = 256, .rounds = 1};
/// After a fault elsewhere: passes over all clusters under way in which none ended, before they are
/// given up. They may be waiting for the one that faulted.
constexpr int kFaultPasses = 64;
/// With a schedule seed, so many clusters are under way from the beginning.
constexpr std::uint64_t kMixed = 4;

}  // namespace

Worker::Worker(const LaunchContext& launch_context)
    : context(launch_context),
      block_counts(context.code->blocks.size(), 0),
      ranges(context.code->sites.size() + 1) {}
Worker::~Worker() = default;

bool Worker::begin_next(WorkQueue& queue) {
  std::uint64_t position = 0;
  if (active_.size() >= context.residents || !queue.take(&position)) return false;
  if (spare_.empty()) spare_.push_back(std::make_unique<Cluster>(*this, context));
  active_.push_back(std::move(spare_.back()));
  spare_.pop_back();
  const Launch& launch = *context.launch;
  std::uint64_t linear = queue.linear(position);
  std::uint64_t x = launch.grid[0] / context.cluster[0], y = launch.grid[1] / context.cluster[1];
  active_.back()->begin({static_cast<unsigned>(linear % x), static_cast<unsigned>(linear / x % y),
                         static_cast<unsigned>(linear / x / y)},
                        position, Random(launch.schedule_seed ^ linear).next());
  return true;
}

bool Worker::turn(std::size_t index, WorkQueue& queue) {
  Cluster& cluster = *active_[index];
  std::optional<Fault> kept;
  kept.swap(fault);
  Turn turn = run_cluster(cluster, patience_);
  spinning_ |= turn == Turn::kSpins;
  if (turn == Turn::kOver || turn == Turn::kSpins) {
    fault.swap(kept);
    return false;
  }
  if (turn == Turn::kFaulted) {
    queue.stop_at(cluster.position);
    if (cluster.position < fault_position) {
      fault_position = cluster.position;
      kept.swap(fault);
    }
  }
  fault.swap(kept);
  executed += cluster.blocks.size();
  spare_.push_back(std::move(active_[index]));
  active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(index));
  return true;
}

void Worker::run(WorkQueue& queue) {
  if (context.launch->schedule_seed != 0) return run_seeded(queue);
  int fruitless = 0;
  for (;;) {
    if (active_.empty() && !begin_next(queue)) return;
    bool ended = false;
    spinning_ = false;
    for (std::size_t i = 0; i < active_.size();) {
      if (queue.stopped() && active_[i]->position >= queue.end()) {
        active_[i]->async.reset();
        spare_.push_back(std::move(active_[i]));
        active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(i));
      } else if (turn(i, queue)) {
        ended = true;
      } else {
        ++i;
      }
    }
    if (ended) {
      fruitless = 0;
      continue;
    }
    if (queue.stopped() && ++fruitless > kFaultPasses) return;
    // They wait for each other, or for blocks that have not begun: twice as many take part. One more
    // if they just take long.
    if (spinning_) patience_ = kShort;
    for (std::size_t more = spinning_ ? active_.size() : 1; more > 0 && begin_next(queue); --more) {
    }
  }
}

void Worker::run_seeded(WorkQueue& queue) {
  Random random(context.launch->schedule_seed);
  for (int fruitless = 0;;) {
    if (active_.size() < kMixed || random.below(8) == 0) begin_next(queue);
    if (active_.empty()) return;
    if (turn(random.below(active_.size()), queue))
      fruitless = 0;
    else if (queue.stopped() && ++fruitless > kFaultPasses * 4)
      return;
  }
}

}  // namespace tilewright::vgpu
