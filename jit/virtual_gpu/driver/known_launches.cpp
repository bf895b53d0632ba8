#include "jit/virtual_gpu/driver/known_launches.h"

#include <cstring>

#include "jit/virtual_gpu/driver/state.h"

namespace tilewright::vgpu {
namespace {

/// All that the work of a launch depends on, apart from what is in memory.
std::string key_of(const KernelOperation& kernel) {
  std::string key;
  const auto add = [&key](const auto& value) {
    char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    key.append(bytes, sizeof value);
  };
  add(kernel.kernel);
  add(kernel.grid);
  add(kernel.block);
  add(kernel.cluster);
  add(kernel.dynamic_shared_bytes);
  key.append(reinterpret_cast<const char*>(kernel.parameters.data()), kernel.parameters.size());
  return key;
}

}  // namespace

void KnownLaunches::keep(bool on) {
  on_ = on;
  entries_.clear();
}

const KnownLaunches::Entry* KnownLaunches::find(const KernelOperation& kernel) const {
  if (!on_) return nullptr;
  const auto found = entries_.find(key_of(kernel));
  return found == entries_.end() ? nullptr : &found->second;
}

void KnownLaunches::add(const KernelOperation& kernel, Entry entry) {
  if (on_) entries_.insert_or_assign(key_of(kernel), std::move(entry));
}

}  // namespace tilewright::vgpu
