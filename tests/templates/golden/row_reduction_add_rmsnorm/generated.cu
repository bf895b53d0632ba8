// add_rmsnorm: family row_reduction
//
//   operator: add_rmsnorm
//   dimensions: [M]
//   inputs:
//     x: {shape: [M, 4096], dtype: bf16}
//     residual: {shape: [M, 4096], dtype: bf16}
//     gain: {shape: [4096], dtype: bf16}
//   body:
//     - h = add(x, residual)
//     - y = rmsnorm(h, gain, eps=1e-05)
//   outputs:
//     h: {dtype: bf16}
//     y: {dtype: bf16}
//   intermediate: bf16
//   numerics: {accuracy: default, deterministic: true, batch_invariant: false}
//
// Names:
//   n0    M
//   in0   x
//   in1   residual
//   in2   gain
//   out0  h
//   out1  y
//
// Rows start at multiples of bytes: x 16, residual 16, gain 16, h 16, y 16
#include "kernels/row_reduction.cuh"

constexpr row_reduction::Config kConfig{.width = 8, .threads_per_row = 128, .rows_per_block = 1, .held = 4};
using row_reduction::Phase;

struct Visitor {
  static constexpr int kWidth = 8;
  using Values = Fragment<kWidth>;
  using At = Place<kWidth, true>;

  const bf16* in0_;
  const bf16* in1_;
  const bf16* in2_;
  bf16* out0_;
  bf16* out1_;

  struct Row {
    const bf16* in0_row;
    const bf16* in1_row;
    bf16* out0_row;
    bf16* out1_row;
    float out1_squares;
    float out1_scale;
  };
  struct Kept {
    Values out0;
  };
  struct Loaded0 {
    Packed<bf16, kWidth> in0;
    Packed<bf16, kWidth> in1;
  };
  struct Gathered0 {
    Sum out1_squares;
    template <typename F>
    __device__ void each(F f) {
      f(out1_squares);
    }
  };
  struct Loaded1 {
    Packed<bf16, kWidth> in2;
  };
  struct Gathered1 {
  };

  __device__ Row begin(index row_index) const {
    Row row;
    row.in0_row = in0_ + row_index * 4096;
    row.in1_row = in1_ + row_index * 4096;
    row.out0_row = out0_ + row_index * 4096;
    row.out1_row = out1_ + row_index * 4096;
    return row;
  }

  __device__ Gathered0 gathered(Phase<0>) const { return {}; }
  __device__ Loaded0 load(Phase<0>, const Row& row, At at) const {
    Loaded0 loaded;
    loaded.in0 = read<16>(row.in0_row, at);
    loaded.in1 = read<16>(row.in1_row, at);
    return loaded;
  }
  __device__ void visit(Phase<0>, const Row& row, At at, const Loaded0& loaded, Kept& kept,
                        Gathered0& gathered) const {
    const Values in0 = widen(loaded.in0);
    const Values in1 = widen(loaded.in1);
    const Values out0 = in0 + in1;
    kept.out0 = out0;
    gather(gathered.out1_squares, at, out0 * out0);
    write<16>(row.out0_row, at, out0);
  }
  __device__ void reduce(Phase<0>, Row& row, const Gathered0& gathered) const {
    row.out1_squares = gathered.out1_squares.value;
    row.out1_scale = op::rsqrt(row.out1_squares * (1.f / 4096.f) + 1e-05f);
  }

  __device__ Gathered1 gathered(Phase<1>) const { return {}; }
  __device__ Loaded1 load(Phase<1>, const Row& row, At at) const {
    Loaded1 loaded;
    loaded.in2 = read<16>(in2_, at);
    return loaded;
  }
  __device__ void visit(Phase<1>, const Row& row, At at, const Loaded1& loaded, Kept& kept,
                        Gathered1& gathered) const {
    const Values in2 = widen(loaded.in2);
    const Values out0 = kept.out0;
    const Values out1 = out0 * row.out1_scale * in2;
    write<16>(row.out1_row, at, out1);
  }

  __device__ void finish(const Row& row) const {
  }
};

extern "C" __global__ void __launch_bounds__(128)
    tilewright_row_reduction(const bf16* in0, const bf16* in1, const bf16* in2, bf16* out0,
                             bf16* out1, index n0) {
  const Visitor visitor{in0, in1, in2, out0, out1};
  row_reduction::run<kConfig, 2, 4096>(visitor, n0, 4096);
}
