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
// Rows start at multiples of bytes: x 16, residual 16, gain 16, h 16, y 16
#include "kernels/row_reduction.cuh"

constexpr row_reduction::Config kConfig{.width = 8, .threads_per_row = 128, .rows_per_block = 1, .held = 4};
using row_reduction::Phase;

struct Visitor {
  static constexpr int kWidth = 8;
  using Values = Fragment<kWidth>;
  using At = Place<kWidth, true>;

  const bf16* x_;
  const bf16* residual_;
  const bf16* gain_;
  bf16* h_;
  bf16* y_;

  struct Row {
    const bf16* x_row;
    const bf16* residual_row;
    bf16* h_row;
    bf16* y_row;
    float y_squares;
    float y_scale;
  };
  struct Kept {
    Values h;
  };
  struct Loaded0 {
    Packed<bf16, kWidth> x;
    Packed<bf16, kWidth> residual;
  };
  struct Gathered0 {
    Sum y_squares;
    template <typename F>
    __device__ void each(F f) {
      f(y_squares);
    }
  };
  struct Loaded1 {
    Packed<bf16, kWidth> gain;
  };
  struct Gathered1 {
  };

  __device__ Row begin(index row_index) const {
    Row row;
    row.x_row = x_ + row_index * 4096;
    row.residual_row = residual_ + row_index * 4096;
    row.h_row = h_ + row_index * 4096;
    row.y_row = y_ + row_index * 4096;
    return row;
  }

  __device__ Gathered0 gathered(Phase<0>) const { return {}; }
  __device__ Loaded0 load(Phase<0>, const Row& row, At at) const {
    Loaded0 loaded;
    loaded.x = read<16>(row.x_row, at);
    loaded.residual = read<16>(row.residual_row, at);
    return loaded;
  }
  __device__ void visit(Phase<0>, const Row& row, At at, const Loaded0& loaded, Kept& kept,
                        Gathered0& gathered) const {
    const Values x = widen(loaded.x);
    const Values residual = widen(loaded.residual);
    const Values h = x + residual;
    kept.h = h;
    gather(gathered.y_squares, at, h * h);
    write<16>(row.h_row, at, h);
  }
  __device__ void reduce(Phase<0>, Row& row, const Gathered0& gathered) const {
    row.y_squares = gathered.y_squares.value;
    row.y_scale = op::rsqrt(row.y_squares * (1.f / 4096.f) + 1e-05f);
  }

  __device__ Gathered1 gathered(Phase<1>) const { return {}; }
  __device__ Loaded1 load(Phase<1>, const Row& row, At at) const {
    Loaded1 loaded;
    loaded.gain = read<16>(gain_, at);
    return loaded;
  }
  __device__ void visit(Phase<1>, const Row& row, At at, const Loaded1& loaded, Kept& kept,
                        Gathered1& gathered) const {
    const Values gain = widen(loaded.gain);
    const Values h = kept.h;
    const Values y = h * row.y_scale * gain;
    write<16>(row.y_row, at, y);
  }

  __device__ void finish(const Row& row) const {
  }
};

extern "C" __global__ void __launch_bounds__(128)
    add_rmsnorm_row_reduction(const bf16* x, const bf16* residual, const bf16* gain, bf16* h,
                              bf16* y, index M) {
  const Visitor visitor{x, residual, gain, h, y};
  row_reduction::run<kConfig, 2, 4096>(visitor, M, 4096);
}
