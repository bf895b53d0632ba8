// layernorm: family row_reduction
//
//   operator: layernorm
//   dimensions: [M]
//   inputs:
//     x: {shape: [M, 1000], dtype: f32}
//     gain: {shape: [1000], dtype: f32}
//     bias: {shape: [1000], dtype: f32}
//   body:
//     - y = layernorm(x, gain, bias, eps=1e-12)
//   outputs:
//     y: {dtype: f32}
//   intermediate: f32
//   numerics: {accuracy: default, deterministic: true, batch_invariant: false}
//
// Names:
//   n0    M
//   in0   x
//   in1   gain
//   in2   bias
//   out0  y
//
// Rows start at multiples of bytes: x 16, gain 16, bias 16, y 16
#include "kernels/row_reduction.cuh"

constexpr row_reduction::Config kConfig{.width = 4, .threads_per_row = 64, .rows_per_block = 4, .held = 0};
using row_reduction::Phase;

struct Visitor {
  static constexpr int kWidth = 4;
  using Values = Fragment<kWidth>;
  using At = Place<kWidth, true>;

  const float* in0_;
  const float* in1_;
  const float* in2_;
  float* out0_;

  struct Row {
    const float* in0_row;
    float* out0_row;
    float out0_sum;
    float out0_mean;
    float out0_squares;
    float out0_scale;
  };
  struct Kept {
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
    Packed<float, kWidth> in0;
  };
  struct Gathered1 {
    Sum out0_squares;
    template <typename F>
    __device__ void each(F f) {
      f(out0_squares);
    }
  };
  struct Loaded2 {
    Packed<float, kWidth> in0;
    Packed<float, kWidth> in1;
    Packed<float, kWidth> in2;
  };
  struct Gathered2 {
  };

  __device__ Row begin(index row_index) const {
    Row row;
    row.in0_row = in0_ + row_index * 1000;
    row.out0_row = out0_ + row_index * 1000;
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
    gather(gathered.out0_sum, at, in0);
  }
  __device__ void reduce(Phase<0>, Row& row, const Gathered0& gathered) const {
    row.out0_sum = gathered.out0_sum.value;
    row.out0_mean = row.out0_sum * (1.f / 1000.f);
  }

  __device__ Gathered1 gathered(Phase<1>) const { return {}; }
  __device__ Loaded1 load(Phase<1>, const Row& row, At at) const {
    Loaded1 loaded;
    loaded.in0 = read<16>(row.in0_row, at);
    return loaded;
  }
  __device__ void visit(Phase<1>, const Row& row, At at, const Loaded1& loaded, Kept& kept,
                        Gathered1& gathered) const {
    const Values in0 = widen(loaded.in0);
    const Values out0_centred = in0 - row.out0_mean;
    gather(gathered.out0_squares, at, out0_centred * out0_centred);
  }
  __device__ void reduce(Phase<1>, Row& row, const Gathered1& gathered) const {
    row.out0_squares = gathered.out0_squares.value;
    row.out0_scale = op::rsqrt(row.out0_squares * (1.f / 1000.f) + 1e-12f);
  }

  __device__ Gathered2 gathered(Phase<2>) const { return {}; }
  __device__ Loaded2 load(Phase<2>, const Row& row, At at) const {
    Loaded2 loaded;
    loaded.in0 = read<16>(row.in0_row, at);
    loaded.in1 = read<16>(in1_, at);
    loaded.in2 = read<16>(in2_, at);
    return loaded;
  }
  __device__ void visit(Phase<2>, const Row& row, At at, const Loaded2& loaded, Kept& kept,
                        Gathered2& gathered) const {
    const Values in0 = widen(loaded.in0);
    const Values in1 = widen(loaded.in1);
    const Values in2 = widen(loaded.in2);
    const Values out0_centred = in0 - row.out0_mean;
    const Values out0 = out0_centred * row.out0_scale * in1 + in2;
    write<16>(row.out0_row, at, out0);
  }

  __device__ void finish(const Row& row) const {
  }
};

extern "C" __global__ void __launch_bounds__(256)
    tilewright_row_reduction(const float* in0, const float* in1, const float* in2, float* out0,
                             index n0) {
  const Visitor visitor{in0, in1, in2, out0};
  row_reduction::run<kConfig, 3, 1000>(visitor, n0, 1000);
}
