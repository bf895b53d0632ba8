/// tilewright vgpu: what its subcommands share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/cli/session.h"

namespace tilewright::cli {

/// How far results may differ from those of the host's arithmetic.
struct ArithmeticFlags {
  std::string accumulation = "f32";  ///< of tensor cores: f32, f64, truncated
  std::uint64_t approximate = 0;     ///< seed of the errors of approximate functions; 0: none
};

struct VgpuCheckFlags {
  std::string kernel, launch, check = "full", architecture;
  std::uint64_t seed = 0, seeds = 1;
  double deadline_s = 60;
  int threads = 1;
  std::vector<std::string> sizes;  ///< "M=16"
  ArithmeticFlags arithmetic;
};
void run_vgpu_check(Session& session, const VgpuCheckFlags& flags);

struct VgpuRunFlags {
  std::vector<std::string> program;  ///< and its arguments
  std::string check = "off", streams, faults, reports;
  bool summary = false;
  std::uint64_t seed = 0;
  double deadline_s = 0;
  int threads = 1;
  ArithmeticFlags arithmetic;
};
void run_vgpu_run(Session& session, const VgpuRunFlags& flags);

}  // namespace tilewright::cli
