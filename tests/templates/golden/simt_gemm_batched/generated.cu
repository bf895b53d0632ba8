// batched: family simt_gemm
//
//   operator: batched
//   dimensions: [B, M]
//   inputs:
//     x: {shape: [B, 256, M], dtype: f32}
//     w: {shape: [256, 320], dtype: f32}
//     bias: {shape: [B, 1, 320], dtype: f32}
//     scale: {shape: [M, 1], dtype: f32}
//   body:
//     - p = matmul(x, w, transpose_a=true)
//     - t0 = mul(p, scale)
//     - y = add(t0, bias)
//   outputs:
//     y: {dtype: f32}
//   intermediate: f32
//   numerics: {accuracy: default, deterministic: true, batch_invariant: false}
//
// Names:
//   n0    B
//   n1    M
//   in0   x
//   in1   w
//   in2   bias
//   in3   scale
//   v0    p
//   v1    t0
//   out0  y
//
// Rows start at multiples of bytes: x 16, w 16, bias 16, y 16
#include "kernels/simt_gemm.cuh"

constexpr simt_gemm::Config kConfig{.block_m = 32, .block_n = 64, .block_k = 16, .thread_m = 4, .thread_n = 4, .stages = 2, .width = 4, .split_k = 1, .group_m = 1, .blocks_per_sm = 1};
constexpr simt_gemm::Facts kFacts{
    .products = 1, .depth_inner_a = false, .depth_inner_b = false,
    .vector_a = 4, .vector_b = 4, .run = 4,
    .whole_rows = false, .whole_columns = true, .whole_depth = true,
    .asynchronous = true};

struct Visitor {
  static constexpr int kWidth = 4;
  using Values = Fragment<kWidth>;
  using At = Place<kWidth, true>;

  const float* in2_;
  const float* in3_;
  float* out0_;
  index n0_;
  index n1_;

  struct Columns {
    Packed<float, kWidth> in2;
  };
  struct Row {
    float* out0_row;
    float in3;
  };
  struct Loaded {
  };
  struct Results {
    Values out0;
  };

  __device__ Columns begin_columns(index batch, At at) const {
    Columns columns;
    columns.in2 = read<16>(in2_ + batch * 320, at);
    return columns;
  }
  __device__ Row begin_row(index batch, index row_index) const {
    Row row;
    row.out0_row = out0_ + batch * n1_ * 320 + row_index * 320;
    row.in3 = widen(in3_[row_index]);
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
    const Values v1 = v0 * row.in3;
    const Values out0 = v1 + in2;
    Results results;
    results.out0 = out0;
    return results;
  }
  __device__ void store(const Row& row, At at, const Results& results) const {
    write<16>(row.out0_row, at, results.out0);
  }
};

extern "C" __global__ void __launch_bounds__(128, 1)
    tilewright_simt_gemm(const float* in0, const float* in1, const float* in2, const float* in3,
                         float* out0, index n0, index n1) {
  static_assert(simt_gemm::shared_bytes<float, float>(kConfig, kFacts) == 12288);
  const simt_gemm::Block block = simt_gemm::block_of<kConfig>(n1, 320);
  const index batch = block.batch;
  const Operand<float> a{in0 + batch * n1 * 256, n1};
  const Operand<float> b[] = {{in1, 320}};
  const Visitor visitor{in2, in3, out0, n0, n1};
  simt_gemm::run<kConfig, kFacts>(visitor, block, a, b, n1, 320, 256);
}
