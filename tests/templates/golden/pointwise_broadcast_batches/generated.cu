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
// Rows start at multiples of bytes: x 16, table 16, y 16
#include "kernels/pointwise.cuh"

constexpr pointwise::Config kConfig{.width = 8, .items = 1, .rows_per_thread = 1, .threads_x = 64, .threads_y = 4};

struct Visitor {
  static constexpr int kWidth = 8;
  using Values = Fragment<kWidth>;
  using At = Place<kWidth, true>;

  const bf16* x_;
  const float* table_;
  const float* factor_;
  bf16* y_;
  index B_;
  index S_;

  struct Columns {
  };
  struct Row {
    const bf16* x_row;
    const float* table_row;
    bf16* y_row;
    float factor;
  };
  struct Loaded {
    Packed<bf16, kWidth> x;
    Packed<float, kWidth> table;
  };
  struct Results {
    Values y;
  };

  __device__ Columns begin_columns(At at) const {
    Columns columns;
    return columns;
  }
  __device__ Row begin_row(index row_index) const {
    const unsigned row_index_1 = unsigned(row_index) % unsigned(S_);
    const unsigned row_index_0 = unsigned(row_index) / unsigned(S_);
    Row row;
    row.x_row = x_ + row_index_0 * S_ * 512 + row_index_1 * 512;
    row.table_row = table_ + row_index_1 * 512;
    row.y_row = y_ + row_index_0 * S_ * 512 + row_index_1 * 512;
    row.factor = widen(factor_[row_index_0]);
    return row;
  }
  __device__ Loaded load(const Row& row, At at) const {
    Loaded loaded;
    loaded.x = read<16>(row.x_row, at);
    loaded.table = read<16>(row.table_row, at);
    return loaded;
  }
  __device__ Results visit(const Row& row, const Columns& columns, const Loaded& loaded) const {
    const Values x = widen(loaded.x);
    const Values table = widen(loaded.table);
    const Values scaled = x * row.factor;
    const Values y = scaled + table;
    Results results;
    results.y = y;
    return results;
  }
  __device__ void store(const Row& row, At at, const Results& results) const {
    write<16>(row.y_row, at, results.y);
  }
};

extern "C" __global__ void __launch_bounds__(256)
    add_positions_pointwise(const bf16* x, const float* table, const float* factor, bf16* y,
                            index B, index S) {
  const Visitor visitor{x, table, factor, y, B, S};
  pointwise::run<kConfig>(visitor, B * S, 512);
}
