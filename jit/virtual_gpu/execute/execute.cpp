// A launch: which blocks run, on which host threads, and what they counted.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <thread>

#include "jit/virtual_gpu/check/checker.h"
#include "jit/virtual_gpu/execute/sampling.h"
#include "jit/virtual_gpu/execute/worker.h"
#include "jit/virtual_gpu/program/program.h"

namespace tilewright::vgpu {
namespace {

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
    to.tensor_warps += pipe(Pipe::kTensor);
    for (std::size_t t = 0; t < kTensorTypes; ++t)
      to.tensor_operations[t] += times * block.tensor_operations[t];
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
  to.shared_conflicts += from.shared_conflicts;
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

/// The cluster's shape: what the kernel requires, what the launch asks for, else one block. An error
/// is a text.
std::string choose_cluster(const Launch& launch, const KernelInfo& info, LaunchContext* context) {
  auto given = [](const std::array<unsigned, 3>& shape) {
    return shape[0] != 0 || shape[1] != 0 || shape[2] != 0;
  };
  auto& shape = context->cluster;
  if (given(info.cluster)) shape = info.cluster;
  if (given(launch.cluster)) {
    auto wanted = launch.cluster;
    for (unsigned& n : wanted) n = std::max(n, 1u);
    if (given(info.cluster) && wanted != info.cluster)
      return fmt::format("launched in clusters of {}x{}x{} blocks, the kernel requires {}x{}x{}",
                         wanted[0], wanted[1], wanted[2], info.cluster[0], info.cluster[1],
                         info.cluster[2]);
    shape = wanted;
  }
  context->explicit_cluster = given(info.cluster) || given(launch.cluster);
  if (info.explicit_cluster && !context->explicit_cluster)
    return "launched without clusters, the kernel requires them";
  std::uint64_t blocks = std::uint64_t{shape[0]} * shape[1] * shape[2];
  unsigned most = info.max_cluster_blocks != 0 ? info.max_cluster_blocks : kMaxClusterBlocks;
  if (blocks > most)
    return fmt::format("a cluster has {} blocks, expected at most {}", blocks, most);
  for (std::size_t i = 0; i < 3; ++i)
    if (launch.grid[i] % shape[i] != 0)
      return fmt::format("the grid is {}x{}x{}, expected multiples of the cluster's {}x{}x{}",
                         launch.grid[0], launch.grid[1], launch.grid[2], shape[0], shape[1],
                         shape[2]);
  return {};
}

/// Linear index of the cluster that holds a block.
std::uint64_t cluster_of(std::uint64_t block, const Launch& launch, const LaunchContext& context) {
  std::uint64_t x = launch.grid[0], y = launch.grid[1];
  const auto& shape = context.cluster;
  std::uint64_t cx = block % x / shape[0], cy = block / x % y / shape[1],
                cz = block / x / y / shape[2];
  return (cz * (y / shape[1]) + cy) * (x / shape[0]) + cx;
}
/// Linear indices of a cluster's blocks.
void add_blocks(std::uint64_t cluster, const Launch& launch, const LaunchContext& context,
                std::vector<std::uint64_t>* to) {
  std::uint64_t x = launch.grid[0], y = launch.grid[1];
  const auto& shape = context.cluster;
  std::uint64_t nx = x / shape[0], ny = y / shape[1];
  std::uint64_t cx = cluster % nx, cy = cluster / nx % ny, cz = cluster / nx / ny;
  for (unsigned k = 0; k < shape[2]; ++k)
    for (unsigned j = 0; j < shape[1]; ++j)
      for (unsigned i = 0; i < shape[0]; ++i)
        to->push_back(((cz * shape[2] + k) * y + cy * shape[1] + j) * x + cx * shape[0] + i);
}

}  // namespace

Outcome execute(Memory& memory, const Launch& launch) {
  const auto* program = static_cast<const LoadedProgram*>(launch.program);
  const Code* code = program == nullptr ? nullptr
                                        : program->code(launch.kernel, launch.check,
                                                        launch.approximation_seed != 0);
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
  if (launch.cooperative && program->grid_workspace() != 0) {
    context.grid_workspace = program->grid_workspace();
    std::memset(memory.at(context.grid_workspace, LoadedProgram::kGridWorkspaceBytes), 0,
                LoadedProgram::kGridWorkspaceBytes);
  }
  if (std::string why = choose_cluster(launch, code->info, &context); !why.empty())
    return refused(launch, why);
  std::uint64_t host_threads = launch.check != Check::kOff ? 1 : std::max(launch.threads, 1);
  if (launch.deadline_s > 0)
    context.deadline = std::chrono::steady_clock::now() +
                       std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                           std::chrono::duration<double>(launch.deadline_s));

  Outcome outcome;
  std::uint64_t blocks = std::uint64_t{launch.grid[0]} * launch.grid[1] * launch.grid[2];
  std::uint64_t size = context.cluster[0] * context.cluster[1] * context.cluster[2];
  std::uint64_t count = blocks / size;
  std::vector<std::uint64_t> chosen;
  if (!launch.chosen.empty()) {
    std::set<std::uint64_t> clusters;
    for (std::uint64_t block : launch.chosen) clusters.insert(cluster_of(block, launch, context));
    chosen.assign(clusters.begin(), clusters.end());
  } else if (launch.sample_blocks != 0 && launch.sample_blocks < blocks) {
    chosen =
        sample_blocks({launch.grid[0] / context.cluster[0], launch.grid[1] / context.cluster[1],
                       launch.grid[2] / context.cluster[2]},
                      std::max<std::uint64_t>(launch.sample_blocks / size, 1), launch.seed);
  }
  for (std::uint64_t cluster : chosen) add_blocks(cluster, launch, context, &outcome.executed);
  std::sort(outcome.executed.begin(), outcome.executed.end());
  if (!chosen.empty()) count = chosen.size();

  std::uint64_t workers = std::clamp<std::uint64_t>(count, 1, host_threads);
  context.one_thread = workers == 1;
  context.residents = launch.resident_blocks == 0
                          ? std::numeric_limits<std::uint64_t>::max()
                          : std::max<std::uint64_t>(launch.resident_blocks / size / workers, 1);
  std::unique_ptr<Checker> checker = make_checker(launch.check, context, memory);
  context.checker = checker.get();
  if (checker != nullptr)
    checker->launch_begin(context);
  else
    arena.note_unchecked();

  WorkQueue queue(count, std::move(chosen));
  std::vector<std::unique_ptr<Worker>> shares;
  for (std::uint64_t i = 0; i < workers; ++i) shares.push_back(std::make_unique<Worker>(context));
  std::vector<std::thread> others;
  for (std::size_t i = 1; i < shares.size(); ++i)
    others.emplace_back([&, i] { shares[i]->run(queue); });
  shares[0]->run(queue);
  for (auto& thread : others) thread.join();

  outcome.counters.blocks = blocks;
  Worker& first = *shares[0];
  for (const auto& share : shares) {
    outcome.counters.blocks_executed += share->executed;
    if (share->fault_position < first.fault_position) {
      first.fault_position = share->fault_position;
      first.fault = share->fault;
    }
    if (!launch.count) continue;
    add_static_counts(*code, *share, outcome.counters);
    add_memory_counts(share->counters, outcome.counters);
    if (share == shares[0]) continue;
    first.load_sectors.unite(share->load_sectors);
    first.store_sectors.unite(share->store_sectors);
  }
  if (launch.count) {
    outcome.counters.distinct_load_sectors = first.load_sectors.size();
    outcome.counters.distinct_store_sectors = first.store_sectors.size();
  }
  outcome.fault = std::move(first.fault);
  if (checker != nullptr) checker->launch_end(&outcome.reports);
  return outcome;
}

}  // namespace tilewright::vgpu
