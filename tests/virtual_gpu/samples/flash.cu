// Attention of one head of 64: out = softmax(q k^T / 8) v over rows of q, keys in tiles of 32. q, k and
// v are bf16, sums are f32. Four warps of 16 queries; scores stay in registers and become the left
// operand of the second product.
#include "device.cuh"

constexpr int kHead = 64, kQueries = 64, kKeys = 32, kPitch = kHead + 8;

extern "C" __global__ void __launch_bounds__(128)
    flash(const u16* __restrict__ q, const u16* __restrict__ k, const u16* __restrict__ v,
          float* __restrict__ out, int queries, int keys) {
  __shared__ __align__(16) u16 query[kQueries * kPitch], key[kKeys * kPitch], value[kKeys * kPitch];
  int t = threadIdx.x, lane = t % 32, warp = t / 32, first = blockIdx.x * kQueries;
  auto load = [&](u16* to, const u16* from, int rows, int begin, int end) {
    for (int chunk = t; chunk < rows * kHead / 8; chunk += 128) {
      int r = chunk / (kHead / 8), d = chunk % (kHead / 8) * 8;
      bool there = begin + r < end;
      copy16(shared_address(to + r * kPitch + d),
             from + (there ? (long long)(begin + r) * kHead + d : 0), there ? 16 : 0);
    }
  };
  load(query, q, kQueries, first, queries);
  float y[kHead / 8][4] = {}, most[2] = {-1e30f, -1e30f}, total[2] = {};
  for (int begin = 0; begin < keys; begin += kKeys) {
    load(key, k, kKeys, begin, keys);
    load(value, v, kKeys, begin, keys);
    copies_commit();
    copies_wait<0>();
    __syncthreads();
    float score[kKeys / 8][4] = {};
    for (int step = 0; step < kHead; step += 16) {
      u32 a[4], b[4];
      load_matrices(
          a, shared_address(&query[(warp * 16 + lane % 16) * kPitch + step + lane / 16 * 8]));
      for (int j = 0; j < kKeys; j += 16) {
        load_matrices(b, shared_address(&key[(j + lane % 16) * kPitch + step + lane / 16 * 8]));
        multiply(score[j / 8], a, b[0], b[2]);
        multiply(score[j / 8 + 1], a, b[1], b[3]);
      }
    }
    float higher[2] = {most[0], most[1]};
    for (int j = 0; j < kKeys / 8; ++j)
      for (int e = 0; e < 4; ++e) {
        int at = begin + j * 8 + lane % 4 * 2 + e % 2;
        score[j][e] = at < keys ? score[j][e] * 0.125f : -1e30f;
        higher[e / 2] = fmaxf(higher[e / 2], score[j][e]);
      }
    for (int h = 0; h < 2; ++h) {
      higher[h] = fmaxf(higher[h], __shfl_xor_sync(0xffffffffu, higher[h], 1));
      higher[h] = fmaxf(higher[h], __shfl_xor_sync(0xffffffffu, higher[h], 2));
      float factor = __expf(most[h] - higher[h]);
      total[h] *= factor;
      for (int j = 0; j < kHead / 8; ++j) {
        y[j][h * 2] *= factor;
        y[j][h * 2 + 1] *= factor;
      }
      most[h] = higher[h];
    }
    for (int j = 0; j < kKeys / 8; ++j)
      for (int e = 0; e < 4; ++e) {
        score[j][e] = __expf(score[j][e] - most[e / 2]);
        total[e / 2] += score[j][e];
      }
    for (int j = 0; j < kKeys; j += 16) {
      float(&low)[4] = score[j / 8];
      float(&high)[4] = score[j / 8 + 1];
      u32 p[4] = {pack(low[0], low[1]), pack(low[2], low[3]), pack(high[0], high[1]),
                  pack(high[2], high[3])};
      for (int d = 0; d < kHead; d += 16) {
        u32 b[4];
        load_matrices_transposed(
            b, shared_address(&value[(j + lane % 16) * kPitch + d + lane / 16 * 8]));
        multiply(y[d / 8], p, b[0], b[1]);
        multiply(y[d / 8 + 1], p, b[2], b[3]);
      }
    }
    __syncthreads();  // before keys and values are overwritten
  }
  for (int h = 0; h < 2; ++h) {
    total[h] += __shfl_xor_sync(0xffffffffu, total[h], 1);
    total[h] += __shfl_xor_sync(0xffffffffu, total[h], 2);
    int row = first + warp * 16 + lane / 4 + h * 8;
    if (row < queries)
      for (int j = 0; j < kHead / 8; ++j)
        for (int e = 0; e < 2; ++e)
          out[(long long)row * kHead + j * 8 + lane % 4 * 2 + e] = y[j][h * 2 + e] / total[h];
  }
}
