/// cuBLASLt as a baseline: how long NVIDIA's library takes for the matrix products of an operator.
/// Opened at run time; where it is not installed there is no such baseline.
///
/// Only the products are timed, not what an operator does around them: a fused kernel that beats it
/// also saves the passes that would follow. Real devices only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "jit/driver.h"
#include "search/measure/trial.h"

namespace tilewright::search {

/// C[m, n] = A B, all row-major and dense; A is [m, k], or [k, m] when transposed, B alike.
struct LtMatmul {
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  DType dtype = DType::kF32;  ///< of all three; accumulates in f32
  bool transpose_a = false, transpose_b = false;
};

/// The products of an operator. Leaves out those of dtypes or layouts that this file does not do.
Result<std::vector<LtMatmul>> matmuls_of(const templates::Operator& op,
                                         const templates::Bindings& bindings);

/// One thread at a time; keep it no longer than the context.
class CublasLt {
 public:
  /// `library`: empty: libcublasLt.so.13, .12, by the loader's path and /usr/local/cuda.
  /// Errors: kNotFound lists what was tried; kUnsupported on the virtual GPU.
  static Result<std::unique_ptr<CublasLt>> open(std::shared_ptr<jit::Context> context,
                                                const std::string& library = {});
  virtual ~CublasLt() = default;

  virtual std::string version() const = 0;
  /// The fastest of the heuristic's first few algorithms, on random data.
  virtual Result<Sample> time(const LtMatmul& matmul, const MeasureSettings& settings) = 0;
};

}  // namespace tilewright::search
