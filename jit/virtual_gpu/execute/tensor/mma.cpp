// mma.sync of the dense shapes, f64 apart. One handler per number of elements in a register and kind
// of accumulator: the elements are decided by the form, the arithmetic is the same.
#include "jit/virtual_gpu/execute/tensor/tile.h"

namespace tilewright::vgpu::VGPU_LEVEL {
namespace {

/// operands: d..., a [k block][row half], b [k block], c...
template <int kParts, bool kExact, Accumulator kAccumulator>
const Step* mma(const Step* s, std::byte* r, Warp& w) {
  if (w.mask != kAllLanes) [[unlikely]]
    if (const Step * next; !whole_warp(s, w, &next)) return next;
  TensorForm form = TensorForm::unpack(s->immediate);
  const int halves = static_cast<int>(form.row_halves);
  const int blocks = static_cast<int>(form.k_blocks);
  const uint32_t* d = w.code->operands.data() + s->c;
  const uint32_t* a = d + (kAccumulator == Accumulator::kF16 ? halves : 2 * halves);
  const uint32_t* b = a + blocks * halves;
  const uint32_t* c = b + blocks;
  TensorTile tile;
  for (int k = 0; k < blocks; ++k) {
    for (int h = 0; h < halves; ++h)
      put_a<kParts>(form.element_a(), lanes<uint32_t>(r, a[k * halves + h]), k, h, halves, tile);
    put_b<kParts>(form.element_b(), lanes<uint32_t>(r, b[k]), k, tile);
  }
  get_accumulator<kAccumulator>(r, c, halves, tile);
  multiply<kParts, kExact>(
      form, kAccumulator == Accumulator::kS32 ? Accumulation::kF32 : w.accumulation, tile);
  put_accumulator<kAccumulator>(r, d, c, halves, form.saturate != 0, tile);
  return s + 1;
}

template <int kParts, bool kExact>
Handler accumulators(const Form& form) {
  switch (static_cast<Accumulator>(form.mode)) {
    case Accumulator::kF32:
      return mma<kParts, kExact, Accumulator::kF32>;
    case Accumulator::kF16:
      return kExact ? mma<kParts, true, Accumulator::kF16> : nullptr;
    default:
      return nullptr;
  }
}

}  // namespace

Handler select_mma(const Form& form) {
  if (form.op != Op::kMma) return nullptr;
  switch (form.vector) {
    case 1:
      return accumulators<1, false>(form);
    case 2:
      return form.nan ? accumulators<2, false>(form) : accumulators<2, true>(form);
    case 4:
      return form.integral ? mma<4, true, Accumulator::kS32> : accumulators<4, true>(form);
    case 8:
      return mma<8, true, Accumulator::kS32>;
    default:
      return nullptr;
  }
}

}  // namespace tilewright::vgpu::VGPU_LEVEL
