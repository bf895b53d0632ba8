// Counters of what is not a plain load or store, each against a formula that stands beside it. A
// wavefront is 128 bytes of shared memory; of a request of 16 bytes per lane, eight lanes make one
// where they touch different banks.
#include "jit/virtual_gpu/tensor_map.h"
#include "tests/virtual_gpu/run_ptx.h"

namespace tilewright::vgpu {
namespace {

/// What `body` counts with one block of `threads`. %r0 is the thread, %r1 the address of 32 KiB of
/// shared memory, %r2 an mbarrier, %d0 the address of 64 KiB of global memory.
Counters counted(const std::string& body, unsigned threads = 32, unsigned cluster = 1) {
  Machine machine(
      entry(".shared .align 1024 .b8 buffer[32768];\n.shared .align 8 .b64 bar;\n"
            "ld.param.u64 %d0, [p0]; mov.u32 %r0, %tid.x;\n"
            "mov.u32 %r1, buffer; mov.u32 %r2, bar;\n" +
                body + "\nret;",
            1, "", cluster > 1 ? ".reqnctapercluster " + std::to_string(cluster) + ", 1, 1" : ""));
  EXPECT_TRUE(machine.ok()) << machine.error().message;
  if (!machine.ok()) return {};
  const auto data = machine.buffer(std::vector<float>(16384, 1));
  const Outcome outcome = machine.run({cluster, 1, 1}, {threads, 1, 1}, data);
  EXPECT_FALSE(outcome.fault) << outcome.fault->report;
  return outcome.counters;
}

TEST(Counters, AColumnOfRowsOf128BytesHas31Conflicts) {
  const Counters c =
      counted("shl.b32 %r3, %r0, 7; add.u32 %r3, %r1, %r3; ld.shared.b32 %r4, [%r3];");
  EXPECT_EQ(c.shared_wavefronts, 32u);
  EXPECT_EQ(c.shared_conflicts, 31u);
}

TEST(Counters, MatricesOfRowsTakeAWavefrontEachOrOneForEveryRowOfABankGroup) {
  // Lane i names row i. Rows that are `pitch` apart: a matrix of eight takes one wavefront where
  // they lie in different groups of 16 bytes of the 128, and eight where all lie in the same.
  struct {
    int pitch, matrices;
    std::uint64_t wavefronts, conflicts;
  } cases[] = {{16, 1, 1, 0},    {16, 2, 2, 0},    {16, 4, 4, 0},  {128, 1, 8, 7},
               {128, 2, 16, 14}, {128, 4, 32, 28}, {144, 4, 4, 0}, {64, 4, 16, 12}};
  for (const auto& t : cases)
    for (const bool store : {false, true}) {
      SCOPED_TRACE(std::to_string(t.matrices) + " matrices, pitch " + std::to_string(t.pitch));
      const std::string at = "mad.lo.u32 %r3, %r0, " + std::to_string(t.pitch) + ", %r1;\n";
      const char* registers = t.matrices == 1   ? "{%r4}"
                              : t.matrices == 2 ? "{%r4, %r5}"
                                                : "{%r4, %r5, %r6, %r7}";
      const std::string shape = "m8n8.x" + std::to_string(t.matrices) + ".shared.b16 ";
      const Counters c =
          counted(at +
                  (store ? "stmatrix.sync.aligned." + shape + "[%r3], " + registers
                         : "ldmatrix.sync.aligned." + shape + registers + std::string(", [%r3]")) +
                  ";");
      EXPECT_EQ(c.shared_requests, 1u);
      EXPECT_EQ(c.shared_wavefronts, t.wavefronts);
      EXPECT_EQ(c.shared_conflicts, t.conflicts);
    }
}

TEST(Counters, ASwizzleOf128BytesHasNoConflicts) {
  // Chunk c of row r lies at 128 r + 16 (c ^ (r % 8)): a column of chunks, read by ldmatrix.
  for (int chunk = 0; chunk < 8; ++chunk) {
    const Counters c =
        counted("and.b32 %r3, %r0, 7; xor.b32 %r3, %r3, " + std::to_string(chunk) +
                "; shl.b32 %r3, %r3, 4; shl.b32 %r4, %r0, 7; add.u32 %r3, %r3, %r4;"
                "add.u32 %r3, %r3, %r1;\n"
                "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r4, %r5, %r6, %r7}, [%r3];");
    EXPECT_EQ(c.shared_wavefronts, 4u) << chunk;
    EXPECT_EQ(c.shared_conflicts, 0u) << chunk;
  }
}

TEST(Counters, AsynchronousCopiesCountWhatTheyReadAndTheBanksThatTheyWrite) {
  // 32 lanes of 16 bytes: 512 bytes are 16 sectors, and 4 wavefronts where targets are dense; where
  // they are 128 bytes apart all lanes are on the same banks.
  for (const bool column : {false, true}) {
    const Counters c = counted(
        "shl.b32 %r3, %r0, 4; cvt.u64.u32 %d1, %r3; add.u64 %d1, %d0, %d1;\n"
        "shl.b32 %r4, %r0, " +
        std::string(column ? "7" : "4") +
        "; add.u32 %r4, %r4, %r1;\n"
        "cp.async.cg.shared.global [%r4], [%d1], 16;\n"
        "cp.async.commit_group; cp.async.wait_group 0;");
    EXPECT_EQ(c.global_loads, 1u);
    EXPECT_EQ(c.global_load_bytes, 512u);
    EXPECT_EQ(c.global_load_sectors, 16u);
    EXPECT_EQ(c.shared_requests, 0u);
    EXPECT_EQ(c.shared_wavefronts, column ? 32u : 4u);
    EXPECT_EQ(c.shared_conflicts, column ? 28u : 0u);
  }
}

TEST(Counters, AnAsynchronousCopyOfFewerBytesCountsThese) {
  // Lanes below 8 read nothing, the others 4 of their 16 bytes: 96 bytes, in the last 12 of the 16
  // sectors; all 512 bytes of shared memory are written.
  const Counters c = counted(
      "shl.b32 %r3, %r0, 4; cvt.u64.u32 %d1, %r3; add.u64 %d1, %d0, %d1; add.u32 %r4, %r1, %r3;\n"
      "setp.lt.u32 %p0, %r0, 8; selp.b32 %r5, 0, 4, %p0;\n"
      "cp.async.cg.shared.global [%r4], [%d1], 16, %r5;\n"
      "cp.async.commit_group; cp.async.wait_group 0;");
  EXPECT_EQ(c.global_load_bytes, 24u * 4);
  EXPECT_EQ(c.global_load_sectors, 12u);
  EXPECT_EQ(c.shared_wavefronts, 4u);
}

/// Thread 0 initialises the mbarrier, expects bytes and runs `copy`; all wait for the phase.
std::string with_mbarrier(const std::string& copy, int bytes) {
  return "setp.ne.u32 %p0, %r0, 0; @%p0 bra WAIT;\n"
         "mbarrier.init.shared::cta.b64 [%r2], 1; fence.mbarrier_init.release.cluster;\n"
         "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], " +
         std::to_string(bytes) + ";\n" + copy +
         "\nWAIT: bar.sync 0;\nTRY: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r2], 0;\n"
         "@!%p1 bra TRY;\n";
}

TEST(Counters, ABulkCopyMovesItsBytesThroughTheL2AndSharedMemory) {
  // 4096 bytes are 128 sectors and 32 wavefronts, in each direction.
  const Counters load =
      counted(with_mbarrier("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                            "[%r1], [%d0], 4096, [%r2];",
                            4096));
  EXPECT_EQ(load.global_loads, 1u);
  EXPECT_EQ(load.global_load_bytes, 4096u);
  EXPECT_EQ(load.global_load_sectors, 4096u / 32);
  EXPECT_EQ(load.distinct_load_sectors, 4096u / 32);
  EXPECT_EQ(load.global_store_sectors, 0u);
  EXPECT_EQ(load.shared_wavefronts, 4096u / 128);
  const Counters store = counted(
      "setp.ne.u32 %p0, %r0, 0; @%p0 bra DONE;\n"
      "cp.async.bulk.global.shared::cta.bulk_group [%d0], [%r1], 4096;\n"
      "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;\nDONE:\n");
  EXPECT_EQ(store.global_stores, 1u);
  EXPECT_EQ(store.global_store_bytes, 4096u);
  EXPECT_EQ(store.global_store_sectors, 4096u / 32);
  EXPECT_EQ(store.distinct_store_sectors, 4096u / 32);
  EXPECT_EQ(store.global_load_sectors, 0u);
  EXPECT_EQ(store.shared_wavefronts, 4096u / 128);
}

TEST(Counters, AMulticastReadsTheL2OnceAndWritesEveryBlock) {
  // Block 0 sends 1024 bytes to both blocks: 32 sectors, 2 x 8 wavefronts.
  const Counters c = counted(
      "setp.ne.u32 %p0, %r0, 0; @%p0 bra INIT;\n"
      "mbarrier.init.shared::cta.b64 [%r2], 1; fence.mbarrier_init.release.cluster;\n"
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 1024;\n"
      "INIT: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n"
      "mov.u32 %r3, %cluster_ctarank; or.b32 %r3, %r3, %r0; setp.ne.u32 %p1, %r3, 0;\n"
      "mov.u16 %h0, 3; @%p1 bra TRY;\n"
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%r1], [%d0], 1024, [%r2], %h0;\n"
      "TRY: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r2], 0;\n@!%p2 bra TRY;\n",
      32, 2);
  EXPECT_EQ(c.global_load_sectors, 1024u / 32);
  EXPECT_EQ(c.shared_wavefronts, 2 * 1024u / 128);
}

TEST(Counters, ABoxOfATensorCountsWhatIsInsideOfTheTensor) {
  // A tensor of f32, 64 wide and 32 high: a box of 32 x 16 is 2048 bytes, its rows 4 sectors each.
  // At (48, 24) half of its columns and of its rows are outside. Shared memory gets all of it.
  struct {
    int x, y;
    std::uint64_t bytes;
  } cases[] = {{0, 0, 2048}, {32, 16, 2048}, {48, 0, 1024}, {48, 24, 512}};
  for (const auto& t : cases) {
    Machine machine(
        ".version 8.5\n.target sm_90\n.address_size 64\n.visible .entry k(.param .align 64 .b8 "
        "p0[128])\n{\n.reg .pred %p<4>;\n.reg .b32 %r<8>;\n.reg .b64 %d<4>;\n"
        ".shared .align 1024 .b8 box[2048];\n.shared .align 8 .b64 bar;\n"
        "mov.b64 %d0, p0; cvta.param.u64 %d0, %d0; mov.u32 %r0, %tid.x;\n"
        "mov.u32 %r1, box; mov.u32 %r2, bar;\n" +
        with_mbarrier("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::"
                      "bytes [%r1], [%d0, {" +
                          std::to_string(t.x) + ", " + std::to_string(t.y) + "}], [%r2];",
                      2048) +
        "ret;\n}\n");
    ASSERT_TRUE(machine.ok()) << machine.error().message;
    TensorMap map;
    map.data_type = 7;  // f32
    map.rank = 2;
    map.address = machine.buffer(std::vector<float>(64 * 32, 1));
    map.dimensions[0] = 64, map.dimensions[1] = 32;
    map.box[0] = 32, map.box[1] = 16;
    map.strides[0] = 256;
    map.swizzle = TensorSwizzle::k128;
    auto encoded = encode_tensor_map(map);
    ASSERT_TRUE(encoded) << encoded.error().message;
    const Outcome outcome = machine.run({1, 1, 1}, {32, 1, 1}, *encoded);
    ASSERT_FALSE(outcome.fault) << outcome.fault->report;
    EXPECT_EQ(outcome.counters.global_loads, 1u);
    EXPECT_EQ(outcome.counters.global_load_bytes, t.bytes);
    EXPECT_EQ(outcome.counters.global_load_sectors, t.bytes / 32);
    EXPECT_EQ(outcome.counters.distinct_load_sectors, t.bytes / 32);
    EXPECT_EQ(outcome.counters.shared_wavefronts, 2048u / 128);
  }
}

TEST(Counters, AWgmmaReadsItsOperandsOnce) {
  // m64nNk16 of bf16: (64 * 16 + N * 16) * 2 bytes of shared memory for the four warps together, or
  // N * 16 * 2 where A is in registers; 2 * 64 * N * 16 operations.
  for (const bool registers : {false, true})
    for (const int n : {8, 64, 256}) {
      SCOPED_TRACE(std::to_string(n) + (registers ? ", A in registers" : ""));
      std::string d;
      for (int i = 0; i < n / 2; ++i) d += (i > 0 ? ", %v" : "%v") + std::to_string(i);
      const Counters c =
          counted(".reg .f32 %v<" + std::to_string(n / 2) +
                      ">;\n"
                      "and.b32 %r1, %r1, 0x3ffff; shr.u32 %r1, %r1, 4; cvt.u64.u32 %d1, %r1;\n"
                      // 128-byte swizzle, eight rows 1024 bytes apart.
                      "add.u64 %d1, %d1, " +
                      std::to_string(std::uint64_t{1} << 62 | std::uint64_t{64} << 32 |
                                     std::uint64_t{1} << 16) +
                      ";\nsetp.ne.u32 %p0, 0, 0;\nwgmma.fence.sync.aligned;\n"
                      "wgmma.mma_async.sync.aligned.m64n" +
                      std::to_string(n) + "k16.f32.bf16.bf16 {" + d + "}, " +
                      (registers ? "{%r3, %r4, %r5, %r6}" : "%d1") + ", %d1, %p0, 1, 1" +
                      (registers ? ", 0;" : ", 0, 0;") +
                      "\nwgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;",
                  128);
      const auto bytes = static_cast<std::uint64_t>((registers ? 0 : 64 * 16) + n * 16) * 2;
      EXPECT_EQ(c.shared_wavefronts, bytes / 128);
      EXPECT_EQ(c.shared_conflicts, 0u);
      EXPECT_EQ(c.tensor_operations[std::size_t(TensorType::kBF16)],
                std::uint64_t{2} * 64 * 16 * static_cast<std::uint64_t>(n));
    }
}

}  // namespace
}  // namespace tilewright::vgpu
