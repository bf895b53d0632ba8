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
// Rows start at multiples of bytes: x 16, gain 16, bias 16, y 16
#include "kernels/row_reduction.cuh"

constexpr row_reduction::Config kConfig{.width = 4, .threads_per_row = 64, .rows_per_block = 4, .held = 0};
using row_reduction::Phase;

struct Visitor {
  static constexpr int kWidth = 4;
  using Values = Fragment<kWidth>;
  using At = Place<kWidth, true>;

  const float* x_;
  const float* gain_;
  const float* bias_;
  float* y_;

  struct Row {
    const float* x_row;
    float* y_row;
    float y_sum;
    float y_mean;
    float y_squares;
    float y_scale;
  };
  struct Kept {
  };
  struct Loaded0 {
    Packed<float, kWidth> x;
  };
  struct Gathered0 {
    Sum y_sum;
    template <typename F>
    __device__ void each(F f) {
      f(y_sum);
    }
  };
  struct Loaded1 {
    Packed<float, kWidth> x;
  };
  struct Gathered1 {
    Sum y_squares;
    template <typename F>
    __device__ void each(F f) {
      f(y_squares);
    }
  };
  struct Loaded2 {
    Packed<float, kWidth> x;
    Packed<float, kWidth> gain;
    Packed<float, kWidth> bias;
  };
  struct Gathered2 {
  };

  __device__ Row begin(index row_index) const {
    Row row;
    row.x_row = x_ + row_index * 1000;
    row.y_row = y_ + row_index * 1000;
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
    gather(gathered.y_sum, at, x);
  }
  __device__ void reduce(Phase<0>, Row& row, const Gathered0& gathered) const {
    row.y_sum = gathered.y_sum.value;
    row.y_mean = row.y_sum * (1.f / 1000.f);
  }

  __device__ Gathered1 gathered(Phase<1>) const { return {}; }
  __device__ Loaded1 load(Phase<1>, const Row& row, At at) const {
    Loaded1 loaded;
    loaded.x = read<16>(row.x_row, at);
    return loaded;
  }
  __device__ void visit(Phase<1>, const Row& row, At at, const Loaded1& loaded, Kept& kept,
                        Gathered1& gathered) const {
    const Values x = widen(loaded.x);
    const Values y_centred = x - row.y_mean;
    gather(gathered.y_squares, at, y_centred * y_centred);
  }
  __device__ void reduce(Phase<1>, Row& row, const Gathered1& gathered) const {
    row.y_squares = gathered.y_squares.value;
    row.y_scale = op::rsqrt(row.y_squares * (1.f / 1000.f) + 1e-12f);
  }

  __device__ Gathered2 gathered(Phase<2>) const { return {}; }
  __device__ Loaded2 load(Phase<2>, const Row& row, At at) const {
    Loaded2 loaded;
    loaded.x = read<16>(row.x_row, at);
    loaded.gain = read<16>(gain_, at);
    loaded.bias = read<16>(bias_, at);
    return loaded;
  }
  __device__ void visit(Phase<2>, const Row& row, At at, const Loaded2& loaded, Kept& kept,
                        Gathered2& gathered) const {
    const Values x = widen(loaded.x);
    const Values gain = widen(loaded.gain);
    const Values bias = widen(loaded.bias);
    const Values y_centred = x - row.y_mean;
    const Values y = y_centred * row.y_scale * gain + bias;
    write<16>(row.y_row, at, y);
  }

  __device__ void finish(const Row& row) const {
  }
};

extern "C" __global__ void __launch_bounds__(256)
    layernorm_row_reduction(const float* x, const float* gain, const float* bias, float* y,
                            index M) {
  const Visitor visitor{x, gain, bias, y};
  row_reduction::run<kConfig, 3, 1000>(visitor, M, 1000);
}
