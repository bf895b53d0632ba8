#include "jit/virtual_gpu/timing/gemm.h"

#include <cmath>

namespace tilewright::vgpu {
namespace {

constexpr int kRows = 64;  // of one warpgroup's instruction
constexpr int kMaxStages = 8;
constexpr int kShortTiles = 2;  // of k: what a mixed kernel needs at least

struct Format {
  double a_bytes, b_bytes;
  TensorType tensor;
  double convert;  // warp instructions of 32 elements of B
  bool splits;     // libraries' kernels of this type split k (cuBLAS's), or do not (CUTLASS's)
  bool wgmma;      // of Hopper: warps that only load, multicast; else mma.sync
  int gemv_rows;   // up to which there is a kernel without tensor cores
  bool mixed;      // a kernel that converts B in registers, chosen by a profiler: see best_gemm
};

Format format_of(GemmType type) {
  switch (type) {
    case GemmType::kBf16:
      return {2, 2, TensorType::kBF16, 0, true, true, 0, false};
    case GemmType::kFp8:
      return {1, 1, TensorType::kFp8, 0, false, true, 0, false};
    case GemmType::kInt8:
      return {1, 1, TensorType::kInt8, 0, false, false, 4, false};
    case GemmType::kInt8Weight:
      return {2, 1, TensorType::kBF16, 1, true, false, 8, true};
    case GemmType::kInt4Weight:
      return {2, 0.5, TensorType::kBF16, 2, true, false, 8, true};
  }
  return {};
}

double fixed_us(const jit::TimingConstants& timing, GemmType type) {
  switch (type) {
    case GemmType::kBf16:
      return timing.gemm_fixed_us_16;
    case GemmType::kFp8:
      return timing.gemm_fixed_us_8;
    default:
      return timing.gemm_fixed_us_i8;
  }
}

double stage_bytes(const Format& format, const GemmConfig& config) {
  return (config.tile_m * format.a_bytes + config.tile_n * format.b_bytes) * config.tile_k;
}

/// The bytes of A and B that one wave of `resident` tiles reads, laid out as square as it pays.
double wave_bytes(const GemmProblem& problem, const Format& format, const GemmConfig& config,
                  double resident) {
  const double rows = std::ceil(problem.m / config.tile_m);
  const double columns = std::ceil(problem.n / config.tile_n);
  const double row = config.tile_m * format.a_bytes, column = config.tile_n * format.b_bytes;
  const double tall = std::clamp(std::sqrt(resident * column / row), 1.0, rows);
  const double wide = std::min(columns, std::max(1.0, resident / tall));
  return (tall * row + wide * column) * problem.k;
}

double quantize_us(const jit::DeviceDescription& device, const GemmProblem& problem) {
  constexpr double kBytes = 3;              // of an element: bf16 in, fp8 out
  constexpr double kRowUsOfElement = 8e-5;  // of a block alone
  return std::max(
      problem.m * problem.k * kBytes / (device.dram_gbps * device.timing.quantize_efficiency * 1e3),
      problem.k * kRowUsOfElement);
}

/// A block of four warps for each column of B's, all rows of A at hand.
Work gemv_work(const jit::DeviceDescription& device, const GemmProblem& problem,
               const Format& format) {
  constexpr double kColumns = 4;  // of a block
  Work work;
  work.blocks = std::ceil(problem.n / kColumns);
  work.block = {128, 64, 0};
  const double weights = kColumns * problem.k;
  work.fma = weights * problem.m / 32;
  work.integer = weights / 32 * std::max(1.0, format.convert);
  work.instructions = work.fma + 2 * work.integer;
  work.loaded_bytes = weights * format.b_bytes + problem.m * problem.k * format.a_bytes;
  work.l2_bytes = work.loaded_bytes;
  work.bytes_in_flight = std::min(work.loaded_bytes, 128 * 64.0);
  work.dram_bytes = problem.n * problem.k * format.b_bytes +
                    problem.m * (problem.k * format.a_bytes + problem.n * 2);
  work.fixed_us = fixed_us(device.timing, problem.type);
  return work;
}

}  // namespace

Work gemm_work(const jit::DeviceDescription& device, const GemmProblem& problem,
               const GemmConfig& config) {
  const Format format = format_of(problem.type);
  if (config.gemv) return gemv_work(device, problem, format);
  const double rows = std::ceil(problem.m / config.tile_m);
  const double columns = std::ceil(problem.n / config.tile_n);
  const double iterations = std::ceil(std::ceil(problem.k / config.tile_k) / config.split_k);
  const double tile = double(config.tile_m) * config.tile_n;
  const double ring = stage_bytes(format, config) * config.stages;
  const int consumers = tile >= 128 * 128 ? 2 : 1;  // warpgroups

  Work work;
  work.blocks = rows * columns * config.split_k;
  work.block.threads = 128 * (consumers + 1);
  work.block.registers = int(40 + tile / (128 * consumers));
  work.block.shared_bytes = std::size_t(ring);

  work.tensor_ops[std::size_t(format.tensor)] = 2 * tile * config.tile_k * iterations;
  // A warpgroup reads its rows, and the whole of the other operand, for each of its instructions.
  const double a = config.tile_m * format.a_bytes, b = config.tile_n * format.b_bytes;
  const bool transposed = config.tile_m < kRows;  // C^T = B * A^T: few rows become columns
  const double read = transposed ? b + std::ceil(double(config.tile_n) / kRows) * a
                                 : a + std::ceil(double(config.tile_m) / kRows) * b;
  work.shared_wavefronts = (read + a + b) * config.tile_k * iterations / 128;
  const double converted = double(config.tile_n) * config.tile_k / 32 * format.convert * iterations;
  work.integer = converted;
  work.instructions = converted * 2;

  // Rows and columns beyond the edge are not loaded.
  const double loaded = problem.m * problem.k * format.a_bytes * columns +
                        problem.n * problem.k * format.b_bytes * rows;
  work.loaded_bytes = loaded / work.blocks;
  const double stored = problem.m * problem.n * 2;
  // A cluster of two blocks has one copy of what both need.
  const double shared_b = format.wgmma && rows > 1 ? 0.5 : 1;
  const double shared_a = format.wgmma && rows == 1 && columns > 1 ? 0.5 : 1;
  work.l2_bytes = (problem.m * problem.k * format.a_bytes * columns * shared_a +
                   problem.n * problem.k * format.b_bytes * rows * shared_b + stored) /
                  work.blocks;
  const double edge = loaded / (work.blocks * iterations * stage_bytes(format, config));
  work.bytes_in_flight = std::min(work.loaded_bytes, ring * std::min(1.0, edge));
  if (!format.wgmma) work.chain_clocks = iterations * device.timing.mma_iteration_clocks;
  work.block_us = device.timing.gemm_block_us;
  work.fixed_us = fixed_us(device.timing, problem.type);
  if (problem.quantized) work.fixed_us += quantize_us(device, problem);
  // Seen at every m and n of both weight-only types, and not explained: another launch, probably.
  if (format.mixed && problem.k < kShortTiles * config.tile_k)
    work.fixed_us += device.timing.gemm_short_k_us;
  if (config.split_k > 1) {
    work.fixed_us += format.wgmma ? device.timing.split_k_us : device.timing.mma_split_k_us;
    work.l2_more_bytes = problem.m * problem.n * (8.0 * config.split_k);  // f32, out and in
  }

  const double resident =
      std::max(occupancy(device.info, work.block).blocks_per_sm, 1) * double(device.info.sm_count);
  const double footprint = (problem.m * format.a_bytes + problem.n * format.b_bytes) * problem.k;
  const double per_wave =
      std::min(footprint, wave_bytes(problem, format, config, resident / config.split_k) /
                              config.split_k * std::min<double>(config.split_k, resident));
  const double waves = std::ceil(work.blocks / resident);
  work.dram_bytes = footprint + read_again(device, footprint, per_wave * waves) + stored;
  return work;
}

namespace {

/// Of the tiles, stages and splits that libraries have, the fastest by the model.
GemmChoice fastest(const jit::DeviceDescription& device, const GemmProblem& problem) {
  static constexpr int kTiles[][2] = {{16, 64},   {16, 128},  {32, 64},   {32, 128}, {64, 32},
                                      {64, 64},   {64, 128},  {64, 256},  {128, 32}, {128, 64},
                                      {128, 128}, {128, 256}, {256, 128}, {256, 64}};
  const Format format = format_of(problem.type);
  const double shared = double(device.info.shared_per_block_optin);
  GemmChoice best;
  if (problem.m <= format.gemv_rows) {
    best.config.gemv = true;
    best.time = model(device, gemm_work(device, problem, best.config));
  }
  for (const auto& tile : kTiles) {
    GemmConfig config;
    config.tile_m = tile[0];
    config.tile_n = tile[1];
    config.tile_k = format.a_bytes == 1 ? 128 : 64;
    // The weights are the rows of a mixed kernel's instructions: one warpgroup's, or two's.
    if (format.mixed && config.tile_n != 64 && config.tile_n != 128) continue;
    const double k_tiles = std::ceil(problem.k / config.tile_k);
    // A library has no tile that is mostly empty where it has a smaller one.
    if (config.tile_m > 16 && config.tile_m >= 2 * problem.m && config.tile_m > 64) continue;
    const double blocks =
        std::ceil(problem.m / config.tile_m) * std::ceil(problem.n / config.tile_n);
    // The stages of a mixed kernel take what shared memory there is.
    for (int per_sm = 1; per_sm <= (format.mixed ? 1 : 2); ++per_sm) {
      const double room = per_sm == 1 ? shared : double(device.info.shared_per_sm) / 2 - 1024;
      config.stages = int(std::min(
          {double(kMaxStages), room / stage_bytes(format, config), std::max(k_tiles, 2.0)}));
      if (config.stages < 2) continue;
      for (config.split_k = 1; config.split_k <= 16; config.split_k *= 2) {
        if (config.split_k > 1 && (!format.splits || k_tiles / config.split_k < 4 ||
                                   blocks * config.split_k > 2.0 * per_sm * device.info.sm_count))
          break;
        const LaunchTime time = model(device, gemm_work(device, problem, config));
        if (best.time.total_us == 0 || time.total_us < best.time.total_us) best = {config, time};
      }
    }
  }
  return best;
}

}  // namespace

GemmChoice best_gemm(const jit::DeviceDescription& device, const GemmProblem& problem) {
  if (!format_of(problem.type).mixed) return fastest(device, problem);
  // TensorRT-LLM profiles these at powers of two and takes what was fastest at the one below m, where
  // the tiles of more rows may no longer fit into one wave.
  GemmProblem profiled = problem;
  profiled.m = std::exp2(std::floor(std::log2(problem.m)));
  GemmChoice choice = fastest(device, profiled);
  choice.time = model(device, gemm_work(device, problem, choice.config));
  return choice;
}

}  // namespace tilewright::vgpu
