/// The part of cuBLASLt that is used here, as its documentation describes it ("cuBLAS API, Using the
/// cuBLASLt API"), so that its header need not be installed. Private to search/measure; a test
/// compares it with the header where there is one.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace tilewright::search::lt {

using Status = int;
inline constexpr Status kSuccess = 0;

// cudaDataType_t
enum DataType : int { kR32F = 0, kR16F = 2, kR16BF = 14 };
// cublasComputeType_t
inline constexpr int kCompute32F = 68;
// cublasOperation_t
enum Operation : std::int32_t { kPlain = 0, kTransposed = 1 };
// cublasLtMatmulDescAttributes_t
inline constexpr int kDescTransA = 3, kDescTransB = 4;
// cublasLtMatrixLayoutAttribute_t
inline constexpr int kLayoutBatchCount = 5, kLayoutStridedBatchOffset = 6;
// cublasLtMatmulPreferenceAttributes_t
inline constexpr int kPreferenceMaxWorkspaceBytes = 1;

struct Algorithm {
  std::uint64_t data[8];
};
struct HeuristicResult {
  Algorithm algorithm;
  std::size_t workspace_bytes;
  Status state;
  float waves;
  int reserved[4];
};

using Handle = void*;
using Descriptor = void*;  // of a matmul, a layout or a preference

struct Api {
  std::size_t (*cublasLtGetVersion)();
  const char* (*cublasLtGetStatusString)(Status);
  Status (*cublasLtCreate)(Handle*);
  Status (*cublasLtDestroy)(Handle);
  Status (*cublasLtMatmulDescCreate)(Descriptor*, int compute, int scale_type);
  Status (*cublasLtMatmulDescDestroy)(Descriptor);
  Status (*cublasLtMatmulDescSetAttribute)(Descriptor, int, const void*, std::size_t);
  Status (*cublasLtMatrixLayoutCreate)(Descriptor*, int type, std::uint64_t rows,
                                       std::uint64_t columns, std::int64_t leading);
  Status (*cublasLtMatrixLayoutDestroy)(Descriptor);
  Status (*cublasLtMatrixLayoutSetAttribute)(Descriptor, int, const void*, std::size_t);
  Status (*cublasLtMatmulPreferenceCreate)(Descriptor*);
  Status (*cublasLtMatmulPreferenceDestroy)(Descriptor);
  Status (*cublasLtMatmulPreferenceSetAttribute)(Descriptor, int, const void*, std::size_t);
  Status (*cublasLtMatmulAlgoGetHeuristic)(Handle, Descriptor operation, Descriptor a, Descriptor b,
                                           Descriptor c, Descriptor d, Descriptor preference,
                                           int requested, HeuristicResult*, int* returned);
  Status (*cublasLtMatmul)(Handle, Descriptor operation, const void* alpha, const void* a,
                           Descriptor a_layout, const void* b, Descriptor b_layout,
                           const void* beta, const void* c, Descriptor c_layout, void* d,
                           Descriptor d_layout, const Algorithm*, void* workspace,
                           std::size_t workspace_bytes, CUstream);
};

#define TILEWRIGHT_CUBLASLT_FUNCTIONS(apply)                                                   \
  apply(cublasLtGetVersion) apply(cublasLtGetStatusString) apply(cublasLtCreate)               \
      apply(cublasLtDestroy) apply(cublasLtMatmulDescCreate) apply(cublasLtMatmulDescDestroy)  \
          apply(cublasLtMatmulDescSetAttribute) apply(cublasLtMatrixLayoutCreate)              \
              apply(cublasLtMatrixLayoutDestroy) apply(cublasLtMatrixLayoutSetAttribute)       \
                  apply(cublasLtMatmulPreferenceCreate) apply(cublasLtMatmulPreferenceDestroy) \
                      apply(cublasLtMatmulPreferenceSetAttribute)                              \
                          apply(cublasLtMatmulAlgoGetHeuristic) apply(cublasLtMatmul)

}  // namespace tilewright::search::lt
