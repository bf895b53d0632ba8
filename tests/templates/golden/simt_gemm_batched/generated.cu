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

  const float* bias_;
  const float* scale_;
  float* y_;
  index B_;
  index M_;

  struct Columns {
    Packed<float, kWidth> bias;
  };
  struct Row {
    float* y_row;
    float scale;
  };
  struct Loaded {
  };
  struct Results {
    Values y;
  };

  __device__ Columns begin_columns(index batch, At at) const {
    Columns columns;
    columns.bias = read<16>(bias_ + batch * 320, at);
    return columns;
  }
  __device__ Row begin_row(index batch, index row_index) const {
    Row row;
    row.y_row = y_ + batch * M_ * 320 + row_index * 320;
    row.scale = widen(scale_[row_index]);
    return row;
  }
  __device__ Loaded load(const Row& row, At at) const {
    Loaded loaded;
    return loaded;
  }
  __device__ Results visit(const Row& row, const Columns& columns, const Loaded& loaded,
                           const Values (&products)[1]) const {
    const Values bias = widen(columns.bias);
    const Values p = products[0];
    const Values t0 = p * row.scale;
    const Values y = t0 + bias;
    Results results;
    results.y = y;
    return results;
  }
  __device__ void store(const Row& row, At at, const Results& results) const {
    write<16>(row.y_row, at, results.y);
  }
};

extern "C" __global__ void __launch_bounds__(128, 1)
    batched_simt_gemm(const float* x, const float* w, const float* bias, const float* scale,
                      float* y, index B, index M) {
  static_assert(simt_gemm::shared_bytes<float, float>(kConfig, kFacts) == 12288);
  const simt_gemm::Block block = simt_gemm::block_of<kConfig>(M, 320);
  const index batch = block.batch;
  const Operand<float> a{x + batch * M * 256, M};
  const Operand<float> b[] = {{w, 320}};
  const Visitor visitor{bias, scale, y, B, M};
  simt_gemm::run<kConfig, kFacts>(visitor, block, a, b, M, 320, 256);
}
