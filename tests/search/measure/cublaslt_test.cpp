#include "search/measure/cublaslt.h"

#include <gtest/gtest.h>

#include "search/measure/cublaslt_api.h"
#include "templates/operator/parse.h"

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#endif

namespace tilewright::search {
namespace {

TEST(CublasLt, OurDeclarationsAreThoseOfTheHeader) {
#if __has_include(<cublasLt.h>)
  EXPECT_EQ(lt::kSuccess, CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(lt::kR32F, int{CUDA_R_32F});
  EXPECT_EQ(lt::kR16F, int{CUDA_R_16F});
  EXPECT_EQ(lt::kR16BF, int{CUDA_R_16BF});
  EXPECT_EQ(lt::kCompute32F, CUBLAS_COMPUTE_32F);
  EXPECT_EQ(lt::kPlain, int{CUBLAS_OP_N});
  EXPECT_EQ(lt::kTransposed, int{CUBLAS_OP_T});
  EXPECT_EQ(lt::kDescTransA, CUBLASLT_MATMUL_DESC_TRANSA);
  EXPECT_EQ(lt::kDescTransB, CUBLASLT_MATMUL_DESC_TRANSB);
  EXPECT_EQ(lt::kLayoutBatchCount, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
  EXPECT_EQ(lt::kLayoutStridedBatchOffset, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
  EXPECT_EQ(lt::kPreferenceMaxWorkspaceBytes, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
  EXPECT_EQ(sizeof(lt::Algorithm), sizeof(cublasLtMatmulAlgo_t));
  EXPECT_EQ(sizeof(lt::HeuristicResult), sizeof(cublasLtMatmulHeuristicResult_t));
  EXPECT_EQ(offsetof(lt::HeuristicResult, state), offsetof(cublasLtMatmulHeuristicResult_t, state));
#else
  GTEST_SKIP() << "cublasLt.h is not installed";
#endif
}

TEST(CublasLt, FindsTheProductsOfAnOperator) {
  const auto op = templates::parse_operator(R"(operator: gated
dimensions: [M]
inputs:
  x: {dtype: bf16, shape: [M, 64]}
  w: {dtype: bf16, shape: [128, 64]}
  v: {dtype: bf16, shape: [64, 32]}
body:
  - a = matmul(x, w, transpose_b=true)
  - b = matmul(x, v)
  - ya = silu(a)
  - yb = neg(b)
outputs:
  ya: {dtype: bf16}
  yb: {dtype: bf16}
)",
                                            "gated");
  ASSERT_TRUE(op) << op.error().message;
  const auto matmuls = matmuls_of(*op, {{"M", 16}});
  ASSERT_TRUE(matmuls) << matmuls.error().message;
  ASSERT_EQ(matmuls->size(), 2u);
  EXPECT_EQ((*matmuls)[0].m, 16);
  EXPECT_EQ((*matmuls)[0].n, 128);
  EXPECT_EQ((*matmuls)[0].k, 64);
  EXPECT_TRUE((*matmuls)[0].transpose_b);
  EXPECT_EQ((*matmuls)[1].n, 32);
  EXPECT_EQ((*matmuls)[1].k, 64);
  EXPECT_FALSE((*matmuls)[1].transpose_b);
  EXPECT_EQ((*matmuls)[0].dtype, DType::kBF16);
  const auto empty = matmuls_of(*op, {{"M", 0}});
  ASSERT_TRUE(empty);
  EXPECT_TRUE(empty->empty());
}

}  // namespace
}  // namespace tilewright::search
