/// Tensor maps: what a CUtensorMap's 128 opaque bytes say on the virtual GPU, and which bytes a box
/// of the tensor takes in global and shared memory. The driver encodes, tensormap.replace edits,
/// cp.async.bulk.tensor decodes. The numbers of the enums are those of the driver API.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "jit/result.h"

namespace tilewright::vgpu {

inline constexpr std::size_t kTensorMapBytes = 128;
inline constexpr int kMaxTensorRank = 5;

enum class TensorSwizzle : std::uint8_t {
  kNone,
  k32,
  k64,
  k128,
  k128Atom32,  ///< moves 32 bytes as one
  k128Atom32Flip8,
  k128Atom64,
};

/// As cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col take it; dimension 0 is the one whose
/// elements lie side by side.
struct TensorMap {
  std::uint8_t data_type = 0;  ///< CUtensorMapDataType
  std::uint8_t rank = 1;
  std::uint8_t interleave = 0;  ///< CUtensorMapInterleave: none
  TensorSwizzle swizzle = TensorSwizzle::kNone;
  std::uint8_t l2_promotion = 0;  ///< without effect here
  bool nan_fill = false;          ///< what lies outside reads as NaN, else as zero
  std::uint64_t address = 0;      ///< in global memory
  std::array<std::uint64_t, kMaxTensorRank> dimensions{1, 1, 1, 1, 1};
  std::array<std::uint64_t, kMaxTensorRank - 1> strides{};  ///< in bytes, of dimensions 1, 2, ...
  std::array<std::uint32_t, kMaxTensorRank> box{1, 1, 1, 1, 1};
  std::array<std::uint32_t, kMaxTensorRank> element_strides{1, 1, 1, 1, 1};
  // Of im2col, whose box is {channels per pixel, pixels per column}.
  bool im2col = false;
  /// Of the bounding box, of dimensions 1, 2, ... up to the last but one: it begins at `lower` and
  /// ends before the tensor's end plus `upper`.
  std::array<std::int16_t, kMaxTensorRank - 2> lower{}, upper{};

  std::uint32_t element_bits() const;
  /// Elements of the box along a dimension in shared memory: every element_strides[d]th.
  std::uint32_t box_elements(int d) const;
  /// What a load writes to shared memory and counts on its mbarrier, whatever is out of bounds.
  std::uint32_t box_bytes() const;
};

/// Errors: kInvalidArgument where the driver refuses the arguments, kUnsupported for what the virtual
/// GPU lacks (interleaved layouts, types that are padded in shared memory).
Result<std::array<std::byte, kTensorMapBytes>> encode_tensor_map(const TensorMap& map);
/// Errors: kInvalidArgument: these bytes were not made by encode_tensor_map or replace_field, or the
/// latter left what the driver would have refused; kUnsupported as above.
Result<TensorMap> decode_tensor_map(std::span<const std::byte, kTensorMapBytes> bytes);

/// Of tensormap.replace.
enum class TensorMapField : std::uint8_t {
  kGlobalAddress,
  kRank,  ///< less one
  kBoxDim,
  kGlobalDim,
  kGlobalStride,  ///< in bytes, of dimension ordinal + 1
  kElementStride,
  kElementType,  ///< PTX ISA, "tensormap.replace": its own numbers
  kInterleave,
  kSwizzle,
  kSwizzleAtomicity,
  kFill,
};
/// Changes a field of a map, or of 128 bytes of zeros: a map that has every field yet to be given.
/// Errors: kInvalidArgument: other bytes, or a value that the field cannot hold.
Result<void> replace_field(std::span<std::byte, kTensorMapBytes> bytes, TensorMapField field,
                           int ordinal, std::uint64_t value);

/// Bytes of a box that lie side by side in global and in shared memory.
struct BoxChunk {
  std::uint64_t global = 0;  ///< address; meaningless where `outside`
  std::uint32_t shared = 0;  ///< address
  std::uint32_t bytes = 0;
  bool outside = false;  ///< of the tensor: a load fills it, a store leaves it
};

/// The chunks of the box at `coordinates` (rank of them, in elements; they may be negative), for
/// shared memory from `shared` on (128-byte aligned), swizzled by address bits 7 to 9. Appended.
void walk_box(const TensorMap& map, const std::int32_t* coordinates, std::uint32_t shared,
              std::vector<BoxChunk>& chunks);
/// The same of an im2col map: its pixels from `coordinates` on, in the order of the bounding box, each
/// moved by `offsets` (rank - 2 of them).
void walk_pixels(const TensorMap& map, const std::int32_t* coordinates,
                 const std::uint16_t* offsets, std::uint32_t shared, std::vector<BoxChunk>& chunks);

/// One element of NaN, or of zero, as `bytes` bytes: what a load fills with.
void fill_outside(const TensorMap& map, std::span<std::byte> bytes);

}  // namespace tilewright::vgpu
