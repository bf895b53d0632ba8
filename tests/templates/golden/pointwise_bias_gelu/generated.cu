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
// Rows start at multiples of bytes: x 16, bias 16, y 16
#include "kernels/pointwise.cuh"

constexpr pointwise::Config kConfig{.width = 8, .items = 2, .rows_per_thread = 4, .threads_x = 128, .threads_y = 1};

struct Visitor {
  static constexpr int kWidth = 8;
  using Values = Fragment<kWidth>;
  using At = Place<kWidth, true>;

  const bf16* x_;
  const bf16* bias_;
  bf16* y_;

  struct Columns {
    Packed<bf16, kWidth> bias;
  };
  struct Row {
    const bf16* x_row;
    bf16* y_row;
  };
  struct Loaded {
    Packed<bf16, kWidth> x;
  };
  struct Results {
    Values y;
  };

  __device__ Columns begin_columns(At at) const {
    Columns columns;
    columns.bias = read<16>(bias_, at);
    return columns;
  }
  __device__ Row begin_row(index row_index) const {
    Row row;
    row.x_row = x_ + row_index * 4096;
    row.y_row = y_ + row_index * 4096;
    return row;
  }
  __device__ Loaded load(const Row& row, At at) const {
    Loaded loaded;
    loaded.x = read<16>(row.x_row, at);
    return loaded;
  }
  __device__ Results visit(const Row& row, const Columns& columns, const Loaded& loaded) const {
    const Values x = widen(loaded.x);
    const Values bias = widen(columns.bias);
    const Values t0 = x + bias;
    const Values y = op::gelu_erf(t0);
    Results results;
    results.y = y;
    return results;
  }
  __device__ void store(const Row& row, At at, const Results& results) const {
    write<16>(row.y_row, at, results.y);
  }
};

extern "C" __global__ void __launch_bounds__(128)
    bias_gelu_pointwise(const bf16* x, const bf16* bias, bf16* y, index M) {
  const Visitor visitor{x, bias, y};
  pointwise::run<kConfig>(visitor, M, 4096);
}
