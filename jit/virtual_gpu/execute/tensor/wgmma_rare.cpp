// wgmma.mma_async.sp, computed where it is issued, one element at a time. PTX ISA, "Asynchronous
// Warpgroup Level Multiply-and-Accumulate Operation using wgmma.mma_async.sp instruction".
#include <algorithm>
#include <cmath>
#include <cstring>

#include "jit/virtual_gpu/check/checker.h"
#include "jit/virtual_gpu/execute/common/families.h"
#include "jit/virtual_gpu/execute/common/half_scalar.h"
#include "jit/virtual_gpu/execute/common/per_lane.h"
#include "jit/virtual_gpu/execute/shared_count.h"
#include "jit/virtual_gpu/execute/tensor/accumulate.h"
#include "jit/virtual_gpu/execute/tensor/descriptor.h"
#include "jit/virtual_gpu/execute/tensor/rare.h"
#include "jit/virtual_gpu/execute/tensor/tensor.h"
#include "jit/virtual_gpu/execute/worker.h"

namespace tilewright::vgpu {
namespace {

constexpr int kMaxK = 64;

/// A matrix in shared memory that a warp reads element by element.
struct Source {
  Warp& warp;
  MatrixDescriptor descriptor;
  Element element;
  bool mn_major;
  std::uint32_t wrong = 0;  ///< an address that is not shared memory of the block, or 1
  std::vector<std::uint32_t> lines;

  /// Whether the 32 lanes agree on the descriptor.
  bool decode(std::byte* r, std::uint32_t place) {
    const auto* value = lanes<std::uint64_t>(r, place);
    descriptor = MatrixDescriptor::decode(value[0]);
    return std::all_of(value, value + kLanes, [&](std::uint64_t v) { return v == value[0]; });
  }
  /// Of row (of A; column of B) `row` and k.
  float at(int row, int k) {
    const int bytes = bits_of_rare(element) / 8, per_line = 16 / bytes;
    // K-major: a line is a row's k; MN-major: it is a k's rows.
    int line = mn_major ? k % per_line : row % 8, within = mn_major ? row % 8 : k % per_line;
    std::uint32_t address =
        descriptor.swizzled(descriptor.at(static_cast<std::uint32_t>(row / 8),
                                          static_cast<std::uint32_t>(k / per_line), mn_major) +
                            static_cast<std::uint32_t>(line) * descriptor.pitch);
    if (address < kSharedBase || address + kLineBytes > warp.shared_end) {
      wrong = std::max(address, 1u);
      return 0;
    }
    if (within == 0) lines.push_back(address);
    std::uint32_t bits = 0;
    std::memcpy(&bits, warp.shared + address + within * bytes, static_cast<std::size_t>(bytes));
    return rare_value(element, bits);
  }
};

/// operands: d..., d... (as sources), a (a descriptor or 4 registers), b (a descriptor), scale_d,
/// metadata, selector
const Step* sparse(const Step* s, std::byte* r, Warp& w) {
  if (const Step * next; w.mask != kAllLanes && !whole_warp(s, w, &next)) return next;
  const TensorForm form = TensorForm::unpack(s->immediate);
  const Element a_type = form.element_a(), b_type = form.element_b();
  const Accumulator type = form.accumulator();
  const int k = form.k(), width = bits_of_rare(a_type),
            columns = static_cast<int>(form.columns) * 8;
  const std::uint32_t* d = w.code->operands.data() + s->c;
  const std::uint32_t* a = d + 2 * form.accumulator_registers();
  const std::uint32_t* b = a + (form.a_in_registers != 0 ? 4 : 1);
  const bool accumulates = (predicate(r, b[1]) & 1) != 0;
  const auto* metadata = lanes<std::uint32_t>(r, b[2]);
  const auto selector = static_cast<int>(lanes<std::uint32_t>(r, b[3])[0]);
  auto refuse = [&](const char* why) {
    return fault(s, w, FaultKind::kIllegalInstruction, 0, 0, why);
  };

  float a_values[16][kMaxK / 2];
  Source source{w, {}, a_type, form.mn_major_a != 0, 0, {}};
  if (form.a_in_registers == 0 && !source.decode(r, a[0]))
    return refuse("the descriptor of A differs between lanes");
  for (int row = 0; row < 16; ++row) {
    for (int i = 0; i < k / 2; ++i) {
      if (form.a_in_registers == 0) {
        a_values[row][i] = source.at(w.index % 4 * 16 + row, i);
        continue;
      }
      const int count = 32 / width, block = i / (4 * count);
      std::uint32_t word =
          lanes<std::uint32_t>(r, a[block * 2 + row / 8])[row % 8 * 4 + i % (4 * count) / count];
      word >>= i % count * width;
      a_values[row][i] = rare_value(a_type, width == 32 ? word : word & ((1u << width) - 1));
    }
  }
  if (source.wrong != 0)
    return fault(s, w, FaultKind::kOutOfBounds, 0, source.wrong,
                 "wgmma reads A, which is not in shared memory");
  Source other{w, {}, b_type, form.mn_major_b != 0, 0, std::move(source.lines)};
  if (!other.decode(r, b[0])) return refuse("the descriptor of B differs between lanes");
  if (form.mn_major_b == 0 && other.descriptor.pitch == 32)
    return refuse("B of 64 bytes of k in a swizzle of 32 bytes: PTX does not say where it lies");
  std::vector<float> b_values(static_cast<std::size_t>(columns * k));
  for (int column = 0; column < columns; ++column)
    for (int i = 0; i < k; ++i)
      b_values[static_cast<std::size_t>(column * k + i)] = other.at(column, i);
  if (other.wrong != 0)
    return fault(s, w, FaultKind::kOutOfBounds, 0, other.wrong,
                 "wgmma reads B, which is not in shared memory");
  if (w.counting && w.index % 4 == 0)
    count_shared_lines(
        w, static_cast<std::uint64_t>((columns * k + (form.a_in_registers == 0 ? 64 * k / 2 : 0)) *
                                      width / 8));
  if (Checker* checker = w.worker->context.checker)
    checker->tensor_read(s, w, other.lines, kLineBytes);

  const bool negative = form.negate_a != form.negate_b;
  for (int row = 0; row < 16; ++row) {
    std::uint8_t at[kMaxK / 2];
    if (!sparse_columns(a_type, k, selector, false, row, metadata, at))
      return refuse("sparsity metadata that PTX leaves undefined");
    for (int column = 0; column < columns; ++column) {
      const int lane = row % 8 * 4 + column % 8 / 2, pair = column / 8 * 2 + row / 8;
      const float* b_column = &b_values[static_cast<std::size_t>(column * k)];
      if (type == Accumulator::kS32) {
        auto& sum = lanes<std::int32_t>(r, d[2 * pair + column % 2])[lane];
        std::int64_t total = accumulates ? sum : 0;
        for (int i = 0; i < k / 2; ++i)
          total += static_cast<std::int64_t>(a_values[row][i]) *
                   static_cast<std::int64_t>(b_column[at[i]]);
        if (form.saturate != 0) total = std::clamp<std::int64_t>(total, INT32_MIN, INT32_MAX);
        sum = static_cast<std::int32_t>(total);
        continue;
      }
      double terms[kMaxK / 2];
      for (int i = 0; i < k / 2; ++i) {
        terms[i] = static_cast<double>(a_values[row][i]) * b_column[at[i]];
        if (negative) terms[i] = -terms[i];
      }
      auto sum = [&](float addend) {
        return accumulate(w.accumulation, kept_bits(width), terms, k / 2,
                          accumulates ? addend : 0.0f);
      };
      if (type == Accumulator::kF16) {
        auto* half =
            reinterpret_cast<std::uint16_t*>(lanes<std::uint32_t>(r, d[pair]) + lane) + column % 2;
        *half = scalar::narrow<false>(sum(scalar::widen<false>(*half)));
      } else {
        auto& value = lanes<float>(r, d[2 * pair + column % 2])[lane];
        value = sum(value);
        if (std::isnan(value)) value = __builtin_bit_cast(float, 0x7fffffffu);
      }
    }
  }
  return s + 1;
}

}  // namespace

Handler select_wgmma_rare(const Form& form) { return form.op == Op::kWgmmaRare ? sparse : nullptr; }

}  // namespace tilewright::vgpu
