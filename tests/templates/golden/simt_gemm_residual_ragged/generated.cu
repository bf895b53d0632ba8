// attn_out.r: family simt_gemm
//
//   operator: attn_out.r
//   dimensions: [M, N, K]
//   inputs:
//     x: {shape: [M, K], dtype: f16}
//     w: {shape: [N, K], dtype: f16}
//     residual: {shape: [M, N], dtype: f16}
//   body:
//     - t0 = matmul(x, w, transpose_b=true)
//     - r = add(t0, residual)
//   outputs:
//     r: {dtype: f16}
//   intermediate: f16
//   numerics: {accuracy: default, deterministic: true, batch_invariant: false}
//
// Rows start at multiples of bytes: those of an element
#include "kernels/simt_gemm.cuh"

constexpr simt_gemm::Config kConfig{.block_m = 64, .block_n = 64, .block_k = 16, .thread_m = 4, .thread_n = 4, .stages = 2, .width = 4, .split_k = 1, .group_m = 4, .blocks_per_sm = 1};
constexpr simt_gemm::Facts kFacts{
    .products = 1, .depth_inner_a = true, .depth_inner_b = true,
    .vector_a = 1, .vector_b = 1, .run = 1,
    .whole_rows = false, .whole_columns = false, .whole_depth = false,
    .asynchronous = false};

struct Visitor {
  static constexpr int kWidth = 1;
  using Values = Fragment<kWidth>;
  using At = Place<kWidth, false>;

  const f16* residual_;
  f16* r_;
  index N_;

  struct Columns {
  };
  struct Row {
    const f16* residual_row;
    f16* r_row;
  };
  struct Loaded {
    Packed<f16, kWidth> residual;
  };
  struct Results {
    Values r;
  };

  __device__ Columns begin_columns(index batch, At at) const {
    Columns columns;
    return columns;
  }
  __device__ Row begin_row(index batch, index row_index) const {
    Row row;
    row.residual_row = residual_ + row_index * N_;
    row.r_row = r_ + row_index * N_;
    return row;
  }
  __device__ Loaded load(const Row& row, At at) const {
    Loaded loaded;
    loaded.residual = read<2>(row.residual_row, at);
    return loaded;
  }
  __device__ Results visit(const Row& row, const Columns& columns, const Loaded& loaded,
                           const Values (&products)[1]) const {
    const Values residual = widen(loaded.residual);
    const Values t0 = products[0];
    const Values r = t0 + residual;
    Results results;
    results.r = r;
    return results;
  }
  __device__ void store(const Row& row, At at, const Results& results) const {
    write<2>(row.r_row, at, results.r);
  }
};

extern "C" __global__ void __launch_bounds__(256, 1)
    attn_out_r_simt_gemm(const f16* x, const f16* w, const f16* residual, f16* r, index M, index N,
                         index K) {
  static_assert(simt_gemm::shared_bytes<f16, f16>(kConfig, kFacts) == 20480);
  const simt_gemm::Block block = simt_gemm::block_of<kConfig>(M, N);
  const Operand<f16> a{x, K};
  const Operand<f16> b[] = {{w, K}};
  const Visitor visitor{residual, r, N};
  simt_gemm::run<kConfig, kFacts>(visitor, block, a, b, M, N, K);
}
