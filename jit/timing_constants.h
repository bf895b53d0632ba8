/// Constants of the virtual GPU's timing model that no datasheet gives. Each has a meaning; those of
/// a device that was measured are fitted (docs/virtual-gpu.md, "Calibration"), the others inherit
/// the values below, which are those of the H200.
#pragma once

namespace tilewright::jit {

struct TimingConstants {
  // Of the device: every kernel's.
  double dram_efficiency = 0.83;
  double l2_efficiency = 1.46;
  double l2_bytes_per_clock_per_sm = 64;
  double latency_factor = 1.24;
  double overlap_exponent = 5;
  double tensor_efficiency_16 = 1;
  double tensor_efficiency_8 = 0.9;
  double tensor_efficiency_i8 = 0.52;
  // Of libraries' gemms.
  double gemm_fixed_us_16 = 1.4;
  double gemm_fixed_us_8 = 4.4;
  double gemm_fixed_us_i8 = 7.2;
  double gemm_block_us = 1.1;
  double mma_iteration_clocks = 352;
  double mma_split_k_us = 13;
  double gemm_short_k_us = 3.6;
  double quantize_efficiency = 0.4;
  double split_k_us = 2.5;
  // Of libraries' attention.
  double decode_fixed_us = 9.3;
  double decode_block_us = 3.3;
  double decode_split_us = 1.7;
  double decode_dram_efficiency = 0.9;
  double decode_convert_clocks = 0.081;
  double prefill_fixed_us = 7.3;
  double prefill_block_us = 5.1;
  double prefill_tensor_efficiency = 0.58;
  double prefill_convert_us = 1.2;
};

struct TimingConstant {
  const char* name;
  double TimingConstants::*value;
  double low, high;  ///< what a description may say, and how far a fit may go
  const char* meaning;
};

inline constexpr TimingConstant kTimingConstants[] = {
    {"dram_efficiency", &TimingConstants::dram_efficiency, 0.4, 1, "share of dram_gbps reached"},
    {"l2_efficiency", &TimingConstants::l2_efficiency, 0.3, 2, "share of l2_gbps reached"},
    {"l2_bytes_per_clock_per_sm", &TimingConstants::l2_bytes_per_clock_per_sm, 16, 64,
     "what one SM draws from the L2"},
    {"latency_factor", &TimingConstants::latency_factor, 1, 8,
     "latency of a load under load, in dram_latency_ns"},
    {"overlap_exponent", &TimingConstants::overlap_exponent, 1.5, 32,
     "of the norm over resources; infinite: perfect overlap"},
    {"tensor_efficiency_16", &TimingConstants::tensor_efficiency_16, 0.3, 1,
     "share of tensor_tflops reached, f16, bf16 and tf32"},
    {"tensor_efficiency_8", &TimingConstants::tensor_efficiency_8, 0.3, 1, "the same, e4m3, e5m2"},
    {"tensor_efficiency_i8", &TimingConstants::tensor_efficiency_i8, 0.2, 1, "the same, i8"},
    {"gemm_fixed_us_16", &TimingConstants::gemm_fixed_us_16, 0.2, 10,
     "of a library's gemm beside its blocks: node of a graph, set-up, last store; bf16"},
    {"gemm_fixed_us_8", &TimingConstants::gemm_fixed_us_8, 0.2, 12, "the same, fp8"},
    {"gemm_fixed_us_i8", &TimingConstants::gemm_fixed_us_i8, 0.2, 16,
     "the same, int8 and weight-only"},
    {"gemm_block_us", &TimingConstants::gemm_block_us, 0, 10,
     "prologue and epilogue of a gemm's block, once per wave"},
    {"mma_iteration_clocks", &TimingConstants::mma_iteration_clocks, 0, 2000,
     "of an iteration that nothing hides, in kernels of mma.sync (int8, weight-only)"},
    {"mma_split_k_us", &TimingConstants::mma_split_k_us, 0, 30,
     "as split_k_us, in kernels of mma.sync"},
    {"gemm_short_k_us", &TimingConstants::gemm_short_k_us, 0, 10,
     "what a weight-only gemm takes longer whose k is less than two tiles of 64"},
    {"quantize_efficiency", &TimingConstants::quantize_efficiency, 0.1, 1,
     "share of dram_gbps reached by the kernel that turns activations into fp8"},
    {"split_k_us", &TimingConstants::split_k_us, 0, 10, "of the reduction after a split-k gemm"},
    {"decode_fixed_us", &TimingConstants::decode_fixed_us, 0.5, 20, "as gemm_fixed_us; decoding"},
    {"decode_block_us", &TimingConstants::decode_block_us, 0, 20,
     "prologue and epilogue of a block, once per wave"},
    {"decode_split_us", &TimingConstants::decode_split_us, 0, 20,
     "of the combination of split keys"},
    {"decode_dram_efficiency", &TimingConstants::decode_dram_efficiency, 0.3, 1,
     "share of dram_gbps that paged keys and values reach"},
    {"decode_convert_clocks", &TimingConstants::decode_convert_clocks, 0, 0.5,
     "of an SM, for each fp8 element of keys and values"},
    {"prefill_fixed_us", &TimingConstants::prefill_fixed_us, 0.5, 30, "as gemm_fixed_us; prefill"},
    {"prefill_block_us", &TimingConstants::prefill_block_us, 0, 20,
     "prologue and epilogue of a block of 128 queries"},
    {"prefill_tensor_efficiency", &TimingConstants::prefill_tensor_efficiency, 0.2, 1,
     "share of tensor_tflops reached beside a softmax"},
    {"prefill_convert_us", &TimingConstants::prefill_convert_us, 0, 10,
     "of a block, for fp8 keys and values"},
};

}  // namespace tilewright::jit
