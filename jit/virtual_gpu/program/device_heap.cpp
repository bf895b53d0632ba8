#include "jit/virtual_gpu/program/device_heap.h"

#include <algorithm>

namespace tilewright::vgpu {

std::uint64_t DeviceHeap::allocate(std::uint64_t bytes) {
  if (bytes > kBytes) return 0;
  bytes = (std::max<std::uint64_t>(bytes, 1) + 15) / 16 * 16;
  std::lock_guard lock(mutex_);
  // After the last one, which is where there is room as long as nothing was freed.
  std::uint64_t at = live_.empty() ? begin_ : live_.rbegin()->second;
  if (bytes > begin_ + kBytes - at) {
    at = begin_;
    for (auto [begin, end] : live_) {
      if (begin - at >= bytes) break;
      at = end;
    }
    if (bytes > begin_ + kBytes - at) return 0;
  }
  live_[at] = at + bytes;
  return at;
}

bool DeviceHeap::free(std::uint64_t address) {
  std::lock_guard lock(mutex_);
  return live_.erase(address) != 0;
}

}  // namespace tilewright::vgpu
