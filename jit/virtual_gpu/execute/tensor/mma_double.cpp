// mma of f64: m8n8k4, m16n8k4, k8 and k16. A register holds one element; k blocks of 4.
#include <cmath>

#include "jit/virtual_gpu/execute/common/families.h"
#include "jit/virtual_gpu/execute/common/per_lane.h"
#include "jit/virtual_gpu/execute/tensor/tensor.h"

namespace tilewright::vgpu {
namespace {

/// operands: d..., a [k block][row half], b [k block], c...
const Step* mma_double(const Step* s, std::byte* r, Warp& w) {
  if (const Step * next; w.mask != kAllLanes && !whole_warp(s, w, &next)) return next;
  TensorForm form = TensorForm::unpack(s->immediate);
  const int halves = static_cast<int>(form.row_halves);
  const int blocks = static_cast<int>(form.k_blocks);
  const std::uint32_t* d = w.code->operands.data() + s->c;
  const std::uint32_t* a = d + 2 * halves;
  const std::uint32_t* b = a + blocks * halves;
  const std::uint32_t* c = b + blocks;
  double result[2][2][kLanes];
  for (int h = 0; h < halves; ++h) {
    for (int p = 0; p < 2; ++p) {
      for (int i = 0; i < kLanes; ++i) {
        int row = i / 4, column = i % 4 * 2 + p;
        double sum = lanes<double>(r, c[2 * h + p])[i];
        for (int k = 0; k < 4 * blocks; ++k)
          sum = std::fma(lanes<double>(r, a[k / 4 * halves + h])[4 * row + k % 4],
                         lanes<double>(r, b[k / 4])[4 * column + k % 4], sum);
        result[h][p][i] = std::isnan(sum) ? __builtin_bit_cast(double, 0xfff8000000000000u) : sum;
      }
    }
  }
  for (int h = 0; h < halves; ++h)
    for (int p = 0; p < 2; ++p)
      for (int i = 0; i < kLanes; ++i) lanes<double>(r, d[2 * h + p])[i] = result[h][p][i];
  return s + 1;
}

}  // namespace

Handler select_mma_double(const Form& form) {
  return form.op == Op::kMmaDouble ? mma_double : nullptr;
}

}  // namespace tilewright::vgpu
