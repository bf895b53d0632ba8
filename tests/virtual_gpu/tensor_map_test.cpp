// Tensor maps: the rules of cuTensorMapEncodeTiled, and the bytes that a box takes, against formulas
// written here.
#include "jit/virtual_gpu/tensor_map.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>

namespace tilewright::vgpu {
namespace {

constexpr std::uint8_t kUint8 = 0, kFloat32 = 7, kBfloat16 = 9;

TensorMap matrix(std::uint64_t columns, std::uint64_t rows, std::uint32_t box_columns,
                 std::uint32_t box_rows, TensorSwizzle swizzle = TensorSwizzle::kNone) {
  TensorMap map;
  map.data_type = kBfloat16;
  map.rank = 2;
  map.swizzle = swizzle;
  map.address = 0x900000001000;
  map.dimensions = {columns, rows, 1, 1, 1};
  map.strides = {(columns * 2 + 15) / 16 * 16};
  map.box = {box_columns, box_rows, 1, 1, 1};
  return map;
}

TEST(TensorMap, ComesBackAsItWasEncoded) {
  TensorMap map = matrix(1000, 1ull << 32, 64, 256, TensorSwizzle::k128);
  map.rank = 5;
  map.dimensions = {1000, 1ull << 32, 3, 4, 5};
  map.strides = {2000, 4000, 8000, (1ull << 40) - 16};
  map.box = {64, 256, 1, 2, 3};
  map.element_strides = {1, 2, 8, 1, 3};
  map.nan_fill = true;
  map.l2_promotion = 2;
  auto bytes = encode_tensor_map(map);
  ASSERT_TRUE(bytes) << bytes.error().message;
  auto back = decode_tensor_map(*bytes);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->data_type, map.data_type);
  EXPECT_EQ(back->rank, map.rank);
  EXPECT_EQ(back->swizzle, map.swizzle);
  EXPECT_EQ(back->l2_promotion, map.l2_promotion);
  EXPECT_EQ(back->nan_fill, map.nan_fill);
  EXPECT_EQ(back->address, map.address);
  EXPECT_EQ(back->dimensions, map.dimensions);
  EXPECT_EQ(back->strides, map.strides);
  EXPECT_EQ(back->box, map.box);
  EXPECT_EQ(back->element_strides, map.element_strides);
}

TEST(TensorMap, IsKnownFromOtherBytes) {
  auto bytes = *encode_tensor_map(matrix(64, 64, 64, 64));
  bytes[30] ^= std::byte{1};
  EXPECT_FALSE(decode_tensor_map(bytes));
  std::array<std::byte, kTensorMapBytes> zeros{};
  EXPECT_FALSE(decode_tensor_map(zeros));
}

TEST(TensorMap, FollowsTheDriversRules) {
  struct {
    const char* why;
    std::function<void(TensorMap&)> change;
    ErrorCode code = ErrorCode::kInvalidArgument;
  } cases[] = {
      {"rank is 0", [](TensorMap& m) { m.rank = 0; }},
      {"rank is 6", [](TensorMap& m) { m.rank = 6; }},
      {"data type 16 is unknown", [](TensorMap& m) { m.data_type = 16; }},
      {"padded in shared memory", [](TensorMap& m) { m.data_type = 14; }, ErrorCode::kUnsupported},
      {"interleaved", [](TensorMap& m) { m.interleave = 1; }, ErrorCode::kUnsupported},
      {"swizzle 7", [](TensorMap& m) { m.swizzle = static_cast<TensorSwizzle>(7); }},
      {"flips 8 bytes", [](TensorMap& m) { m.swizzle = TensorSwizzle::k128Atom32Flip8; },
       ErrorCode::kUnsupported},
      {"L2 promotion 4", [](TensorMap& m) { m.l2_promotion = 4; }},
      {"not 16-byte aligned", [](TensorMap& m) { m.address += 8; }},
      {"dimension 1 is 0", [](TensorMap& m) { m.dimensions[1] = 0; }},
      {"dimension 0 is 4294967297", [](TensorMap& m) { m.dimensions[0] = (1ull << 32) + 1; }},
      {"stride of dimension 1 is 1992 bytes", [](TensorMap& m) { m.strides[0] = 1992; }},
      {"stride of dimension 1", [](TensorMap& m) { m.strides[0] = 1ull << 40; }},
      {"box dimension 1 is 257", [](TensorMap& m) { m.box[1] = 257; }},
      {"box dimension 0 is 0", [](TensorMap& m) { m.box[0] = 0; }},
      {"the box is 72 bytes wide, expected a multiple of 16", [](TensorMap& m) { m.box[0] = 36; }},
      {"the box is 144 bytes wide, expected at most the swizzle's 128",
       [](TensorMap& m) { m.box[0] = 72; }},
      {"the box is 128 bytes wide, expected at most the swizzle's 32",
       [](TensorMap& m) { m.swizzle = TensorSwizzle::k32; }},
      {"element stride 1 is 9", [](TensorMap& m) { m.element_strides[1] = 9; }},
      {"integers cannot be filled with NaN",
       [](TensorMap& m) {
         m.data_type = kUint8;
         m.nan_fill = true;
       }},
  };
  for (const auto& t : cases) {
    TensorMap map = matrix(1000, 50, 64, 8, TensorSwizzle::k128);
    ASSERT_TRUE(encode_tensor_map(map));
    t.change(map);
    auto bytes = encode_tensor_map(map);
    ASSERT_FALSE(bytes) << t.why;
    EXPECT_NE(bytes.error().message.find(t.why), std::string::npos) << bytes.error().message;
    EXPECT_EQ(bytes.error().code, t.code) << t.why;
  }
}

/// Each byte of shared memory that the box takes: its place in global memory, or -1 outside.
std::map<std::uint32_t, std::int64_t> bytes_of(const TensorMap& map,
                                               const std::vector<std::int32_t>& coordinates,
                                               std::uint32_t shared) {
  std::vector<BoxChunk> chunks;
  walk_box(map, coordinates.data(), shared, chunks);
  std::map<std::uint32_t, std::int64_t> bytes;
  for (const BoxChunk& chunk : chunks)
    for (std::uint32_t i = 0; i < chunk.bytes; ++i) {
      EXPECT_FALSE(bytes.contains(chunk.shared + i)) << "written twice";
      bytes[chunk.shared + i] = chunk.outside ? -1 : static_cast<std::int64_t>(chunk.global + i);
    }
  return bytes;
}

TEST(TensorMap, ABoxIsSwizzledAndClipped) {
  for (int swizzle : {0, 32, 64, 128}) {
    for (std::vector<std::int32_t> at :
         {std::vector<std::int32_t>{8, 3}, {-3, -2}, {990, 45}, {2000, 0}}) {
      SCOPED_TRACE(std::to_string(swizzle) + " at " + std::to_string(at[0]));
      std::uint32_t width = swizzle == 0 ? 64 : static_cast<std::uint32_t>(swizzle) / 2;
      TensorMap map = matrix(1000, 50, width, 20,
                             swizzle == 0    ? TensorSwizzle::kNone
                             : swizzle == 32 ? TensorSwizzle::k32
                             : swizzle == 64 ? TensorSwizzle::k64
                                             : TensorSwizzle::k128);
      auto bytes = bytes_of(map, at, 2048);
      EXPECT_EQ(bytes.size(), map.box_bytes());
      EXPECT_EQ(map.box_bytes(), width * 20 * 2);
      for (std::uint32_t row = 0; row < 20; ++row) {
        for (std::uint32_t column = 0; column < width; ++column) {
          std::uint32_t chunk = column / 8;
          if (swizzle != 0) chunk ^= row % 8 * static_cast<std::uint32_t>(swizzle) / 128;
          std::uint32_t place = 2048 + row * width * 2 + chunk * 16 + column % 8 * 2;
          std::int64_t x = at[0] + static_cast<std::int64_t>(column);
          std::int64_t y = at[1] + static_cast<std::int64_t>(row);
          bool inside = x >= 0 && x < 1000 && y >= 0 && y < 50;
          std::int64_t want = inside ? 0x900000001000 + y * 2000 + x * 2 : -1;
          ASSERT_EQ(bytes.at(place), want) << row << ", " << column;
          ASSERT_EQ(bytes.at(place + 1), inside ? want + 1 : -1);
        }
      }
    }
  }
}

TEST(TensorMap, ABoxOfFiveDimensionsWithElementStrides) {
  TensorMap map;
  map.data_type = kFloat32;
  map.rank = 5;
  map.address = 0x900000000000;
  map.dimensions = {8, 5, 4, 3, 2};
  map.strides = {32, 160, 640, 1920};
  map.box = {4, 4, 2, 3, 2};
  map.element_strides = {1, 2, 1, 3, 1};
  std::vector<std::int32_t> at{6, 1, 3, 0, -1};
  auto bytes = bytes_of(map, at, 0);
  EXPECT_EQ(map.box_bytes(), 4u * 2 * 2 * 1 * 2 * 4);
  EXPECT_EQ(bytes.size(), map.box_bytes());
  std::uint32_t place = 0;
  for (int e = 0; e < 2; ++e)
    for (int c = 0; c < 2; ++c)
      for (int b = 0; b < 2; ++b)
        for (int a = 0; a < 4; ++a, place += 4) {
          int i[5] = {6 + a, 1 + 2 * b, 3 + c, 0, -1 + e};
          bool inside = i[0] < 8 && i[1] < 5 && i[2] < 4 && i[4] >= 0;
          std::int64_t want = 0x900000000000 + i[0] * 4 + i[1] * 32 + i[2] * 160 + i[4] * 1920;
          ASSERT_EQ(bytes.at(place), inside ? want : -1) << place;
        }
}

TEST(TensorMap, FillsWithNanWhereItIsAskedTo) {
  TensorMap map = matrix(64, 64, 64, 8);
  std::array<std::byte, 8> bytes;
  fill_outside(map, bytes);
  EXPECT_EQ(bytes[0], std::byte{0});
  map.nan_fill = true;
  fill_outside(map, bytes);
  EXPECT_EQ(bytes[1], std::byte{0x7f});
  EXPECT_EQ(bytes[2], std::byte{0xff});
}

}  // namespace
}  // namespace tilewright::vgpu
