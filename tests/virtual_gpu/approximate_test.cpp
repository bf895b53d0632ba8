// Approximate functions that err as far as the PTX ISA allows: within the bound, and up to it.
#include "jit/virtual_gpu/execute/common/approximate.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "jit/virtual_gpu/execute/common/half_scalar.h"
#include "tests/virtual_gpu/run_ptx.h"

namespace tilewright::vgpu {
namespace {

using U32 = std::uint32_t;

/// Words of 32 bits through `instruction`, from %r1 to %r2 (as %f1, %f2 for f32), one lane each.
std::vector<U32> results(const std::string& instruction, const std::vector<U32>& inputs,
                         std::uint64_t seed) {
  Machine machine(
      entry("ld.param.u64 %d0, [p0]; mov.u32 %r0, %ctaid.x; mov.u32 %r3, %tid.x;\n"
            "mad.lo.u32 %r0, %r0, 32, %r3; mul.wide.u32 %d1, %r0, 4;\n"
            "add.u64 %d1, %d1, %d0; ld.global.u32 %r1, [%d1]; mov.b32 %f1, %r1;\n"
            "cvt.u16.u32 %h1, %r1; mov.b32 %f2, 0; mov.u16 %h2, 0; mov.u32 %r2, 0;\n" +
            instruction + ";\nst.global.u32 [%d1], " +
            (instruction.find("%f") != std::string::npos ? "%f2" : "%r2") + "; ret;"));
  EXPECT_TRUE(machine.ok()) << machine.error().message;
  if (!machine.ok()) return {};
  std::vector<U32> padded = inputs;
  padded.resize((inputs.size() + 31) / 32 * 32, inputs[0]);
  auto buffer = machine.buffer(padded);
  Launch launch =
      machine.launch({static_cast<unsigned>(padded.size() / 32), 1, 1}, {32, 1, 1}, buffer);
  launch.approximation_seed = seed;
  Outcome outcome = machine.run(launch);
  EXPECT_FALSE(outcome.fault) << outcome.fault->report;
  return machine.read<U32>(buffer, inputs.size());
}

struct Function {
  const char* instruction;
  Op op;
  double from, to;
  double reached;  ///< share of the bound that errors come to: steps of f32 may be as wide
};

TEST(Approximate, F32ErrsUpToTheBoundAndNotBeyond) {
  const Function functions[] = {
      {"rcp.approx.f32 %f2, %f1", Op::kRcp, 0.01, 50, 0.99},
      {"rcp.approx.ftz.f32 %f2, %f1", Op::kRcp, -50, -0.01, 0.99},
      {"div.approx.f32 %f2, 0f40490FDB, %f1", Op::kDiv, 0.01, 50, 0.99},
      {"div.full.f32 %f2, 0f40490FDB, %f1", Op::kDiv, 0.01, 50, 0.99},
      {"sqrt.approx.f32 %f2, %f1", Op::kSqrtApprox, 0.01, 90, 0.99},
      {"rsqrt.approx.f32 %f2, %f1", Op::kRsqrt, 0.01, 90, 0.99},
      {"lg2.approx.f32 %f2, %f1", Op::kLg2, 0.51, 1.99, 0.99},
      {"lg2.approx.f32 %f2, %f1", Op::kLg2, 2, 1000, 0.99},
      {"ex2.approx.f32 %f2, %f1", Op::kEx2, -20, 20, 0.99},
      {"ex2.approx.ftz.f32 %f2, %f1", Op::kEx2, -20, 20, 0.99},
      {"sin.approx.f32 %f2, %f1", Op::kSin, -6, 6, 0.99},
      {"cos.approx.f32 %f2, %f1", Op::kCos, -300, 300, 0.99},
      {"tanh.approx.f32 %f2, %f1", Op::kTanh, -3, 3, 0.99},
  };
  for (const Function& f : functions) {
    SCOPED_TRACE(f.instruction);
    std::vector<U32> inputs;
    for (int i = 0; i < 4000; ++i)
      inputs.push_back(
          std::bit_cast<U32>(static_cast<float>(f.from + (f.to - f.from) * (i + 0.37) / 4000)));
    const auto out = results(f.instruction, inputs, 5);
    double most = 0, least = 0;
    for (std::size_t i = 0; i < out.size(); ++i) {
      const double x = std::bit_cast<float>(inputs[i]);
      const Approximation a = f.op == Op::kDiv
                                  ? approximation_of(f.op, Type::kF32, 3.14159274101257324, x)
                                  : approximation_of(f.op, Type::kF32, x, 0);
      const double error = (std::bit_cast<float>(out[i]) - a.exact) / a.bound;
      most = std::max(most, error);
      least = std::min(least, error);
    }
    EXPECT_LE(most, 1);
    EXPECT_GE(least, -1);
    EXPECT_GT(most, f.reached);
    EXPECT_LT(least, -f.reached);
    EXPECT_EQ(out, results(f.instruction, inputs, 5)) << "the same seed, the same errors";
    EXPECT_NE(out, results(f.instruction, inputs, 6));
  }
}

TEST(Approximate, HalvesErrUpToTheBoundAndNotBeyond) {
  struct {
    const char* instruction;
    Op op;
    Type type;
  } functions[] = {{"ex2.approx.f16 %h2, %h1; cvt.u32.u16 %r2, %h2", Op::kEx2, Type::kF16},
                   {"ex2.approx.ftz.bf16x2 %r2, %r1", Op::kEx2, Type::kBF16},
                   {"tanh.approx.f16x2 %r2, %r1", Op::kTanh, Type::kF16},
                   {"tanh.approx.bf16x2 %r2, %r1", Op::kTanh, Type::kBF16}};
  for (const auto& f : functions) {
    SCOPED_TRACE(f.instruction);
    auto value = [&](U32 h) {
      auto bits = static_cast<std::uint16_t>(h);
      return double{f.type == Type::kBF16 ? scalar::from_bf16(bits) : scalar::from_f16(bits)};
    };
    std::vector<U32> inputs;
    for (U32 h = 0; h < 0x10000; h += 7)
      if (std::fabs(value(h)) < 4 && value(h) != 0) inputs.push_back(h);
    const auto out = results(f.instruction, inputs, 9);
    double most = 0;
    for (std::size_t i = 0; i < out.size(); ++i) {
      const Approximation a = approximation_of(f.op, f.type, value(inputs[i]), 0);
      most = std::max(most, std::fabs(value(out[i]) - a.exact) / a.bound);
    }
    EXPECT_LE(most, 1);
    EXPECT_GT(most, 0.95);
  }
}

TEST(Approximate, SpecialValuesStay) {
  const std::vector<U32> inputs = {0, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00000};
  for (const char* instruction :
       {"rcp.approx.f32 %f2, %f1", "sqrt.approx.f32 %f2, %f1", "rsqrt.approx.f32 %f2, %f1",
        "lg2.approx.f32 %f2, %f1", "ex2.approx.f32 %f2, %f1", "tanh.approx.f32 %f2, %f1",
        "cos.approx.f32 %f2, %f1", "sin.approx.f32 %f2, %f1"})
    EXPECT_EQ(results(instruction, inputs, 3), results(instruction, inputs, 0)) << instruction;
  EXPECT_EQ(results("lg2.approx.f32 %f2, %f1", {0x3f800000}, 3)[0], 0u);
  EXPECT_EQ(results("rcp.rn.f32 %f2, %f1", {0x40400000}, 3)[0], std::bit_cast<U32>(1.0f / 3))
      << "what is not approximate is not touched";
}

}  // namespace
}  // namespace tilewright::vgpu
