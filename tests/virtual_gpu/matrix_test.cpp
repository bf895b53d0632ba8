// ldmatrix, stmatrix, movmatrix: fragments as the PTX ISA draws them. Lane 4g + q holds row g,
// columns 2q and 2q + 1; with .trans, of the transposed matrix.
#include "tests/virtual_gpu/run_ptx.h"

namespace tilewright::vgpu {
namespace {

std::string registers(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += (i > 0 ? ", %r" : "%r") + std::to_string(4 + i);
  return count == 1 ? "{" + text + "}" : "{" + text + "}";
}

/// Matrix m of the test: element (i, j) is m * 1000 + i * 10 + j.
std::uint16_t element(int m, int i, int j) {
  return static_cast<std::uint16_t>(m * 1000 + i * 10 + j);
}
std::uint32_t fragment(int m, int lane, bool transposed) {
  int row = lane / 4, column = lane % 4 * 2;
  std::uint32_t low = transposed ? element(m, column, row) : element(m, row, column);
  std::uint32_t high = transposed ? element(m, column + 1, row) : element(m, row, column + 1);
  return low | high << 16;
}

/// Rows of the matrices lie 48 bytes apart in shared memory, matrix after matrix: row r of matrix m
/// is row 8m + r. %r1 becomes the address that lane 8m + r names.
const char* kAddresses = R"(
    .shared .align 16 .b8 buffer[1536];
    ld.param.u64 %d0, [p0]; mov.u32 %r0, %tid.x;
    mov.u32 %r2, buffer; mul.lo.u32 %r3, %r0, 48; add.u32 %r1, %r2, %r3;
    mul.wide.u32 %d1, %r0, 4; add.u64 %d1, %d0, %d1;
)";

TEST(LoadMatrix, GivesLanesTheirPairsOfElements) {
  for (const Level* level : host_levels()) {
    for (int count : {1, 2, 4}) {
      for (bool transposed : {false, true}) {
        for (bool generic : {false, true}) {
          std::string body = kAddresses;
          // Each lane writes its row: 8 elements from global memory, at 128 + 16 lane.
          body +=
              "mul.wide.u32 %d2, %r0, 16; add.u64 %d2, %d0, %d2;\n"
              "ld.global.v4.b32 {%r4,%r5,%r6,%r7}, [%d2+512];\n"
              "st.shared.v4.b32 [%r1], {%r4,%r5,%r6,%r7};\nbar.sync 0;\n"
              "mov.u32 %r4, 0; mov.u32 %r5, 0; mov.u32 %r6, 0; mov.u32 %r7, 0;\n"
              "cvt.u64.u32 %d3, %r1; cvta.shared.u64 %d3, %d3;\n";
          body += "ldmatrix.sync.aligned.m8n8.x" + std::to_string(count) +
                  (transposed ? ".trans" : "") + (generic ? ".b16 " : ".shared.b16 ") +
                  registers(count) + (generic ? ", [%d3];\n" : ", [%r1];\n");
          for (int m = 0; m < 4; ++m)
            body += "st.global.b32 [%d1+" + std::to_string(128 * m) + "], %r" +
                    std::to_string(4 + m) + ";\n";
          SCOPED_TRACE(body);
          Machine machine(entry(body + "ret;"), *level);
          ASSERT_TRUE(machine.ok()) << machine.error().message;
          std::vector<std::uint16_t> data(256 + 256, 0);
          for (int m = 0; m < 4; ++m)
            for (int i = 0; i < 8; ++i)
              for (int j = 0; j < 8; ++j)
                data[static_cast<std::size_t>(256 + (8 * m + i) * 8 + j)] = element(m, i, j);
          std::uint64_t buffer = machine.buffer(data);
          Outcome outcome = machine.run({1, 1, 1}, {32, 1, 1}, buffer);
          ASSERT_FALSE(outcome.fault) << outcome.fault->report;
          auto got = machine.read<std::uint32_t>(buffer, 128);
          for (int m = 0; m < 4; ++m)
            for (int lane = 0; lane < 32; ++lane)
              ASSERT_EQ(got[static_cast<std::size_t>(32 * m + lane)],
                        m < count ? fragment(m, lane, transposed) : 0u)
                  << m << ", " << lane;
        }
      }
    }
  }
}

TEST(StoreMatrix, PutsPairsOfElementsWhereRowsBegin) {
  for (int count : {1, 2, 4}) {
    for (bool transposed : {false, true}) {
      std::string body = kAddresses;
      for (int m = 0; m < 4; ++m)
        body += "ld.global.b32 %r" + std::to_string(4 + m) + ", [%d1+" + std::to_string(128 * m) +
                "];\n";
      body += "mov.u32 %r8, 0; st.shared.v4.b32 [%r1], {%r8,%r8,%r8,%r8};\nbar.sync 0;\n";
      body += "stmatrix.sync.aligned.m8n8.x" + std::to_string(count) +
              (transposed ? ".trans" : "") + ".shared.b16 [%r1], " + registers(count) + ";\n";
      body +=
          "bar.sync 0;\nmul.wide.u32 %d2, %r0, 16; add.u64 %d2, %d0, %d2;\n"
          "ld.shared.v4.b32 {%r4,%r5,%r6,%r7}, [%r1];\n"
          "st.global.v4.b32 [%d2+512], {%r4,%r5,%r6,%r7};\nret;";
      SCOPED_TRACE(body);
      Machine machine(entry(body));
      ASSERT_TRUE(machine.ok()) << machine.error().message;
      std::vector<std::uint32_t> data(256, 0);
      for (int m = 0; m < 4; ++m)
        for (int lane = 0; lane < 32; ++lane)
          data[static_cast<std::size_t>(32 * m + lane)] = fragment(m, lane, transposed);
      std::uint64_t buffer = machine.buffer(data);
      Outcome outcome = machine.run({1, 1, 1}, {32, 1, 1}, buffer);
      ASSERT_FALSE(outcome.fault) << outcome.fault->report;
      auto got = machine.read<std::uint16_t>(buffer, 512);
      for (int m = 0; m < 4; ++m)
        for (int i = 0; i < 8; ++i)
          for (int j = 0; j < 8; ++j)
            ASSERT_EQ(got[static_cast<std::size_t>(256 + (8 * m + i) * 8 + j)],
                      m < count ? element(m, i, j) : 0)
                << m << ": " << i << ", " << j;
    }
  }
}

TEST(MoveMatrix, Transposes) {
  auto got = lane_results<std::uint32_t>(
      "ld.global.b32 %r1, [%d1];\nmul.lo.u32 %r2, %r0, 2; add.u32 %r3, %r2, 1;\n"
      "shl.b32 %r3, %r3, 16; or.b32 %r2, %r2, %r3;\n"  // element (g, j) is 8g + j
      "movmatrix.sync.aligned.m8n8.trans.b16 %r4, %r2;\nst.global.b32 [%d1], %r4;\nret;");
  for (unsigned lane = 0; lane < 32; ++lane) {
    unsigned row = lane / 4, column = lane % 4 * 2;
    EXPECT_EQ(got[lane], (8 * column + row) | (8 * (column + 1) + row) << 16) << lane;
  }
}

TEST(LoadMatrix, FaultsNameTheLaneAndTheAddress) {
  struct {
    const char* change;  ///< of %r1, in lane 5
    FaultKind kind;
  } cases[] = {{"add.u32 %r1, %r1, 8;", FaultKind::kMisaligned},
               {"add.u32 %r1, %r1, 4096;", FaultKind::kOutOfBounds}};
  for (const auto& t : cases) {
    for (const char* instruction : {"ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r4}, [%r1];",
                                    "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r1], {%r4};"}) {
      Machine machine(entry(std::string(kAddresses) + "setp.ne.u32 %p0, %r0, 5;\n@%p0 bra GO;\n" +
                            t.change + "\nGO:\n" + instruction + "\nret;"));
      ASSERT_TRUE(machine.ok()) << machine.error().message;
      std::uint64_t buffer = machine.buffer(std::vector<std::uint32_t>(256, 0));
      Outcome outcome = machine.run({1, 1, 1}, {32, 1, 1}, buffer);
      ASSERT_TRUE(outcome.fault);
      EXPECT_EQ(outcome.fault->kind, t.kind);
      EXPECT_EQ(outcome.fault->thread[0], 5u);
      EXPECT_NE(outcome.fault->report.find("16 bytes of shared memory"), std::string::npos)
          << outcome.fault->report;
    }
  }
}

TEST(LoadMatrix, LanesBeyondTheLastMatrixNeedNoAddress) {
  Machine machine(entry(std::string(kAddresses) +
                        "setp.lt.u32 %p0, %r0, 8;\n@%p0 bra GO;\nmov.u32 %r1, 1;\nGO:\n"
                        "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r4}, [%r1];\nret;"));
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  std::uint64_t buffer = machine.buffer(std::vector<std::uint32_t>(256, 0));
  Outcome outcome = machine.run({1, 1, 1}, {32, 1, 1}, buffer);
  EXPECT_FALSE(outcome.fault) << outcome.fault->report;
  EXPECT_EQ(outcome.counters.shared_requests, 1u);
}

}  // namespace
}  // namespace tilewright::vgpu
