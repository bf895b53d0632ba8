// wgmma: register fragments, and where the elements of A and B lie in shared memory, by the formulas
// of the PTX ISA ("Register Fragments and Shared Memory Matrix Layouts", "Strides"); products
// compared with f64.
#include <cmath>
#include <cstdint>

#include "tests/virtual_gpu/run_ptx.h"
#include "tests/virtual_gpu/tensor_values.h"

namespace tilewright::vgpu {
namespace {

struct Case {
  int n;
  std::string a, b, d;
  int swizzle_a = 128, swizzle_b = 128;  ///< bytes; 0: none
  bool mn_a = false, mn_b = false;
  bool a_in_registers = false;
  int step = 0;  ///< the k that the instruction takes begin at 32 * step bytes of a swizzled row
  int scale_a = 1, scale_b = 1;
  bool accumulate = true, saturate = false;

  int k() const { return 256 / element_bits(a); }
  bool integer() const { return d == "s32"; }
  std::string shape() const {
    return "m64n" + std::to_string(n) + "k" + std::to_string(k()) + (saturate ? ".satfinite" : "");
  }
  std::string name() const {
    return shape() + "." + d + "." + a + "." + b + " swizzle " + std::to_string(swizzle_a) + "/" +
           std::to_string(swizzle_b) + (mn_a ? " MN-major A" : "") + (mn_b ? " MN-major B" : "") +
           (a_in_registers ? " A in registers" : "") + " step " + std::to_string(step);
  }
};

constexpr int kBaseB = 16384, kSharedBytes = 49152;

/// Offsets of a matrix of `rows` rows: strides are chosen so that nothing overlaps.
struct Layout {
  int rows, swizzle, bits;
  bool mn_major;
  int step;

  int pitch() const { return swizzle == 0 ? 16 : swizzle; }
  int stride() const {  // SBO
    if (swizzle == 0) return mn_major ? 144 : 288;
    return mn_major && rows / 8 > swizzle / 16 ? 8 * swizzle * (rows * 2 / swizzle + 1)
                                               : 8 * swizzle;
  }
  int leading() const {  // LBO
    if (swizzle != 0) return mn_major ? 8 * swizzle : 16;
    return mn_major ? 144 * (rows / 8) : 144;
  }
  /// Byte of element (row, k), from the descriptor's start.
  int offset(int row, int k) const {
    // In units of 16 bytes along the contiguous dimension, and lines across it.
    int per_chunk = 128 / bits;
    int along = mn_major ? row : k, line = mn_major ? k : row;
    int chunk = along / per_chunk, within = along % per_chunk * bits / 8;
    if (swizzle == 0) {
      // Matrices of 8 lines of 16 bytes each.
      int row_group = row / (mn_major ? per_chunk : 8), k_group = k / (mn_major ? 8 : per_chunk);
      return row_group * stride() + k_group * leading() + line % 8 * 16 + within;
    }
    int across = swizzle / 16;
    chunk += mn_major ? 0 : 2 * step;
    int swizzled = chunk % across ^ line % 8 * swizzle / 128;
    return line / 8 * stride() + chunk / across * leading() * (mn_major ? 1 : 0) +
           line % 8 * swizzle + swizzled * 16 + within;
  }
  std::uint64_t descriptor(int base) const {
    std::uint64_t mode = swizzle == 128 ? 1 : swizzle == 64 ? 2 : swizzle == 32 ? 3 : 0;
    int start = base + (mn_major || swizzle == 0 ? 0 : 32 * step);
    return static_cast<std::uint64_t>(start >> 4) |
           static_cast<std::uint64_t>(leading() >> 4) << 16 |
           static_cast<std::uint64_t>(stride() >> 4) << 32 | mode << 62;
  }
};

Layout layout_a(const Case& t) { return {64, t.swizzle_a, element_bits(t.a), t.mn_a, t.step}; }
Layout layout_b(const Case& t) { return {t.n, t.swizzle_b, element_bits(t.b), t.mn_b, t.step}; }

/// Registers of D, of a thread.
int registers_of_d(const Case& t) { return t.d == "f16" ? t.n / 4 : t.n / 2; }

std::string program(const Case& t) {
  int count = registers_of_d(t);
  std::string d = t.d == "f16" ? "b32" : t.d;
  std::string body = ".shared .align 1024 .b8 buffer[" + std::to_string(kSharedBytes) + "];\n" +
                     ".reg ." + d + " %v<" + std::to_string(count) + ">;\n";
  body += R"(
    ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1]; mov.u32 %r0, %tid.x;
    mov.u32 %r1, buffer; mul.lo.u32 %r2, %r0, 16; add.u32 %r3, %r1, %r2;
    cvt.u64.u32 %d2, %r2; add.u64 %d2, %d1, %d2; mov.u32 %r8, 0;
    COPY: ld.global.v4.b32 {%r4,%r5,%r6,%r7}, [%d2]; st.shared.v4.b32 [%r3], {%r4,%r5,%r6,%r7};
    add.u64 %d2, %d2, 2048; add.u32 %r3, %r3, 2048; add.u32 %r8, %r8, 1;
    setp.lt.u32 %p0, %r8, 24; @%p0 bra COPY;
    fence.proxy.async; bar.sync 0;
    mul.wide.u32 %d3, %r0, 4; add.u64 %d3, %d0, %d3;
    and.b32 %r1, %r1, 0x3ffff; shr.u32 %r1, %r1, 4; cvt.u64.u32 %d4, %r1;
  )";
  for (int i = 0; i < count; ++i)
    body +=
        "ld.global." + d + " %v" + std::to_string(i) + ", [%d3+" + std::to_string(512 * i) + "];\n";
  body += "add.u64 %d5, %d4, " + std::to_string(layout_a(t).descriptor(0)) + ";\n";
  body += "add.u64 %d6, %d4, " + std::to_string(layout_b(t).descriptor(kBaseB)) + ";\n";
  for (int i = 0; i < 4 && t.a_in_registers; ++i)
    body += "ld.global.b32 %r" + std::to_string(4 + i) + ", [%d3+" +
            std::to_string(512 * (count + i)) + "];\n";
  body += "setp.ne.u32 %p1, " + std::string(t.accumulate ? "1" : "0") + ", 0;\n";
  body += "wgmma.fence.sync.aligned;\nwgmma.mma_async.sync.aligned." + t.shape() + "." + t.d + "." +
          t.a + "." + t.b + " {";
  for (int i = 0; i < count; ++i) body += std::string(i > 0 ? ", " : "") + "%v" + std::to_string(i);
  body += t.a_in_registers ? "}, {%r4,%r5,%r6,%r7}, %d6, %p1" : "}, %d5, %d6, %p1";
  if (!t.integer()) body += ", " + std::to_string(t.scale_a) + ", " + std::to_string(t.scale_b);
  if (element_bits(t.a) == 16) {
    if (!t.a_in_registers) body += t.mn_a ? ", 1" : ", 0";
    body += t.mn_b ? ", 1" : ", 0";
  }
  body += ";\nwgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n";
  for (int i = 0; i < count; ++i)
    body +=
        "st.global." + d + " [%d3+" + std::to_string(512 * i) + "], %v" + std::to_string(i) + ";\n";
  return entry(body + "ret;", 2);
}

struct Operands {
  std::vector<std::uint64_t> a, b, c;
};
Operands random_operands(const Case& t, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  Operands o;
  for (int i = 0; i < 64 * t.k(); ++i) o.a.push_back(random_element(t.a, false, engine));
  for (int i = 0; i < t.n * t.k(); ++i) o.b.push_back(random_element(t.b, false, engine));
  for (int i = 0; i < 64 * t.n; ++i) o.c.push_back(random_element(t.d, false, engine));
  return o;
}
std::uint64_t& at(std::vector<std::uint64_t>& v, int i) { return v[static_cast<std::size_t>(i)]; }

/// Row r of D belongs to warp r / 16; within it as in mma.m16n8.
struct Where {
  int word, shift;
};
Where place_of_d(const Case& t, int row, int column) {
  int thread = row / 16 * 32 + row % 8 * 4 + column % 8 / 2, half = row % 16 / 8;
  if (t.d == "f16") return {(column / 8 * 2 + half) * 128 + thread, column % 2 * 16};
  return {(column / 8 * 4 + half * 2 + column % 2) * 128 + thread, 0};
}

std::vector<std::uint64_t> multiply(const Case& t, Operands& o, const Level& level) {
  std::vector<std::uint32_t> words(static_cast<std::size_t>((registers_of_d(t) + 4) * 128), 0);
  std::vector<std::uint8_t> shared(kSharedBytes, 0xee);
  auto put = [&](int offset, std::uint64_t bits, int bytes) {
    for (int i = 0; i < bytes; ++i)
      shared.at(static_cast<std::size_t>(offset + i)) = static_cast<std::uint8_t>(bits >> 8 * i);
  };
  int bits = element_bits(t.a), e = 32 / bits;
  for (int i = 0; i < 64; ++i) {
    for (int k = 0; k < t.k(); ++k) {
      std::uint64_t value = at(o.a, i * t.k() + k);
      if (!t.a_in_registers) {
        put(layout_a(t).offset(i, k), value, bits / 8);
      } else {
        int thread = i / 16 * 32 + i % 8 * 4 + k / e % 4, reg = k / (4 * e) * 2 + i % 16 / 8;
        words[static_cast<std::size_t>((registers_of_d(t) + reg) * 128 + thread)] |=
            static_cast<std::uint32_t>(value << k % e * bits);
      }
    }
  }
  for (int j = 0; j < t.n; ++j)
    for (int k = 0; k < t.k(); ++k)
      put(kBaseB + layout_b(t).offset(j, k), at(o.b, j * t.k() + k), bits / 8);
  for (int i = 0; i < 64; ++i)
    for (int j = 0; j < t.n; ++j) {
      Where w = place_of_d(t, i, j);
      words[static_cast<std::size_t>(w.word)] |=
          static_cast<std::uint32_t>(at(o.c, i * t.n + j) << w.shift);
    }
  Machine machine(program(t), level);
  EXPECT_TRUE(machine.ok()) << machine.error().message;
  if (!machine.ok()) return {};
  std::uint64_t buffer = machine.buffer(words), image = machine.buffer(shared);
  Outcome outcome = machine.run({1, 1, 1}, {128, 1, 1}, buffer, image);
  EXPECT_FALSE(outcome.fault) << outcome.fault->report;
  std::uint64_t operations = 0;
  for (std::uint64_t n : outcome.counters.tensor_operations) operations += n;
  EXPECT_EQ(operations, static_cast<std::uint64_t>(2 * 64 * t.n * t.k()));
  auto done = machine.read<std::uint32_t>(buffer, words.size());
  std::vector<std::uint64_t> result;
  for (int i = 0; i < 64; ++i)
    for (int j = 0; j < t.n; ++j) {
      Where w = place_of_d(t, i, j);
      std::uint64_t value = done[static_cast<std::size_t>(w.word)] >> w.shift;
      result.push_back(t.d == "f16" ? value & 0xffff : value);
    }
  return result;
}

void expect_product(const Case& t, Operands& o, const std::vector<std::uint64_t>& d) {
  int wrong = 0;
  for (int i = 0; i < 64 && wrong < 4; ++i) {
    for (int j = 0; j < t.n && wrong < 4; ++j) {
      double sum = t.accumulate ? element_value(t.d, at(o.c, i * t.n + j)) : 0;
      double magnitude = std::fabs(sum);
      for (int k = 0; k < t.k(); ++k) {
        double product =
            element_value(t.a, at(o.a, i * t.k() + k)) * element_value(t.b, at(o.b, j * t.k() + k));
        sum += product * t.scale_a * t.scale_b;
        magnitude += std::fabs(product);
      }
      double got = element_value(t.d, d[static_cast<std::size_t>(i * t.n + j)]);
      double bound = t.integer() ? 0 : (t.k() + 2) * 0x1p-24 * magnitude;
      if (t.d == "f16") bound += std::fabs(sum) * 0x1p-11 + 0x1p-25;
      if (t.d == "f16" && std::fabs(sum) > 65000) continue;
      if (std::fabs(got - sum) <= bound) continue;
      ++wrong;
      ADD_FAILURE() << i << ", " << j << ": " << got << ", expected " << sum;
    }
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  auto with = [&](Case c, auto&& change) {
    change(c);
    all.push_back(c);
  };
  // Every swizzle and major-ness of 16-bit types, with a k in the middle of the pattern.
  for (int swizzle : {0, 32, 64, 128}) {
    for (bool mn_a : {false, true})
      for (bool mn_b : {false, true})
        for (int n : {8, 72})
          all.push_back({n, "bf16", "bf16", "f32", swizzle, swizzle, mn_a, mn_b});
    for (int step = 1; step < swizzle / 32; ++step)
      with({64, "f16", "f16", "f32", swizzle, swizzle}, [&](Case& c) { c.step = step; });
  }
  all.push_back({256, "bf16", "bf16", "f32"});
  all.push_back({104, "f16", "f16", "f16", 64, 128, true, false});
  for (std::string type : {"f16", "bf16"})
    with({48, type, type, "f32"}, [](Case& c) { c.a_in_registers = true; });
  with({48, "f16", "f16", "f16", 0, 32, false, true}, [](Case& c) { c.a_in_registers = true; });
  for (int swizzle : {0, 128}) {
    for (std::string a : {"e4m3", "e5m2"})
      for (std::string b : {"e4m3", "e5m2"})
        for (std::string d : {"f32", "f16"}) all.push_back({32, a, b, d, swizzle, swizzle});
    for (std::string a : {"s8", "u8"})
      for (std::string b : {"s8", "u8"}) all.push_back({32, a, b, "s32", swizzle, swizzle});
    all.push_back({40, "tf32", "tf32", "f32", swizzle, swizzle});
  }
  for (std::string type : {"tf32", "e4m3", "s8"})
    with({16, type, type, type == "s8" ? "s32" : "f32"}, [](Case& c) { c.a_in_registers = true; });
  with({24, "s8", "s8", "s32"}, [](Case& c) { c.accumulate = false; });
  with({24, "u8", "s8", "s32"}, [](Case& c) { c.saturate = true; });
  with({24, "bf16", "bf16", "f32"}, [](Case& c) { c.accumulate = false; });
  with({24, "bf16", "bf16", "f32"}, [](Case& c) { c.scale_a = -1; });
  with({24, "e5m2", "e4m3", "f32"}, [](Case& c) { c.scale_b = -1; });
  with({24, "f16", "f16", "f32"}, [](Case& c) { c.scale_a = c.scale_b = -1; });
  return all;
}

TEST(Wgmma, MultipliesAsF64DoesForEveryTypeSwizzleAndMajor) {
  std::uint64_t seed = 100;
  for (const Case& t : cases()) {
    SCOPED_TRACE(t.name());
    Operands o = random_operands(t, seed++);
    std::vector<std::uint64_t> first;
    for (const Level* level : host_levels()) {
      auto d = multiply(t, o, *level);
      ASSERT_EQ(d.size(), static_cast<std::size_t>(64 * t.n));
      if (first.empty()) {
        first = d;
        expect_product(t, o, d);
      }
      EXPECT_EQ(d, first) << "level " << level->name << " differs";
      if (HasFailure()) return;
    }
  }
}

TEST(Wgmma, FaultsWhereADescriptorLeavesSharedMemory) {
  Case t{64, "bf16", "bf16", "f32"};
  std::string text = program(t);
  std::string from = std::to_string(layout_b(t).descriptor(kBaseB));
  text.replace(text.find(from), from.size(), std::to_string(layout_b(t).descriptor(45056)));
  Machine machine(text);
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  std::uint64_t buffer = machine.buffer(std::vector<std::uint32_t>(128 * 40, 0));
  std::uint64_t image = machine.buffer(std::vector<std::uint8_t>(kSharedBytes, 0));
  Outcome outcome = machine.run({1, 1, 1}, {128, 1, 1}, buffer, image);
  ASSERT_TRUE(outcome.fault);
  EXPECT_EQ(outcome.fault->kind, FaultKind::kOutOfBounds);
  EXPECT_NE(outcome.fault->report.find("wgmma reads B"), std::string::npos)
      << outcome.fault->report;
}

TEST(Wgmma, FaultsWhereLanesDisagreeOnADescriptor) {
  Machine machine(
      entry("mov.u32 %r0, %tid.x; cvt.u64.u32 %d0, %r0; mov.u64 %d1, 0; setp.eq.u32 %p0, 0, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0,%f1,%f2,%f3}, %d0, %d1, %p0,"
            " 1, 1, 0, 0;\nret;"));
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  Outcome outcome = machine.run({1, 1, 1}, {128, 1, 1}, std::uint64_t{0});
  ASSERT_TRUE(outcome.fault);
  EXPECT_NE(outcome.fault->report.find("A differs between lanes"), std::string::npos)
      << outcome.fault->report;
}

TEST(Wgmma, RefusesWhatIsNotThere) {
  struct {
    const char* text;
    const char* why;
  } refused[] = {
      {"wgmma.mma_async.sync.aligned.m64n12k16.f32.bf16.bf16 {%f0,%f1,%f2,%f3}, %d0, %d1, %p0, 1, "
       "1, 0, 0;",
       "shape m64n12k16"},
      {"wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0,%f1,%f2,%f3}, %d0, %d1, %p0, 2, "
       "1, 0, 0;",
       "not 1 or -1"},
      {"wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%f0,%f1,%f2,%f3}, %d0, %d1, %p0, 1, "
       "1, 0, 1;",
       "has 8 operands, expected 6"},
      {"wgmma.mma_async.sp.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0,%f1,%f2,%f3}, %d0, %d1, %r0, "
       "0, %p0, 1, 1, 0, 0;",
       "shape m64n8k16 is not supported"},
      {"setmaxnreg.inc.sync.aligned.u32 100;", "multiple of 8"},
      {"setmaxnreg.dec.sync.aligned.u32 16;", "from 24 to 256"},
      {"setmaxnreg.dec.sync.aligned.u32 264;", "from 24 to 256"},
  };
  for (const auto& t : refused) {
    Machine machine(entry(t.text));
    ASSERT_FALSE(machine.ok()) << t.text;
    EXPECT_NE(machine.error().message.find(t.why), std::string::npos) << machine.error().message;
  }
}

}  // namespace
}  // namespace tilewright::vgpu
