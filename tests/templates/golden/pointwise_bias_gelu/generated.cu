// bias_gelu: family pointwise
//
//   operator: bias_gelu
//   dimensions: [M]
//   inputs:
//     x: {shape: [M, 4096], dtype: bf16}
//     bias: {shape: [4096], dtype: bf16}
//   body:
//     - t0 = add(x, bias)
//     - y = gelu_erf(t0)
//   outputs:
//     y: {dtype: bf16}
//   intermediate: bf16
//   numerics: {accuracy: default, deterministic: true, batch_invariant: false}
//
// Names:
//   n0    M
//   in0   x
//   in1   bias
//   v0    t0
//   out0  y
//
// Rows start at multiples of bytes: x 16, bias 16, y 16
#include "kernels/pointwise.cuh"

constexpr pointwise::Config kConfig{.width = 8, .items = 2, .rows_per_thread = 4, .threads_x = 128, .threads_y = 1};

struct Visitor {
  static constexpr int kWidth = 8;
  using Values = Fragment<kWidth>;
  using At = Place<kWidth, true>;

  const bf16* in0_;
  const bf16* in1_;
  bf16* out0_;

  struct Columns {
    Packed<bf16, kWidth> in1;
  };
  struct Row {
    const bf16* in0_row;
    bf16* out0_row;
  };
  struct Loaded {
    Packed<bf16, kWidth> in0;
  };
  struct Results {
    Values out0;
  };

  __device__ Columns begin_columns(At at) const {
    Columns columns;
    columns.in1 = read<16>(in1_, at);
    return columns;
  }
  __device__ Row begin_row(index row_index) const {
    Row row;
    row.in0_row = in0_ + row_index * 4096;
    row.out0_row = out0_ + row_index * 4096;
    return row;
  }
  __device__ Loaded load(const Row& row, At at) const {
    Loaded loaded;
    loaded.in0 = read<16>(row.in0_row, at);
    return loaded;
  }
  __device__ Results visit(const Row& row, const Columns& columns, const Loaded& loaded) const {
    const Values in0 = widen(loaded.in0);
    const Values in1 = widen(columns.in1);
    const Values v0 = in0 + in1;
    const Values out0 = op::gelu_erf(v0);
    Results results;
    results.out0 = out0;
    return results;
  }
  __device__ void store(const Row& row, At at, const Results& results) const {
    write<16>(row.out0_row, at, results.out0);
  }
};

extern "C" __global__ void __launch_bounds__(128)
    tilewright_pointwise(const bf16* in0, const bf16* in1, bf16* out0, index n0) {
  const Visitor visitor{in0, in1, out0};
  pointwise::run<kConfig>(visitor, n0, 4096);
}
