// Tensor maps made by a kernel: tensormap.replace on zeros and on maps of the driver, in global and in
// shared memory; tensormap.cp_fenceproxy. PTX ISA, "tensormap.replace": the values of fields.
#include <array>
#include <cstring>

#include "jit/virtual_gpu/tensor_map.h"
#include "tests/virtual_gpu/run_ptx.h"

namespace tilewright::vgpu {
namespace {

using Bytes = std::array<std::byte, kTensorMapBytes>;

Bytes bytes_of(const std::vector<std::byte>& from) {
  Bytes bytes;
  std::memcpy(bytes.data(), from.data(), bytes.size());
  return bytes;
}

/// Fields of a map of two dimensions, of `space`, at register `at`.
std::string replacements(const std::string& space, const std::string& at) {
  std::string text;
  auto add = [&](const std::string& field, const std::string& type, const std::string& value) {
    text += "tensormap.replace.tile." + field + space + ".b1024." + type + " [" + at + "], " +
            value + ";\n";
  };
  add("global_address", "b64", "%d5");
  add("rank", "b32", "1");
  add("box_dim", "b32", "0, %r5");
  add("box_dim", "b32", "1, 8");
  add("global_dim", "b32", "0, 64");
  add("global_dim", "b32", "1, 50");
  add("global_stride", "b64", "0, %d6");
  add("element_stride", "b32", "0, 1");
  add("element_stride", "b32", "1, 2");
  add("elemtype", "b32", "7");
  add("interleave_layout", "b32", "0");
  add("swizzle_mode", "b32", "2");
  add("fill_mode", "b32", "1");
  return text;
}
const std::string kValues =
    "ld.param.u64 %d0, [p0]; ld.param.u64 %d5, [p1]; mov.b64 %d6, 256; mov.b32 %r5, 16;\n"
    "mov.u32 %r0, %tid.x;\n";

TensorMap expected(std::uint64_t address) {
  TensorMap map;
  map.data_type = 7;  // CU_TENSOR_MAP_DATA_TYPE_FLOAT32
  map.rank = 2;
  map.address = address;
  map.swizzle = TensorSwizzle::k64;
  map.nan_fill = true;
  map.dimensions = {64, 50, 1, 1, 1};
  map.strides = {256};
  map.box = {16, 8, 1, 1, 1};
  map.element_strides = {1, 2, 1, 1, 1};
  return map;
}

void expect_same(const TensorMap& a, const TensorMap& b) {
  EXPECT_EQ(a.data_type, b.data_type);
  EXPECT_EQ(a.rank, b.rank);
  EXPECT_EQ(a.swizzle, b.swizzle);
  EXPECT_EQ(a.nan_fill, b.nan_fill);
  EXPECT_EQ(a.address, b.address);
  for (std::size_t d = 0; d < a.rank; ++d) {
    EXPECT_EQ(a.dimensions[d], b.dimensions[d]);
    EXPECT_EQ(a.box[d], b.box[d]);
    EXPECT_EQ(a.element_strides[d], b.element_strides[d]);
    if (d > 0) {
      EXPECT_EQ(a.strides[d - 1], b.strides[d - 1]);
    }
  }
}

TEST(TensorMapEdit, MakesAMapOfZerosInGlobalMemory) {
  for (const char* space : {".global", ""}) {
    Machine machine(entry(
        kValues + "setp.ne.u32 %p0, %r0, 0; @%p0 ret;\n" + replacements(space, "%d0") + "ret;", 2));
    ASSERT_TRUE(machine.ok()) << machine.error().message;
    std::uint64_t out = machine.buffer(std::vector<std::byte>(128));
    Outcome outcome = machine.run({1, 1, 1}, {32, 1, 1}, out, std::uint64_t{0x20000});
    ASSERT_FALSE(outcome.fault) << outcome.fault->report;
    auto map = decode_tensor_map(bytes_of(machine.read<std::byte>(out, 128)));
    ASSERT_TRUE(map) << map.error().message;
    expect_same(*map, expected(0x20000));
  }
}

TEST(TensorMapEdit, CopiesAMapFromSharedMemoryByAWarp) {
  std::string text =
      kValues +
      "mov.u32 %r3, map; shl.b32 %r2, %r0, 2; add.u32 %r4, %r3, %r2; st.shared.b32 [%r4], 0;\n"
      "bar.warp.sync -1; setp.ne.u32 %p0, %r0, 0; @%p0 bra COPY;\n" +
      replacements(".shared::cta", "%r3") +
      "COPY: bar.warp.sync -1;\n"
      "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned "
      "[%d0], [%r3], 128;\n"
      "fence.proxy.tensormap::generic.acquire.gpu [%d0], 128;\nret;";
  for (Check check : {Check::kOff, Check::kFull}) {
    Machine machine(entry(text, 2, ".shared .align 128 .b8 map[128];"));
    ASSERT_TRUE(machine.ok()) << machine.error().message;
    std::uint64_t out = machine.buffer(std::vector<std::byte>(128, std::byte{1}));
    Launch launch = machine.launch({1, 1, 1}, {32, 1, 1}, out, std::uint64_t{0x20000});
    launch.check = check;
    Outcome outcome = machine.run(launch);
    ASSERT_FALSE(outcome.fault) << outcome.fault->report;
    EXPECT_TRUE(outcome.reports.empty()) << outcome.reports[0].text;
    auto map = decode_tensor_map(bytes_of(machine.read<std::byte>(out, 128)));
    ASSERT_TRUE(map) << map.error().message;
    expect_same(*map, expected(0x20000));
  }
}

TEST(TensorMapEdit, ChangesOneFieldOfAMapOfTheDriver) {
  Machine machine(
      entry(kValues + "setp.ne.u32 %p0, %r0, 0; @%p0 ret;\n"
                      "tensormap.replace.tile.global_address.global.b1024.b64 [%d0], %d5; ret;",
            2));
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  auto encoded = encode_tensor_map(expected(0x40000));
  ASSERT_TRUE(encoded) << encoded.error().message;
  std::uint64_t out = machine.buffer(std::vector<std::byte>(encoded->begin(), encoded->end()));
  Outcome outcome = machine.run({1, 1, 1}, {32, 1, 1}, out, std::uint64_t{0x20000});
  ASSERT_FALSE(outcome.fault) << outcome.fault->report;
  auto map = decode_tensor_map(bytes_of(machine.read<std::byte>(out, 128)));
  ASSERT_TRUE(map) << map.error().message;
  expect_same(*map, expected(0x20000));
}

TEST(TensorMapEdit, NumbersElementTypesAsPtxDoes) {
  // .u8 .u16 .u32 .s32 .u64 .s64 .f16 .f32 .f32.ftz .f64 .bf16 .tf32 .tf32.ftz .b4x16, as
  // CUtensorMapDataType has them.
  const std::uint8_t want[] = {0, 1, 2, 3, 4, 5, 6, 7, 10, 8, 9, 11, 12, 13};
  for (std::size_t i = 0; i < std::size(want); ++i) {
    TensorMap map = expected(0x20000);
    map.nan_fill = false;
    map.swizzle = TensorSwizzle::kNone;
    map.box[0] = 32;
    auto bytes = encode_tensor_map(map);
    ASSERT_TRUE(bytes);
    ASSERT_TRUE(replace_field(*bytes, TensorMapField::kElementType, 0, i));
    auto changed = decode_tensor_map(*bytes);
    ASSERT_TRUE(changed) << i << ": " << changed.error().message;
    EXPECT_EQ(changed->data_type, want[i]);
  }
}

TEST(TensorMapEdit, RefusesWhatIsNoMapAndFieldsThatCannotBe) {
  Bytes bytes;
  bytes.fill(std::byte{3});
  auto done = replace_field(bytes, TensorMapField::kRank, 0, 1);
  ASSERT_FALSE(done);
  EXPECT_NE(done.error().message.find("neither a tensor map"), std::string::npos);
  bytes.fill(std::byte{});
  EXPECT_FALSE(replace_field(bytes, TensorMapField::kRank, 0, 5));
  EXPECT_FALSE(replace_field(bytes, TensorMapField::kSwizzle, 0, 4));
  EXPECT_FALSE(replace_field(bytes, TensorMapField::kGlobalStride, 4, 16));
  // Zeros with a rank only: there is no box.
  ASSERT_TRUE(replace_field(bytes, TensorMapField::kRank, 0, 1));
  auto map = decode_tensor_map(bytes);
  ASSERT_FALSE(map);
  EXPECT_NE(map.error().message.find("box dimension 0 is 0"), std::string::npos)
      << map.error().message;
}

}  // namespace
}  // namespace tilewright::vgpu
