/// Which checks launches run with, and what they have found.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "jit/virtual_gpu/machine.h"

namespace tilewright::vgpu {

class Checking {
 public:
  Check check = Check::kOff;
  std::uint64_t seed = 0;
  Accumulation accumulation = Accumulation::kF32;
  std::uint64_t approximation_seed = 0;

  /// TILEWRIGHT_VGPU_CHECK (off, memory, full) and TILEWRIGHT_VGPU_SEED. Where the environment asks
  /// for checks, what they find is written to stderr as well, or appended to the file that
  /// TILEWRIGHT_VGPU_REPORTS names: foreign programs know no reports. False: no such level.
  bool read_environment();
  /// TILEWRIGHT_VGPU_ACCUMULATION (f32, f64, truncated) and TILEWRIGHT_VGPU_APPROXIMATE (nearest,
  /// adversarial, adversarial:SEED). An error is what is wrong, for people; empty: nothing is.
  std::string read_arithmetic();
  /// off, memory or full.
  bool set(const std::string& level);
  void add(std::vector<Report> reports);
  /// A fault of a launch without checks, for the file alone.
  void add_fault(const Fault& fault);
  /// An allocation that was there when "the context" or "the process" ended.
  void add_leak(const char* ended, std::uint64_t address, std::uint64_t bytes);
  /// `count` things of a kind that were; nothing where it is 0.
  void add_leaks(const char* ended, const char* kind, std::size_t count);
  /// What was found since the last call, as a JSON array. The text is valid until the next call.
  const char* take();

 private:
  void write(const Report& report) const;

  bool aloud_ = false;
  std::string file_;  ///< gets a JSON object a line; empty: none
  std::vector<Report> reports_;
  std::string text_;
};

}  // namespace tilewright::vgpu
