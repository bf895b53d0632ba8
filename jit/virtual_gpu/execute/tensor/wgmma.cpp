// wgmma.mma_async, computed where it is issued: warp i of a warpgroup does rows 16i to 16i + 15, as
// so many products of fragments of mma. PTX ISA, "Asynchronous Warpgroup Level Matrix ... Shared
// Memory Matrix Layout", "Strides", "Matrix Descriptor Format".
#include "jit/virtual_gpu/execute/shared_count.h"
#include "jit/virtual_gpu/execute/tensor/descriptor.h"
#include "jit/virtual_gpu/execute/tensor/tile.h"

namespace tilewright::vgpu::VGPU_LEVEL {
namespace {

VGPU_INLINE void transpose(const __m128i* row, __m128i* to) {
  __m128i a[8], b[8];
  for (int i = 0; i < 4; ++i) {
    b[2 * i] = _mm_unpacklo_epi16(row[i], row[i + 4]);
    b[2 * i + 1] = _mm_unpackhi_epi16(row[i], row[i + 4]);
  }
  for (int i = 0; i < 4; ++i) {
    a[2 * i] = _mm_unpacklo_epi16(b[i], b[i + 4]);
    a[2 * i + 1] = _mm_unpackhi_epi16(b[i], b[i + 4]);
  }
  for (int i = 0; i < 4; ++i) {
    to[2 * i] = _mm_unpacklo_epi16(a[i], a[i + 4]);
    to[2 * i + 1] = _mm_unpackhi_epi16(a[i], a[i + 4]);
  }
}

/// A block of 8 rows and 16 bytes of k, as a register of a fragment has it. Returns 0, or the address
/// of what is not shared memory of this block.
VGPU_INLINE uint32_t fetch(const Warp& w, const MatrixDescriptor& d, int group, int block,
                           bool mn_major, uint32_t* to) {
  uint32_t line = d.at(static_cast<uint32_t>(group), static_cast<uint32_t>(block), mn_major);
  alignas(64) __m128i rows[8];
  for (uint32_t i = 0; i < 8; ++i, line += d.pitch) {
    uint32_t address = d.swizzled(line);
    if (address < kSharedBase || address + kLineBytes > w.shared_end) [[unlikely]]
      return address == 0 ? 1 : address;
    rows[i] = _mm_load_si128(reinterpret_cast<const __m128i*>(w.shared + address));
  }
  auto* out = reinterpret_cast<__m128i*>(to);
  if (mn_major) {
    transpose(rows, out);
  } else {
    for (int i = 0; i < 8; ++i) out[i] = rows[i];
  }
  return 0;
}

/// The descriptor in a register of 64 bits; false: its lanes differ.
VGPU_INLINE bool decode(std::byte* r, uint32_t place, MatrixDescriptor* to) {
  const auto* value = lanes<uint64_t>(r, place);
  uint64_t differ = 0;
  for (int i = 1; i < kLanes; ++i) differ |= value[i] ^ value[0];
  *to = MatrixDescriptor::decode(value[0]);
  return differ == 0;
}

/// operands: d..., d... (as sources), a (a descriptor or 4 registers), b (a descriptor), scale_d
template <int kParts, bool kExact, Accumulator kAccumulator>
const Step* wgmma(const Step* s, std::byte* r, Warp& w) {
  if (w.mask != kAllLanes) [[unlikely]]
    if (const Step * next; !whole_warp(s, w, &next)) return next;
  TensorForm form = TensorForm::unpack(s->immediate);
  constexpr int kOfTile = kAccumulator == Accumulator::kF16 ? 2 : 4;  // registers of 8 columns
  const int tiles = static_cast<int>(form.columns);
  const uint32_t* d = w.code->operands.data() + s->c;
  const uint32_t* a = d + 2 * kOfTile * tiles;
  const uint32_t* b = a + (form.a_in_registers != 0 ? 4 : 1);
  // A warpgroup reads each operand once: 64 or n rows of 32 bytes of k.
  if (w.counting && w.index % 4 == 0)
    count_shared_lines(w,
                       static_cast<uint64_t>((form.a_in_registers != 0 ? 0 : 64) + 8 * tiles) * 32);
  bool accumulate = (predicate(r, b[1]) & 1) != 0;

  TensorTile tile;
  alignas(64) uint32_t image[kLanes];
  uint32_t wrong = 0;
  if (form.a_in_registers != 0) {
    for (int i = 0; i < 4; ++i)
      put_a<kParts>(form.element_a(), lanes<uint32_t>(r, a[i]), i / 2, i % 2, 2, tile);
  } else {
    MatrixDescriptor from;
    if (!decode(r, a[0], &from))
      return fault(s, w, FaultKind::kIllegalInstruction, 0, 0,
                   "the descriptor of A differs between lanes");
    for (int i = 0; i < 4; ++i) {
      wrong = fetch(w, from, w.index % 4 * 2 + i % 2, i / 2, form.mn_major_a != 0, image);
      if (wrong != 0) [[unlikely]]
        return fault(s, w, FaultKind::kOutOfBounds, 0, wrong,
                     "wgmma reads A, which is not in shared memory");
      put_a<kParts>(form.element_a(), image, i / 2, i % 2, 2, tile);
    }
  }
  if (form.negate_a != form.negate_b)
    for (int i = 0; i < 2 * kParts * 2 * kLanes; ++i)
      tile.a[i] = bits<float>(bits<uint32_t>(tile.a[i]) ^ 0x80000000u);

  MatrixDescriptor from;
  if (!decode(r, b[0], &from))
    return fault(s, w, FaultKind::kIllegalInstruction, 0, 0,
                 "the descriptor of B differs between lanes");
  for (int t = 0; t < tiles; ++t, d += kOfTile) {
    for (int block = 0; block < 2; ++block) {
      wrong = fetch(w, from, t, block, form.mn_major_b != 0, image);
      if (wrong != 0) [[unlikely]]
        return fault(s, w, FaultKind::kOutOfBounds, 0, wrong,
                     "wgmma reads B, which is not in shared memory");
      put_b<kParts>(form.element_b(), image, block, tile);
    }
    if (accumulate) {
      get_accumulator<kAccumulator>(r, d, 2, tile);
    } else {
      for (float& sum : tile.acc) sum = 0;
    }
    multiply<kParts, kExact>(
        form, kAccumulator == Accumulator::kS32 ? Accumulation::kF32 : w.accumulation, tile);
    put_accumulator<kAccumulator>(r, d, accumulate ? d : nullptr, 2, form.saturate != 0, tile);
  }
  return s + 1;
}

template <int kParts, bool kExact>
Handler accumulators(const Form& form) {
  return static_cast<Accumulator>(form.mode) == Accumulator::kF32
             ? wgmma<kParts, kExact, Accumulator::kF32>
         : kExact ? wgmma<kParts, true, Accumulator::kF16>
                  : nullptr;
}

}  // namespace

Handler select_wgmma(const Form& form) {
  if (form.op != Op::kWgmma) return nullptr;
  switch (form.register_bytes) {
    case 1:
      return form.integral ? wgmma<4, true, Accumulator::kS32> : accumulators<4, true>(form);
    case 2:
      return form.nan ? accumulators<2, false>(form) : accumulators<2, true>(form);
    default:
      return accumulators<1, false>(form);
  }
}

}  // namespace tilewright::vgpu::VGPU_LEVEL
