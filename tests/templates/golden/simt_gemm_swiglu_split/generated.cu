// swiglu: family simt_gemm
//
//   operator: swiglu
//   dimensions: [M]
//   inputs:
//     x: {shape: [M, 4096], dtype: bf16}
//     wg: {shape: [14336, 4096], dtype: bf16}
//     wu: {shape: [14336, 4096], dtype: bf16}
//   body:
//     - gate = matmul(x, wg, transpose_b=true)
//     - up = matmul(x, wu, transpose_b=true)
//     - t0 = silu(gate)
//     - y = mul(t0, up)
//   outputs:
//     y: {dtype: bf16}
//   intermediate: bf16
//   numerics: {accuracy: default, deterministic: true, batch_invariant: false}
//
// Names:
//   n0    M
//   in0   x
//   in1   wg
//   in2   wu
//   v0    gate
//   v1    up
//   v2    t0
//   out0  y
//
// Rows start at multiples of bytes: x 16, wg 16, wu 16, y 16
#include "kernels/simt_gemm.cuh"

constexpr simt_gemm::Config kConfig{.block_m = 16, .block_n = 64, .block_k = 32, .thread_m = 2, .thread_n = 8, .stages = 3, .width = 8, .split_k = 4, .group_m = 1, .blocks_per_sm = 1};
constexpr simt_gemm::Facts kFacts{
    .products = 2, .depth_inner_a = true, .depth_inner_b = true,
    .vector_a = 8, .vector_b = 8, .run = 8,
    .whole_rows = false, .whole_columns = true, .whole_depth = true,
    .asynchronous = true};

struct Visitor {
  static constexpr int kWidth = 8;
  using Values = Fragment<kWidth>;
  using At = Place<kWidth, true>;

  bf16* out0_;

  struct Columns {
  };
  struct Row {
    bf16* out0_row;
  };
  struct Loaded {
  };
  struct Results {
    Values out0;
  };

  __device__ Columns begin_columns(index batch, At at) const {
    Columns columns;
    return columns;
  }
  __device__ Row begin_row(index batch, index row_index) const {
    Row row;
    row.out0_row = out0_ + row_index * 14336;
    return row;
  }
  __device__ Loaded load(const Row& row, At at) const {
    Loaded loaded;
    return loaded;
  }
  __device__ Results visit(const Row& row, const Columns& columns, const Loaded& loaded,
                           const Values (&products)[2]) const {
    const Values v0 = products[0];
    const Values v1 = products[1];
    const Values v2 = op::silu(v0);
    const Values out0 = v2 * v1;
    Results results;
    results.out0 = out0;
    return results;
  }
  __device__ void store(const Row& row, At at, const Results& results) const {
    write<16>(row.out0_row, at, results.out0);
  }
};

extern "C" __global__ void __launch_bounds__(64, 1)
    tilewright_simt_gemm(const bf16* in0, const bf16* in1, const bf16* in2, float* workspace,
                         index n0) {
  static_assert(simt_gemm::shared_bytes<bf16, bf16>(kConfig, kFacts) == 34560);
  const simt_gemm::Block block = simt_gemm::block_of<kConfig>(n0, 14336);
  const Operand<bf16> a{in0, 4096};
  const Operand<bf16> b[] = {{in1, 4096}, {in2, 4096}};
  simt_gemm::run_part<kConfig, kFacts>(workspace, block, 1, a, b, n0, 14336, 4096);
}

extern "C" __global__ void __launch_bounds__(128)
    tilewright_simt_gemm_finish(const float* workspace, bf16* out0, index n0) {
  const Visitor visitor{out0};
  simt_gemm::finish<kConfig, kFacts>(visitor, workspace, 1, n0, 14336);
}
