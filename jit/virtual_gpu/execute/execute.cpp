// A launch: which blocks run, on which host threads, and what they counted.
#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "jit/virtual_gpu/execute/sampling.h"
#include "jit/virtual_gpu/execute/worker.h"
#include "jit/virtual_gpu/program/program.h"

namespace tilewright::vgpu {
namespace {

/// Blocks are handed out in order. After a fault those before the faulting one still run to their
/// end, so that the fault that is reported does not depend on the number of threads.
class BlockQueue {
 public:
  explicit BlockQueue(std::uint64_t count) : end_(count) {}
  bool take(std::uint64_t* position) {
    std::uint64_t next = next_.fetch_add(1, std::memory_order_relaxed);
    if (next >= end_.load(std::memory_order_relaxed)) return false;
    *position = next;
    return true;
  }
  void stop_at(std::uint64_t position) {
    std::uint64_t end = end_.load();
    while (position < end && !end_.compare_exchange_weak(end, position)) {
    }
  }

 private:
  std::atomic<std::uint64_t> next_{0};
  std::atomic<std::uint64_t> end_;
};

struct Share {
  std::unique_ptr<Worker> worker;
  std::uint64_t fault_position = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t executed = 0;
};

void add_static_counts(const Code& code, const Worker& worker, Counters& to) {
  for (std::size_t b = 0; b < code.blocks.size(); ++b) {
    const BasicBlock& block = code.blocks[b];
    std::uint64_t times = worker.block_counts[b];
    auto pipe = [&](Pipe p) { return times * block.by_pipe[static_cast<std::size_t>(p)]; };
    to.warp_instructions += times * block.instructions;
    to.fma_warps += pipe(Pipe::kFma);
    to.integer_warps += pipe(Pipe::kInteger);
    to.special_warps += pipe(Pipe::kSpecial);
    to.f64_warps += pipe(Pipe::kDouble);
    to.memory_warps += pipe(Pipe::kMemory);
    to.barriers += times * block.barriers;
  }
}

void add_memory_counts(const Counters& from, Counters& to) {
  to.global_loads += from.global_loads;
  to.global_stores += from.global_stores;
  to.global_load_sectors += from.global_load_sectors;
  to.global_store_sectors += from.global_store_sectors;
  to.global_load_bytes += from.global_load_bytes;
  to.global_store_bytes += from.global_store_bytes;
  to.shared_requests += from.shared_requests;
  to.shared_wavefronts += from.shared_wavefronts;
  to.local_requests += from.local_requests;
  to.atomics += from.atomics;
}

Outcome refused(const Launch& launch, std::string why) {
  Fault fault;
  fault.kind = FaultKind::kIllegalInstruction;
  fault.kernel = launch.kernel;
  fault.report = "kernel " + launch.kernel + ": " + why;
  Outcome outcome;
  outcome.fault = std::move(fault);
  return outcome;
}

}  // namespace

Outcome execute(Memory& memory, const Launch& launch) {
  const auto* program = static_cast<const LoadedProgram*>(launch.program);
  const Code* code = program == nullptr ? nullptr : program->code(launch.kernel);
  if (code == nullptr) return refused(launch, "not in this program");
  std::uint64_t threads = std::uint64_t{launch.block[0]} * launch.block[1] * launch.block[2];
  if (threads == 0 || threads > kMaxWarps * kLanes)
    return refused(launch,
                   "a block has " + std::to_string(threads) + " threads, expected 1 to 1024");

  auto& arena = static_cast<Arena&>(memory);
  auto table = arena.snapshot();
  std::vector<std::byte> parameters = launch.parameters;
  parameters.resize(static_cast<std::size_t>(code->info.parameter_bytes) + 16);

  LaunchContext context;
  context.code = code;
  context.launch = &launch;
  context.table = table.get();
  context.global_delta = arena.delta();
  context.parameters = parameters.data();
  context.one_thread = launch.threads <= 1;
  if (launch.deadline_s > 0)
    context.deadline = std::chrono::steady_clock::now() +
                       std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                           std::chrono::duration<double>(launch.deadline_s));

  Outcome outcome;
  std::uint64_t blocks = std::uint64_t{launch.grid[0]} * launch.grid[1] * launch.grid[2];
  std::vector<std::uint64_t> chosen = launch.chosen;
  bool sampled = !chosen.empty();
  if (!sampled && launch.sample_blocks != 0 && launch.sample_blocks < blocks) {
    sampled = true;
    chosen = sample_blocks(launch.grid, launch.sample_blocks, launch.seed);
  }
  std::uint64_t count = sampled ? chosen.size() : blocks;

  BlockQueue queue(count);
  auto work = [&](Share& share) {
    share.worker = std::make_unique<Worker>(context);
    for (std::uint64_t position; queue.take(&position);) {
      std::uint64_t linear = sampled ? chosen[position] : position;
      std::uint64_t x = launch.grid[0], y = launch.grid[1];
      share.worker->run({static_cast<unsigned>(linear % x), static_cast<unsigned>(linear / x % y),
                         static_cast<unsigned>(linear / x / y)});
      ++share.executed;
      if (share.worker->fault) {
        share.fault_position = position;
        queue.stop_at(position);
        return;
      }
    }
  };
  auto workers = static_cast<std::size_t>(
      std::clamp<std::uint64_t>(count, 1, static_cast<std::uint64_t>(std::max(launch.threads, 1))));
  std::vector<Share> shares(workers);
  std::vector<std::thread> others;
  for (std::size_t i = 1; i < workers; ++i) others.emplace_back([&, i] { work(shares[i]); });
  work(shares[0]);
  for (auto& thread : others) thread.join();

  outcome.counters.blocks = blocks;
  const Share* first_fault = nullptr;
  for (const Share& share : shares) {
    outcome.counters.blocks_executed += share.executed;
    if (share.worker->fault &&
        (first_fault == nullptr || share.fault_position < first_fault->fault_position))
      first_fault = &share;
    if (launch.count) {
      add_static_counts(*code, *share.worker, outcome.counters);
      add_memory_counts(share.worker->counters, outcome.counters);
      if (&share != &shares[0]) {
        shares[0].worker->load_sectors.unite(share.worker->load_sectors);
        shares[0].worker->store_sectors.unite(share.worker->store_sectors);
      }
    }
  }
  if (launch.count) {
    outcome.counters.distinct_load_sectors = shares[0].worker->load_sectors.size();
    outcome.counters.distinct_store_sectors = shares[0].worker->store_sectors.size();
  }
  if (first_fault != nullptr) outcome.fault = first_fault->worker->fault;
  outcome.executed = std::move(chosen);
  return outcome;
}

}  // namespace tilewright::vgpu
