// mma with a sparse A, with block scales, of single bits, and m8n8k4 of f16: fragments, metadata and
// scales are laid out by the formulas of the PTX ISA, written here once more, and the products compared
// with f64.
#include <bit>
#include <cmath>
#include <cstdint>

#include "tests/virtual_gpu/tensor_values.h"
#include "tests/virtual_gpu/warp_registers.h"

namespace tilewright::vgpu {
namespace {

struct Case {
  int k;
  std::string a, b, d;
  bool sparse = false, ordered = false;
  std::string kind;   ///< "f8f6f4", "mxf4", ...
  int scales = 0;     ///< of a row of A
  std::string stype;  ///< "ue8m0", "ue4m3"
  bool saturate = false;

  /// 4-bit floats lie side by side, else in the middle of a byte.
  bool packed() const { return kind == "mxf4" || kind == "mxf4nvf4"; }
  int bits() const { return packed() ? 4 : element_bits(a); }
  std::string name() const {
    std::string text = "mma.";
    if (sparse) text += ordered ? "sp::ordered_metadata." : "sp.";
    text += "sync.aligned.m16n8k" + std::to_string(k) + ".row.col.";
    if (!kind.empty()) text += "kind::" + kind + ".";
    if (scales != 0) text += "block_scale.scale_vec::" + std::to_string(scales) + "X.";
    if (saturate) text += "satfinite.";
    text += d + "." + a + "." + b + "." + d;
    return stype.empty() ? text : text + "." + stype;
  }
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (bool ordered : {false, true}) {
    for (int k : {16, 32}) {
      all.push_back({k, "f16", "f16", "f32", true, ordered});
      all.push_back({k, "f16", "f16", "f16", true, ordered});
      all.push_back({k, "bf16", "bf16", "f32", true, ordered});
    }
    for (int k : {8, 16}) all.push_back({k, "tf32", "tf32", "f32", true, ordered});
    all.push_back({64, "e4m3", "e5m2", "f32", true, ordered});
    for (bool saturate : {false, true}) {
      for (int k : {32, 64})
        all.push_back({k, "s8", "u8", "s32", true, ordered, "", 0, "", saturate});
      for (int k : {64, 128})
        all.push_back({k, "u4", "s4", "s32", true, ordered, "", 0, "", saturate});
    }
  }
  for (std::string a : {"e4m3", "e5m2", "e2m1", "e3m2", "e2m3"}) {
    all.push_back({64, a, "e2m3", "f32", true, true, "f8f6f4"});
    all.push_back({32, a, "e4m3", "f32", false, false, "mxf8f6f4", 1, "ue8m0"});
    all.push_back({64, a, "e3m2", "f32", true, true, "mxf8f6f4", 1, "ue8m0"});
  }
  for (bool sparse : {false, true}) {
    int k = sparse ? 128 : 64;
    all.push_back({k, "e2m1", "e2m1", "f32", sparse, sparse, "mxf4", 2, "ue8m0"});
    all.push_back({k, "e2m1", "e2m1", "f32", sparse, sparse, "mxf4nvf4", 2, "ue8m0"});
    all.push_back({k, "e2m1", "e2m1", "f32", sparse, sparse, "mxf4nvf4", 4, "ue8m0"});
    all.push_back({k, "e2m1", "e2m1", "f32", sparse, sparse, "mxf4nvf4", 4, "ue4m3"});
  }
  return all;
}

double value_of(const Case& t, const std::string& type, std::uint64_t bits) {
  return element_value(type, t.packed() ? bits << 2 : bits);
}
double scale_of(const std::string& type, std::uint32_t byte) {
  if (type == "ue4m3") return element_value("e4m3", byte & 0x7f);
  return std::ldexp(1.0, static_cast<int>(byte) - 127);
}

struct Selectors {
  int sparsity = 0, byte_a = 0, thread_a = 0, byte_b = 0, thread_b = 0;
};

/// A chunk of a row of A is so many columns, of which so many are stored: 2 of 4; of tf32 1 of 2; of 4
/// bits 2 pairs of 4. An index of two bits says where each is (of tf32: of both of its halves).
int chunk_of(const Case& t) { return t.a == "tf32" ? 2 : t.bits() == 4 ? 8 : 4; }

/// All of one product.
struct Problem {
  Case t;
  Selectors s;
  std::vector<std::uint64_t> a, b, c;    ///< bits, row-major: A of 16 x k, with zeros; B of k x 8
  std::vector<std::vector<int>> stored;  ///< columns of a row of A that are stored, in order
  std::vector<std::uint32_t> sa, sb;     ///< scales of [row][chunk], of [column][chunk]
  WarpRegisters registers;               ///< a, b, c, metadata, scales of A, of B
  int a_count, b_count, c_count;

  std::uint32_t& reg(int index, int lane) {
    return registers[static_cast<std::size_t>(index * 32 + lane)];
  }

  Problem(const Case& of, std::uint64_t seed, const Selectors& selectors) : t(of), s(selectors) {
    std::mt19937_64 engine(seed);
    const int k = t.k, bits = t.bits(), each = 32 / bits, chunk = chunk_of(t);
    const int held = t.sparse ? k / 2 : k;
    auto element = [&](const std::string& type) {
      std::uint64_t value = random_element(type, false, engine);
      return t.packed() ? value >> 2 & 0xf : value;
    };
    for (int i = 0; i < 16 * k; ++i) a.push_back(element(t.a));
    for (int i = 0; i < 8 * k; ++i) b.push_back(element(t.b));
    for (int i = 0; i < 16 * 8; ++i) c.push_back(random_element(t.d, false, engine));
    a_count = 16 * held * bits / 32 / 32;
    b_count = 8 * k * bits / 32 / 32;
    c_count = t.d == "f16" ? 2 : 4;
    registers.assign(static_cast<std::size_t>(a_count + b_count + c_count + 3) * 32, 0);
    const int meta = a_count + b_count + c_count;

    for (int row = 0; row < 16; ++row) {
      std::vector<int> columns;
      for (int i = 0; i < k / chunk && t.sparse; ++i) {
        int first = static_cast<int>(engine() % 4), second = static_cast<int>(engine() % 3);
        if (second >= first) ++second;
        if (t.ordered && first > second) std::swap(first, second);
        if (t.a == "tf32") first = static_cast<int>(engine() % 2) * 2, second = first + 1;
        if (t.a == "tf32") {
          columns.push_back(chunk * i + first / 2);
        } else if (bits == 4) {
          for (int x : {2 * first, 2 * first + 1, 2 * second, 2 * second + 1})
            columns.push_back(chunk * i + x);
        } else {
          columns.push_back(chunk * i + first);
          columns.push_back(chunk * i + second);
        }
        // Of elements of 16 bits and more, a word has 4 chunks of row g and of row g + 8; words of
        // the next 4 are in the next lane, the selector says which lane or pair of lanes. Else a word
        // has 8 chunks of a row: lane 0 row g, lane 1 row g + 8, lanes 2 and 3 the next 8 chunks, or
        // the selector says which pair of lanes.
        const int total = k / chunk, g = row % 8 * 4, high = row / 8;
        int lane, shift;
        if (bits >= 16) {
          lane = total == 4 ? g + s.sparsity : g + 2 * s.sparsity + i / 4;
          shift = 16 * high + 4 * (i % 4);
        } else {
          lane = g + high + (total == 8 ? 2 * s.sparsity : i / 8 * 2);
          shift = 4 * (i % 8);
        }
        reg(meta, lane) |= static_cast<std::uint32_t>(first | second << 2) << shift;
      }
      if (!t.sparse)
        for (int i = 0; i < k; ++i) columns.push_back(i);
      // What is not stored is zero.
      std::vector<std::uint64_t> kept;
      for (int column : columns) kept.push_back(a[static_cast<std::size_t>(row * k + column)]);
      for (int i = 0; i < k; ++i) a[static_cast<std::size_t>(row * k + i)] = 0;
      for (std::size_t i = 0; i < columns.size(); ++i) {
        a[static_cast<std::size_t>(row * k + columns[i])] = kept[i];
        // The fragment of a dense A of the stored columns.
        int at = static_cast<int>(i), block = at / (4 * each), lane = row % 8 * 4 + at / each % 4;
        reg(block * 2 + row / 8, lane) |= static_cast<std::uint32_t>(kept[i]) << (at % each * bits);
      }
      stored.push_back(columns);
    }
    for (int i = 0; i < k; ++i)
      for (int column = 0; column < 8; ++column)
        reg(a_count + i / (4 * each), column * 4 + i / each % 4) |=
            static_cast<std::uint32_t>(b[static_cast<std::size_t>(i * 8 + column)])
            << (i % each * bits);
    for (int row = 0; row < 16; ++row)
      for (int column = 0; column < 8; ++column) {
        auto value = static_cast<std::uint32_t>(c[static_cast<std::size_t>(row * 8 + column)]);
        int lane = row % 8 * 4 + column / 2;
        if (t.d == "f16")
          reg(a_count + b_count + row / 8, lane) |= value << (16 * (column % 2));
        else
          reg(a_count + b_count + row / 8 * 2 + column % 2, lane) = value;
      }
    // Scales: of row m of A in lane 4 (m % 8) + 2 thread + m / 8, of column n of B in lane 4 n +
    // thread, from byte `byte` on.
    for (int i = 0; i < 24 && t.scales != 0; ++i)
      for (int j = 0; j < t.scales; ++j) {
        std::uint32_t scale = t.stype == "ue4m3" ? 0x28 + engine() % 24 : 120 + engine() % 14;
        bool of_a = i < 16;
        int n = i - 16, lane = of_a ? i % 8 * 4 + 2 * s.thread_a + i / 8 : n * 4 + s.thread_b;
        (of_a ? sa : sb).push_back(scale);
        reg(meta + (of_a ? 1 : 2), lane) |= scale << (8 * ((of_a ? s.byte_a : s.byte_b) + j));
      }
  }

  std::string instruction() const {
    int first = a_count + b_count, meta = first + c_count;
    std::string text =
        t.name() + " " + register_list('o', 0, c_count) + ", " + register_list('i', 0, a_count) +
        ", " + register_list('i', a_count, b_count) + ", " + register_list('i', first, c_count);
    if (t.sparse) text += ", %i" + std::to_string(meta) + ", " + std::to_string(s.sparsity);
    if (t.scales != 0)
      text += ", {%i" + std::to_string(meta + 1) + "}, {" + std::to_string(s.byte_a) + ", " +
              std::to_string(s.thread_a) + "}, %i" + std::to_string(meta + 2) + ", {" +
              std::to_string(s.byte_b) + ", " + std::to_string(s.thread_b) + "}";
    return text + ";";
  }

  void expect(const WarpRegisters& got) const {
    ASSERT_EQ(got.size(), static_cast<std::size_t>(c_count * 32));
    for (int row = 0; row < 16; ++row)
      for (int column = 0; column < 8; ++column) {
        int lane = row % 8 * 4 + column / 2;
        std::uint64_t bits =
            t.d == "f16"
                ? got[static_cast<std::size_t>(row / 8 * 32 + lane)] >> (16 * (column % 2)) & 0xffff
                : got[static_cast<std::size_t>((row / 8 * 2 + column % 2) * 32 + lane)];
        double sum = element_value(t.d, c[static_cast<std::size_t>(row * 8 + column)]);
        double magnitude = std::fabs(sum);
        for (int i = 0; i < t.k; ++i) {
          double product = value_of(t, t.a, a[static_cast<std::size_t>(row * t.k + i)]) *
                           value_of(t, t.b, b[static_cast<std::size_t>(i * 8 + column)]);
          if (t.scales != 0) {
            auto chunk = static_cast<std::size_t>(i / (t.k / t.scales));
            auto n = static_cast<std::size_t>(t.scales);
            product *= scale_of(t.stype, sa[static_cast<std::size_t>(row) * n + chunk]) *
                       scale_of(t.stype, sb[static_cast<std::size_t>(column) * n + chunk]);
          }
          sum += product;
          magnitude += std::fabs(product);
        }
        if (t.d == "s32") {
          auto exact = static_cast<std::int64_t>(sum);
          if (t.saturate) exact = std::clamp<std::int64_t>(exact, INT32_MIN, INT32_MAX);
          ASSERT_EQ(bits, static_cast<std::uint32_t>(exact)) << row << ", " << column;
          continue;
        }
        double bound = (t.k + 2) * 0x1p-24 * magnitude;
        if (t.d == "f16") bound += std::fabs(sum) * 0x1p-11 + 0x1p-25;
        ASSERT_LE(std::fabs(element_value(t.d, bits) - sum), bound) << row << ", " << column;
      }
  }
};

/// The selectors that a case may have.
std::vector<Selectors> selectors_of(const Case& t) {
  std::vector<Selectors> all{{}};
  if (t.sparse && t.scales == 0) {
    // Threads that give metadata: 4 bits for each chunk of two rows, in words of 32.
    int threads = t.k / chunk_of(t) * 4 * 2 / 32;
    for (int i = 1; i < 4 / threads; ++i) all.push_back({i});
  }
  if (t.scales == 1) all.push_back({0, 3, 1, 2, 3});
  if (t.scales == 2) all.push_back({0, 2, 1, 0, 2});
  if (t.scales == 4) all.push_back({0, 0, 1, 0, 1});
  return all;
}

TEST(RareMma, MultipliesSparseAndScaledMatricesAsF64Does) {
  std::uint64_t seed = 1;
  for (const Case& t : cases())
    for (const Selectors& s : selectors_of(t)) {
      Problem problem(t, seed++, s);
      SCOPED_TRACE(problem.instruction());
      problem.expect(run_warp(problem.instruction(), problem.registers, problem.c_count));
      if (testing::Test::HasFailure()) return;
    }
}

TEST(RareMma, CountsBitsThatDifferOrThatBothHave) {
  std::mt19937_64 engine(7);
  for (auto [m, k] : {std::pair{8, 128}, {16, 128}, {16, 256}})
    for (std::string operation : {"xor", "and"}) {
      SCOPED_TRACE(operation + std::to_string(m) + "x" + std::to_string(k));
      const int halves = m / 8, blocks = k / 128;
      const int a_count = halves * blocks, count = a_count + blocks + 2 * halves;
      WarpRegisters in(static_cast<std::size_t>(count) * 32);
      for (auto& word : in) word = static_cast<std::uint32_t>(engine());
      std::string text = "mma.sync.aligned.m" + std::to_string(m) + "n8k" + std::to_string(k) +
                         ".row.col.s32.b1.b1.s32." + operation + ".popc " +
                         register_list('o', 0, 2 * halves) + ", " + register_list('i', 0, a_count) +
                         ", " + register_list('i', a_count, blocks) + ", " +
                         register_list('i', a_count + blocks, 2 * halves) + ";";
      auto got = run_warp(text, in, 2 * halves);
      ASSERT_FALSE(got.empty());
      for (int row = 0; row < m; ++row)
        for (int column = 0; column < 8; ++column) {
          // A lane has 32 columns of A from 32 (lane % 4) on, a block 128.
          int sum = 0;
          for (int word = 0; word < k / 32; ++word) {
            auto x = in[static_cast<std::size_t>((word / 4 * halves + row / 8) * 32 + row % 8 * 4 +
                                                 word % 4)];
            auto y =
                in[static_cast<std::size_t>((a_count + word / 4) * 32 + column * 4 + word % 4)];
            sum += std::popcount(operation == "xor" ? x ^ y : x & y);
          }
          int reg = row / 8 * 2 + column % 2, lane = row % 8 * 4 + column / 2;
          auto c = in[static_cast<std::size_t>((a_count + blocks + reg) * 32 + lane)];
          ASSERT_EQ(got[static_cast<std::size_t>(reg * 32 + lane)],
                    c + static_cast<std::uint32_t>(sum));
        }
    }
}

/// m8n8k4: lanes 4p to 4p + 3 and 16 more do product p.
TEST(RareMma, MultipliesFourMatricesOfF16AsVoltaDid) {
  std::mt19937_64 engine(3);
  for (bool column_a : {false, true})
    for (bool row_b : {false, true})
      for (auto [d, c] :
           {std::pair<std::string, std::string>{"f32", "f32"}, {"f16", "f16"}, {"f32", "f16"}}) {
        std::string name = std::string("mma.sync.aligned.m8n8k4.") + (column_a ? "col." : "row.") +
                           (row_b ? "row." : "col.") + d + ".f16.f16." + c;
        SCOPED_TRACE(name);
        auto count = [](const std::string& type) { return type == "f16" ? 4 : 8; };
        const int c_count = count(c), d_count = count(d);
        WarpRegisters in(static_cast<std::size_t>(4 + c_count) * 32, 0);
        std::uint64_t a[4][8][4], b[4][4][8], addend[4][8][8];
        for (auto* of : {&a[0][0][0], &b[0][0][0]})
          for (int i = 0; i < 128; ++i) of[i] = random_element("f16", false, engine);
        for (auto& matrix : addend)
          for (auto& row : matrix)
            for (auto& e : row) e = random_element(c, false, engine);
        auto put = [&](int reg, int lane, std::uint64_t bits, int shift) {
          in[static_cast<std::size_t>(reg * 32 + lane)] |= static_cast<std::uint32_t>(bits)
                                                           << shift;
        };
        for (int lane = 0; lane < 32; ++lane) {
          const int p = lane % 16 / 4, high = lane < 16 ? 0 : 4;
          for (int i = 0; i < 4; ++i) {
            int row = column_a ? i % 4 + high : lane % 4 + high, k = column_a ? lane % 4 : i;
            put(i / 2, lane, a[p][row][k], i % 2 * 16);
            int column = row_b ? i + high : lane % 4 + high;
            k = row_b ? lane % 4 : i;
            put(2 + i / 2, lane, b[p][k][column], i % 2 * 16);
          }
          for (int i = 0; i < 8; ++i) {
            if (c == "f16")
              put(4 + i / 2, lane, addend[p][lane % 4 + high][i], i % 2 * 16);
            else
              put(4 + i, lane,
                  addend[p][(lane & 1) + (i & 2) + high][(i & 4) + (lane & 2) + (i & 1)], 0);
          }
        }
        auto got = run_warp(name + " " + register_list('o', 0, d_count) + ", " +
                                register_list('i', 0, 2) + ", " + register_list('i', 2, 2) + ", " +
                                register_list('i', 4, c_count) + ";",
                            in, d_count);
        ASSERT_FALSE(got.empty());
        for (int lane = 0; lane < 32; ++lane)
          for (int i = 0; i < 8; ++i) {
            const int p = lane % 16 / 4, high = lane < 16 ? 0 : 4;
            bool wide = d == "f32";
            int row = wide ? (lane & 1) + (i & 2) + high : lane % 4 + high;
            int column = wide ? (i & 4) + (lane & 2) + (i & 1) : i;
            double sum = element_value(c, addend[p][row][column]), magnitude = std::fabs(sum);
            for (int k = 0; k < 4; ++k) {
              double product =
                  element_value("f16", a[p][row][k]) * element_value("f16", b[p][k][column]);
              sum += product;
              magnitude += std::fabs(product);
            }
            std::uint32_t word = got[static_cast<std::size_t>((wide ? i : i / 2) * 32 + lane)];
            double value = element_value(d, wide ? word : word >> (i % 2 * 16) & 0xffff);
            double bound =
                6 * 0x1p-24 * magnitude + (wide ? 0 : std::fabs(sum) * 0x1p-11 + 0x1p-25);
            ASSERT_LE(std::fabs(value - sum), bound) << lane << ", " << i;
          }
      }
}

TEST(RareMma, FaultsOnMetadataThatPtxLeavesUndefined) {
  const std::string text =
      "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%o0,%o1,%o2,%o3},{%i0,%i1},{%i2,%i3},"
      "{%i4,%i5,%i6,%i7}, %i8, 0;";
  for (std::uint32_t nibble : {0x0u, 0x5u, 0xau, 0xfu}) {
    WarpRegisters in(9 * 32, 0);
    for (std::size_t lane = 0; lane < 32; ++lane) in[8 * 32 + lane] = 0x44444440u | nibble;
    Machine machine(warp_program(text, 9, 4));
    ASSERT_TRUE(machine.ok()) << machine.error().message;
    in.resize(13 * 32);
    Outcome outcome = machine.run({1, 1, 1}, {32, 1, 1}, machine.buffer(in));
    ASSERT_TRUE(outcome.fault);
    EXPECT_NE(outcome.fault->report.find("metadata that PTX leaves undefined"), std::string::npos);
  }
}

TEST(RareMma, RefusesWhatIsNotThere) {
  struct {
    const char* text;
    const char* why;
  } refused[] = {
      {"mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%f0,%f1,%f2,%f3},{%r0,%r1,%r2,%r3},"
       "{%r4,%r5,%r6,%r7},{%f0,%f1,%f2,%f3}, %r8, 2;",
       "the sparsity selector is not an integer from 0 to 1"},
      {"mma.sp.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f0,%f1,%f2,%f3},{%r0,%r1},{%r4,%r5},"
       "{%f0,%f1,%f2,%f3}, %r8, 0;",
       "shape m16n8k8 is not supported"},
      {"mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32."
       "ue8m0 {%f0,%f1,%f2,%f3},{%r0,%r1,%r2,%r3},{%r4,%r5},{%f0,%f1,%f2,%f3},%r6,{0,0},%r7,{0,0};",
       "does not have this number of scales"},
      {"mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0 "
       "{%f0,%f1,%f2,%f3},{%r0,%r1,%r2,%r3},{%r4,%r5},{%f0,%f1,%f2,%f3},%r6,{1,0},%r7,{0,0};",
       "the byte id is 1"},
      {"mma.sync.aligned.m16n8k32.row.col.s32.b1.b1.s32.xor.popc {%r0,%r1,%r2,%r3},{%r4,%r5},{%r6},"
       "{%r0,%r1,%r2,%r3};",
       "not supported for bits"},
  };
  for (const auto& t : refused) {
    Machine machine(entry(t.text));
    ASSERT_FALSE(machine.ok()) << t.text;
    EXPECT_NE(machine.error().message.find(t.why), std::string::npos) << machine.error().message;
    EXPECT_NE(machine.error().message.find("ptx line"), std::string::npos);
  }
}

}  // namespace
}  // namespace tilewright::vgpu
