// pointwise_chain: family pointwise
//
//   operator: pointwise_chain
//   dimensions: [M, N]
//   inputs:
//     x: {shape: [M, N], dtype: f16}
//     scale: {shape: [N], dtype: f16}
//     shift: {shape: [M, 1], dtype: f16}
//   body:
//     - scaled = mul(x, scale)
//     - shifted = add(scaled, shift)
//     - clamped = clamp(shifted, low=-7, high=7)
//     - gate = sigmoid(clamped)
//     - y = mul(gate, x)
//   outputs:
//     y: {dtype: f16}
//   intermediate: f16
//   numerics: {accuracy: default, deterministic: true, batch_invariant: false}
//
// Names:
//   n0    M
//   n1    N
//   in0   x
//   in1   scale
//   in2   shift
//   v0    scaled
//   v1    shifted
//   v2    clamped
//   v3    gate
//   out0  y
//
// Rows start at multiples of bytes: those of an element
#include "kernels/pointwise.cuh"

constexpr pointwise::Config kConfig{.width = 1, .items = 4, .rows_per_thread = 1, .threads_x = 64, .threads_y = 4};

struct Visitor {
  static constexpr int kWidth = 1;
  using Values = Fragment<kWidth>;
  using At = Place<kWidth, false>;

  const f16* in0_;
  const f16* in1_;
  const f16* in2_;
  f16* out0_;
  index n1_;

  struct Columns {
    Packed<f16, kWidth> in1;
  };
  struct Row {
    const f16* in0_row;
    f16* out0_row;
    float in2;
  };
  struct Loaded {
    Packed<f16, kWidth> in0;
  };
  struct Results {
    Values out0;
  };

  __device__ Columns begin_columns(At at) const {
    Columns columns;
    columns.in1 = read<2>(in1_, at);
    return columns;
  }
  __device__ Row begin_row(index row_index) const {
    Row row;
    row.in0_row = in0_ + row_index * n1_;
    row.out0_row = out0_ + row_index * n1_;
    row.in2 = widen(in2_[row_index]);
    return row;
  }
  __device__ Loaded load(const Row& row, At at) const {
    Loaded loaded;
    loaded.in0 = read<2>(row.in0_row, at);
    return loaded;
  }
  __device__ Results visit(const Row& row, const Columns& columns, const Loaded& loaded) const {
    const Values in0 = widen(loaded.in0);
    const Values in1 = widen(columns.in1);
    const Values v0 = in0 * in1;
    const Values v1 = v0 + row.in2;
    const Values v2 = op::clamp(v1, -7.f, 7.f);
    const Values v3 = op::sigmoid(v2);
    const Values out0 = v3 * in0;
    Results results;
    results.out0 = out0;
    return results;
  }
  __device__ void store(const Row& row, At at, const Results& results) const {
    write<2>(row.out0_row, at, results.out0);
  }
};

extern "C" __global__ void __launch_bounds__(256)
    tilewright_pointwise(const f16* in0, const f16* in1, const f16* in2, f16* out0, index n0,
                         index n1) {
  const Visitor visitor{in0, in1, in2, out0, n1};
  pointwise::run<kConfig>(visitor, n0, n1);
}
