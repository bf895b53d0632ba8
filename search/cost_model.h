/// What a group costs at least: bytes through DRAM, arithmetic, one launch. It ranks groups before
/// anything is measured and says how near a time is to the ceiling; it chooses nothing.
#pragma once

#include <filesystem>
#include <string>

#include "jit/device.h"
#include "templates/operator/operator.h"

namespace tilewright::search {

struct Work {
  std::int64_t bytes = 0;  ///< inputs read once, outputs written once
  double matmul_flops = 0;
  double other_flops = 0;  ///< element by element and over rows; special functions count as several
};

/// Of an operator (or a group as one). Errors: kInvalidArgument names a dimension without a value.
Result<Work> work_of(const templates::Operator& op, const templates::Bindings& bindings);

struct Floor {
  double time_us = 0;  ///< the larger of the next two, and the launch
  double memory_us = 0, arithmetic_us = 0, launch_us = 0;
  std::string bound_by;  ///< "dram", "fma" or "launch"
};

class CostModel {
 public:
  explicit CostModel(jit::DeviceDescription device) : device_(std::move(device)) {}

  /// The description in `configs`/devices whose name is the device's; without one (or without a
  /// folder), rates estimated from its SM count: good enough to rank.
  static CostModel of(const jit::DeviceInfo& device, const std::filesystem::path& configs = {});

  Floor floor(const Work& work) const;
  bool estimated() const { return estimated_; }

 private:
  jit::DeviceDescription device_;
  bool estimated_ = false;
};

}  // namespace tilewright::search
