// mlp_up: family simt_gemm
//
//   operator: mlp_up
//   dimensions: [M]
//   inputs:
//     x: {shape: [M, 1024], dtype: bf16}
//     w: {shape: [4096, 1024], dtype: bf16}
//     bias: {shape: [4096], dtype: bf16}
//   body:
//     - t1 = matmul(x, w, transpose_b=true)
//     - t0 = add(t1, bias)
//     - y = gelu_tanh(t0)
//   outputs:
//     y: {dtype: bf16}
//   intermediate: bf16
//   numerics: {accuracy: default, deterministic: true, batch_invariant: false}
//
// Names:
//   n0    M
//   in0   x
//   in1   w
//   in2   bias
//   v0    t1
//   v1    t0
//   out0  y
//
// Rows start at multiples of bytes: x 16, w 16, bias 16, y 16
#include "kernels/simt_gemm.cuh"

constexpr simt_gemm::Config kConfig{.block_m = 64, .block_n = 128, .block_k = 16, .thread_m = 4, .thread_n = 8, .stages = 1, .width = 8, .split_k = 1, .group_m = 1, .blocks_per_sm = 1};
constexpr simt_gemm::Facts kFacts{
    .products = 1, .depth_inner_a = true, .depth_inner_b = true,
    .vector_a = 8, .vector_b = 8, .run = 8,
    .whole_rows = false, .whole_columns = true, .whole_depth = true,
    .asynchronous = false};

struct Visitor {
  static constexpr int kWidth = 8;
  using Values = Fragment<kWidth>;
  using At = Place<kWidth, true>;

  const bf16* in2_;
  bf16* out0_;

  struct Columns {
    Packed<bf16, kWidth> in2;
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
    columns.in2 = read<16>(in2_, at);
    return columns;
  }
  __device__ Row begin_row(index batch, index row_index) const {
    Row row;
    row.out0_row = out0_ + row_index * 4096;
    return row;
  }
  __device__ Loaded load(const Row& row, At at) const {
    Loaded loaded;
    return loaded;
  }
  __device__ Results visit(const Row& row, const Columns& columns, const Loaded& loaded,
                           const Values (&products)[1]) const {
    const Values in2 = widen(columns.in2);
    const Values v0 = products[0];
    const Values v1 = v0 + in2;
    const Values out0 = op::gelu_tanh(v1);
    Results results;
    results.out0 = out0;
    return results;
  }
  __device__ void store(const Row& row, At at, const Results& results) const {
    write<16>(row.out0_row, at, results.out0);
  }
};

extern "C" __global__ void __launch_bounds__(256, 1)
    tilewright_simt_gemm(const bf16* in0, const bf16* in1, const bf16* in2, bf16* out0, index n0) {
  static_assert(simt_gemm::shared_bytes<bf16, bf16>(kConfig, kFacts) == 15360);
  const simt_gemm::Block block = simt_gemm::block_of<kConfig>(n0, 4096);
  const Operand<bf16> a{in0, 1024};
  const Operand<bf16> b[] = {{in1, 1024}};
  const Visitor visitor{in2, out0};
  simt_gemm::run<kConfig, kFacts>(visitor, block, a, b, n0, 4096, 1024);
}
