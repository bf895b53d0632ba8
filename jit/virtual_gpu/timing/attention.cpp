#include "jit/virtual_gpu/timing/attention.h"

#include <cmath>

namespace tilewright::vgpu {
namespace {

constexpr double kQueries = 128;  // of a block of a prefill
constexpr double kKeys = 128;     // of a tile of a decoding block

/// Keys that a decoding query reads: whole tiles, one more where a window begins inside of one.
double decoded_keys(const AttentionProblem& problem) {
  if (problem.window <= 0 || problem.kv_len <= problem.window) return problem.kv_len;
  return std::min(problem.kv_len, problem.window + kKeys);
}

double keys_of_tile(double head_dim) {
  if (head_dim <= 128) return 128;
  return head_dim <= 256 ? 80 : 64;
}

}  // namespace

Work decode_work(const jit::DeviceDescription& device, const AttentionProblem& problem,
                 int splits) {
  const jit::TimingConstants& timing = device.timing;
  const double kv = decoded_keys(problem);
  const double group = problem.q_heads / problem.kv_heads;
  const double row = 2 * problem.head_dim * problem.kv_bytes;  // a key and its value
  const double keys = std::ceil(kv / splits);
  const double rows = std::ceil(group / 64) * 64;  // of the tensor cores' instruction

  Work work;
  work.blocks = problem.batch * problem.kv_heads * splits;
  work.block.threads = 384;
  work.block.registers = 168;
  work.block.shared_bytes = std::size_t(std::min(200e3, 4 * kKeys * problem.head_dim * 2));
  work.tensor_ops[std::size_t(TensorType::kBF16)] = 4 * rows * keys * problem.head_dim;
  work.special = rows * keys / 32;
  work.instructions = 8 * rows * keys / 32;
  work.loaded_bytes = keys * row;
  work.l2_bytes = work.loaded_bytes + group * problem.head_dim * 4;
  work.bytes_in_flight = std::min(work.loaded_bytes, kKeys * row);
  if (problem.kv_bytes < 2)
    work.chain_clocks = 2 * keys * problem.head_dim * timing.decode_convert_clocks;
  work.block_us = timing.decode_block_us;
  work.dram_efficiency = timing.decode_dram_efficiency;
  work.fixed_us = timing.decode_fixed_us;
  if (splits > 1) {
    work.fixed_us += timing.decode_split_us;
    work.l2_more_bytes = problem.batch * problem.q_heads * splits * problem.head_dim * 8;
  }
  work.dram_bytes =
      2 * problem.batch * problem.kv_heads * kv * problem.head_dim * problem.kv_bytes +
      problem.batch * problem.q_heads * problem.head_dim * 4;
  return work;
}

LaunchTime best_decode(const jit::DeviceDescription& device, const AttentionProblem& problem) {
  const double kv = decoded_keys(problem);
  LaunchTime best;
  for (const int splits : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32}) {
    if (splits > 1 && kv / splits < kKeys) break;
    const LaunchTime time = model(device, decode_work(device, problem, splits));
    if (best.total_us == 0 || time.total_us < best.total_us) best = time;
  }
  return best;
}

Work prefill_work(const jit::DeviceDescription& device, const AttentionProblem& problem) {
  const jit::TimingConstants& timing = device.timing;
  const double tile = keys_of_tile(problem.head_dim);
  const double group = problem.q_heads / problem.kv_heads;
  // Query heads of a kv head share blocks where queries alone would leave them mostly empty.
  const double apart = std::ceil(problem.q_len / kQueries) * group;
  const double together = std::ceil(problem.q_len * group / kQueries);
  const bool packed = together < 0.9 * apart;
  const double blocks_of_head = packed ? together : apart / group;
  const double queries = packed ? kQueries / group : kQueries;  // positions of a block
  const double heads = packed ? problem.kv_heads : problem.q_heads;

  // Tiles of keys of each block of queries; the average and the most.
  double tiles = 0, most = 0;
  for (double i = 0; i < blocks_of_head; ++i) {
    const double last = std::min(problem.q_len, std::ceil((i + 1) * queries));
    const double to = problem.kv_len - problem.q_len + last;
    double from = 0;
    if (problem.window > 0)
      from = std::max(0.0, problem.kv_len - problem.q_len + i * queries - problem.window);
    const double now = std::ceil(to / tile) - std::floor(from / tile);
    tiles += now;
    most = std::max(most, now);
  }
  const double average = tiles / blocks_of_head;
  const double elements = kQueries * tile * average;  // scores of a block
  const bool fp8 = problem.kv_bytes < 2;

  Work work;
  work.blocks = problem.batch * heads * blocks_of_head;
  work.block.threads = 384;
  work.block.registers = 168;
  work.block.shared_bytes =
      std::size_t(std::min(200e3, (kQueries + 4 * tile) * problem.head_dim * 2));
  work.balanced = true;
  work.longest_block = most / average;
  work.tensor_ops[std::size_t(TensorType::kBF16)] = 4 * elements * problem.head_dim;
  work.special = elements / 32;
  work.fma = 3 * elements / 32;
  work.instructions = 8 * elements / 32;
  const double row = 2 * problem.head_dim * problem.kv_bytes;
  work.loaded_bytes = average * tile * row;
  work.l2_bytes = work.loaded_bytes + kQueries * problem.head_dim * 4;
  work.bytes_in_flight = std::min(work.loaded_bytes, 2 * tile * row);
  work.block_us = timing.prefill_block_us + (fp8 ? timing.prefill_convert_us : 0);
  work.tensor_efficiency = timing.prefill_tensor_efficiency;
  work.fixed_us = timing.prefill_fixed_us;
  work.dram_bytes = problem.batch * problem.head_dim *
                    (2 * problem.kv_heads * problem.kv_len * problem.kv_bytes +
                     4 * problem.q_heads * problem.q_len);
  return work;
}

LaunchTime prefill(const jit::DeviceDescription& device, const AttentionProblem& problem) {
  return model(device, prefill_work(device, problem));
}

}  // namespace tilewright::vgpu
