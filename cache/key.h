/// What a record is found by. docs/cache-key.md lists everything that enters it, and why.
#pragma once

#include "jit/device.h"
#include "templates/operator/operator.h"

namespace tilewright::cache {

/// Operator (canonical text: layouts, dtypes and numerics are in it) and device. Dynamic sizes are
/// looked up in the record's range table.
struct Key {
  Digest problem;  ///< of the operator and the device
  std::string operator_text;
  std::string device_name;
  bool virtual_gpu = false;

  static Key of(const templates::Operator& op, const jit::DeviceInfo& device);
};

}  // namespace tilewright::cache
