// Texts that are nearly PTX are loaded or refused; random straight-line programs compute what a
// scalar evaluation of them does. Every case follows from its seed.
#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <random>

#include "tests/virtual_gpu/check_cases.h"
#include "tests/virtual_gpu/run_ptx.h"

namespace tilewright::vgpu {
namespace {

using Random = std::mt19937;

std::size_t below(Random& random, std::size_t n) { return random() % n; }

/// `text` with one to four places changed: bytes, pieces dropped, repeated or from elsewhere.
std::string mutated(std::string text, Random& random) {
  constexpr const char* kPieces[] = {"{", "}",    ";",  "[",         "]",  ",",     "%r99",
                                     "@", ".v4",  "-1", "/*",        "\"", "0x",    "4294967296",
                                     "<", ".u64", ":",  ".reg .b32", "%",  "1e999", ".param"};
  for (std::size_t n = 1 + below(random, 4); n > 0 && !text.empty(); --n) {
    std::size_t at = below(random, text.size());
    std::size_t length = 1 + below(random, std::min<std::size_t>(text.size() - at, 24));
    switch (below(random, 5)) {
      case 0:
        text[at] = static_cast<char>(random());
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, text.substr(below(random, text.size()), length));
        break;
      case 3:
        text.insert(at, kPieces[below(random, std::size(kPieces))]);
        break;
      default:
        text.resize(at);
        break;
    }
  }
  return text;
}

/// Launches every kernel of a program that nobody wrote: any outcome will do, as long as there is one.
void run_anything(Machine& machine) {
  for (const std::string& kernel : machine.program().kernels()) {
    const KernelInfo* info = machine.program().find(kernel);
    Launch launch;
    launch.program = &machine.program();
    launch.kernel = kernel;
    launch.block = {64, 1, 1};
    launch.deadline_s = 0.02;
    auto buffer = machine.buffer(std::vector<std::uint64_t>(512));
    launch.parameters.resize(static_cast<std::size_t>(info->parameter_bytes));
    for (const auto& parameter : info->parameters)
      if (parameter.size >= 8)
        std::memcpy(launch.parameters.data() + parameter.offset, &buffer, sizeof buffer);
    launch.print = [](std::string_view) {};
    Outcome outcome = machine.run(launch);
    if (outcome.fault) {
      EXPECT_FALSE(outcome.fault->report.empty());
    }
  }
}

TEST(PtxFuzz, MutatedTextsAreRefusedWithAMessageOrRun) {
  unsigned seed = 1;
  int count = 20000;
  // For longer runs by hand.
  if (const char* given = std::getenv("TILEWRIGHT_FUZZ_SEED")) seed = unsigned(std::atoi(given));
  if (const char* given = std::getenv("TILEWRIGHT_FUZZ_COUNT")) count = std::atoi(given);
  Random random(seed);
  int refused = 0;
  for (int i = 0; i < count; ++i) {
    const CheckCase& base = check_cases()[below(random, check_cases().size())];
    std::string text = mutated(entry(base.body, 2, base.declarations), random);
    Machine machine(text);
    if (machine.ok()) {
      run_anything(machine);
      continue;
    }
    ++refused;
    if (machine.error().code != ErrorCode::kOutOfMemory) {
      EXPECT_THAT(machine.error().message, testing::HasSubstr("ptx line ")) << text;
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(refused, count / 4);
  EXPECT_LT(refused, count - count / 40) << "some are still programs";
}

/// A straight-line program over eight registers of each kind, and what one lane computes by it.
class StraightLine {
 public:
  explicit StraightLine(unsigned seed) : random_(seed) {
    for (int i = 0; i < 8; ++i) {
      r_[i] = random_();
      d_[i] = (std::uint64_t{random_()} << 32) | random_();
      f_[i] = static_cast<float>(static_cast<int>(random_() % 4001) - 2000) / 16;
      line("mov.u32 %r" + n(i) + ", " + std::to_string(r_[i]));
      line("mov.u64 %d" + n(i) + ", " + std::to_string(static_cast<std::int64_t>(d_[i])));
      line("mov.f32 %f" + n(i) + ", " + bits(f_[i]));
    }
    for (int i = 0; i < 60; ++i) step();
    line("ld.param.u64 %d8, [p0]");
    for (int i = 0; i < 8; ++i) {
      line("st.global.u64 [%d8+" + n(8 * i) + "], %d" + n(i));
      line("st.global.u32 [%d8+" + n(64 + 4 * i) + "], %r" + n(i));
      line("st.global.f32 [%d8+" + n(96 + 4 * i) + "], %f" + n(i));
    }
    line("ret");
  }
  const std::string& text() const { return text_; }
  std::vector<std::uint32_t> expected() const {
    std::vector<std::uint32_t> words;
    for (std::uint64_t d : d_) {
      words.push_back(static_cast<std::uint32_t>(d));
      words.push_back(static_cast<std::uint32_t>(d >> 32));
    }
    words.insert(words.end(), r_.begin(), r_.end());
    for (float f : f_) words.push_back(std::bit_cast<std::uint32_t>(f));
    return words;
  }

 private:
  static std::string n(int i) { return std::to_string(i); }
  static std::string bits(float f) {
    char text[16];
    std::snprintf(text, sizeof text, "0f%08X", std::bit_cast<std::uint32_t>(f));
    return text;
  }
  void line(const std::string& text) { text_ += text + ";\n"; }
  int pick() { return static_cast<int>(below(random_, 8)); }

  template <class T>
  void integer(std::array<T, 8>& v, const std::string& k, const std::string& width) {
    int to = pick(), a = pick(), b = pick(), c = pick();
    using S = std::make_signed_t<T>;
    T x = v[a], y = v[b], out{};
    auto emit = [&](const std::string& op, T value) {
      line(op + width + " " + k + n(to) + ", " + k + n(a) + ", " + k + n(b));
      out = value;
    };
    constexpr unsigned kBits = 8 * sizeof(T);
    unsigned shift = static_cast<unsigned>(below(random_, kBits + 4));
    std::string by = " " + k + n(to) + ", " + k + n(a) + ", " + std::to_string(shift);
    switch (below(random_, 20)) {
      case 11:
        emit("min.u", std::min(x, y));
        break;
      case 12:
        emit("max.s", static_cast<S>(x) > static_cast<S>(y) ? x : y);
        break;
      case 13: {
        std::string d = k + n(to);
        line("neg.s" + width + " " + d + ", " + k + n(a));
        out = static_cast<T>(0 - x);
        break;
      }
      case 14:
        line("not.b" + width + " " + k + n(to) + ", " + k + n(a));
        out = static_cast<T>(~x);
        break;
      case 15:
        line("abs.s" + width + " " + k + n(to) + ", " + k + n(a));
        out = static_cast<S>(x) < 0 ? static_cast<T>(0 - x) : x;
        break;
      case 16:
        line("mad.lo.u" + width + " " + k + n(to) + ", " + k + n(a) + ", " + k + n(b) + ", " + k +
             n(c));
        out = static_cast<T>(x * y + v[c]);
        break;
      case 17: {
        using Wide = std::conditional_t<sizeof(T) == 8, unsigned __int128, std::uint64_t>;
        emit("mul.hi.u", static_cast<T>(Wide{x} * Wide{y} >> kBits));
        break;
      }
      case 18:
        if (y == 0) return;
        emit("div.u", x / y);
        break;
      case 19: {
        unsigned length = static_cast<unsigned>(below(random_, kBits + 1));
        line("bfe.u" + width + by + ", " + std::to_string(length));
        T field = shift >= kBits ? 0 : x >> shift;
        out = length >= kBits ? field : field & ((T{1} << length) - 1);
        break;
      }
      case 0:
        emit("add.u", x + y);
        break;
      case 1:
        emit("sub.s", x - y);
        break;
      case 2:
        emit("mul.lo.u", x * y);
        break;
      case 3:
        emit("and.b", x & y);
        break;
      case 4:
        emit("or.b", x | y);
        break;
      case 5:
        emit("xor.b", x ^ y);
        break;
      case 6:
        emit("min.s", static_cast<S>(x) < static_cast<S>(y) ? x : y);
        break;
      case 7:
        emit("max.u", std::max(x, y));
        break;
      case 8:
        line("shl.b" + width + by);
        out = shift >= kBits ? 0 : x << shift;
        break;
      case 9:
        line("shr.u" + width + by);
        out = shift >= kBits ? 0 : x >> shift;
        break;
      case 10:
        line("shr.s" + width + by);
        out = static_cast<T>(static_cast<S>(x) >> std::min(shift, kBits - 1));
        break;
      default:
        line("setp.lt.s" + width + " %p0, " + k + n(a) + ", " + k + n(b));
        line("selp.b" + width + " " + k + n(to) + ", " + k + n(b) + ", " + k + n(c) + ", %p0");
        out = static_cast<S>(x) < static_cast<S>(y) ? y : v[c];
    }
    v[to] = out;
  }

  void real() {
    int to = pick(), a = pick(), b = pick(), c = pick();
    float x = f_[a], y = f_[b], out = 0;
    std::string ab = " %f" + n(to) + ", %f" + n(a) + ", %f" + n(b);
    switch (below(random_, 5)) {
      case 0:
        line("add.rn.f32" + ab);
        out = x + y;
        break;
      case 1:
        line("mul.rn.f32" + ab);
        out = x * y;
        break;
      case 2:
        line("fma.rn.f32" + ab + ", %f" + n(c));
        out = std::fma(x, y, f_[c]);
        break;
      case 3:
        line("min.f32" + ab);
        out = x == y ? (std::signbit(x) ? x : y) : std::min(x, y);
        break;
      default:
        line("max.f32" + ab);
        out = x == y ? (std::signbit(x) ? y : x) : std::max(x, y);
        break;
    }
    // What is large or no number is left to the tests of floats.
    if (!(std::fabs(out) < 1e30f)) {
      line("mov.f32 %f" + n(to) + ", 0f3F800000");
      out = 1;
    }
    f_[to] = out;
  }

  void step() {
    int to = pick(), from = pick();
    switch (below(random_, 10)) {
      case 0:
        line("cvt.s64.s32 %d" + n(to) + ", %r" + n(from));
        d_[to] = static_cast<std::uint64_t>(std::int64_t{static_cast<std::int32_t>(r_[from])});
        break;
      case 1:
        line("cvt.u32.u64 %r" + n(to) + ", %d" + n(from));
        r_[to] = static_cast<std::uint32_t>(d_[from]);
        break;
      case 2:
        line("cvt.rn.f32.s32 %f" + n(to) + ", %r" + n(from));
        f_[to] = static_cast<float>(static_cast<std::int32_t>(r_[from]));
        break;
      case 3:
      case 4:
      case 5:
        integer(r_, "%r", "32");
        break;
      case 6:
      case 7:
        integer(d_, "%d", "64");
        break;
      default:
        real();
    }
  }

  Random random_;
  std::string text_;
  std::array<std::uint32_t, 8> r_{};
  std::array<std::uint64_t, 8> d_{};
  std::array<float, 8> f_{};
};

TEST(PtxFuzz, StraightLineProgramsComputeWhatAScalarEvaluationDoes) {
  for (unsigned seed = 0; seed < 2000; ++seed) {
    StraightLine program(seed);
    Machine machine(entry(program.text()));
    ASSERT_TRUE(machine.ok()) << machine.error().message;
    auto out = machine.buffer(std::vector<std::uint32_t>(32));
    Outcome outcome = machine.run({1, 1, 1}, {1, 1, 1}, out);
    ASSERT_FALSE(outcome.fault) << outcome.fault->report;
    ASSERT_EQ(machine.read<std::uint32_t>(out, 32), program.expected()) << "seed " << seed << "\n"
                                                                        << program.text();
  }
}

}  // namespace
}  // namespace tilewright::vgpu
