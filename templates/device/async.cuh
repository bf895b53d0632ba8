/// Copies from global to shared memory that run while the threads compute.
#pragma once
#include "device/types.cuh"

__device__ inline unsigned shared_address(const void* p) {
  unsigned address;
  asm("{ .reg .u64 a; cvta.to.shared.u64 a, %1; cvt.u32.u64 %0, a; }" : "=r"(address) : "l"(p));
  return address;
}

// PTX ISA, "cp.async": 4, 8 or 16 bytes, both addresses multiples of that; of the 16-byte form
// alone L1 can be passed by. Bytes from `existing` on are not read and become 0.
template <int kBytes>
__device__ void copy_async(void* to_shared, const void* from_global, int existing) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to_shared)),
                 "l"(from_global), "r"(existing)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(to_shared)),
                 "l"(from_global), "n"(kBytes), "r"(existing)
                 : "memory");
  }
}

/// The whole of it exists.
template <int kBytes>
__device__ void copy_async(void* to_shared, const void* from_global) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to_shared)),
                 "l"(from_global)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared_address(to_shared)),
                 "l"(from_global), "n"(kBytes)
                 : "memory");
  }
}

/// Ends a group of this thread's copies.
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/// Waits until at most kPending of this thread's latest groups are still under way. The other
/// threads' copies are there after a barrier that follows.
template <int kPending>
__device__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
