// What kernels ask of the system: printf, malloc, assert; calls through pointers, stacks, and the
// workspace of cooperative grids.
#include <gmock/gmock.h>

#include "jit/virtual_gpu/execute/common/print_format.h"
#include "tests/virtual_gpu/run_ptx.h"

namespace tilewright::vgpu {
namespace {

using testing::HasSubstr;

class Arguments final : public PrintArguments {
 public:
  template <class T>
  void add(T value) {
    bytes_.resize((bytes_.size() + sizeof(T) - 1) / sizeof(T) * sizeof(T) + sizeof(T));
    std::memcpy(bytes_.data() + bytes_.size() - sizeof(T), &value, sizeof(T));
  }
  void read(std::uint64_t address, void* to, std::size_t bytes) override {
    ASSERT_LE(address + bytes, bytes_.size());
    std::memcpy(to, bytes_.data() + address, bytes);
  }
  std::string text(std::uint64_t) override { return "text"; }

 private:
  std::vector<std::byte> bytes_;
};

TEST(Print, FormatsAsTheHostDoes) {
  Arguments arguments;
  arguments.add(-5);
  arguments.add(2.5);
  arguments.add(std::uint64_t{1} << 40);
  arguments.add(7);  // a width and its number
  arguments.add(3);
  arguments.add(1);  // a precision and its number
  arguments.add(1.0 / 3);
  arguments.add(std::uint64_t{0});
  arguments.add(65);
  int count = 0;
  EXPECT_EQ(print_format("%d|%5.1f|%llx|%%|%-*d|%.*e|%s|%c|%y|%", 0, arguments, &count),
            "-5|  2.5|10000000000|%|3      |3.3e-01|text|A|%y|%");
  EXPECT_EQ(count, 9);
}

/// The argument buffer of vprintf: lane and a double.
constexpr std::string_view kPrinting = R"(
    .local .align 8 .b8 buffer[16];
    mov.u32 %r1, %tid.x; setp.gt.u32 %p1, %r1, 1; @%p1 ret;
    mov.u64 %d1, buffer; cvta.local.u64 %d2, %d1;
    st.local.u32 [buffer], %r1; mov.f64 %x1, 0d3FF8000000000000; st.local.f64 [buffer+8], %x1;
    mov.u64 %d3, text; cvta.global.u64 %d4, %d3;
    { .param .b64 param0; st.param.b64 [param0], %d4;
      .param .b64 param1; st.param.b64 [param1], %d2;
      .param .b32 retval0;
      call.uni (retval0), vprintf, (param0, param1);
      ld.param.b32 %r2, [retval0]; }
    ld.param.u64 %d5, [p0]; st.global.u32 [%d5], %r2; ret;)";
// "lane %d: %.2f\n"
constexpr std::string_view kText =
    ".extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);\n"
    ".global .align 1 .b8 text[15] = {108, 97, 110, 101, 32, 37, 100, 58, 32, 37, 46, 50, 102, "
    "10};";

TEST(Print, LanesPrintOneAfterTheOther) {
  Machine machine(entry(kPrinting, 1, kText));
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  auto out = machine.buffer(std::vector<int>(1));
  Launch launch = machine.launch({1, 1, 1}, {32, 1, 1}, out);
  std::string printed;
  launch.print = [&](std::string_view line) { printed += line; };
  Outcome outcome = machine.run(launch);
  ASSERT_FALSE(outcome.fault) << outcome.fault->report;
  EXPECT_EQ(printed, "lane 0: 1.50\nlane 1: 1.50\n");
  EXPECT_EQ(machine.read<int>(out, 1)[0], 2);
}

TEST(Assert, TheFaultHasItsText) {
  Machine machine(entry(R"(
    mov.u64 %d1, text; cvta.global.u64 %d2, %d1;
    { .param .b64 a; st.param.b64 [a], %d2; .param .b64 b; st.param.b64 [b], %d2;
      .param .b32 c; st.param.b32 [c], 17; .param .b64 d; st.param.b64 [d], %d2;
      .param .b64 e; st.param.b64 [e], 1;
      call.uni __assertfail, (a, b, c, d, e); }
    ret;)",
                        1, ".global .align 1 .b8 text[3] = {105, 62, 0};"));
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  Outcome outcome = machine.run({1, 1, 1}, {32, 1, 1}, std::uint64_t{0});
  ASSERT_TRUE(outcome.fault);
  EXPECT_EQ(outcome.fault->kind, FaultKind::kTrap);
  EXPECT_THAT(outcome.fault->report, HasSubstr("i>:17: i>: assertion 'i>' failed"));
}

constexpr std::string_view kHeap =
    ".extern .func (.param .b64 r) malloc (.param .b64 a);\n.extern .func free (.param .b64 a);";

TEST(Heap, LanesGetMemoryOfTheirOwn) {
  auto results = [&](std::string_view more) {
    Machine machine(entry(std::string(R"(
    ld.param.u64 %d0, [p0]; mov.u32 %r0, %tid.x; mul.wide.u32 %d1, %r0, 8; add.u64 %d1, %d1, %d0;
    { .param .b64 a; st.param.b64 [a], 40; .param .b64 r; call.uni (r), malloc, (a);
      ld.param.b64 %d2, [r]; }
    st.u32 [%d2], %r0; st.u32 [%d2+36], %r0; bar.warp.sync -1; ld.u32 %r1, [%d2];
    ld.u32 %r2, [%d2+36]; add.u32 %r1, %r1, %r2; cvt.u64.u32 %d3, %r1; st.global.u64 [%d1], %d3;
    { .param .b64 a; st.param.b64 [a], %d2; call.uni free, (a); }
    )") + std::string(more) + "ret;",
                          1, kHeap));
    EXPECT_TRUE(machine.ok()) << machine.error().message;
    auto out = machine.buffer(std::vector<std::uint64_t>(32));
    Outcome outcome = machine.run({1, 1, 1}, {32, 1, 1}, out);
    return std::pair(outcome, machine.read<std::uint64_t>(out, 32));
  };
  auto [outcome, values] = results("");
  ASSERT_FALSE(outcome.fault) << outcome.fault->report;
  for (std::uint64_t i = 0; i < 32; ++i) EXPECT_EQ(values[i], 2 * i);
  auto [twice, ignored] =
      results("{ .param .b64 a; st.param.b64 [a], %d2; call.uni free, (a); }\n");
  ASSERT_TRUE(twice.fault);
  EXPECT_THAT(twice.fault->report, HasSubstr("free of what malloc did not return"));
}

constexpr std::string_view kFunctions = R"(
  .func (.param .b32 r) twice (.param .b32 a) {
    .reg .b32 %r<3>; ld.param.b32 %r1, [a]; add.u32 %r1, %r1, %r1; st.param.b32 [r], %r1; ret; }
  .func (.param .b32 r) next (.param .b32 a) {
    .reg .b32 %r<3>; ld.param.b32 %r1, [a]; add.u32 %r1, %r1, 1; st.param.b32 [r], %r1; ret; }
  .global .align 8 .u64 table[2] = {twice, next};
)";
constexpr std::string_view kThroughPointer = R"(
    { .param .b32 a; st.param.b32 [a], %r0; .param .b32 r;
      proto: .callprototype (.param .b32 _) _ (.param .b32 _);
      call (r), %d4, (a), proto;
      ld.param.b32 %r1, [r]; }
    st.global.u32 [%d1], %r1; ret;)";

TEST(Calls, ThroughPointersByLane) {
  Machine machine(entry(std::string(R"(
    ld.param.u64 %d0, [p0]; mov.u32 %r0, %tid.x; mul.wide.u32 %d1, %r0, 4; add.u64 %d1, %d1, %d0;
    and.b32 %r2, %r0, 1; mul.wide.u32 %d2, %r2, 8; mov.u64 %d3, table; add.u64 %d3, %d3, %d2;
    ld.global.u64 %d4, [%d3];)") +
                            std::string(kThroughPointer),
                        1, kFunctions));
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  auto out = machine.buffer(std::vector<unsigned>(32));
  Outcome outcome = machine.run({1, 1, 1}, {32, 1, 1}, out);
  ASSERT_FALSE(outcome.fault) << outcome.fault->report;
  auto values = machine.read<unsigned>(out, 32);
  for (unsigned i = 0; i < 32; ++i) EXPECT_EQ(values[i], i % 2 == 0 ? 2 * i : i + 1);
}

TEST(Calls, OfNoFunctionAreAFault) {
  Machine machine(entry(std::string("ld.param.u64 %d1, [p0]; mov.u64 %d4, 12; mov.u32 %r0, 1;") +
                            std::string(kThroughPointer),
                        1, kFunctions));
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  auto out = machine.buffer(std::vector<unsigned>(32));
  Outcome outcome = machine.run({1, 1, 1}, {1, 1, 1}, out);
  ASSERT_TRUE(outcome.fault);
  EXPECT_THAT(outcome.fault->report, HasSubstr("a call through a pointer to no function"));
}

TEST(Stack, AllocaGrowsAndIsRestored) {
  auto results = lane_results<std::uint64_t>(R"(
    stacksave.u64 %d2; and.b32 %r1, %r0, 7; mul.lo.u32 %r1, %r1, 4; add.u32 %r1, %r1, 4;
    cvt.u64.u32 %d3, %r1; alloca.u64 %d4, %d3, 16; st.local.u32 [%d4], %r0;
    alloca.u64 %d5, 8; st.local.u32 [%d5], 99; ld.local.u32 %r2, [%d4];
    stackrestore.u64 %d2; alloca.u64 %d6, 4, 16; sub.u64 %d6, %d6, %d4; cvt.u32.u64 %r3, %d6;
    mad.lo.u32 %r2, %r3, 1000, %r2; cvt.u64.u32 %d7, %r2; st.global.u64 [%d1], %d7; ret;)");
  for (std::uint64_t i = 0; i < 32; ++i) EXPECT_EQ(results[i], i);
  Machine machine(entry("alloca.u64 %d1, 20000; ret;"));
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  Outcome outcome = machine.run({1, 1, 1}, {32, 1, 1}, std::uint64_t{0});
  ASSERT_TRUE(outcome.fault);
  EXPECT_THAT(outcome.fault->report, HasSubstr("alloca of more than a thread's stack has left"));
}

TEST(Cooperative, OnlySuchLaunchesHaveAWorkspace) {
  Machine machine(entry(R"(
    ld.param.u64 %d0, [p0]; mov.u32 %r1, %envreg1; mov.u32 %r2, %envreg2;
    mov.b64 %d1, {%r2, %r1}; st.global.u64 [%d0], %d1; ret;)"));
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  auto out = machine.buffer(std::vector<std::uint64_t>(1, 7));
  Launch launch = machine.launch({1, 1, 1}, {1, 1, 1}, out);
  ASSERT_FALSE(machine.run(launch).fault);
  EXPECT_EQ(machine.read<std::uint64_t>(out, 1)[0], 0u);
  launch.cooperative = true;
  ASSERT_FALSE(machine.run(launch).fault);
  EXPECT_NE(machine.memory().at(machine.read<std::uint64_t>(out, 1)[0], 64), nullptr);
}

}  // namespace
}  // namespace tilewright::vgpu
