#include "jit/virtual_gpu/tensor_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace tilewright::vgpu {
namespace {

/// CUtensorMapDataType.
enum DataType : std::uint8_t {
  kUint8,
  kUint16,
  kUint32,
  kInt32,
  kUint64,
  kInt64,
  kFloat16,
  kFloat32,
  kFloat64,
  kBfloat16,
  kFloat32Ftz,
  kTfloat32,
  kTfloat32Ftz,
  kPackedFirst,  ///< 16U4_ALIGN8B, 16U4_ALIGN16B, 16U6_ALIGN16B
  kPackedLast = kPackedFirst + 2,
};

bool is_float(std::uint8_t type) { return type >= kFloat16 && type <= kTfloat32Ftz; }

/// The content of the 128 bytes.
struct Encoded {
  std::uint32_t magic;
  std::uint8_t data_type, rank, interleave, swizzle, l2_promotion, nan_fill;
  std::uint8_t element_strides[kMaxTensorRank];
  std::uint8_t unused[1];
  std::uint64_t address;
  std::uint64_t strides[kMaxTensorRank - 1];
  std::uint32_t last[kMaxTensorRank];  ///< dimension - 1
  std::uint16_t box[kMaxTensorRank];
  std::uint8_t rest[kTensorMapBytes - 98];
  std::uint64_t checksum;
};

constexpr std::uint32_t kMagic = 0x4d545754;  // "TWTM"

std::uint64_t checksum(const Encoded& e) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(&e);
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (std::size_t i = 0; i < offsetof(Encoded, checksum); ++i)
    hash = (hash ^ bytes[i]) * 0x100000001b3;
  return hash;
}

template <class... A>
auto invalid(fmt::format_string<A...> format, A&&... arguments) {
  return fail(ErrorCode::kInvalidArgument,
              "tensor map: " + fmt::format(format, std::forward<A>(arguments)...));
}

std::uint32_t swizzle_bytes(TensorSwizzle swizzle) {
  return swizzle == TensorSwizzle::kNone ? 0 : 16u << static_cast<int>(swizzle);
}

/// The rules of cuTensorMapEncodeTiled.
Result<void> check(const TensorMap& map) {
  if (map.data_type > kPackedLast) return invalid("data type {} is unknown", map.data_type);
  if (map.data_type >= kPackedFirst)
    return fail(ErrorCode::kUnsupported, "tensor map: packed types of 4 and 6 bits");
  if (map.rank < 1 || map.rank > kMaxTensorRank)
    return invalid("rank is {}, expected 1 to {}", map.rank, kMaxTensorRank);
  if (map.interleave > 2) return invalid("interleave {} is unknown", map.interleave);
  if (map.interleave != 0) return fail(ErrorCode::kUnsupported, "tensor map: interleaved layouts");
  if (static_cast<int>(map.swizzle) > 6)
    return invalid("swizzle {} is unknown", static_cast<int>(map.swizzle));
  if (map.swizzle > TensorSwizzle::k128)
    return fail(ErrorCode::kUnsupported, "tensor map: swizzles of atoms of 32 and 64 bytes");
  if (map.l2_promotion > 3) return invalid("L2 promotion {} is unknown", map.l2_promotion);
  if (map.address % 16 != 0) return invalid("address {:#x} is not 16-byte aligned", map.address);
  if (map.nan_fill && !is_float(map.data_type))
    return invalid("integers cannot be filled with NaN");
  for (int d = 0; d < map.rank; ++d) {
    auto i = static_cast<std::size_t>(d);
    if (map.dimensions[i] == 0 || map.dimensions[i] > std::uint64_t{1} << 32)
      return invalid("dimension {} is {}, expected 1 to 2^32", d, map.dimensions[i]);
    if (map.box[i] == 0 || map.box[i] > 256)
      return invalid("box dimension {} is {}, expected 1 to 256", d, map.box[i]);
    if (map.element_strides[i] == 0 || map.element_strides[i] > 8)
      return invalid("element stride {} is {}, expected 1 to 8", d, map.element_strides[i]);
    if (d == 0) continue;
    std::uint64_t stride = map.strides[i - 1];
    if (stride % 16 != 0 || stride >= std::uint64_t{1} << 40)
      return invalid("stride of dimension {} is {} bytes, expected a multiple of 16 below 2^40", d,
                     stride);
  }
  std::uint32_t inner = map.box[0] * map.element_bytes(), limit = swizzle_bytes(map.swizzle);
  if (inner % 16 != 0) return invalid("the box is {} bytes wide, expected a multiple of 16", inner);
  if (limit != 0 && inner > limit)
    return invalid("the box is {} bytes wide, expected at most the swizzle's {}", inner, limit);
  return {};
}

}  // namespace

std::uint32_t TensorMap::element_bytes() const {
  switch (data_type) {
    case kUint8:
      return 1;
    case kUint16:
    case kFloat16:
    case kBfloat16:
      return 2;
    case kUint64:
    case kInt64:
    case kFloat64:
      return 8;
    default:
      return 4;
  }
}

std::uint32_t TensorMap::box_elements(int d) const {
  auto i = static_cast<std::size_t>(d);
  if (d == 0) return box[0];  // the element stride of dimension 0 is ignored
  return (box[i] + element_strides[i] - 1) / element_strides[i];
}

std::uint32_t TensorMap::box_bytes() const {
  std::uint32_t bytes = element_bytes();
  for (int d = 0; d < rank; ++d) bytes *= box_elements(d);
  return bytes;
}

Result<std::array<std::byte, kTensorMapBytes>> encode_tensor_map(const TensorMap& map) {
  static_assert(sizeof(Encoded) == kTensorMapBytes);
  TILEWRIGHT_TRY(check(map));
  Encoded e{};
  e.magic = kMagic;
  e.data_type = map.data_type;
  e.rank = map.rank;
  e.interleave = map.interleave;
  e.swizzle = static_cast<std::uint8_t>(map.swizzle);
  e.l2_promotion = map.l2_promotion;
  e.nan_fill = map.nan_fill ? 1 : 0;
  e.address = map.address;
  for (std::size_t d = 0; d < map.rank; ++d) {
    e.element_strides[d] = static_cast<std::uint8_t>(map.element_strides[d]);
    e.last[d] = static_cast<std::uint32_t>(map.dimensions[d] - 1);
    e.box[d] = static_cast<std::uint16_t>(map.box[d]);
    if (d > 0) e.strides[d - 1] = map.strides[d - 1];
  }
  e.checksum = checksum(e);
  std::array<std::byte, kTensorMapBytes> bytes;
  std::memcpy(bytes.data(), &e, bytes.size());
  return bytes;
}

Result<TensorMap> decode_tensor_map(std::span<const std::byte, kTensorMapBytes> bytes) {
  Encoded e;
  std::memcpy(&e, bytes.data(), sizeof e);
  if (e.magic != kMagic || e.checksum != checksum(e) || e.rank < 1 || e.rank > kMaxTensorRank)
    return invalid("these bytes are not a tensor map of this device");
  TensorMap map;
  map.data_type = e.data_type;
  map.rank = e.rank;
  map.interleave = e.interleave;
  map.swizzle = static_cast<TensorSwizzle>(e.swizzle);
  map.l2_promotion = e.l2_promotion;
  map.nan_fill = e.nan_fill != 0;
  map.address = e.address;
  for (std::size_t d = 0; d < e.rank; ++d) {
    map.element_strides[d] = e.element_strides[d];
    map.dimensions[d] = std::uint64_t{e.last[d]} + 1;
    map.box[d] = e.box[d];
    if (d > 0) map.strides[d - 1] = e.strides[d - 1];
  }
  return map;
}

void walk_box(const TensorMap& map, const std::int32_t* coordinates, std::uint32_t shared,
              std::vector<BoxChunk>& chunks) {
  const std::int64_t element = map.element_bytes();
  const std::int64_t row_bytes = map.box[0] * element;
  // Bytes of a row that are inside of the tensor, should the row be.
  auto bytes_until = [&](std::int64_t columns) {
    return std::clamp<std::int64_t>((columns - coordinates[0]) * element, 0, row_bytes);
  };
  const std::int64_t first = bytes_until(0);
  const std::int64_t last = bytes_until(static_cast<std::int64_t>(map.dimensions[0]));
  const std::uint32_t mask =
      map.swizzle == TensorSwizzle::kNone ? 0 : (1u << static_cast<int>(map.swizzle)) - 1;
  // Chunks of a row end where the swizzle moves the next 16 bytes elsewhere, and at the tensor's
  // edges.
  auto emit = [&](std::uint64_t global, std::uint32_t at, std::int64_t from, std::int64_t to,
                  bool outside) {
    while (from < to) {
      std::int64_t end = mask == 0 ? to : std::min<std::int64_t>(to, from / 16 * 16 + 16);
      std::uint32_t linear = at + static_cast<std::uint32_t>(from);
      chunks.push_back({global + static_cast<std::uint64_t>(from),
                        linear ^ (linear >> 7 & mask) << 4, static_cast<std::uint32_t>(end - from),
                        outside});
      from = end;
    }
  };
  std::array<std::uint32_t, kMaxTensorRank> index{};
  std::uint32_t rows = 1;
  for (int d = 1; d < map.rank; ++d) rows *= map.box_elements(d);
  std::uint64_t origin =
      map.address + static_cast<std::uint64_t>(std::int64_t{coordinates[0]} * element);
  for (std::uint32_t row = 0; row < rows; ++row) {
    bool inside = true;
    std::uint64_t global = origin;
    for (std::size_t d = 1; d < map.rank; ++d) {
      std::int64_t at = std::int64_t{coordinates[d]} + index[d] * map.element_strides[d];
      inside &= at >= 0 && at < static_cast<std::int64_t>(map.dimensions[d]);
      global += static_cast<std::uint64_t>(at) * map.strides[d - 1];
    }
    std::uint32_t at = shared + row * static_cast<std::uint32_t>(row_bytes);
    if (inside) {
      emit(global, at, 0, first, true);
      emit(global, at, first, last, false);
      emit(global, at, std::max(first, last), row_bytes, true);
    } else {
      emit(global, at, 0, row_bytes, true);
    }
    for (int d = 1; d < map.rank; ++d) {
      auto i = static_cast<std::size_t>(d);
      if (++index[i] < map.box_elements(d)) break;
      index[i] = 0;
    }
  }
}

void fill_outside(const TensorMap& map, std::span<std::byte> bytes) {
  if (!map.nan_fill) {
    std::memset(bytes.data(), 0, bytes.size());
    return;
  }
  // Quiet NaNs, all bits of the mantissa set: 0x7fff, 0x7fffffff, ...
  std::size_t element = map.element_bytes();
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = std::byte(i % element == element - 1 ? 0x7f : 0xff);
}

}  // namespace tilewright::vgpu
