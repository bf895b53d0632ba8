// mma.sync, every dense shape: fragments are laid out by the formulas of the PTX ISA ("Matrix
// Fragments for mma..."), written here once more, and the products compared with f64.
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

#include "tests/virtual_gpu/run_ptx.h"
#include "tests/virtual_gpu/tensor_values.h"

namespace tilewright::vgpu {
namespace {

struct Case {
  int m, n, k;
  std::string a, b, d;
  bool f8f6f4 = false, saturate = false;

  std::string name() const {
    return "mma.sync.aligned.m" + std::to_string(m) + "n" + std::to_string(n) + "k" +
           std::to_string(k) + ".row.col" + (f8f6f4 ? ".kind::f8f6f4" : "") +
           (saturate ? ".satfinite" : "") + "." + d + "." + a + "." + b + "." + d;
  }
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (int k : {8, 16}) {
    all.push_back({16, 8, k, "f16", "f16", "f32"});
    all.push_back({16, 8, k, "f16", "f16", "f16"});
    all.push_back({16, 8, k, "bf16", "bf16", "f32"});
  }
  for (int k : {4, 8}) all.push_back({16, 8, k, "tf32", "tf32", "f32"});
  for (int k : {16, 32})
    for (std::string a : {"e4m3", "e5m2"})
      for (std::string b : {"e4m3", "e5m2"})
        for (std::string d : {"f32", "f16"}) all.push_back({16, 8, k, a, b, d});
  for (std::string a : {"e4m3", "e5m2", "e2m1", "e3m2", "e2m3"})
    for (std::string b : {"e4m3", "e5m2", "e2m1", "e3m2", "e2m3"})
      all.push_back({16, 8, 32, a, b, "f32", true});
  all.push_back({16, 8, 32, "e2m1", "e4m3", "f16", true});
  for (bool saturate : {false, true}) {
    for (std::string a : {"s8", "u8"}) {
      for (std::string b : {"s8", "u8"}) {
        all.push_back({8, 8, 16, a, b, "s32", false, saturate});
        all.push_back({16, 8, 16, a, b, "s32", false, saturate});
        all.push_back({16, 8, 32, a, b, "s32", false, saturate});
      }
    }
    for (std::string a : {"s4", "u4"}) {
      for (std::string b : {"s4", "u4"}) {
        all.push_back({8, 8, 32, a, b, "s32", false, saturate});
        all.push_back({16, 8, 32, a, b, "s32", false, saturate});
        all.push_back({16, 8, 64, a, b, "s32", false, saturate});
      }
    }
  }
  all.push_back({8, 8, 4, "f64", "f64", "f64"});
  for (int k : {4, 8, 16}) all.push_back({16, 8, k, "f64", "f64", "f64"});
  return all;
}

struct Where {
  int lane, reg, shift;
};

/// Element i of a lane's fragment of A lies at row g (+ 8), column q * e + i % e (+ 4 e), where e
/// elements make a register; registers go through the row halves first.
Where place_of_a(const Case& c, int row, int column) {
  int bits = element_bits(c.a), e = bits == 64 ? 1 : 32 / bits;
  int halves = c.m / 8;
  return {row % 8 * 4 + column / e % 4, column / (4 * e) * halves + row / 8, column % e * bits};
}
Where place_of_b(const Case& c, int row, int column) {
  int bits = element_bits(c.b), e = bits == 64 ? 1 : 32 / bits;
  return {column * 4 + row / e % 4, row / (4 * e), row % e * bits};
}
/// C and D: c0 and c1 in row g, columns 2q and 2q + 1; c2 and c3 in row g + 8.
Where place_of_d(const Case& c, int row, int column) {
  int lane = row % 8 * 4 + column / 2;
  if (c.d == "f16") return {lane, row / 8, column % 2 * 16};
  return {lane, row / 8 * 2 + column % 2, 0};
}

struct Operands {
  std::vector<std::uint64_t> a, b, c;  ///< bits of elements, row-major
  double at_a(const Case& t, int i, int k) const {
    return element_value(t.a, a[static_cast<std::size_t>(i * t.k + k)]);
  }
  double at_b(const Case& t, int k, int j) const {
    return element_value(t.b, b[static_cast<std::size_t>(k * t.n + j)]);
  }
};

Operands random_operands(const Case& t, bool wild, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  Operands o;
  for (int i = 0; i < t.m * t.k; ++i) o.a.push_back(random_element(t.a, wild, engine));
  for (int i = 0; i < t.k * t.n; ++i) o.b.push_back(random_element(t.b, wild, engine));
  for (int i = 0; i < t.m * t.n; ++i) o.c.push_back(random_element(t.d, wild, engine));
  return o;
}

struct Sizes {
  int a, b, c, bytes;
};
Sizes sizes_of(const Case& t) {
  int bits = element_bits(t.a), e = bits == 64 ? 1 : 32 / bits;
  return {t.m / 8 * t.k / (4 * e), t.k / (4 * e), t.m / 8 * (t.d == "f16" ? 1 : 2),
          bits == 64 ? 8 : 4};
}

std::string list(char name, int count) {
  std::string text = "{";
  for (int i = 0; i < count; ++i)
    text += std::string(i > 0 ? ", " : "") + "%" + name + std::to_string(i);
  return text + "}";
}

std::string program(const Case& t) {
  Sizes size = sizes_of(t);
  std::string bits = std::to_string(8 * size.bytes);
  std::string d = t.d == "f16" ? "b32" : t.d;
  std::string body = ".reg .b" + bits + " %a<8>;\n.reg .b" + bits + " %b<8>;\n.reg ." + d +
                     " %c<8>;\n.reg ." + d + " %e<8>;\n";
  body += "ld.param.u64 %d0, [p0];\nmov.u32 %r0, %tid.x;\nmul.wide.u32 %d1, %r0, " +
          std::to_string(size.bytes) + ";\nadd.u64 %d1, %d0, %d1;\n";
  int offset = 0;
  auto move = [&](const char* what, char name, int count, const std::string& type) {
    for (int i = 0; i < count; ++i, offset += 32 * size.bytes) {
      std::string reg = std::string("%") + name + std::to_string(i);
      std::string at = "[%d1+" + std::to_string(offset) + "]";
      body += std::string(what) + ".global." + type + " " +
              (what[0] == 'l' ? reg + ", " + at : at + ", " + reg) + ";\n";
    }
  };
  move("ld", 'a', size.a, "b" + bits);
  move("ld", 'b', size.b, "b" + bits);
  move("ld", 'c', size.c, d);
  body += t.name() + " " + list('e', size.c) + ", " + list('a', size.a) + ", " + list('b', size.b) +
          ", " + list('c', size.c) + ";\n";
  move("st", 'e', size.c, d);
  return entry(body + "ret;");
}

/// Bits of D, row-major.
std::vector<std::uint64_t> multiply(const Case& t, const Operands& o, const Level& level,
                                    Accumulation how) {
  Sizes size = sizes_of(t);
  auto words = static_cast<std::size_t>((size.a + size.b + 2 * size.c) * 32);
  std::vector<std::uint64_t> lanes(words, 0);
  auto put = [&](int base, Where w, std::uint64_t bits) {
    lanes[static_cast<std::size_t>((base + w.reg) * 32 + w.lane)] |= bits << w.shift;
  };
  for (int i = 0; i < t.m; ++i)
    for (int k = 0; k < t.k; ++k)
      put(0, place_of_a(t, i, k), o.a[static_cast<std::size_t>(i * t.k + k)]);
  for (int k = 0; k < t.k; ++k)
    for (int j = 0; j < t.n; ++j)
      put(size.a, place_of_b(t, k, j), o.b[static_cast<std::size_t>(k * t.n + j)]);
  for (int i = 0; i < t.m; ++i)
    for (int j = 0; j < t.n; ++j)
      put(size.a + size.b, place_of_d(t, i, j), o.c[static_cast<std::size_t>(i * t.n + j)]);

  Machine machine(program(t), level);
  EXPECT_TRUE(machine.ok()) << machine.error().message;
  if (!machine.ok()) return {};
  std::uint64_t buffer;
  if (size.bytes == 8) {
    buffer = machine.buffer(lanes);
  } else {
    std::vector<std::uint32_t> narrow(lanes.begin(), lanes.end());
    buffer = machine.buffer(narrow);
  }
  Launch launch = machine.launch({1, 1, 1}, {32, 1, 1}, buffer);
  launch.accumulation = how;
  Outcome outcome = machine.run(launch);
  EXPECT_FALSE(outcome.fault) << outcome.fault->report;
  EXPECT_EQ(outcome.counters.tensor_warps, 1u);
  std::uint64_t operations = 0;
  for (std::uint64_t count : outcome.counters.tensor_operations) operations += count;
  EXPECT_EQ(operations, static_cast<std::uint64_t>(2 * t.m * t.n * t.k));
  std::vector<std::uint64_t> done;
  if (size.bytes == 8) {
    done = machine.read<std::uint64_t>(buffer, words);
  } else {
    auto narrow = machine.read<std::uint32_t>(buffer, words);
    done.assign(narrow.begin(), narrow.end());
  }
  std::vector<std::uint64_t> result;
  for (int i = 0; i < t.m; ++i) {
    for (int j = 0; j < t.n; ++j) {
      Where w = place_of_d(t, i, j);
      std::uint64_t bits =
          done[static_cast<std::size_t>((size.a + size.b + size.c + w.reg) * 32 + w.lane)] >>
          w.shift;
      result.push_back(t.d == "f16" ? bits & 0xffff : bits);
    }
  }
  return result;
}

/// Of integers: exactly, in 64 bits, then wrapped or clamped.
std::uint64_t integer_result(const Case& t, const Operands& o, int i, int j) {
  auto sum =
      static_cast<std::int64_t>(element_value("s32", o.c[static_cast<std::size_t>(i * t.n + j)]));
  for (int k = 0; k < t.k; ++k) sum += static_cast<std::int64_t>(o.at_a(t, i, k) * o.at_b(t, k, j));
  if (t.saturate) sum = std::clamp<std::int64_t>(sum, INT32_MIN, INT32_MAX);
  return static_cast<std::uint32_t>(sum);
}

/// Of floats: within what the accumulator's rounding allows, k + 1 times; that of the result, too.
void expect_float(const Case& t, const Operands& o, int i, int j, std::uint64_t bits) {
  // Of a wider range than f64, for f64.
  long double sum = element_value(t.d, o.c[static_cast<std::size_t>(i * t.n + j)]);
  long double magnitude = std::fabs(sum);
  for (int k = 0; k < t.k; ++k) {
    long double product = static_cast<long double>(o.at_a(t, i, k)) * o.at_b(t, k, j);
    sum += product;
    magnitude += std::fabs(product);
  }
  double got = element_value(t.d, bits);
  double unit = t.d == "f64" ? 0x1p-53 : 0x1p-24, tiny = t.d == "f64" ? 0 : 0x1p-149;
  double limit = t.d == "f64" ? 1e308 : 3e38;
  if (std::isnan(sum)) {
    EXPECT_TRUE(std::isnan(got)) << i << ", " << j << ": " << got;
    if (t.d != "f64") {
      EXPECT_EQ(bits, t.d == "f32" ? 0x7fffffffu : 0x7fffu);
    }
    return;
  }
  if (std::isfinite(sum) && magnitude >= limit) return;  // may overflow on the way
  long double bound = std::isinf(sum) ? 0 : (t.k + 2) * (unit * magnitude + tiny);
  if (t.d == "f16") {
    bound += std::fabs(sum) * 0x1p-11 + 0x1p-25;
    if (std::fabs(sum) + bound >= 65520 && std::isinf(got)) return;
  }
  if (std::isinf(sum)) {
    EXPECT_EQ(got, sum) << i << ", " << j;
  } else {
    EXPECT_LE(std::fabs(got - sum), bound) << i << ", " << j << ": " << got << " for " << sum;
  }
}

TEST(Mma, MultipliesAsF64DoesAtEveryShapeAndLevel) {
  std::uint64_t seed = 1;
  for (const Case& t : cases()) {
    for (bool wild : {false, true}) {
      SCOPED_TRACE(t.name() + (wild ? ", any bits" : ""));
      Operands o = random_operands(t, wild, seed++);
      std::vector<std::uint64_t> first;
      for (const Level* level : host_levels()) {
        SCOPED_TRACE(level->name);
        auto d = multiply(t, o, *level, Accumulation::kF32);
        ASSERT_EQ(d.size(), static_cast<std::size_t>(t.m * t.n));
        if (first.empty()) {
          first = d;
          for (int i = 0; i < t.m; ++i) {
            for (int j = 0; j < t.n; ++j) {
              std::uint64_t bits = d[static_cast<std::size_t>(i * t.n + j)];
              if (t.d == "s32")
                EXPECT_EQ(bits, integer_result(t, o, i, j)) << i << ", " << j;
              else
                expect_float(t, o, i, j, bits);
            }
          }
        }
        EXPECT_EQ(d, first) << "differs from level " << host_levels()[0]->name;
        if (HasFailure()) return;
      }
    }
  }
}

TEST(Mma, AddsInTheOrderOfKUnlessToldOtherwise) {
  // 2^24 + 1 + 1: each 1 is lost in f32, one by one; not so in f64, nor in a wider accumulator.
  Case t{16, 8, 16, "bf16", "bf16", "f32"};
  Operands o;
  o.a.assign(static_cast<std::size_t>(t.m * t.k), 0);
  o.b.assign(static_cast<std::size_t>(t.k * t.n), 0);
  o.c.assign(static_cast<std::size_t>(t.m * t.n), std::bit_cast<std::uint32_t>(0x1p24f));
  for (int i = 0; i < t.m; ++i)
    for (int k = 0; k < 2; ++k) o.a[static_cast<std::size_t>(i * t.k + k)] = 0x3f80;
  for (int j = 0; j < t.n; ++j)
    for (int k = 0; k < 2; ++k) o.b[static_cast<std::size_t>(k * t.n + j)] = 0x3f80;
  for (const Level* level : host_levels()) {
    auto value = [&](Accumulation how) {
      return std::bit_cast<float>(static_cast<std::uint32_t>(multiply(t, o, *level, how)[77]));
    };
    EXPECT_EQ(value(Accumulation::kF32), 0x1p24f);
    EXPECT_EQ(value(Accumulation::kF64), 0x1p24f + 2);
    EXPECT_EQ(value(Accumulation::kTruncated), 0x1p24f + 2);
  }
}

TEST(Mma, TruncatesEightBitProductsToThirteenBitsBelowTheLargest) {
  // 256 + 31 * 2^-6: what lies below 2^(8 - 13) is cut off each product, so that all of them go;
  // at 2^-5 all of them count.
  Case t{16, 8, 32, "e4m3", "e4m3", "f32"};
  for (auto [small, want] : {std::pair{0x08u, 256.0f}, {0x10u, 256.0f + 31.0f / 32}}) {
    Operands o;
    o.a.assign(static_cast<std::size_t>(t.m * t.k), small);  // 2^-6 or 2^-5
    o.b.assign(static_cast<std::size_t>(t.k * t.n), 0x38);   // 1
    o.c.assign(static_cast<std::size_t>(t.m * t.n), 0);
    for (int i = 0; i < t.m; ++i) o.a[static_cast<std::size_t>(i * t.k)] = 0x78;  // 256
    auto d = multiply(t, o, best_level(), Accumulation::kTruncated);
    EXPECT_EQ(std::bit_cast<float>(static_cast<std::uint32_t>(d[5])), want);
  }
}

TEST(Mma, RefusesWhatIsNotThere) {
  struct {
    const char* text;
    const char* why;
  } refused[] = {
      {"mma.sync.aligned.m16n8k16.row.col.f32.bf16.f16.f32 {%f0,%f1,%f2,%f3},"
       "{%r0,%r1,%r2,%r3},{%r4,%r5},{%f0,%f1,%f2,%f3};",
       "do not go together"},
      {"mma.sync.aligned.m16n8k16.row.col.f16.bf16.bf16.f16 {%r6,%r7},{%r0,%r1,%r2,%r3},{%r4,%r5},"
       "{%r6,%r7};",
       ".bf16 is not accumulated in .f16"},
      {"mma.sync.aligned.m16n8k16.row.row.f32.f16.f16.f32 {%f0,%f1,%f2,%f3},{%r0,%r1,%r2,%r3},"
       "{%r4,%r5},{%f0,%f1,%f2,%f3};",
       "not .row.col"},
      {"mma.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%f0,%f1,%f2,%f3},{%r0,%r1,%r2,%r3},"
       "{%r4,%r5},{%f0,%f1,%f2,%f3};",
       "shape m16n8k32 is not supported"},
      {"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0,%f1,%f2,%f3},{%r0,%r1},"
       "{%r4,%r5},{%f0,%f1,%f2,%f3};",
       "A has 2 registers, expected 4"},
  };
  for (const auto& t : refused) {
    Machine machine(entry(t.text));
    ASSERT_FALSE(machine.ok()) << t.text;
    EXPECT_NE(machine.error().message.find(t.why), std::string::npos) << machine.error().message;
    EXPECT_NE(machine.error().message.find("ptx line"), std::string::npos);
  }
}

TEST(Mma, TakesItsKindBeforeItsShapeAsCutlassWritesIt) {
  Machine machine(
      entry("mma.sync.aligned.kind::f8f6f4.m16n8k32.row.col.f32.e4m3.e2m1.f32 {%f0,%f1,%f2,%f3},"
            "{%r0,%r1,%r2,%r3},{%r4,%r5},{%f0,%f1,%f2,%f3}; ret;"));
  EXPECT_TRUE(machine.ok()) << machine.error().message;
}

TEST(Mma, FaultsWhereLanesAreMissing) {
  Machine machine(
      entry("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0,%f1,%f2,%f3},"
            "{%r0,%r1,%r2,%r3},{%r4,%r5},{%f0,%f1,%f2,%f3}; ret;"));
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  Outcome outcome = machine.run({1, 1, 1}, {24, 1, 1}, std::uint64_t{0});
  ASSERT_TRUE(outcome.fault);
  EXPECT_EQ(outcome.fault->kind, FaultKind::kIllegalInstruction);
  EXPECT_NE(outcome.fault->report.find("not executed by all 32 lanes"), std::string::npos);
}

}  // namespace
}  // namespace tilewright::vgpu
