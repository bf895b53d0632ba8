// softmax: family row_reduction
//
//   operator: softmax
//   dimensions: [M, N]
//   inputs:
//     x: {shape: [M, N], dtype: f16}
//   body:
//     - y = softmax(x)
//   outputs:
//     y: {dtype: f16}
//   intermediate: f16
//   numerics: {accuracy: default, deterministic: true, batch_invariant: false}
//
// Rows start at multiples of bytes: x 16, y 16
#include "kernels/row_reduction.cuh"

constexpr row_reduction::Config kConfig{.width = 8, .threads_per_row = 64, .rows_per_block = 4, .held = 4};
using row_reduction::Phase;

struct Visitor {
  static constexpr int kWidth = 8;
  using Values = Fragment<kWidth>;
  using At = Place<kWidth, false>;

  const f16* x_;
  f16* y_;
  index N_;

  struct Row {
    const f16* x_row;
    f16* y_row;
    float y_max;
    float y_sum;
    float y_scale;
  };
  struct Kept {
    Packed<f16, kWidth> x;
    Values y_exp;
  };
  struct Loaded0 {
    Packed<f16, kWidth> x;
  };
  struct Gathered0 {
    Max y_max;
    template <typename F>
    __device__ void each(F f) {
      f(y_max);
    }
  };
  struct Loaded1 {
  };
  struct Gathered1 {
    Sum y_sum;
    template <typename F>
    __device__ void each(F f) {
      f(y_sum);
    }
  };
  struct Loaded2 {
  };
  struct Gathered2 {
  };

  __device__ Row begin(index row_index) const {
    Row row;
    row.x_row = x_ + row_index * N_;
    row.y_row = y_ + row_index * N_;
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
    gather(gathered.y_max, at, x);
  }
  __device__ void reduce(Phase<0>, Row& row, const Gathered0& gathered) const {
    row.y_max = gathered.y_max.value;
  }

  __device__ Gathered1 gathered(Phase<1>) const { return {}; }
  __device__ Loaded1 load(Phase<1>, const Row& row, At at) const {
    Loaded1 loaded;
    return loaded;
  }
  __device__ void visit(Phase<1>, const Row& row, At at, const Loaded1& loaded, Kept& kept,
                        Gathered1& gathered) const {
    const Values x = widen(kept.x);
    const Values y_exp = op::exp(x - row.y_max);
    kept.y_exp = y_exp;
    gather(gathered.y_sum, at, y_exp);
  }
  __device__ void reduce(Phase<1>, Row& row, const Gathered1& gathered) const {
    row.y_sum = gathered.y_sum.value;
    row.y_scale = op::reciprocal(row.y_sum);
  }

  __device__ Gathered2 gathered(Phase<2>) const { return {}; }
  __device__ Loaded2 load(Phase<2>, const Row& row, At at) const {
    Loaded2 loaded;
    return loaded;
  }
  __device__ void visit(Phase<2>, const Row& row, At at, const Loaded2& loaded, Kept& kept,
                        Gathered2& gathered) const {
    const Values y_exp = kept.y_exp;
    const Values y = y_exp * row.y_scale;
    write<16>(row.y_row, at, y);
  }

  __device__ void finish(const Row& row) const {
  }
};

extern "C" __global__ void __launch_bounds__(256)
    softmax_row_reduction(const f16* x, f16* y, index M, index N) {
  const Visitor visitor{x, y, N};
  row_reduction::run<kConfig, 3, -1>(visitor, M, N);
}
