// cp.async.bulk.tensor: boxes loaded, stored and reduced, against formulas;
// completion and faults.
#include <cmath>

#include "jit/virtual_gpu/tensor_map.h"
#include "tests/virtual_gpu/run_ptx.h"

namespace tilewright::vgpu {
namespace {

using Bytes = std::array<std::byte, kTensorMapBytes>;

constexpr std::uint8_t kFloat32 = 7;

/// A tensor of f32 of up to 5 dimensions, densely packed; element i is i.
TensorMap tensor(std::uint64_t address, std::vector<std::uint64_t> dimensions,
                 std::vector<std::uint32_t> box, TensorSwizzle swizzle = TensorSwizzle::kNone) {
  TensorMap map;
  map.data_type = kFloat32;
  map.rank = static_cast<std::uint8_t>(dimensions.size());
  map.address = address;
  map.swizzle = swizzle;
  std::uint64_t stride = 4;
  for (std::size_t d = 0; d < dimensions.size(); ++d) {
    map.dimensions[d] = dimensions[d];
    map.box[d] = box[d];
    if (d > 0) map.strides[d - 1] = stride;
    stride *= dimensions[d];
  }
  return map;
}

std::string module(const std::string& body) {
  return ".version 8.5\n.target sm_90\n.address_size 64\n.visible .entry "
         "k(.param .align 64 .b8 "
         "p0[128], .param .u64 p1, .param .u32 p2, .param .u32 p3)\n{\n"
         ".reg .pred %p<4>;\n.reg .b16 %h<4>;\n.reg .b32 %r<16>;\n.reg .b64 "
         "%d<8>;\n"
         ".shared .align 1024 .b8 box[16384];\n.shared .align 8 .b64 bar;\n"
         "mov.b64 %d0, p0; cvta.param.u64 %d0, %d0; ld.param.u64 %d1, [p1];\n"
         "ld.param.u32 %r1, [p2]; ld.param.u32 %r2, [p3]; mov.u32 %r3, box; "
         "mov.u32 %r4, bar;\n"
         "mov.u32 %r0, %tid.x;\n" +
         body + "ret;\n}\n";
}

/// Loads the box at (p2, p3, 0...) with an mbarrier, then copies `bytes` of
/// shared memory to p1.
std::string load_box(int rank, std::uint32_t bytes) {
  std::string at = "{%r1";
  if (rank > 1) at += ", %r2";
  for (int d = 2; d < rank; ++d) at += ", 0";
  return module(
      "setp.ne.u32 %p0, %r0, 0; @%p0 bra WAIT;\n"
      "mbarrier.init.shared::cta.b64 [%r4], "
      "1;\nfence.mbarrier_init.release.cluster;\n"
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], " +
      std::to_string(bytes) + ";\ncp.async.bulk.tensor." + std::to_string(rank) +
      "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r3], "
      "[%d0, " +
      at +
      "}], [%r4];\n"
      "WAIT: bar.sync 0;\n"
      "TRY: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r4], 0;\n@!%p1 bra "
      "TRY;\n"
      "shl.b32 %r5, %r0, 2; add.u32 %r6, %r3, %r5; cvt.u64.u32 %d2, %r5; "
      "add.u64 %d2, %d1, %d2;\n"
      "COPY: ld.shared.b32 %r7, [%r6]; st.global.b32 [%d2], %r7;\n"
      "add.u32 %r6, %r6, 128; add.u64 %d2, %d2, 128; add.u32 %r5, %r5, 128;\n"
      "setp.lt.u32 %p2, %r5, " +
      std::to_string(bytes) + "; @%p2 bra COPY;\n");
}

std::vector<float> counting(std::size_t count) {
  std::vector<float> v(count);
  for (std::size_t i = 0; i < count; ++i) v[i] = static_cast<float>(i);
  return v;
}

/// The tensor is encoded once its address is known.
struct Launcher {
  Machine machine;
  std::uint64_t data, out;
  Bytes map;
  explicit Launcher(const std::string& text, std::size_t elements)
      : machine(text),
        data(machine.buffer(counting(elements))),
        out(machine.buffer(std::vector<float>(4096, -1))) {
    EXPECT_TRUE(machine.ok()) << machine.error().message;
  }
  Outcome operator()(const TensorMap& of, int x, int y, unsigned threads = 32) {
    auto encoded = encode_tensor_map(of);
    EXPECT_TRUE(encoded) << encoded.error().message;
    map = *encoded;
    return machine.run({1, 1, 1}, {threads, 1, 1}, map, out, x, y);
  }
};

TEST(TensorCopy, LoadsBoxesSwizzledAndFilled) {
  for (int swizzle : {0, 1, 2, 3}) {
    for (bool nan : {false, true}) {
      for (auto [x, y] : {std::pair{0, 0}, {4, 3}, {-3, -2}, {60, 45}, {1000, 0}}) {
        SCOPED_TRACE(std::to_string(swizzle) + " at " + std::to_string(x));
        std::uint32_t width = swizzle == 0 ? 12 : 4u << swizzle, rows = 20;
        Launcher run(load_box(2, width * rows * 4), 64 * 50);
        TensorMap map =
            tensor(run.data, {64, 50}, {width, rows}, static_cast<TensorSwizzle>(swizzle));
        map.nan_fill = nan;
        Outcome outcome = run(map, x, y);
        ASSERT_FALSE(outcome.fault) << outcome.fault->report;
        auto got = run.machine.read<float>(run.out, width * rows);
        for (std::uint32_t i = 0; i < rows; ++i) {
          for (std::uint32_t j = 0; j < width; ++j) {
            std::uint32_t chunk = j / 4 ^ (swizzle == 0 ? 0 : i % 8 * (16u << swizzle) / 128);
            float value = got[i * width + chunk * 4 + j % 4];
            std::int64_t row = y + static_cast<std::int64_t>(i);
            std::int64_t column = x + static_cast<std::int64_t>(j);
            if (row >= 0 && row < 50 && column >= 0 && column < 64)
              ASSERT_EQ(value, static_cast<float>(row * 64 + column)) << i << ", " << j;
            else if (nan)
              ASSERT_TRUE(std::isnan(value)) << i << ", " << j;
            else
              ASSERT_EQ(value, 0) << i << ", " << j;
          }
        }
      }
    }
  }
}

TEST(TensorCopy, LoadsEveryRank) {
  std::vector<std::uint64_t> dimensions{8, 4, 3, 3, 2};
  std::vector<std::uint32_t> box{4, 2, 2, 3, 2};
  std::uint32_t count = 4;
  for (std::size_t rank = 1; rank <= 5; ++rank) {
    if (rank > 1) count *= box[rank - 1];
    Launcher run(load_box(static_cast<int>(rank), count * 4), 8 * 4 * 3 * 3 * 2);
    TensorMap map =
        tensor(run.data, {dimensions.begin(), dimensions.begin() + static_cast<int>(rank)},
               {box.begin(), box.begin() + static_cast<int>(rank)});
    Outcome outcome = run(map, 2, 1);
    ASSERT_FALSE(outcome.fault) << outcome.fault->report;
    EXPECT_EQ(outcome.counters.global_load_bytes, count * 4);
    auto got = run.machine.read<float>(run.out, count);
    for (std::uint32_t i = 0; i < count; ++i) {
      std::uint32_t rest = i, at = 0, stride = 1;
      for (std::size_t d = 0; d < rank; ++d) {
        std::uint32_t index = rest % box[d] + (d == 0 ? 2 : d == 1 ? 1 : 0);
        rest /= box[d];
        at += index * stride;
        stride *= static_cast<std::uint32_t>(dimensions[d]);
      }
      ASSERT_EQ(got[i], static_cast<float>(at)) << "rank " << rank << ", " << i;
    }
  }
}

/// Writes lane + 1000 into the box in shared memory (32 elements), then stores
/// it.
std::string store_box(const std::string& instruction) {
  return module(
      "shl.b32 %r5, %r0, 2; add.u32 %r6, %r3, %r5; add.u32 %r7, %r0, 1000; "
      "cvt.rn.f32.u32 %r7, %r7;\n"
      "st.shared.b32 [%r6], %r7; fence.proxy.async.shared::cta; bar.sync 0;\n"
      "setp.ne.u32 %p0, %r0, 0; @%p0 bra END;\n" +
      instruction +
      " [%d0, {%r1, %r2}], "
      "[%r3];\ncp.async.bulk.commit_group;\ncp.async.bulk.wait_group "
      "0;\nEND:\n");
}

TEST(TensorCopy, StoresAndReducesWhatIsInside) {
  struct {
    const char* instruction;
    float (*want)(float before, float stored);
  } cases[] = {
      {"cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group",
       [](float, float stored) { return stored; }},
      {"cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group",
       [](float before, float stored) { return before + stored; }},
  };
  for (const auto& t : cases) {
    for (auto [x, y] : {std::pair{4, 3}, {-2, 7}, {6, 8}}) {
      Launcher run(store_box(t.instruction), 8 * 10);
      Outcome outcome = run(tensor(run.data, {8, 10}, {4, 8}), x, y);
      ASSERT_FALSE(outcome.fault) << outcome.fault->report;
      auto got = run.machine.read<float>(run.data, 80);
      for (int i = 0; i < 10; ++i) {
        for (int j = 0; j < 8; ++j) {
          auto before = static_cast<float>(i * 8 + j);
          bool inside = i >= y && i < y + 8 && j >= x && j < x + 4;
          float want =
              inside ? t.want(before, static_cast<float>(1000 + (i - y) * 4 + j - x)) : before;
          ASSERT_EQ(got[static_cast<std::size_t>(i * 8 + j)], want) << i << ", " << j;
        }
      }
    }
  }
}

TEST(TensorCopy, MulticastReachesEveryBlockOfTheMask) {
  std::string text = module(
      "mov.u32 %r8, %cluster_ctarank;\nsetp.ne.u32 %p0, %r0, 0; @%p0 bra READY;\n"
      "mbarrier.init.shared::cta.b64 [%r4], 1;\nfence.mbarrier_init.release.cluster;\n"
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], 128;\n"
      "READY: barrier.cluster.arrive.release; barrier.cluster.wait.acquire;\n"
      "or.b32 %r9, %r0, %r8; setp.ne.u32 %p0, %r9, 0; @%p0 bra TRY;\nmov.b16 %h0, 3;\n"
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%r3], [%d0, {%r1, %r2}], [%r4], %h0;\n"
      "TRY: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r4], 0;\n@!%p1 bra TRY;\n"
      "shl.b32 %r5, %r0, 2; add.u32 %r6, %r3, %r5; ld.shared.b32 %r7, [%r6];\n"
      "shl.b32 %r8, %r8, 7; add.u32 %r5, %r5, %r8; cvt.u64.u32 %d2, %r5; add.u64 %d2, %d1, %d2;\n"
      "st.global.b32 [%d2], %r7;\n");
  text.replace(text.find(")\n{"), 3, ")\n.reqnctapercluster 2\n{");
  Launcher run(text, 80);
  Bytes map = *encode_tensor_map(tensor(run.data, {8, 10}, {4, 8}));
  Outcome outcome = run.machine.run({2, 1, 1}, {32, 1, 1}, map, run.out, 2, 1);
  ASSERT_FALSE(outcome.fault) << outcome.fault->report;
  auto got = run.machine.read<float>(run.out, 64);
  for (unsigned i = 0; i < 64; ++i)
    EXPECT_EQ(got[i], static_cast<float>((1 + i % 32 / 4) * 8 + 2 + i % 4)) << i;
}

TEST(TensorCopy, FaultsNameWhatIsWrong) {
  struct {
    const char* why;
    FaultKind kind;
    void (*change)(TensorMap&, Bytes&);
  } cases[] = {
      {"not a tensor map of this device", FaultKind::kIllegalInstruction,
       [](TensorMap&, Bytes& bytes) { bytes[20] ^= std::byte{1}; }},
      {"of another rank", FaultKind::kIllegalInstruction,
       [](TensorMap& map, Bytes& bytes) {
         map.rank = 3;
         bytes = *encode_tensor_map(map);
       }},
      {"tensor copy from global memory", FaultKind::kOutOfBounds,
       [](TensorMap& map, Bytes& bytes) {
         map.dimensions[1] = 5000;
         map.box[1] = 200;
         bytes = *encode_tensor_map(map);
       }},
  };
  for (const auto& t : cases) {
    Launcher run(load_box(2, 128), 8 * 10);
    TensorMap map = tensor(run.data, {8, 10}, {4, 8});
    Bytes bytes = *encode_tensor_map(map);
    t.change(map, bytes);
    Outcome outcome = run.machine.run({1, 1, 1}, {32, 1, 1}, bytes, run.out, 0, 0);
    ASSERT_TRUE(outcome.fault) << t.why;
    EXPECT_EQ(outcome.fault->kind, t.kind) << outcome.fault->report;
    EXPECT_NE(outcome.fault->report.find(t.why), std::string::npos) << outcome.fault->report;
  }
}

TEST(TensorCopy, WithTooFewBytesExpectedThePhaseDoesNotEnd) {
  std::string text = load_box(2, 128);
  std::size_t at = text.find("_, [%r4], 128");
  text.replace(at, 13, "_, [%r4], 256");
  Launcher run(text, 80);
  Outcome outcome = run(tensor(run.data, {8, 10}, {4, 8}), 0, 0);
  ASSERT_TRUE(outcome.fault);
}

}  // namespace
}  // namespace tilewright::vgpu
