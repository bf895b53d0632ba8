// wgmma.mma_async.sp: A of half the k, its columns given by metadata, B of 64 bytes of k. PTX ISA,
// "Sparse matrix storage" of wgmma; metadata by CuTe's ELayout_64x64, _64x32 and _64x16; products
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
  int swizzle;  ///< bytes, of A and B; 0: none
  bool a_in_registers = false;
  int selector = 0;
  int k() const { return 512 / element_bits(a); }
  std::string name() const {
    return "wgmma.mma_async.sp.sync.aligned.m64n" + std::to_string(n) + "k" + std::to_string(k()) +
           "." + d + "." + a + "." + b;
  }
};

constexpr int kBaseB = 16384, kSharedBytes = 49152;

/// Byte of 16-byte chunk `chunk` of row `row` of a K-major matrix. Swizzled: rows of `swizzle` bytes,
/// whose chunks are exchanged; else matrices of 8 rows of 16 bytes, 256 bytes apart along k.
int offset(int swizzle, int row, int chunk) {
  if (swizzle == 0) return row / 8 * 1024 + chunk * 256 + row % 8 * 16;
  int line = row * swizzle, moved = chunk ^ (line >> 7) % (swizzle / 16);
  return line + moved * 16;
}
std::uint64_t descriptor(int swizzle, int base) {
  std::uint64_t mode = swizzle == 128 ? 1 : swizzle == 64 ? 2 : swizzle == 32 ? 3 : 0;
  std::uint64_t stride = swizzle == 0 ? 1024 : static_cast<std::uint64_t>(8 * swizzle);
  return static_cast<std::uint64_t>(base >> 4) | std::uint64_t{256 >> 4} << 16 |
         (stride >> 4) << 32 | mode << 62;
}

int registers_of_d(const Case& t) { return t.d == "f16" ? t.n / 4 : t.n / 2; }

/// Per thread: D, then 4 registers of A, then the metadata.
std::string program(const Case& t) {
  int count = registers_of_d(t);
  std::string body = ".shared .align 1024 .b8 buffer[" + std::to_string(kSharedBytes) + "];\n" +
                     ".reg .b32 %v<" + std::to_string(count + 5) + ">;\n";
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
    setp.eq.u32 %p1, 0, 0;
  )";
  auto v = [](int i) { return "%v" + std::to_string(i); };
  for (int i = 0; i < count + 5; ++i)
    body += "ld.global.b32 " + v(i) + ", [%d3+" + std::to_string(512 * i) + "];\n";
  body += "add.u64 %d5, %d4, " + std::to_string(descriptor(t.swizzle, 0)) + ";\n";
  body += "add.u64 %d6, %d4, " + std::to_string(descriptor(t.swizzle, kBaseB)) + ";\n";
  body += "wgmma.fence.sync.aligned;\n" + t.name() + " {";
  for (int i = 0; i < count; ++i) body += (i > 0 ? ", " : "") + v(i);
  body += "}, ";
  body += t.a_in_registers
              ? "{" + v(count) + "," + v(count + 1) + "," + v(count + 2) + "," + v(count + 3) + "}"
              : "%d5";
  body += ", %d6, " + v(count + 4) + ", " + std::to_string(t.selector) + ", %p1";
  if (t.d != "s32") body += ", 1, -1";
  if (element_bits(t.a) == 16) body += t.a_in_registers ? ", 0" : ", 0, 0";
  body += ";\nwgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n";
  for (int i = 0; i < count; ++i)
    body += "st.global.b32 [%d3+" + std::to_string(512 * i) + "], " + v(i) + ";\n";
  return entry(body + "ret;", 2);
}

void check(const Case& t, std::uint64_t seed, Check level) {
  std::mt19937_64 engine(seed);
  const int k = t.k(), bits = element_bits(t.a), count = registers_of_d(t), each = 32 / bits;
  const int chunk = t.a == "tf32" ? 2 : 4, per_line = 128 / bits;
  std::vector<std::uint32_t> words(static_cast<std::size_t>((count + 5) * 128), 0);
  std::vector<std::uint8_t> shared(kSharedBytes, 0xee);
  std::vector<std::vector<std::uint64_t>> a(64), b(static_cast<std::size_t>(t.n)), c(64);
  auto put = [&](int at, std::uint64_t value) {
    for (int i = 0; i < bits / 8; ++i)
      shared.at(static_cast<std::size_t>(at + i)) = static_cast<std::uint8_t>(value >> 8 * i);
  };
  auto word = [&](int reg, int thread) -> std::uint32_t& {
    return words[static_cast<std::size_t>(reg * 128 + thread)];
  };
  for (int row = 0; row < 64; ++row) {
    auto& full = a[static_cast<std::size_t>(row)];
    full.assign(static_cast<std::size_t>(k), 0);
    const int warp = row / 16 * 32, g = row % 8 * 4, high = row % 16 / 8;
    int held = 0;
    auto keep = [&](int column) {
      std::uint64_t value = random_element(t.a, false, engine);
      full[static_cast<std::size_t>(column)] = value;
      if (t.a_in_registers)
        word(count + held / (4 * each) * 2 + high, warp + g + held / each % 4) |=
            static_cast<std::uint32_t>(value << held % each * bits);
      else
        put(offset(t.swizzle, row, held / per_line) + held % per_line * bits / 8, value);
      ++held;
    };
    for (int i = 0; i < k / chunk; ++i) {
      int first = static_cast<int>(engine() % 3);
      int second = first + 1 + static_cast<int>(engine() % static_cast<unsigned>(3 - first));
      if (chunk == 2) first = static_cast<int>(engine() % 2) * 2, second = first + 1;
      if (chunk == 2) {
        keep(2 * i + first / 2);
      } else {
        keep(4 * i + first);
        keep(4 * i + second);
      }
      // ELayout_64x32, _64x16: lane bit 0 is the half of k, the value its four chunks, then row + 8;
      // lane bit 1 is the selector. ELayout_64x64: lane bit 0 is row + 8, bit 1 the half of k.
      int lane = bits >= 16 ? 2 * t.selector + i / 4 : high + i / 8 * 2;
      int shift = bits >= 16 ? 16 * high + i % 4 * 4 : i % 8 * 4;
      word(count + 4, warp + g + lane) |= static_cast<std::uint32_t>(first | second << 2) << shift;
    }
    for (int column = 0; column < t.n; ++column) {
      std::uint64_t value = random_element(t.d, false, engine);
      c[static_cast<std::size_t>(row)].push_back(value);
      int thread = warp + g + column % 8 / 2;
      if (t.d == "f16")
        word(column / 8 * 2 + high, thread) |= static_cast<std::uint32_t>(value << column % 2 * 16);
      else
        word(column / 8 * 4 + high * 2 + column % 2, thread) = static_cast<std::uint32_t>(value);
    }
  }
  for (int column = 0; column < t.n; ++column)
    for (int i = 0; i < k; ++i) {
      b[static_cast<std::size_t>(column)].push_back(random_element(t.b, false, engine));
      put(kBaseB + offset(t.swizzle, column, i / per_line) + i % per_line * bits / 8,
          b[static_cast<std::size_t>(column)].back());
    }
  Machine machine(program(t));
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  std::uint64_t buffer = machine.buffer(words);
  Launch launch = machine.launch({1, 1, 1}, {128, 1, 1}, buffer, machine.buffer(shared));
  launch.check = level;
  Outcome outcome = machine.run(launch);
  ASSERT_FALSE(outcome.fault) << outcome.fault->report;
  ASSERT_TRUE(outcome.reports.empty()) << outcome.reports[0].text;
  auto got = machine.read<std::uint32_t>(buffer, words.size());
  const double sign = t.d == "s32" ? 1 : -1;  // the scale of B
  for (std::size_t row = 0; row < 64; ++row)
    for (int column = 0; column < t.n; ++column) {
      auto j = static_cast<std::size_t>(column);
      double sum = element_value(t.d, c[row][j]), magnitude = std::fabs(sum);
      for (std::size_t i = 0; i < static_cast<std::size_t>(k); ++i) {
        double product = sign * element_value(t.a, a[row][i]) * element_value(t.b, b[j][i]);
        sum += product;
        magnitude += std::fabs(product);
      }
      int thread = static_cast<int>(row) / 16 * 32 + static_cast<int>(row) % 8 * 4 + column % 8 / 2;
      int high = static_cast<int>(row) % 16 / 8;
      int reg = t.d == "f16" ? column / 8 * 2 + high : column / 8 * 4 + high * 2 + column % 2;
      std::uint32_t value = got[static_cast<std::size_t>(reg * 128 + thread)];
      if (t.d == "f16") value = value >> (column % 2 * 16) & 0xffff;
      double bound = t.d == "s32" ? 0 : (k + 2) * 0x1p-24 * magnitude;
      if (t.d == "f16") bound += std::fabs(sum) * 0x1p-11 + 0x1p-25;
      double result = element_value(t.d, value);
      if (t.d == "f16" && std::fabs(sum) + bound >= 65520 && std::isinf(result)) continue;
      ASSERT_LE(std::fabs(result - sum), bound) << row << ", " << column;
    }
}

TEST(SparseWgmma, MultipliesAsF64Does) {
  std::vector<Case> cases;
  for (int swizzle : {0, 64, 128})
    for (bool registers : {false, true})
      for (int selector : {0, 1}) {
        cases.push_back({16, "f16", "f16", "f32", swizzle, registers, selector});
        cases.push_back({24, "bf16", "bf16", "f32", swizzle, registers, selector});
        cases.push_back({8, "f16", "f16", "f16", swizzle, registers, selector});
        cases.push_back({16, "tf32", "tf32", "f32", swizzle, registers, selector});
        if (selector != 0) continue;
        cases.push_back({16, "e4m3", "e5m2", "f32", swizzle, registers});
        cases.push_back({16, "e5m2", "e4m3", "f16", swizzle, registers});
        cases.push_back({32, "s8", "u8", "s32", swizzle, registers});
      }
  std::uint64_t seed = 1;
  for (const Case& t : cases) {
    SCOPED_TRACE(t.name() + " swizzle " + std::to_string(t.swizzle) +
                 (t.a_in_registers ? " A in registers" : "") + " selector " +
                 std::to_string(t.selector));
    ++seed;
    check(t, seed, seed % 8 == 0 ? Check::kFull : Check::kOff);
    if (HasFatalFailure()) return;
  }
}

TEST(SparseWgmma, SaysThatBInNarrowRowsIsNotDescribed) {
  Case t{16, "f16", "f16", "f32", 32, true};
  Machine machine(program(t));
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  std::vector<std::uint32_t> words(13 * 128, 0x44444444);
  std::vector<std::uint8_t> shared(kSharedBytes);
  std::uint64_t buffer = machine.buffer(words);
  Outcome outcome = machine.run({1, 1, 1}, {128, 1, 1}, buffer, machine.buffer(shared));
  ASSERT_TRUE(outcome.fault);
  EXPECT_NE(outcome.fault->report.find("swizzle of 32 bytes"), std::string::npos)
      << outcome.fault->report;
}

}  // namespace
}  // namespace tilewright::vgpu
