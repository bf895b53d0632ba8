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
// Rows start at multiples of bytes: those of an element
#include "kernels/pointwise.cuh"

constexpr pointwise::Config kConfig{.width = 1, .items = 4, .rows_per_thread = 1, .threads_x = 64, .threads_y = 4};

struct Visitor {
  static constexpr int kWidth = 1;
  using Values = Fragment<kWidth>;
  using At = Place<kWidth, false>;

  const f16* x_;
  const f16* scale_;
  const f16* shift_;
  f16* y_;
  index N_;

  struct Columns {
    Packed<f16, kWidth> scale;
  };
  struct Row {
    const f16* x_row;
    f16* y_row;
    float shift;
  };
  struct Loaded {
    Packed<f16, kWidth> x;
  };
  struct Results {
    Values y;
  };

  __device__ Columns begin_columns(At at) const {
    Columns columns;
    columns.scale = read<2>(scale_, at);
    return columns;
  }
  __device__ Row begin_row(index row_index) const {
    Row row;
    row.x_row = x_ + row_index * N_;
    row.y_row = y_ + row_index * N_;
    row.shift = widen(shift_[row_index]);
    return row;
  }
  __device__ Loaded load(const Row& row, At at) const {
    Loaded loaded;
    loaded.x = read<2>(row.x_row, at);
    return loaded;
  }
  __device__ Results visit(const Row& row, const Columns& columns, const Loaded& loaded) const {
    const Values x = widen(loaded.x);
    const Values scale = widen(columns.scale);
    const Values scaled = x * scale;
    const Values shifted = scaled + row.shift;
    const Values clamped = op::clamp(shifted, -7.f, 7.f);
    const Values gate = op::sigmoid(clamped);
    const Values y = gate * x;
    Results results;
    results.y = y;
    return results;
  }
  __device__ void store(const Row& row, At at, const Results& results) const {
    write<2>(row.y_row, at, results.y);
  }
};

extern "C" __global__ void __launch_bounds__(256)
    pointwise_chain_pointwise(const f16* x, const f16* scale, const f16* shift, f16* y, index M,
                              index N) {
  const Visitor visitor{x, scale, shift, y, N};
  pointwise::run<kConfig>(visitor, M, N);
}
