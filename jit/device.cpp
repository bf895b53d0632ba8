#include "jit/device.h"

namespace tilewright::jit {

Architecture DeviceInfo::architecture() const {
  // CUDA C++ Programming Guide, "Architecture-Specific Features": from 9.0 on there is an `a` form.
  return Architecture{compute_major, compute_minor, compute_major >= 9};
}

Digest DeviceInfo::key() const {
  return Hasher()
      .add(name)
      .add(std::uint64_t(virtual_gpu))
      .add(std::uint64_t(compute_major))
      .add(std::uint64_t(compute_minor))
      .add(std::uint64_t(sm_count))
      .add(std::uint64_t(memory_bytes))
      .add(std::uint64_t(l2_bytes))
      .add(mig_profile)
      .finish();
}

}  // namespace tilewright::jit
