/// The memory that malloc gives out in kernels: one allocation of the module, as large as CUDA's
/// default heap. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

namespace tilewright::vgpu {

class DeviceHeap {
 public:
  static constexpr std::uint64_t kBytes = std::uint64_t{8} << 20;

  /// [begin, begin + kBytes) of device memory.
  explicit DeviceHeap(std::uint64_t begin) : begin_(begin) {}

  /// Aligned to 16 bytes; 0 where there is no room.
  std::uint64_t allocate(std::uint64_t bytes);
  /// False: allocate() did not return it, or it was freed.
  bool free(std::uint64_t address);

 private:
  const std::uint64_t begin_;
  std::mutex mutex_;
  std::map<std::uint64_t, std::uint64_t> live_;  ///< begin -> end
};

}  // namespace tilewright::vgpu
