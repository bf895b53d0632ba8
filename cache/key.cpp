#include "cache/key.h"

namespace tilewright::cache {

Digest problem_digest(const templates::Operator& op, const Digest& device) {
  return Hasher()
      .add("tilewright problem 1")
      .add(templates::canonical_text(op))
      .add(device.hex())
      .finish();
}

Key Key::of(const templates::Operator& op, const jit::DeviceInfo& device) {
  Key key;
  key.device = device.key();
  key.problem = problem_digest(op, key.device);
  key.operator_text = templates::print(op);
  key.device_name = device.name;
  key.virtual_gpu = device.virtual_gpu;
  return key;
}

}  // namespace tilewright::cache
