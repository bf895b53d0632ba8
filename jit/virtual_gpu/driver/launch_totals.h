/// What a process launched, by kernel: for whoever asks where the time goes.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "jit/driver_api.h"

namespace tilewright::vgpu {

class LaunchTotals {
 public:
  /// $TILEWRIGHT_VGPU_SUMMARY names the file that write() appends to.
  void read_environment();
  void add(const std::string& kernel, const jit::VirtualLaunch& launch);
  void add_copy(const char* name, double bytes, double time_us);
  /// One JSON object in a line: the device, kernels and copies, the longest first. Nothing without a
  /// file, or where nothing was done.
  void write(const std::string& device) const;

 private:
  struct Total {
    std::uint64_t launches = 0, blocks = 0;
    double time_us = 0, least_us = 0, most_us = 0;
    double dram_bytes = 0, l2_bytes = 0;
    std::uint64_t tensor_operations = 0, warp_instructions = 0, shared_conflicts = 0;
    std::string bound_by, occupancy_limiter;  ///< of the longest launch, as the next one
    int blocks_per_sm = 0;
  };
  struct Copies {
    std::uint64_t count = 0;
    double bytes = 0, time_us = 0;
  };
  std::string file_;
  std::map<std::string, Total> kernels_;
  std::map<std::string, Copies> copies_;
};

}  // namespace tilewright::vgpu
