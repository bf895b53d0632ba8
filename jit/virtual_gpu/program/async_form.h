/// What lower_async.cpp tells the handlers of asynchronous instructions in Draft::immediate.
#pragma once

#include <cstdint>

namespace tilewright::vgpu {

/// Of Op::kMbarrier: what is done, in the low bits of the immediate.
enum MbarrierFlags : std::int32_t {
  kMbarrierInit = 1,
  kMbarrierInvalidate = 2,
  kMbarrierArrives = 4,      ///< count in `b`, or 1
  kMbarrierDrops = 8,        ///< with kMbarrierArrives: arrive_drop
  kMbarrierExpects = 16,     ///< bytes in `b`
  kMbarrierCompletes = 32,   ///< bytes in `b`
  kMbarrierNoComplete = 64,  ///< the phase must not end by it
  kMbarrierReturnsState = 128,
};

/// Of Op::kMbarrierTest.
enum MbarrierTestFlags : std::int32_t {
  kTestParity = 1,  ///< `b` is a parity (32 bits), not a state (64 bits)
  kTestTries = 2,   ///< try_wait: may suspend
};

/// Of Op::kBulkCopy. Operands: target, source, bytes, mbarrier (0 without), mask of blocks.
enum BulkFlags : std::int32_t {
  kBulkMbarrier = 1,  ///< completes by an mbarrier, else by a bulk group
  kBulkMulticast = 2,
  kBulkReduce = 4,
  kBulkToGlobal = 8,
  kBulkFromShared = 16,
  kBulkMasked = 32,       ///< cp_mask: of 16 bytes, those whose bit is set are written
  kBulkIgnoresEnds = 64,  ///< ignore_oob: bytes at both ends are not copied
  kTensorIm2col = 128,    ///< offsets follow the coordinates (not where kBulkToGlobal)
  kTensorRows = 256,      ///< gather4, scatter4: coordinates are a column and four rows
};
/// Of Op::kTensorCopy: BulkFlags, and the rank above them.
inline constexpr int kTensorRankShift = 12;

}  // namespace tilewright::vgpu
