/// Gemms that cannot run here, a library's: C[m, n] = A[m, k] * B[n, k]^T as a tiled kernel with a
/// pipeline of stages, described and not executed. What such a library would choose is the best of
/// a few tiles by the model itself.
#pragma once

#include "jit/virtual_gpu/timing/model.h"

namespace tilewright::vgpu {

enum class GemmType : std::uint8_t {
  kBf16,
  kFp8,
  kInt8,        ///< A and B of 8 bits
  kInt8Weight,  ///< B of 8 bits, converted to bf16 as it is used
  kInt4Weight,
};

struct GemmProblem {
  double m = 0, n = 0, k = 0;
  GemmType type = GemmType::kBf16;
  /// A comes as bf16 and is converted by a kernel before it, one row by one block.
  bool quantized = false;
};

struct GemmConfig {
  int tile_m = 128, tile_n = 128, tile_k = 64;
  int stages = 4;
  int split_k = 1;
  bool gemv = false;  ///< few rows, on the lanes of f32; the tile does not count
};

struct GemmChoice {
  GemmConfig config;
  LaunchTime time;
};

Work gemm_work(const jit::DeviceDescription& device, const GemmProblem& problem,
               const GemmConfig& config);

GemmChoice best_gemm(const jit::DeviceDescription& device, const GemmProblem& problem);

}  // namespace tilewright::vgpu
