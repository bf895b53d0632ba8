/// What a rare mma multiplies: packed into a step's immediate, unpacked by its handler.
///
/// Fragments are those of tensor_form.h. A sparse A has the fragments of a dense one of half its k.
/// Operands follow as d, a, b, c, then {metadata} of a sparse one, then {scale A, its byte, its
/// thread, scale B, its byte, its thread} of a scaled one.
#pragma once

#include <cstdint>

#include "jit/virtual_gpu/program/tensor_form.h"

namespace tilewright::vgpu {

/// Of Element's type, behind its last: bits, and 4-bit floats that are packed.
inline constexpr auto kElementB1 = static_cast<Element>(13);
inline constexpr auto kElementE2M1Packed = static_cast<Element>(14);

constexpr int bits_of_rare(Element element) {
  return element == kElementB1 ? 1 : element == kElementE2M1Packed ? 4 : bits_of_element(element);
}

/// ldmatrix and stmatrix of elements of 8, 6 and 4 bits: in Site::register_bytes.
enum class ByteMatrix : std::uint8_t {
  kTransposed,  ///< m16n16.trans
  kSixTransposed,
  kFourTransposed,
  kSix,  ///< m8n16
  kFour,
  kStore,  ///< m16n8.trans
};

struct RareForm {
  std::uint32_t a : 4 = 0, b : 4 = 0;  ///< Element
  std::uint32_t c : 2 = 0, d : 2 = 0;  ///< Accumulator
  std::uint32_t log_k : 4 = 0;
  std::uint32_t row_halves : 2 = 2;
  std::uint32_t sparse : 1 = 0, ordered : 1 = 0, selector : 2 = 0;
  std::uint32_t scales : 3 = 0;      ///< of a row of A along k: 0, 1, 2 or 4
  std::uint32_t scale_e4m3 : 1 = 0;  ///< else ue8m0
  std::uint32_t saturate : 1 = 0;
  std::uint32_t conjunction : 1 = 0;  ///< of bits: and, else exclusive or
  std::uint32_t quads : 1 = 0;        ///< m8n8k4: four products, of eight lanes each
  std::uint32_t column_a : 1 = 0, row_b : 1 = 0;

  constexpr int k() const { return 1 << log_k; }
  std::uint64_t operations() const {
    return std::uint64_t{2} * 8 * row_halves * 8 * static_cast<std::uint64_t>(k()) *
           (quads != 0 ? 4 : 1);
  }
  std::int32_t pack() const { return __builtin_bit_cast(std::int32_t, *this); }
  static RareForm unpack(std::int64_t packed) {
    return __builtin_bit_cast(RareForm, static_cast<std::int32_t>(packed));
  }
};
static_assert(sizeof(RareForm) == 4);

}  // namespace tilewright::vgpu
