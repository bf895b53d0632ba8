#include "tests/virtual_gpu/conformance.h"

#include <bit>
#include <random>

namespace tilewright::vgpu {
namespace {

int width(const std::string& type) {
  if (type == "pred") return 0;
  if (type == "b8" || type == "u8" || type == "s8") return 2;
  if (type.find("x2") != std::string::npos) return 4;
  if (type.find("16") != std::string::npos) return 2;
  if (type.find("64") != std::string::npos) return 8;
  return 4;
}

std::string replace_names(std::string text) {
  for (char name : {'A', 'B', 'C', 'D'}) {
    std::string from(1, name), to = std::string("%v") + static_cast<char>(name - 'A' + 'a');
    for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
      text.replace(at, 1, to);
  }
  return text;
}

/// Loads %v{name} from row place `offset` (%d1 + offset).
std::string load(char name, const std::string& type, int offset) {
  if (type.empty()) return "";
  std::string reg = std::string("%v") + name, at = "[%d1+" + std::to_string(offset) + "]";
  int bytes = width(type);
  std::string text = ".reg ." + std::string(bytes == 0 ? "pred" : "b" + std::to_string(8 * bytes)) +
                     " " + reg + ";\n";
  if (bytes == 0)
    return text + "ld.global.u32 %r9, " + at + ";\nsetp.ne.u32 " + reg + ", %r9, 0;\n";
  return text + "ld.global.b" + std::to_string(8 * bytes) + " " + reg + ", " + at + ";\n";
}

constexpr std::uint64_t kUntouched = 0x5a5a5a5a5a5a5a5a;

}  // namespace

std::vector<std::uint64_t> evaluate(const Form1& form, const std::vector<Row>& rows,
                                    const Level& level, bool divergent) {
  // A row has its operands at 0, 8 and 16, its result at 24.
  std::string body =
      "ld.param.u64 %d0, [p0];\nmov.u32 %r0, %ctaid.x;\nmov.u32 %r1, %ntid.x;\n"
      "mov.u32 %r2, %tid.x;\nmad.lo.u32 %r3, %r0, %r1, %r2;\nmul.wide.u32 %d1, %r3, 32;\n"
      "add.u64 %d1, %d1, %d0;\nand.b32 %r4, %r2, 1;\nsetp.eq.u32 %p0, %r4, 0;\n";
  body += load('a', form.a, 0) + load('b', form.b, 8) + load('c', form.c, 16);
  int bytes = width(form.d);
  std::string result = bytes == 0 ? "pred" : "b" + std::to_string(8 * bytes);
  body += ".reg ." + result + " %vd;\n";
  if (bytes == 0)
    body += "setp.ne.u32 %vd, 0, 1;\n";
  else
    body += "mov." + result + " %vd, " +
            std::to_string(static_cast<std::int64_t>(bytes == 8   ? kUntouched
                                                     : bytes == 4 ? kUntouched & 0xffffffff
                                                                  : kUntouched & 0xffff)) +
            ";\n";
  std::string instruction = replace_names(form.instruction) + ";\n";
  body += divergent ? "@!%p0 bra SKIP;\n" + instruction + "SKIP:\n" : instruction;
  if (bytes == 0)
    body += "selp.u64 %d2, 1, 0, %vd;\nst.global.u64 [%d1+24], %d2;\n";
  else
    body += "st.global." + result + " [%d1+24], %vd;\n";
  Machine machine(entry(body + "ret;"), level);
  EXPECT_TRUE(machine.ok()) << machine.error().message;
  if (!machine.ok()) return std::vector<std::uint64_t>(rows.size(), 0);
  std::vector<Row> padded = rows;
  for (Row& row : padded) row.want = 0;
  padded.resize((rows.size() + 31) / 32 * 32);
  std::uint64_t buffer = machine.buffer(padded);
  Outcome outcome =
      machine.run({static_cast<unsigned>(padded.size() / 32), 1, 1}, {32, 1, 1}, buffer);
  EXPECT_FALSE(outcome.fault) << outcome.fault->report;
  auto done = machine.read<Row>(buffer, rows.size());
  std::vector<std::uint64_t> results;
  for (const Row& row : done) results.push_back(row.want);
  return results;
}

void expect_rows(const Form1& form, const std::vector<Row>& rows) {
  expect_reference(form, rows, [](const Row& row) { return row.want; });
}

void expect_reference(const Form1& form, const std::vector<Row>& rows,
                      const std::function<std::uint64_t(const Row&)>& reference) {
  int bytes = width(form.d);
  std::uint64_t untouched = bytes == 0   ? 1
                            : bytes == 8 ? kUntouched
                                         : kUntouched & ((std::uint64_t{1} << 8 * bytes) - 1);
  for (const Level* level : host_levels()) {
    for (bool divergent : {false, true}) {
      SCOPED_TRACE(form.instruction + " at level " + level->name +
                   (divergent ? ", every other lane" : ""));
      auto results = evaluate(form, rows, *level, divergent);
      int wrong = 0;
      for (std::size_t i = 0; i < rows.size() && wrong < 5; ++i) {
        std::uint64_t want = divergent && i % 2 == 1 ? untouched : reference(rows[i]);
        if (results[i] == want) continue;
        ++wrong;
        ADD_FAILURE() << std::hex << "a=" << rows[i].a << " b=" << rows[i].b << " c=" << rows[i].c
                      << ": got " << results[i] << ", want " << want;
      }
    }
  }
}

std::uint64_t bits_of(float f) { return std::bit_cast<std::uint32_t>(f); }
std::uint64_t bits_of(double d) { return std::bit_cast<std::uint64_t>(d); }

namespace {

std::vector<Row> mixed(const std::vector<std::uint64_t>& special, int count, std::uint64_t seed,
                       const std::function<std::uint64_t(std::mt19937_64&)>& random) {
  std::vector<Row> rows;
  for (std::uint64_t a : special)
    for (std::uint64_t b : special)
      rows.push_back({a, b, special[rows.size() % special.size()], 0});
  std::mt19937_64 engine(seed);
  for (int i = 0; i < count; ++i) {
    Row row;
    row.a = random(engine);
    row.b = random(engine);
    row.c = random(engine);
    rows.push_back(row);
  }
  return rows;
}

}  // namespace

std::vector<Row> float_rows(int count, std::uint64_t seed) {
  // Zeros, ones, subnormals, the smallest and the largest, infinities, NaN.
  return mixed(
      {0, 0x80000000, 0x3f800000, 0xbf800000, 1, 0x807fffff, 0x00800000, 0x7f7fffff, 0xff7fffff,
       0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001, 0x3f000000, 0xc0200000, 0x4b000001},
      count, seed, [](std::mt19937_64& engine) {
        auto bits = static_cast<std::uint32_t>(engine());
        // Every other one of moderate size, so that sums do not just take the larger.
        if ((engine() & 1) != 0) bits = (bits & 0x807fffff) | (120 + engine() % 16) << 23;
        return std::uint64_t{bits};
      });
}
std::vector<Row> double_rows(int count, std::uint64_t seed) {
  return mixed({0, 0x8000000000000000, 0x3ff0000000000000, 0xbff8000000000000, 1,
                0x7fefffffffffffff, 0x7ff0000000000000, 0xfff0000000000000, 0x7ff8000000000000},
               count, seed, [](std::mt19937_64& engine) {
                 std::uint64_t bits = engine();
                 return (bits & 0x800fffffffffffff) | (1015 + engine() % 16) << 52;
               });
}
std::vector<Row> half_rows(int count, std::uint64_t seed) {
  return mixed({0, 0x8000, 0x3c00, 0xbc00, 1, 0x83ff, 0x0400, 0x7bff, 0xfbff, 0x7c00, 0xfc00,
                0x7e00, 0x3555, 0x3f80, 0x7f80, 0xff80, 0x4049, 0x0080},
               count, seed, [](std::mt19937_64& engine) { return engine() & 0xffff; });
}
std::vector<Row> integer_rows(int bytes, int count, std::uint64_t seed) {
  std::uint64_t all = bytes == 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << 8 * bytes) - 1;
  std::uint64_t top = all / 2 + 1;
  return mixed({0, 1, 2, all, all - 1, top, top - 1, 7, 0x55555555 & all, 31, 32, 33}, count, seed,
               [=](std::mt19937_64& engine) {
                 std::uint64_t bits = engine() & all;
                 return (engine() & 3) == 0 ? bits & 0xff : bits;
               });
}

}  // namespace tilewright::vgpu
