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
// Names:
//   n0    M
//   n1    ld
//   in0   x
//   out0  mean
//   out1  y
//
// Rows start at multiples of bytes: x 16, y 16
#include "kernels/row_reduction.cuh"

constexpr row_reduction::Config kConfig{.width = 4, .threads_per_row = 32, .rows_per_block = 4, .held = 2};
using row_reduction::Phase;

struct Visitor {
  static constexpr int kWidth = 4;
  using Values = Fragment<kWidth>;
  using At = Place<kWidth, true>;

  const float* in0_;
  float* out0_;
  bf16* out1_;
  index n1_;

  struct Row {
    const float* in0_row;
    float* out0_row;
    bf16* out1_row;
    float out0_sum;
    float out0;
  };
  struct Kept {
    Packed<float, kWidth> in0;
  };
  struct Loaded0 {
    Packed<float, kWidth> in0;
  };
  struct Gathered0 {
    Sum out0_sum;
    template <typename F>
    __device__ void each(F f) {
      f(out0_sum);
    }
  };
  struct Loaded1 {
  };
  struct Gathered1 {
  };

  __device__ Row begin(index row_index) const {
    Row row;
    row.in0_row = in0_ + row_index * n1_;
    row.out0_row = out0_ + row_index;
    row.out1_row = out1_ + row_index * 192;
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
    gather(gathered.out0_sum, at, in0);
  }
  __device__ void reduce(Phase<0>, Row& row, const Gathered0& gathered) const {
    row.out0_sum = gathered.out0_sum.value;
    row.out0 = row.out0_sum * (1.f / 192.f);
  }

  __device__ Gathered1 gathered(Phase<1>) const { return {}; }
  __device__ Loaded1 load(Phase<1>, const Row& row, At at) const {
    Loaded1 loaded;
    return loaded;
  }
  __device__ void visit(Phase<1>, const Row& row, At at, const Loaded1& loaded, Kept& kept,
                        Gathered1& gathered) const {
    const Values in0 = widen(kept.in0);
    const Values out1 = in0 - row.out0;
    write<8>(row.out1_row, at, out1);
  }

  __device__ void finish(const Row& row) const {
    row.out0_row[0] = narrow<float>(row.out0);
  }
};

extern "C" __global__ void __launch_bounds__(128)
    tilewright_row_reduction(const float* in0, float* out0, bf16* out1, index n0, index n1) {
  const Visitor visitor{in0, out0, out1, n1};
  row_reduction::run<kConfig, 2, 192>(visitor, n0, 192);
}
