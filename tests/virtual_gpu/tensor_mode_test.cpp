// cp.async.bulk.tensor in its other modes: im2col, gather4 and scatter4, packed elements of 4 bits,
// swizzles of larger atoms. PTX ISA, "Tensor Access Modes", "Im2col mode", "Swizzling modes".
#include <cstring>

#include "jit/virtual_gpu/tensor_map.h"
#include "tests/virtual_gpu/run_ptx.h"

namespace tilewright::vgpu {
namespace {

using Bytes = std::array<std::byte, kTensorMapBytes>;
using Words = std::vector<std::uint32_t>;

constexpr std::uint8_t kUint32 = 2, kPacked4 = 13;

/// Parameters: the map, a buffer at %d1. Thread 0 copies by `copy` (shared memory at %r3, mbarrier at
/// %r4); words of shared memory then go to the buffer (loads), or came from it (stores).
std::string program(const std::string& copy, int bytes, bool load) {
  std::string words =
      "shl.b32 %r5, %r0, 2; mov.u32 %r6, %r3; add.u32 %r6, %r6, %r5; cvt.u64.u32 %d2, %r5;\n"
      "add.u64 %d2, %d1, %d2;\n";
  words += load ? "COPY: ld.shared.b32 %r7, [%r6]; st.global.b32 [%d2], %r7;\n"
                : "COPY: ld.global.b32 %r7, [%d2]; st.shared.b32 [%r6], %r7;\n";
  words +=
      "add.u32 %r6, %r6, 128; add.u64 %d2, %d2, 128; add.u32 %r5, %r5, 128;\n"
      "setp.lt.u32 %p2, %r5, " +
      std::to_string(bytes) + "; @%p2 bra COPY;\n";
  std::string text =
      ".version 8.6\n.target sm_100a\n.address_size 64\n.visible .entry k(.param .align 64 .b8 "
      "p0[128], .param .u64 p1)\n{\n.reg .pred %p<4>;\n.reg .b16 %h<4>;\n.reg .b32 %r<16>;\n"
      ".reg .b64 %d<8>;\n.shared .align 1024 .b8 box[8192];\n.shared .align 8 .b64 bar;\n"
      "mov.b64 %d0, p0; cvta.param.u64 %d0, %d0; ld.param.u64 %d1, [p1];\n"
      "mov.u32 %r3, box; mov.u32 %r4, bar; mov.u32 %r0, %tid.x;\n";
  if (!load) text += words + "fence.proxy.async; bar.warp.sync -1;\n";
  text += "setp.ne.u32 %p0, %r0, 0; @%p0 bra WAIT;\n";
  if (load)
    text +=
        "mbarrier.init.shared::cta.b64 [%r4], 1;\n"
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], " +
        std::to_string(bytes) + ";\n" + copy + "\n";
  else
    text += copy + "\ncp.async.bulk.commit_group; cp.async.bulk.wait_group 0;\n";
  text += "WAIT: bar.warp.sync -1;\n";
  if (load)
    text +=
        "TRY: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r4], 0;\n@!%p1 bra TRY;\n" + words;
  return text + "ret;\n}\n";
}

/// Runs it on 32 threads with the tensor, and the buffer's words; gives both back.
struct Result {
  Words tensor, buffer;
};
Result run(const std::string& text, TensorMap map, const Words& tensor, const Words& buffer) {
  Machine machine(text);
  EXPECT_TRUE(machine.ok()) << machine.error().message;
  if (!machine.ok()) return {};
  map.address = machine.buffer(tensor);
  std::uint64_t out = machine.buffer(buffer);
  auto encoded = encode_tensor_map(map);
  EXPECT_TRUE(encoded) << encoded.error().message;
  if (!encoded) return {};
  Launch launch = machine.launch({1, 1, 1}, {32, 1, 1}, *encoded, out);
  launch.check = Check::kMemory;
  Outcome outcome = machine.run(launch);
  EXPECT_FALSE(outcome.fault) << outcome.fault->report;
  return {machine.read<std::uint32_t>(map.address, tensor.size()),
          machine.read<std::uint32_t>(out, buffer.size())};
}

Words counting(std::size_t count, std::uint32_t first = 0) {
  Words words(count);
  for (auto& word : words) word = first++;
  return words;
}

/// NHWC: 8 channels, 5 wide, 4 high, 2 images.
constexpr int kC = 8, kW = 5, kH = 4, kN = 2;
TensorMap images(int lower, int upper, int pixels, std::uint32_t step) {
  TensorMap map;
  map.data_type = kUint32;
  map.rank = 4;
  map.im2col = true;
  map.dimensions = {kC, kW, kH, kN, 1};
  map.strides = {kC * 4, kC * kW * 4, kC * kW * kH * 4};
  map.box = {4, static_cast<std::uint32_t>(pixels), 1, 1, 1};
  map.element_strides = {1, step, step, 1, 1};
  map.lower = {static_cast<std::int16_t>(lower), static_cast<std::int16_t>(lower)};
  map.upper = {static_cast<std::int16_t>(upper), static_cast<std::int16_t>(upper)};
  return map;
}

/// The pixels of a column: from (x, y, n) on through the bounding box, from `lower` to the size plus
/// `upper`, line by line, image by image; each moved by the offsets.
struct Pixel {
  int x, y, n;
};
std::vector<Pixel> column(Pixel at, int lower, int upper, int pixels, int step) {
  std::vector<Pixel> all;
  for (int i = 0; i < pixels; ++i) {
    all.push_back(at);
    at.x += step;
    if (at.x < kW + upper) continue;
    at.x = lower;
    at.y += step;
    if (at.y < kH + upper) continue;
    at.y = lower;
    ++at.n;
  }
  return all;
}
bool inside(const Pixel& p) { return p.x >= 0 && p.x < kW && p.y >= 0 && p.y < kH && p.n < kN; }

TEST(TensorMode, LoadsColumnsOfPixels) {
  // A filter of 3x3 with padding 1 (corners -1 and -1), without padding (0 and -2), with stride 2.
  struct {
    int lower, upper, step, offset_x, offset_y;
    Pixel start;
  } cases[] = {{-1, -1, 1, 0, 0, {-1, -1, 0}},
               {-1, -1, 1, 2, 1, {1, 2, 0}},
               {0, -2, 1, 1, 2, {0, 0, 0}},
               {-1, -1, 2, 1, 0, {-1, -1, 1}},
               {0, 0, 1, 0, 0, {3, 3, 1}}};
  for (const auto& t : cases) {
    const int pixels = 16;
    SCOPED_TRACE(std::to_string(t.lower) + ", " + std::to_string(t.upper));
    std::string copy =
        "cp.async.bulk.tensor.4d.shared::cluster.global.im2col."
        "mbarrier::complete_tx::bytes [%r3], [%d0, {4, " +
        std::to_string(t.start.x) + ", " + std::to_string(t.start.y) + ", " +
        std::to_string(t.start.n) + "}], [%r4], {" + std::to_string(t.offset_x) + ", " +
        std::to_string(t.offset_y) + "};";
    auto got = run(program(copy, pixels * 16, true),
                   images(t.lower, t.upper, pixels, static_cast<std::uint32_t>(t.step)),
                   counting(kC * kW * kH * kN, 1), Words(pixels * 4));
    auto places = column(t.start, t.lower, t.upper, pixels, t.step);
    for (int i = 0; i < pixels; ++i) {
      Pixel p = places[static_cast<std::size_t>(i)];
      p.x += t.offset_x;
      p.y += t.offset_y;
      for (int c = 0; c < 4; ++c) {
        int want = inside(p) ? ((p.n * kH + p.y) * kW + p.x) * kC + 4 + c + 1 : 0;
        ASSERT_EQ(got.buffer.at(static_cast<std::size_t>(i * 4 + c)),
                  static_cast<std::uint32_t>(want))
            << "pixel " << i;
      }
    }
  }
}

TEST(TensorMode, StoresColumnsOfPixels) {
  const int pixels = 16;
  auto got = run(program("cp.async.bulk.tensor.4d.global.shared::cta.im2col_no_offs.bulk_group "
                         "[%d0, {0, 2, 1, 1}], [%r3];",
                         pixels * 16, false),
                 images(0, 0, pixels, 1), Words(kC * kW * kH * kN, 7), counting(pixels * 4, 100));
  Words want(kC * kW * kH * kN, 7);
  int i = 0;
  for (const Pixel& p : column({2, 1, 1}, 0, 0, pixels, 1)) {
    for (int c = 0; c < 4 && inside(p); ++c)
      want[static_cast<std::size_t>(((p.n * kH + p.y) * kW + p.x) * kC + c)] =
          static_cast<std::uint32_t>(100 + i * 4 + c);
    ++i;
  }
  EXPECT_EQ(got.tensor, want);
}

TensorMap rows_map() {
  TensorMap map;
  map.data_type = kUint32;
  map.rank = 2;
  map.dimensions = {32, 40, 1, 1, 1};
  map.strides = {128};
  map.box = {8, 1, 1, 1, 1};
  return map;
}

TEST(TensorMode, GathersAndScattersFourRows) {
  const int rows[] = {3, 39, -1, 0};
  auto got =
      run(program("mov.b32 %r8, 39; cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4."
                  "mbarrier::complete_tx::bytes [%r3], [%d0, {4, 3, %r8, -1, 0}], [%r4];",
                  128, true),
          rows_map(), counting(32 * 40, 1), Words(32));
  for (std::size_t i = 0; i < 32; ++i) {
    int row = rows[i / 8];
    EXPECT_EQ(got.buffer.at(i), row < 0 ? 0 : static_cast<std::uint32_t>(row) * 32 + 4 + i % 8 + 1);
  }
  got = run(program("cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group "
                    "[%d0, {4, 3, 39, -1, 0}], [%r3];",
                    128, false),
            rows_map(), Words(32 * 40, 7), counting(32, 100));
  Words want(32 * 40, 7);
  for (std::size_t i = 0; i < 32; ++i)
    if (rows[i / 8] >= 0)
      want[static_cast<std::size_t>(rows[i / 8]) * 32 + 4 + i % 8] =
          static_cast<std::uint32_t>(100 + i);
  EXPECT_EQ(got.tensor, want);
}

TEST(TensorMode, LoadsPackedElementsOfFourBits) {
  TensorMap map;
  map.data_type = kPacked4;
  map.rank = 2;
  map.dimensions = {48, 5, 1, 1, 1};  // 24 bytes of a line of 32
  map.strides = {32};
  map.box = {32, 3, 1, 1, 1};
  auto got = run(program("cp.async.bulk.tensor.2d.shared::cta.global.tile."
                         "mbarrier::complete_tx::bytes [%r3], [%d0, {32, 3}], [%r4];",
                         48, true),
                 map, counting(8 * 5, 1), Words(32));
  // Line 3 from element 32 (byte 16) on: two words inside of the tensor, two not; line 5 is outside.
  Words want{8 * 3 + 4 + 1, 8 * 3 + 5 + 1, 0, 0, 8 * 4 + 4 + 1, 8 * 4 + 5 + 1, 0, 0, 0, 0, 0, 0};
  got.buffer.resize(12);
  EXPECT_EQ(got.buffer, want);
}

TEST(TensorMode, SwizzlesAtomsOf32And64Bytes) {
  // Rows of 128 bytes: address bits 7 and 8 go to bits 5 and 6, or bit 7 to bit 6.
  for (auto [swizzle, mask, shift] :
       {std::tuple{TensorSwizzle::k128Atom32, 3u, 5}, {TensorSwizzle::k128Atom64, 1u, 6}}) {
    TensorMap map = rows_map();
    map.box = {32, 8, 1, 1, 1};
    map.swizzle = swizzle;
    std::vector<BoxChunk> chunks;
    const std::int32_t at[] = {0, 0};
    walk_box(map, at, 1024, chunks);
    std::size_t bytes = 0;
    for (const BoxChunk& chunk : chunks) {
      auto linear = static_cast<std::uint32_t>(chunk.global - map.address);
      EXPECT_EQ(chunk.shared, 1024 + (linear ^ (linear >> 7 & mask) << shift));
      bytes += chunk.bytes;
    }
    EXPECT_EQ(bytes, 1024u);
  }
}

TEST(TensorMode, RefusesWhatMapsAndCopiesDoNotShare) {
  std::string text = program(
      "cp.async.bulk.tensor.4d.shared::cta.global.tile."
      "mbarrier::complete_tx::bytes [%r3], [%d0, {0, 0, 0, 0}], [%r4];",
      64, true);
  Machine machine(text);
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  auto encoded = encode_tensor_map(images(0, 0, 4, 1));
  ASSERT_TRUE(encoded) << encoded.error().message;
  Outcome outcome = machine.run({1, 1, 1}, {32, 1, 1}, *encoded, std::uint64_t{0});
  ASSERT_TRUE(outcome.fault);
  EXPECT_NE(outcome.fault->report.find("is of im2col, the copy is not"), std::string::npos);

  TensorMap map = images(-200, 0, 4, 1);
  EXPECT_NE(encode_tensor_map(map).error().message.find("corner 0 of the bounding box is -200"),
            std::string::npos);
  map = images(0, 0, 4, 1);
  map.interleave = 1;
  EXPECT_EQ(encode_tensor_map(map).error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace tilewright::vgpu
