// ldmatrix and stmatrix of elements of 8, 6 and 4 bits (sm_100a, sm_120a), against formulas: PTX ISA,
// "ldmatrix", "stmatrix", and CuTe's Copy_Traits of SM100_U8x8_LDSM_T, SM100_U8x4_STSM_T and
// SM100_SU4_DU8x16_x1_LDSM_N.
#include <cstdint>
#include <random>

#include "tests/virtual_gpu/warp_registers.h"

namespace tilewright::vgpu {
namespace {

/// 32 rows of 16 bytes in shared memory, row i at 16 p(i): lane i names row i. Input 0 to 3 of a lane
/// are its row.
std::string with_rows(const std::string& body) {
  return "mov.u32 %r3, rows; xor.b32 %r1, %r0, 5; shl.b32 %r2, %r1, 4; add.u32 %r3, %r3, %r2;\n"
         "st.shared.v4.b32 [%r3], {%i0, %i1, %i2, %i3};\nbar.warp.sync -1;\n" +
         body;
}
const std::string kRows = ".shared .align 128 .b8 rows[512];\n";

/// 32 rows of 16 bytes, as registers.
WarpRegisters random_rows() {
  std::mt19937 engine(5);
  WarpRegisters rows(4 * 32);
  for (auto& word : rows) word = engine();
  return rows;
}
/// Element i of a row, of so many bits, the lowest first.
std::uint32_t element(const WarpRegisters& rows, int row, int i, int bits) {
  std::uint32_t value = 0;
  for (int b = 0; b < bits; ++b) {
    int at = i * bits + b;
    std::uint32_t word = rows[static_cast<std::size_t>(at / 32 * 32 + row)];
    value |= (word >> (at % 32) & 1) << b;
  }
  return value;
}
std::uint32_t byte_of(const WarpRegisters& registers, int reg, int lane, int byte) {
  return registers[static_cast<std::size_t>(reg * 32 + lane)] >> (8 * byte) & 0xff;
}

TEST(ByteMatrix, LoadsRowsOfNarrowElementsWidenedToBytes) {
  const auto rows = random_rows();
  for (auto [format, bits] : {std::pair{"b6x16_p32", 6}, {"b4x16_p64", 4}})
    for (int count : {1, 2, 4}) {
      std::string text = "ldmatrix.sync.aligned.m8n16.x" + std::to_string(count) +
                         ".shared::cta.b8x16." + format + " " + register_list('o', 0, count) +
                         ", [%r3];";
      SCOPED_TRACE(text);
      auto got = run_warp(with_rows(text), rows, count, test_level(), 32, kRows);
      ASSERT_FALSE(got.empty());
      for (int m = 0; m < count; ++m)
        for (int lane = 0; lane < 32; ++lane)
          for (int byte = 0; byte < 4; ++byte)
            ASSERT_EQ(byte_of(got, m, lane, byte),
                      element(rows, 8 * m + lane / 4, lane % 4 * 4 + byte, bits));
    }
}

TEST(ByteMatrix, LoadsSixteenBySixteenTransposed) {
  const auto rows = random_rows();
  for (auto [type, bits] : {std::pair{"b8", 8}, {"b8x16.b6x16_p32", 6}, {"b8x16.b4x16_p64", 4}})
    for (int count : {1, 2}) {
      std::string text = "ldmatrix.sync.aligned.m16n16.x" + std::to_string(count) +
                         ".trans.shared." + type + " " + register_list('o', 0, 2 * count) +
                         ", [%r3];";
      SCOPED_TRACE(text);
      auto got = run_warp(with_rows(text), rows, 2 * count, test_level(), 32, kRows);
      ASSERT_FALSE(got.empty());
      // Transposed: lane 4g + q has rows g and g + 8, columns 4q to 4q + 3, which are rows in memory.
      for (int reg = 0; reg < 2 * count; ++reg)
        for (int lane = 0; lane < 32; ++lane)
          for (int byte = 0; byte < 4; ++byte)
            ASSERT_EQ(
                byte_of(got, reg, lane, byte),
                element(rows, reg / 2 * 16 + lane % 4 * 4 + byte, lane / 4 + reg % 2 * 8, bits));
    }
}

TEST(ByteMatrix, StoresSixteenByEightTransposed) {
  std::mt19937 engine(6);
  for (int count : {1, 2, 4}) {
    WarpRegisters in(static_cast<std::size_t>(count) * 32);
    for (auto& word : in) word = engine();
    std::string text =
        "mov.u32 %r3, rows; xor.b32 %r1, %r0, 5; shl.b32 %r2, %r1, 4; add.u32 %r3, %r3, %r2;\n"
        "stmatrix.sync.aligned.m16n8.x" +
        std::to_string(count) + ".trans.shared::cta.b8 [%r3], " + register_list('i', 0, count) +
        ";\nbar.warp.sync -1;\nld.shared.v4.b32 {%o0, %o1, %o2, %o3}, [%r3];";
    SCOPED_TRACE(text);
    auto got = run_warp(text, in, 4, test_level(), 32, kRows);
    ASSERT_FALSE(got.empty());
    // Lane 4g + q gives elements (g, 2q), (g, 2q + 1), (g + 8, 2q), (g + 8, 2q + 1); memory has
    // columns, 16 bytes each.
    for (int m = 0; m < count; ++m)
      for (int lane = 0; lane < 32; ++lane)
        for (int byte = 0; byte < 4; ++byte) {
          int row = lane / 4 + byte / 2 * 8, column = lane % 4 * 2 + byte % 2;
          ASSERT_EQ(byte_of(got, row / 4, 8 * m + column, row % 4), byte_of(in, m, lane, byte));
        }
  }
}

TEST(ByteMatrix, RefusesFormsThatPtxDoesNotHave) {
  for (const char* text :
       {"ldmatrix.sync.aligned.m16n16.x4.trans.shared.b8 {%r0,%r1,%r2,%r3},[%r4];",
        "ldmatrix.sync.aligned.m16n16.x1.shared.b8 {%r0,%r1},[%r4];",
        "ldmatrix.sync.aligned.m8n16.x1.shared.b8 {%r0},[%r4];",
        "stmatrix.sync.aligned.m16n8.x1.shared.b8 [%r4],{%r0};"}) {
    Machine machine(entry(text));
    ASSERT_FALSE(machine.ok()) << text;
    EXPECT_NE(machine.error().message.find("ptx line"), std::string::npos);
  }
}

}  // namespace
}  // namespace tilewright::vgpu
