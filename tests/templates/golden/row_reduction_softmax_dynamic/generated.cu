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
// Names:
//   n0    M
//   n1    N
//   in0   x
//   out0  y
//
// Rows start at multiples of bytes: x 16, y 16
#include "kernels/row_reduction.cuh"

constexpr row_reduction::Config kConfig{.width = 8, .threads_per_row = 64, .rows_per_block = 4, .held = 4};
using row_reduction::Phase;

struct Visitor {
  static constexpr int kWidth = 8;
  using Values = Fragment<kWidth>;
  using At = Place<kWidth, false>;

  const f16* in0_;
  f16* out0_;
  index n1_;

  struct Row {
    const f16* in0_row;
    f16* out0_row;
    float out0_max;
    float out0_sum;
    float out0_scale;
  };
  struct Kept {
    Packed<f16, kWidth> in0;
    Values out0_exp;
  };
  struct Loaded0 {
    Packed<f16, kWidth> in0;
  };
  struct Gathered0 {
    Max out0_max;
    template <typename F>
    __device__ void each(F f) {
      f(out0_max);
    }
  };
  struct Loaded1 {
  };
  struct Gathered1 {
    Sum out0_sum;
    template <typename F>
    __device__ void each(F f) {
      f(out0_sum);
    }
  };
  struct Loaded2 {
  };
  struct Gathered2 {
  };

  __device__ Row begin(index row_index) const {
    Row row;
    row.in0_row = in0_ + row_index * n1_;
    row.out0_row = out0_ + row_index * n1_;
    return row;
  }

  __device__ Gathered0 gathered(Phase<0>) const { return {}; }
  __device__ Loaded0 load(Phase<0>, const Row& row, At at) const {
    Loaded0 loaded;
    loaded.in0 = read<16>(row.in0_row, at);
    return loaded;
  }
  __device__ void visit(Phase<0>, const Row& row, At at, const Loaded0& loaded, Kept& kept,
                        Gathered0& gathered) const {
    const Values in0 = widen(loaded.in0);
    kept.in0 = loaded.in0;
    gather(gathered.out0_max, at, in0);
  }
  __device__ void reduce(Phase<0>, Row& row, const Gathered0& gathered) const {
    row.out0_max = gathered.out0_max.value;
  }

  __device__ Gathered1 gathered(Phase<1>) const { return {}; }
  __device__ Loaded1 load(Phase<1>, const Row& row, At at) const {
    Loaded1 loaded;
    return loaded;
  }
  __device__ void visit(Phase<1>, const Row& row, At at, const Loaded1& loaded, Kept& kept,
                        Gathered1& gathered) const {
    const Values in0 = widen(kept.in0);
    const Values out0_exp = op::exp(in0 - row.out0_max);
    kept.out0_exp = out0_exp;
    gather(gathered.out0_sum, at, out0_exp);
  }
  __device__ void reduce(Phase<1>, Row& row, const Gathered1& gathered) const {
    row.out0_sum = gathered.out0_sum.value;
    row.out0_scale = op::reciprocal(row.out0_sum);
  }

  __device__ Gathered2 gathered(Phase<2>) const { return {}; }
  __device__ Loaded2 load(Phase<2>, const Row& row, At at) const {
    Loaded2 loaded;
    return loaded;
  }
  __device__ void visit(Phase<2>, const Row& row, At at, const Loaded2& loaded, Kept& kept,
                        Gathered2& gathered) const {
    const Values out0_exp = kept.out0_exp;
    const Values out0 = out0_exp * row.out0_scale;
    write<16>(row.out0_row, at, out0);
  }

  __device__ void finish(const Row& row) const {
  }
};

extern "C" __global__ void __launch_bounds__(256)
    tilewright_row_reduction(const f16* in0, f16* out0, index n0, index n1) {
  const Visitor visitor{in0, out0, n1};
  row_reduction::run<kConfig, 3, -1>(visitor, n0, n1);
}
