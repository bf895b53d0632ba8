/// A host thread that executes clusters of blocks: what it counts, and the clusters it has under
/// way. It runs one to its end, unless the cluster's warps only wait and spin: then the next one is
/// begun or resumed, so that blocks may wait for flags that later blocks set.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "jit/virtual_gpu/execute/cluster.h"
#include "jit/virtual_gpu/execute/sectors.h"
#include "jit/virtual_gpu/execute/state.h"
#include "jit/virtual_gpu/machine.h"
#include "jit/virtual_gpu/memory.h"

namespace tilewright::vgpu {

class Checker;

/// What all workers of a launch share; constant during it.
struct LaunchContext {
  const Code* code = nullptr;
  const Launch* launch = nullptr;
  const AllocationTable* table = nullptr;
  std::uintptr_t global_delta = 0;
  const std::byte* parameters = nullptr;
  std::uint64_t grid_workspace = 0;          ///< of a cooperative launch; 0: none
  std::array<unsigned, 3> cluster{1, 1, 1};  ///< blocks
  bool explicit_cluster = false;
  bool one_thread = true;
  std::uint64_t residents = 0;  ///< clusters that a worker may have under way
  Checker* checker = nullptr;   ///< null: Check::kOff
  std::optional<std::chrono::steady_clock::time_point> deadline;
};

/// Clusters are handed out in order. After a fault those before the faulting one still run to their
/// end, so that the fault that is reported does not depend on the number of threads.
class WorkQueue {
 public:
  /// `chosen`: linear indices of clusters, ascending; empty: the first `count`.
  WorkQueue(std::uint64_t count, std::vector<std::uint64_t> chosen)
      : chosen_(std::move(chosen)), end_(count) {}
  bool take(std::uint64_t* position) {
    std::uint64_t next = next_.fetch_add(1, std::memory_order_relaxed);
    if (next >= end_.load(std::memory_order_relaxed)) return false;
    *position = next;
    return true;
  }
  std::uint64_t linear(std::uint64_t position) const {
    return chosen_.empty() ? position : chosen_[position];
  }
  void stop_at(std::uint64_t position) {
    stopped_ = true;
    std::uint64_t end = end_.load();
    while (position < end && !end_.compare_exchange_weak(end, position)) {
    }
  }
  bool stopped() const { return stopped_; }
  std::uint64_t end() const { return end_; }

 private:
  const std::vector<std::uint64_t> chosen_;
  std::atomic<std::uint64_t> next_{0};
  std::atomic<std::uint64_t> end_;
  std::atomic<bool> stopped_{false};
};

/// How long a cluster runs before it is another's turn.
struct Patience {
  std::int32_t budget = 4096;  ///< basic blocks of a warp's turn
  int rounds = 4;              ///< of all warps, in which none of them did more than spin
};

enum class Turn : std::uint8_t {
  kDone,
  kFaulted,
  kSpins,  ///< all of its warps wait or spin
  kOver,   ///< it has run for long, or the seed says so
};
/// Executes warps of the cluster in turns.
Turn run_cluster(Cluster& cluster, const Patience& patience);
/// All of its warps wait for what cannot come: leaves a fault that says what.
void report_deadlock(Cluster& cluster);

struct Worker {
  explicit Worker(const LaunchContext& launch_context);
  ~Worker();

  /// Executes clusters of the queue until there are no more; a fault is left in `fault`.
  void run(WorkQueue& queue);

  const LaunchContext& context;
  std::optional<Fault> fault;  ///< of the cluster that runs; after run(), of the first to fault
  std::uint64_t fault_position = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t executed = 0;  ///< blocks
  Counters counters;           ///< of memory; the others follow from block_counts
  SectorSet load_sectors, store_sectors;
  std::vector<std::uint64_t> block_counts;
  std::vector<Range> ranges;

 private:
  bool begin_next(WorkQueue& queue);
  /// One turn of a cluster under way; whether it has ended.
  bool turn(std::size_t index, WorkQueue& queue);
  bool spinning_ = false;  ///< a turn ended by kSpins
  void run_seeded(WorkQueue& queue);

  Patience patience_;
  std::vector<std::unique_ptr<Cluster>> active_, spare_;
};

/// The text of a fault's report: where, what, and for global memory what lies near the address.
std::string describe(const Fault& fault, const Code& code, const Step* step, std::string_view what,
                     const AllocationTable& table);

}  // namespace tilewright::vgpu
