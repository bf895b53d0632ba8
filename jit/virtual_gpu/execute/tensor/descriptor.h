/// The matrix descriptors of wgmma: which bytes of shared memory they name. PTX ISA, "Matrix
/// Descriptor Format", "Strides". For handlers of every level: nothing may be emitted out of line.
#pragma once

#include <cstdint>
#include <vector>

#include "jit/virtual_gpu/execute/state.h"

namespace tilewright::vgpu {

/// Matrices are read in lines of so many bytes.
inline constexpr std::uint32_t kLineBytes = 16;

/// Where a matrix lies in shared memory. It is made of 8 rows of 16 bytes of k each (K-major), or of
/// 8 k of 16 bytes of rows each (MN-major), which fill rows of `pitch` bytes side by side.
struct MatrixDescriptor {
  std::uint32_t start, leading, stride;
  std::uint32_t pitch, swizzle;  ///< of the pattern; mask of the bits 7 to 9 that go to bits 4 to 6
  std::uint32_t base_offset;

  [[gnu::always_inline]] static MatrixDescriptor decode(std::uint64_t bits) {
    MatrixDescriptor d;
    d.start = static_cast<std::uint32_t>(bits & 0x3fff) << 4;
    d.leading = static_cast<std::uint32_t>(bits >> 16 & 0x3fff) << 4;
    d.stride = static_cast<std::uint32_t>(bits >> 32 & 0x3fff) << 4;
    d.base_offset = static_cast<std::uint32_t>(bits >> 49 & 7);
    auto mode = static_cast<std::uint32_t>(bits >> 62);  // 0 none, 1: 128, 2: 64, 3: 32 bytes
    d.pitch = mode == 0 ? 16 : 256u >> mode;
    d.swizzle = mode == 0 ? 0 : (8u >> (mode - 1)) - 1;
    return d;
  }
  /// The first of the 8 lines of 16 bytes that hold the 8 rows `group` (in eights) and the 16 bytes
  /// of k `block`, before the swizzle.
  [[gnu::always_inline]] std::uint32_t at(std::uint32_t group, std::uint32_t block,
                                          bool mn_major) const {
    if (!mn_major) return start + group * stride + block * (swizzle == 0 ? leading : kLineBytes);
    if (swizzle == 0) return start + group * stride + block * leading;
    std::uint32_t across = pitch / kLineBytes;
    return start + group % across * kLineBytes + group / across * leading + block * stride;
  }
  /// The pattern begins where the address, less the base offset, is a multiple of 8 pitches.
  [[gnu::always_inline]] std::uint32_t swizzled(std::uint32_t address) const {
    return address ^ (((address >> 7) - base_offset) & swizzle) << 4;
  }
};

/// Shared addresses of the lines that a warp's part of a wgmma reads, for those who check: of A (none
/// if it is in registers), then of B. `registers`: those of the warp.
std::vector<std::uint32_t> lines_of_wgmma(const Step* step, const Warp& warp,
                                          const std::byte* registers);

}  // namespace tilewright::vgpu
