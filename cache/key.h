/// What a record is found by. docs/cache-key.md lists everything that enters it, and why.
#pragma once

#include "jit/device.h"
#include "templates/operator/operator.h"

namespace tilewright::cache {

/// Operator (canonical text: layouts, dtypes and numerics are in it) and device. Dynamic sizes are
/// looked up in the record's range table.
struct Key {
  Digest problem;             ///< of the operator and the device
  std::string operator_text;  ///< as printed: parses back to an operator of the same problem
  std::string device_name;
  bool virtual_gpu = false;
  Digest device;  ///< DeviceInfo::key(): what `problem` took from the device

  static Key of(const templates::Operator& op, const jit::DeviceInfo& device);

  bool operator==(const Key&) const = default;
};

/// The problem of an operator on a device that is known by its key only.
Digest problem_digest(const templates::Operator& op, const Digest& device);

}  // namespace tilewright::cache
