// add_positions: family pointwise
//
//   operator: add_positions
//   dimensions: [B, S]
//   inputs:
//     x: {shape: [B, S, 512], dtype: bf16}
//     table: {shape: [S, 512], dtype: f32}
//     factor: {shape: [B, 1, 1], dtype: f32}
//   body:
//     - scaled = mul(x, factor)
//     - y = add(scaled, table)
//   outputs:
//     y: {dtype: bf16}
//   intermediate: bf16
//   numerics: {accuracy: default, deterministic: true, batch_invariant: false}
//
// Names:
//   n0    B
//   n1    S
//   in0   x
//   in1   table
//   in2   factor
//   v0    scaled
//   out0  y
//
// Rows start at multiples of bytes: x 16, table 16, y 16
#include "kernels/pointwise.cuh"

constexpr pointwise::Config kConfig{.width = 8, .items = 1, .rows_per_thread = 1, .threads_x = 64, .threads_y = 4};

struct Visitor {
  static constexpr int kWidth = 8;
  using Values = Fragment<kWidth>;
  using At = Place<kWidth, true>;

  const bf16* in0_;
  const float* in1_;
  const float* in2_;
  bf16* out0_;
  index n0_;
  index n1_;

  struct Columns {
  };
  struct Row {
    const bf16* in0_row;
    const float* in1_row;
    bf16* out0_row;
    float in2;
  };
  struct Loaded {
    Packed<bf16, kWidth> in0;
    Packed<float, kWidth> in1;
  };
  struct Results {
    Values out0;
  };

  __device__ Columns begin_columns(At at) const {
    Columns columns;
    return columns;
  }
  __device__ Row begin_row(index row_index) const {
    const unsigned row_index_1 = unsigned(row_index) % unsigned(n1_);
    const unsigned row_index_0 = unsigned(row_index) / unsigned(n1_);
    Row row;
    row.in0_row = in0_ + row_index_0 * n1_ * 512 + row_index_1 * 512;
    row.in1_row = in1_ + row_index_1 * 512;
    row.out0_row = out0_ + row_index_0 * n1_ * 512 + row_index_1 * 512;
    row.in2 = widen(in2_[row_index_0]);
    return row;
  }
  __device__ Loaded load(const Row& row, At at) const {
    Loaded loaded;
    loaded.in0 = read<16>(row.in0_row, at);
    loaded.in1 = read<16>(row.in1_row, at);
    return loaded;
  }
  __device__ Results visit(const Row& row, const Columns& columns, const Loaded& loaded) const {
    const Values in0 = widen(loaded.in0);
    const Values in1 = widen(loaded.in1);
    const Values v0 = in0 * row.in2;
    const Values out0 = v0 + in1;
    Results results;
    results.out0 = out0;
    return results;
  }
  __device__ void store(const Row& row, At at, const Results& results) const {
    write<16>(row.out0_row, at, results.out0);
  }
};

extern "C" __global__ void __launch_bounds__(256)
    tilewright_pointwise(const bf16* in0, const float* in1, const float* in2, bf16* out0, index n0,
                         index n1) {
  const Visitor visitor{in0, in1, in2, out0, n0, n1};
  pointwise::run<kConfig>(visitor, n0 * n1, 512);
}
