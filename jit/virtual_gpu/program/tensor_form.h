/// What a tensor instruction (mma, wgmma) multiplies: packed into a step's immediate, unpacked by
/// its handler.
///
/// Fragments of every dense shape are made of the same pieces. PTX ISA, "Matrix Fragments for mma":
/// lane 4g + q of a register of 32 bits holds row g (of A; column g of B), and of its k those that
/// begin at q * (32 / bits of an element). So a register is a *block* of 8 rows and 16 bytes of k,
/// row by row. A has registers [k block][row half], B one per k block; the accumulator has
/// [row half][2], lane 4g + q holding row g, columns 2q and 2q + 1.
///
/// Handlers built for several instruction sets use this: nothing may be emitted out of line.
#pragma once

#include <cstdint>

namespace tilewright::vgpu {

enum class Element : std::uint8_t {
  kF16,
  kBF16,
  kTF32,
  kE4M3,
  kE5M2,
  kE2M1,  ///< bits 2 to 5 of a byte (.kind::f8f6f4)
  kE3M2,  ///< bits 0 to 5 of a byte
  kE2M3,
  kS8,
  kU8,
  kS4,
  kU4,
  kF64,
};
enum class Accumulator : std::uint8_t { kF32, kF16, kS32, kF64 };

[[gnu::always_inline]] constexpr int bits_of_element(Element element) {
  switch (element) {
    case Element::kF16:
    case Element::kBF16:
      return 16;
    case Element::kTF32:
      return 32;
    case Element::kS4:
    case Element::kU4:
      return 4;
    case Element::kF64:
      return 64;
    default:
      return 8;
  }
}
[[gnu::always_inline]] constexpr bool is_integer(Element element) {
  return element >= Element::kS8 && element <= Element::kU4;
}

/// How many elements a register of 32 bits holds.
[[gnu::always_inline]] constexpr int parts_of(Element element) {
  return 32 / bits_of_element(element);
}

struct TensorForm {
  std::uint32_t a : 4 = 0, b : 4 = 0;  ///< Element
  std::uint32_t d : 2 = 0;             ///< Accumulator
  std::uint32_t k_blocks : 3 = 1;      ///< registers of B of an mma: 1, 2; f64: up to 4
  std::uint32_t row_halves : 2 = 2;    ///< of 8 rows
  std::uint32_t columns : 6 = 1;       ///< in eights
  std::uint32_t saturate : 1 = 0;
  // wgmma
  std::uint32_t negate_a : 1 = 0, negate_b : 1 = 0;
  std::uint32_t mn_major_a : 1 = 0, mn_major_b : 1 = 0;
  std::uint32_t a_in_registers : 1 = 0;
  std::uint32_t unused : 4 = 0;

  [[gnu::always_inline]] Element element_a() const { return static_cast<Element>(a); }
  [[gnu::always_inline]] Element element_b() const { return static_cast<Element>(b); }
  [[gnu::always_inline]] Accumulator accumulator() const { return static_cast<Accumulator>(d); }
  /// Registers of the accumulator, of 32 bits (f64: of 64).
  [[gnu::always_inline]] int accumulator_registers() const {
    int pairs = static_cast<int>(row_halves * columns);
    return accumulator() == Accumulator::kF16 ? pairs : 2 * pairs;
  }
  [[gnu::always_inline]] int k() const {
    int block = element_a() == Element::kF64 ? 4 : 128 / bits_of_element(element_a());
    return block * static_cast<int>(k_blocks);
  }
  /// Multiplications and additions, of the part that a warp has of it.
  [[gnu::always_inline]] std::uint64_t operations() const {
    return std::uint64_t{2} * 8 * row_halves * 8 * columns * static_cast<std::uint64_t>(k());
  }

  [[gnu::always_inline]] std::int32_t pack() const {
    return __builtin_bit_cast(std::int32_t, *this);
  }
  [[gnu::always_inline]] static TensorForm unpack(std::int64_t packed) {
    return __builtin_bit_cast(TensorForm, static_cast<std::int32_t>(packed));
  }
};
static_assert(sizeof(TensorForm) == 4);

}  // namespace tilewright::vgpu
