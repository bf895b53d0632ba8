/// One instruction executed by a warp, its operands in registers of 32 bits: for what exchanges data
/// between lanes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/virtual_gpu/run_ptx.h"

namespace tilewright::vgpu {

/// Registers of 32 lanes, one after the other.
using WarpRegisters = std::vector<std::uint32_t>;

/// "{%i4, %i5}": `count` registers from `first` on.
inline std::string register_list(char name, int first, int count) {
  std::string text = "{";
  for (int i = 0; i < count; ++i)
    text += (i > 0 ? ", %" : "%") + std::string(1, name) + std::to_string(first + i);
  return text + "}";
}

/// A kernel that loads registers %i0, %i1, ... of each lane, executes `body` and stores %o0, ...
inline std::string warp_program(const std::string& body, int inputs, int outputs,
                                const std::string& declarations = "") {
  std::string text = ".reg .b32 %i<" + std::to_string(inputs + 1) + ">;\n.reg .b32 %o<" +
                     std::to_string(outputs + 1) + ">;\n" + declarations +
                     "ld.param.u64 %d0, [p0];\nmov.u32 %r0, %tid.x;\nmul.wide.u32 %d1, %r0, 4;\n"
                     "add.u64 %d1, %d0, %d1;\n";
  for (int i = 0; i < inputs; ++i)
    text += "ld.global.b32 %i" + std::to_string(i) + ", [%d1+" + std::to_string(128 * i) + "];\n";
  text += body + "\n";
  for (int i = 0; i < outputs; ++i)
    text += "st.global.b32 [%d1+" + std::to_string(128 * (inputs + i)) + "], %o" +
            std::to_string(i) + ";\n";
  return entry(text + "ret;");
}

/// The outputs. A fault or an error of the text fails the test.
inline WarpRegisters run_warp(const std::string& body, const WarpRegisters& inputs, int outputs,
                              const Level& level = test_level(), unsigned threads = 32,
                              const std::string& declarations = "") {
  int count = static_cast<int>(inputs.size() / 32);
  Machine machine(warp_program(body, count, outputs, declarations), level);
  EXPECT_TRUE(machine.ok()) << machine.error().message;
  if (!machine.ok()) return {};
  WarpRegisters memory = inputs;
  memory.resize(inputs.size() + static_cast<std::size_t>(outputs) * 32);
  std::uint64_t buffer = machine.buffer(memory);
  Outcome outcome = machine.run({1, 1, 1}, {threads, 1, 1}, buffer);
  EXPECT_FALSE(outcome.fault) << outcome.fault->report;
  memory = machine.read<std::uint32_t>(buffer, memory.size());
  return {memory.begin() + static_cast<std::ptrdiff_t>(inputs.size()), memory.end()};
}

}  // namespace tilewright::vgpu
