/// Runs small PTX texts on the machine, at a chosen level of the host's instruction set.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "jit/virtual_gpu/machine.h"
#include "jit/virtual_gpu/program/program.h"

namespace tilewright::vgpu {

/// The levels that this host can run.
inline std::vector<const Level*> host_levels() {
  std::vector<const Level*> levels;
  for (const Level* level : {&level_v2(), &level_v3(), &level_v4()})
    if (supported(*level)) levels.push_back(level);
  return levels;
}

/// The level that tests use which do not go through all: $TILEWRIGHT_TEST_LEVEL (v2, v3 or v4) where the
/// host can run it, else the best one. CTest runs the programs once for each.
inline const Level& test_level() {
  const char* wanted = std::getenv("TILEWRIGHT_TEST_LEVEL");
  for (const Level* level : host_levels())
    if (wanted != nullptr && std::string_view(wanted) == level->name) return *level;
  return best_level();
}

/// A module of one entry `k` with parameters of 64 bits p0, p1, ... and the usual registers: %p, %h
/// (16 bits), %r (32), %f (f32), %d (64), %x (f64), sixteen of each.
inline std::string entry(std::string_view body, int parameters = 1,
                         std::string_view declarations = "", std::string_view attributes = "") {
  std::string text = ".version 8.5\n.target sm_90\n.address_size 64\n";
  text += declarations;
  text += "\n.visible .entry k(";
  for (int i = 0; i < parameters; ++i)
    text += std::string(i > 0 ? ", " : "") + ".param .u64 p" + std::to_string(i);
  text += ")\n";
  text += attributes;
  text +=
      "\n{\n.reg .pred %p<16>;\n.reg .b16 %h<16>;\n.reg .b32 %r<16>;\n.reg .f32 %f<16>;\n"
      ".reg .b64 %d<16>;\n.reg .f64 %x<16>;\n";
  text += body;
  text += "\n}\n";
  return text;
}

/// One module, its memory, and launches of its entries.
class Machine {
 public:
  explicit Machine(std::string_view ptx, const Level& level = test_level()) {
    auto loaded = LoadedProgram::load(ptx, *memory_, level);
    if (loaded)
      program_ = *loaded;
    else
      error_ = loaded.error();
  }
  bool ok() const { return program_ != nullptr; }
  const Error& error() const { return error_; }
  Memory& memory() { return *memory_; }
  Program& program() { return *program_; }

  template <class T>
  std::uint64_t buffer(const std::vector<T>& values) {
    std::size_t bytes = values.size() * sizeof(T);
    std::uint64_t address = *memory_->allocate(bytes);
    std::memcpy(memory_->at(address, bytes), values.data(), bytes);
    return address;
  }
  template <class T>
  std::vector<T> read(std::uint64_t address, std::size_t count) {
    std::vector<T> values(count);
    std::memcpy(values.data(), memory_->at(address, count * sizeof(T)), count * sizeof(T));
    return values;
  }

  /// A launch whose parameters are `arguments` in order.
  template <class... A>
  Launch launch(std::array<unsigned, 3> grid, std::array<unsigned, 3> block, A... arguments) {
    Launch launch;
    launch.program = program_.get();
    launch.kernel = "k";
    launch.grid = grid;
    launch.block = block;
    launch.deadline_s = 20;
    const KernelInfo* info = program_->find("k");
    launch.parameters.resize(static_cast<std::size_t>(info->parameter_bytes));
    std::size_t i = 0;
    ((std::memcpy(launch.parameters.data() + info->parameters[i++].offset, &arguments,
                  sizeof arguments)),
     ...);
    return launch;
  }
  Outcome run(const Launch& launch) { return execute(*memory_, launch); }
  template <class... A>
  Outcome run(std::array<unsigned, 3> grid, std::array<unsigned, 3> block, A... arguments) {
    return run(launch(grid, block, arguments...));
  }

 private:
  std::unique_ptr<Memory> memory_ = Memory::create(std::uint64_t{1} << 26);
  std::shared_ptr<Program> program_;
  Error error_;
};

/// Runs `body` with one warp and a buffer of 32 results of type T at %d0, whose lane's place is %d1,
/// %r0 being the lane.
template <class T>
std::vector<T> lane_results(std::string_view body, const Level& level = test_level(),
                            unsigned threads = 32) {
  std::string text = "ld.param.u64 %d0, [p0];\nmov.u32 %r0, %tid.x;\nmul.wide.u32 %d1, %r0, " +
                     std::to_string(sizeof(T)) + ";\nadd.u64 %d1, %d0, %d1;\n";
  text += body;
  Machine machine(entry(text), level);
  EXPECT_TRUE(machine.ok()) << machine.error().message;
  if (!machine.ok()) return {};
  std::uint64_t out = machine.buffer(std::vector<T>(threads, T{}));
  Outcome outcome = machine.run({1, 1, 1}, {threads, 1, 1}, out);
  EXPECT_FALSE(outcome.fault) << outcome.fault->report;
  return machine.read<T>(out, threads);
}

}  // namespace tilewright::vgpu
