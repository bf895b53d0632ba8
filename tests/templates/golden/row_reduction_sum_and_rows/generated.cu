// centre_rows: family row_reduction
//
//   operator: centre_rows
//   dimensions: [M, ld]
//   inputs:
//     x: {shape: [M, 192], dtype: f32, strides: [ld, 1]}
//   body:
//     - mean = reduce_mean(x)
//     - y = sub(x, mean)
//   outputs:
//     mean: {dtype: f32}
//     y: {dtype: bf16}
//   intermediate: f32
//   numerics: {accuracy: default, deterministic: true, batch_invariant: false}
//
// Rows start at multiples of bytes: x 16, y 16
#include "kernels/row_reduction.cuh"

constexpr row_reduction::Config kConfig{.width = 4, .threads_per_row = 32, .rows_per_block = 4, .held = 2};
using row_reduction::Phase;

struct Visitor {
  static constexpr int kWidth = 4;
  using Values = Fragment<kWidth>;
  using At = Place<kWidth, true>;

  const float* x_;
  float* mean_;
  bf16* y_;
  index ld_;

  struct Row {
    const float* x_row;
    float* mean_row;
    bf16* y_row;
    float mean_sum;
    float mean;
  };
  struct Kept {
    Packed<float, kWidth> x;
  };
  struct Loaded0 {
    Packed<float, kWidth> x;
  };
  struct Gathered0 {
    Sum mean_sum;
    template <typename F>
    __device__ void each(F f) {
      f(mean_sum);
    }
  };
  struct Loaded1 {
  };
  struct Gathered1 {
  };

  __device__ Row begin(index row_index) const {
    Row row;
    row.x_row = x_ + row_index * ld_;
    row.mean_row = mean_ + row_index;
    row.y_row = y_ + row_index * 192;
    return row;
  }

  __device__ Gathered0 gathered(Phase<0>) const { return {}; }
  __device__ Loaded0 load(Phase<0>, const Row& row, At at) const {
    Loaded0 loaded;
    loaded.x = read<16>(row.x_row, at);
    return loaded;
  }
  __device__ void visit(Phase<0>, const Row& row, At at, const Loaded0& loaded, Kept& kept,
                        Gathered0& gathered) const {
    const Values x = widen(loaded.x);
    kept.x = loaded.x;
    gather(gathered.mean_sum, at, x);
  }
  __device__ void reduce(Phase<0>, Row& row, const Gathered0& gathered) const {
    row.mean_sum = gathered.mean_sum.value;
    row.mean = row.mean_sum * (1.f / 192.f);
  }

  __device__ Gathered1 gathered(Phase<1>) const { return {}; }
  __device__ Loaded1 load(Phase<1>, const Row& row, At at) const {
    Loaded1 loaded;
    return loaded;
  }
  __device__ void visit(Phase<1>, const Row& row, At at, const Loaded1& loaded, Kept& kept,
                        Gathered1& gathered) const {
    const Values x = widen(kept.x);
    const Values y = x - row.mean;
    write<8>(row.y_row, at, y);
  }

  __device__ void finish(const Row& row) const {
    row.mean_row[0] = narrow<float>(row.mean);
  }
};

extern "C" __global__ void __launch_bounds__(128)
    centre_rows_row_reduction(const float* x, float* mean, bf16* y, index M, index ld) {
  const Visitor visitor{x, mean, y, ld};
  row_reduction::run<kConfig, 2, 192>(visitor, M, 192);
}
