// mma with a sparse A, with block scales, of single bits, m8n8k4 of f16: one element at a time, since
// they are rare.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "jit/virtual_gpu/execute/common/families.h"
#include "jit/virtual_gpu/execute/common/half_scalar.h"
#include "jit/virtual_gpu/execute/common/per_lane.h"
#include "jit/virtual_gpu/execute/tensor/accumulate.h"
#include "jit/virtual_gpu/execute/tensor/rare.h"
#include "jit/virtual_gpu/execute/tensor/tensor.h"

namespace tilewright::vgpu {
namespace {

constexpr int kMaxK = 256, kMaxTerms = 128;

/// A small float: exponent and mantissa below a sign.
float small_float(std::uint32_t bits, int exponent_bits, int mantissa_bits) {
  int exponent = static_cast<int>(bits >> mantissa_bits & ((1u << exponent_bits) - 1));
  auto mantissa = static_cast<float>(bits & ((1u << mantissa_bits) - 1));
  int bias = (1 << (exponent_bits - 1)) - 1;
  float one = exponent == 0 ? 0.0f : static_cast<float>(1 << mantissa_bits);
  float value = std::ldexp(one + mantissa, (exponent == 0 ? 1 : exponent) - bias - mantissa_bits);
  return (bits >> (exponent_bits + mantissa_bits) & 1) != 0 ? -value : value;
}

float canonical(float value) {
  return std::isnan(value) ? __builtin_bit_cast(float, 0x7fffffffu) : value;
}

/// D and C of one product: registers' places and how they are read and written.
struct Accumulators {
  std::byte* registers;
  const std::uint32_t* places;
  Accumulator type;

  /// Register and half of it that hold column parity `p` of row half `h`.
  std::uint32_t bits(int h, int p, int lane) const {
    if (type == Accumulator::kF16)
      return lanes<std::uint32_t>(registers, places[h])[lane] >> (16 * p) & 0xffff;
    return lanes<std::uint32_t>(registers, places[2 * h + p])[lane];
  }
  float value(int h, int p, int lane) const {
    std::uint32_t b = bits(h, p, lane);
    return type == Accumulator::kF16 ? scalar::widen<false>(static_cast<std::uint16_t>(b))
                                     : __builtin_bit_cast(float, b);
  }
};

int registers_of(Accumulator type, int halves) {
  return type == Accumulator::kF16 ? halves : 2 * halves;
}

/// Bits of a result: of f16 two to a register.
std::uint32_t result_bits(Accumulator type, float value) {
  return type == Accumulator::kF16 ? scalar::narrow<false>(value)
                                   : __builtin_bit_cast(std::uint32_t, canonical(value));
}

/// The elements of a row of A (of k' columns, stored) or a column of B: tensor_form.h has the layout.
struct Fragment {
  std::byte* registers;
  const std::uint32_t* places;
  Element element;
  int halves;  ///< of rows: 1 for B
  std::uint32_t bits(int row, int k) const {
    const int width = bits_of_rare(element), count = 32 / width;
    const int block = k / (4 * count), lane = row % 8 * 4 + k % (4 * count) / count;
    std::uint32_t word = lanes<std::uint32_t>(registers, places[block * halves + row / 8])[lane] >>
                         (k % count * width);
    return width == 32 ? word : word & ((1u << width) - 1);
  }
};

/// Scales of the rows of A or the columns of B along k.
struct Scales {
  std::byte* registers;
  const std::uint32_t* places;  ///< data, byte, thread
  bool e4m3;
  int count;
  int lane_of_row;  ///< lanes that follow each other hold rows 8 apart: of A
  double value(int row, int chunk) const {
    std::uint32_t byte = lanes<std::uint16_t>(registers, places[1])[0];
    std::uint32_t thread = lanes<std::uint16_t>(registers, places[2])[0];
    int lane = row % 8 * 4 + static_cast<int>(thread & 3) * lane_of_row + row / 8;
    std::uint32_t word = lanes<std::uint32_t>(registers, places[0])[lane & 31];
    return scale_value(e4m3, word >> (8 * ((byte + static_cast<std::uint32_t>(chunk)) & 3)) & 0xff);
  }
};

/// operands: d..., a..., b..., c..., {metadata}, {scales of A: data, byte, thread; of B}
const Step* fragments(const Step* s, std::byte* r, Warp& w) {
  if (const Step * next; w.mask != kAllLanes && !whole_warp(s, w, &next)) return next;
  const RareForm form = RareForm::unpack(s->immediate);
  const auto a_type = static_cast<Element>(form.a), b_type = static_cast<Element>(form.b);
  const auto d_type = static_cast<Accumulator>(form.d);
  const int halves = static_cast<int>(form.row_halves), k = form.k();
  const int stored = form.sparse != 0 ? k / 2 : k;
  const int blocks = k * bits_of_rare(a_type) / 128;
  const std::uint32_t* d = w.code->operands.data() + s->c;
  const std::uint32_t* a = d + registers_of(d_type, halves);
  const std::uint32_t* b = a + blocks * halves / (form.sparse != 0 ? 2 : 1);
  const std::uint32_t* c = b + blocks;
  const std::uint32_t* rest = c + registers_of(d_type, halves);
  const Fragment a_fragment{r, a, a_type, halves}, b_fragment{r, b, b_type, 1};
  const Accumulators addend{r, c, d_type};
  const bool integer = d_type == Accumulator::kS32, scaled = form.scales != 0;
  const std::uint32_t* scales = rest + form.sparse;
  const int chunk_k = scaled ? k / static_cast<int>(form.scales) : k;
  const Scales a_scales{r, scales, form.scale_e4m3 != 0, static_cast<int>(form.scales), 2};
  const Scales b_scales{r, scales + 3, form.scale_e4m3 != 0, static_cast<int>(form.scales), 1};

  static thread_local float b_values[8][kMaxK];
  for (int column = 0; column < 8; ++column)
    for (int i = 0; i < k; ++i)
      b_values[column][i] = rare_value(b_type, b_fragment.bits(column, i));
  std::uint32_t result[2][2][kLanes];
  for (int row = 0; row < 8 * halves; ++row) {
    float a_values[kMaxK];
    std::uint8_t columns[kMaxK];
    for (int i = 0; i < stored; ++i) {
      a_values[i] = rare_value(a_type, a_fragment.bits(row, i));
      columns[i] = static_cast<std::uint8_t>(i);
    }
    if (form.sparse != 0 &&
        !sparse_columns(a_type, k, static_cast<int>(form.selector), form.ordered != 0, row,
                        lanes<std::uint32_t>(r, rest[0]), columns))
      return fault(s, w, FaultKind::kIllegalInstruction, row % 8 * 4, 0,
                   "sparsity metadata that PTX leaves undefined");
    for (int column = 0; column < 8; ++column) {
      const int h = row / 8, p = column % 2, lane = row % 8 * 4 + column / 2;
      if (integer) {
        std::int64_t sum = 0;
        for (int i = 0; i < stored; ++i) {
          auto x = static_cast<std::int32_t>(a_values[i]);
          auto y = static_cast<std::int32_t>(b_values[column][columns[i]]);
          if (a_type == kElementB1)
            sum += form.conjunction != 0 ? x & y : x ^ y;
          else
            sum += x * y;
        }
        sum += static_cast<std::int32_t>(addend.bits(h, p, lane));
        if (form.saturate != 0) sum = std::clamp<std::int64_t>(sum, INT32_MIN, INT32_MAX);
        result[h][p][lane] = static_cast<std::uint32_t>(sum);
        continue;
      }
      double terms[kMaxTerms];
      for (int i = 0; i < stored; ++i) {
        const int at = columns[i];
        terms[i] = static_cast<double>(a_values[i]) * b_values[column][at];
        if (scaled)
          terms[i] *= a_scales.value(row, at / chunk_k) * b_scales.value(column, at / chunk_k);
      }
      float sum = accumulate(w.accumulation, kept_bits(bits_of_rare(a_type)), terms, stored,
                             addend.value(h, p, lane));
      result[h][p][lane] = result_bits(d_type, sum);
    }
  }
  for (int h = 0; h < halves; ++h)
    for (int i = 0; i < kLanes; ++i) {
      if (d_type == Accumulator::kF16) {
        lanes<std::uint32_t>(r, d[h])[i] = result[h][0][i] | result[h][1][i] << 16;
        continue;
      }
      for (int p = 0; p < 2; ++p) lanes<std::uint32_t>(r, d[2 * h + p])[i] = result[h][p][i];
    }
  return s + 1;
}

/// m8n8k4 of f16: lanes 4q to 4q + 3 and 16 more do product q. PTX ISA, "Matrix Fragments for
/// mma.m8n8k4 with .f16 floating point type". operands: d..., a (2), b (2), c...
const Step* quads(const Step* s, std::byte* r, Warp& w) {
  if (const Step * next; w.mask != kAllLanes && !whole_warp(s, w, &next)) return next;
  const RareForm form = RareForm::unpack(s->immediate);
  const auto c_type = static_cast<Accumulator>(form.c), d_type = static_cast<Accumulator>(form.d);
  const int d_count = d_type == Accumulator::kF16 ? 4 : 8;
  const std::uint32_t* d = w.code->operands.data() + s->c;
  const std::uint32_t *a = d + d_count, *b = a + 2, *c = b + 2;
  // Of element i of a lane of a fragment of 16-bit elements, two to a register.
  auto half = [&](const std::uint32_t* places, int lane, int i) {
    auto word = lanes<std::uint32_t>(r, places[i / 2])[lane];
    return scalar::widen<false>(static_cast<std::uint16_t>(word >> (16 * (i % 2))));
  };
  // The lane of quad pair q that holds row (column) x of A (B), or k, and which of its four elements.
  auto operand = [&](const std::uint32_t* places, int q, int x, int k, bool by_k) {
    int lane = 4 * q + (by_k ? k : x % 4) + x / 4 * 16;
    return half(places, lane, by_k ? x % 4 : k);
  };
  std::uint32_t result[8][kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    const int q = lane % 16 / 4, high = lane / 16;
    for (int i = 0; i < 8; ++i) {
      // Of 32 bits, the elements of a lane are of two rows; of 16 bits, of one. C may be of the other.
      bool wide = d_type == Accumulator::kF32;
      int row = (wide ? (lane & 1) + (i & 2) : lane % 4) + 4 * high;
      int column = wide ? (i & 4) + (lane & 2) + (i & 1) : i;
      float addend;
      if (c_type == Accumulator::kF32) {
        addend = lanes<float>(r, c[i])[lane];
      } else {
        addend = half(c, 4 * q + row % 4 + row / 4 * 16, column);
      }
      double terms[4];
      for (int k = 0; k < 4; ++k)
        terms[k] = static_cast<double>(operand(a, q, row, k, form.column_a != 0)) *
                   operand(b, q, column, k, form.row_b != 0);
      result[i][lane] =
          result_bits(d_type, accumulate(w.accumulation, kept_bits(16), terms, 4, addend));
    }
  }
  for (int lane = 0; lane < kLanes; ++lane)
    for (int i = 0; i < d_count; ++i)
      lanes<std::uint32_t>(r, d[i])[lane] =
          d_type == Accumulator::kF32 ? result[i][lane]
                                      : result[2 * i][lane] | result[2 * i + 1][lane] << 16;
  return s + 1;
}

}  // namespace

float rare_value(Element element, std::uint32_t bits) {
  switch (element) {
    case Element::kF16:
      return scalar::widen<false>(static_cast<std::uint16_t>(bits));
    case Element::kBF16:
      return scalar::widen<true>(static_cast<std::uint16_t>(bits));
    case Element::kTF32:
      return __builtin_bit_cast(float, bits & 0xffffe000u);
    case Element::kE4M3:
      return (bits & 0x7f) == 0x7f ? __builtin_nanf("") : small_float(bits, 4, 3);
    case Element::kE5M2:
      return scalar::widen<false>(static_cast<std::uint16_t>(bits << 8));
    case Element::kE3M2:
      return small_float(bits & 0x3f, 3, 2);
    case Element::kE2M3:
      return small_float(bits & 0x3f, 2, 3);
    case Element::kE2M1:
      return small_float(bits >> 2 & 0xf, 2, 1);
    case kElementE2M1Packed:
      return small_float(bits & 0xf, 2, 1);
    case Element::kS8:
      return static_cast<std::int8_t>(bits);
    case Element::kS4:
      return static_cast<float>(static_cast<std::int32_t>(bits << 28) >> 28);
    default:
      return static_cast<float>(bits);
  }
}

double scale_value(bool e4m3, std::uint32_t bits) {
  if (e4m3) return static_cast<double>(rare_value(Element::kE4M3, bits & 0x7f));
  return bits == 0xff ? __builtin_nan("") : std::ldexp(1.0, static_cast<int>(bits) - 127);
}

bool sparse_columns(Element element, int k, int selector, bool ordered, int row,
                    const std::uint32_t* words, std::uint8_t* columns) {
  const bool tf32 = element == Element::kTF32;
  const int width = bits_of_rare(element);
  const int chunk = tf32 ? 2 : width == 4 ? 8 : 4, chunks = k / chunk;
  const int group = row % 8 * 4, high = row / 8;
  for (int i = 0; i < chunks; ++i) {
    int lane, shift;
    if (width >= 16) {
      lane = group + (chunks > 4 ? 2 * selector + i / 4 : selector);
      shift = 16 * high + i % 4 * 4;
    } else {
      lane = group + high + (chunks > 8 ? i / 8 * 2 : 2 * selector);
      shift = i % 8 * 4;
    }
    const std::uint32_t nibble = words[lane] >> shift & 0xf;
    const int first = static_cast<int>(nibble & 3), second = static_cast<int>(nibble >> 2);
    if (first == second || (ordered && first > second)) return false;
    if (tf32) {
      if (nibble != 0x4 && nibble != 0xe) return false;
      columns[i] = static_cast<std::uint8_t>(chunk * i + first / 2);
    } else if (width == 4) {
      for (int p = 0; p < 2; ++p) {
        columns[4 * i + p] = static_cast<std::uint8_t>(chunk * i + 2 * first + p);
        columns[4 * i + 2 + p] = static_cast<std::uint8_t>(chunk * i + 2 * second + p);
      }
    } else {
      columns[2 * i] = static_cast<std::uint8_t>(chunk * i + first);
      columns[2 * i + 1] = static_cast<std::uint8_t>(chunk * i + second);
    }
  }
  return true;
}

Handler select_mma_rare(const Form& form) {
  if (form.op != Op::kMmaRare) return nullptr;
  return form.mode != 0 ? quads : fragments;
}

}  // namespace tilewright::vgpu
