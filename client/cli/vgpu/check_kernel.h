/// One kernel on the virtual GPU, as its launch specification says: what the checks found, what it
/// wrote, what it cost. In this process; knows no driver.
#pragma once

#include <string>
#include <vector>

#include "client/cli/vgpu/expectation.h"
#include "jit/device.h"
#include "jit/virtual_gpu/machine.h"
#include "jit/virtual_gpu/timing/summary.h"

namespace tilewright::cli {

struct CheckOptions {
  vgpu::Check check = vgpu::Check::kFull;
  std::uint64_t seed = 0;  ///< of the schedule; 0: the canonical order
  double deadline_s = 60;  ///< 0: none
  int threads = 1;
  vgpu::Accumulation accumulation = vgpu::Accumulation::kF32;
  std::uint64_t approximation_seed = 0;  ///< 0: approximate functions are nearly exact
};

struct CheckResult {
  std::string kernel;
  /// A fault is among them, as the last one if the checks did not report it themselves.
  std::vector<vgpu::Report> reports;
  bool faulted = false;
  std::vector<Mismatch> mismatches;  ///< none after a fault: nothing was compared
  vgpu::Counters counters;
  vgpu::LaunchSummary summary;

  bool clean() const { return reports.empty() && mismatches.empty(); }
};

/// A specification with its data and what should come of it: made once, run under many seeds.
class PreparedSpec {
 public:
  static Result<PreparedSpec> prepare(LaunchSpec spec);
  const LaunchSpec& spec() const { return spec_; }

  /// Errors: kInvalidArgument (arguments that are not the kernel's, a kernel that is not there),
  /// kUnsupported and kInvalidArgument of PTX that cannot be loaded, kOutOfMemory.
  Result<CheckResult> run(const std::string& ptx, const jit::DeviceDescription& device,
                          const CheckOptions& options) const;

 private:
  LaunchSpec spec_;
  std::vector<Bytes> filled_;
  std::vector<std::vector<bool>> there_;  ///< by buffer, which elements are filled; empty: all
  std::vector<Expectation> expectations_;
};

}  // namespace tilewright::cli
