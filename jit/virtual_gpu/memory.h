/// Device memory as one reserved range of host memory: host address = device address + delta, so
/// translation is an addition. The table of allocations says which of it is valid. Below the range,
/// it names host memory that kernels reach as well, at one address for both.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "jit/virtual_gpu/machine.h"

namespace tilewright::vgpu {

/// Bit 47 is set and the bits above are not: no x86-64 host has such an address.
inline constexpr std::uint64_t kArenaBase = 0x0000'9000'0000'0000;
inline constexpr std::uint64_t kAllocationAlignment = 512;

struct Allocation {
  std::uint64_t begin = 0, end = 0;  ///< device addresses, [begin, end)
};

/// The live allocations at one moment, sorted. What a launch checks its accesses against.
using AllocationTable = std::vector<Allocation>;

/// The allocation that holds `address`, else the closest one; null if there is none at all.
const Allocation* nearest(const AllocationTable& table, std::uint64_t address);
/// The allocation that holds all of [address, address + bytes), or null.
const Allocation* holding(const AllocationTable& table, std::uint64_t address, std::uint64_t bytes);

class GlobalShadow;

/// What several processes have of the memory of one device.
class SharedCapacity {
 public:
  virtual ~SharedCapacity() = default;
  /// Errors: kOutOfMemory.
  virtual Result<void> take(std::uint64_t bytes) = 0;
  virtual void give_back(std::uint64_t bytes) = 0;
};

class Arena final : public Memory {
 public:
  explicit Arena(std::uint64_t capacity_bytes);
  ~Arena() override;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  Result<std::uint64_t> allocate(std::uint64_t bytes) override;
  Result<void> free(std::uint64_t address) override;
  void* at(std::uint64_t address, std::uint64_t bytes) override;
  const void* view(std::uint64_t address, std::uint64_t bytes) const override;
  void copied(std::uint64_t to, std::uint64_t from, std::uint64_t bytes) override;
  void track() override;
  std::uint64_t used() const override;
  std::uint64_t capacity() const override { return capacity_; }
  /// Whatever is taken from here on is taken there as well. Before the first allocation.
  void share(std::shared_ptr<SharedCapacity> capacity) { shared_ = std::move(capacity); }

  // Host memory that kernels reach, at its host address.
  void expose(std::uint64_t host, std::uint64_t bytes);
  void hide(std::uint64_t host);

  // Addresses without memory, for memory to be mapped there. Whole host pages.
  /// Errors: kOutOfMemory.
  Result<std::uint64_t> reserve(std::uint64_t bytes, std::uint64_t alignment);
  void release(std::uint64_t address);
  /// Bytes of the device that a file is the memory of, taken and given back.
  Result<void> take(std::uint64_t bytes);
  void give_back(std::uint64_t bytes);
  /// Maps memory of a file into a reservation; nobody may access it yet. `fresh`: nobody has ever
  /// written it. Errors: kOutOfMemory.
  Result<void> map(std::uint64_t address, std::uint64_t bytes, int file, std::uint64_t offset,
                   bool fresh);
  void unmap(std::uint64_t address);
  /// Neighbours that may be accessed are valid as one.
  void allow(std::uint64_t address, bool allowed);

  std::shared_ptr<const AllocationTable> snapshot() const;
  /// Host address of device address 0: add it to a valid device address.
  std::uintptr_t delta() const { return delta_; }

  // For checkers. A bit per byte says whether it was written, from track() on.
  /// By address - kArenaBase; null: not tracked.
  std::uint64_t* written() const { return written_; }
  /// A launch without checks writes what nobody notes: whatever is allocated counts as written.
  void note_unchecked();
  /// Before a launch with checks: notes what unchecked ones may have written.
  void settle();
  /// The number of an allocation, counted from 1; 0: none begins there.
  std::uint64_t number_of(std::uint64_t begin) const;
  /// An allocation that was freed, the latest that held `address`.
  std::optional<Allocation> freed(std::uint64_t address) const;
  std::shared_ptr<GlobalShadow> shadow;  ///< of the race checker, kept between launches

 private:
  std::uint64_t find_room(std::uint64_t span);
  /// Counts bytes as used. Errors: kOutOfMemory.
  Result<void> count(std::uint64_t bytes);
  void uncount(std::uint64_t bytes);
  std::byte* host_of(std::uint64_t address) const;
  void add_live(std::uint64_t address, std::uint64_t bytes);
  /// Makes the live entries of the reservation that holds `address` anew.
  void join_mappings(std::uint64_t address);

  const std::uint64_t capacity_;
  std::uint64_t reserved_ = 0;  ///< bytes of the range; more than capacity, so that addresses rest
  std::byte* host_ = nullptr;
  std::uintptr_t delta_ = 0;

  mutable std::mutex mutex_;
  std::map<std::uint64_t, std::uint64_t> live_;                ///< begin -> bytes asked for
  std::map<std::uint64_t, std::uint64_t> numbers_;             ///< of live ones, by begin
  std::uint64_t allocated_ = 0, unchecked_ = 0, settled_ = 0;  ///< numbers: up to these
  std::deque<Allocation> freed_;                               ///< the latest
  std::uint64_t* written_ = nullptr;
  std::map<std::uint64_t, std::uint64_t>
      reservations_;  ///< begin -> bytes, at the end of the range
  struct Mapping {
    std::uint64_t bytes = 0;
    bool allowed = false;
  };
  std::map<std::uint64_t, Mapping> mappings_;  ///< by address
  std::uint64_t next_ = kArenaBase;            ///< where the next allocation is tried
  std::uint64_t used_ = 0;
  std::shared_ptr<SharedCapacity> shared_;  ///< null: the device is this process's own
  mutable std::shared_ptr<const AllocationTable> table_;  ///< null: has to be made anew
};

}  // namespace tilewright::vgpu
