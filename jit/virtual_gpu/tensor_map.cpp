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
  kPacked4,  // 16U4_ALIGN8B
  kPadded4,  // 16U4_ALIGN16B, 16U6_ALIGN16B
  kPadded6,
};

bool is_float(std::uint8_t type) { return type >= kFloat16 && type <= kTfloat32Ftz; }

/// The content of the 128 bytes. Zeros are a map whose fields are yet to be given.
struct Encoded {
  std::uint32_t magic;
  std::uint8_t data_type, last_rank, interleave, swizzle, l2_promotion, nan_fill, im2col;
  std::uint8_t element_strides[kMaxTensorRank];
  std::uint64_t address;
  std::uint64_t strides[kMaxTensorRank - 1];
  std::uint32_t last[kMaxTensorRank];  ///< dimension - 1
  std::uint16_t box[kMaxTensorRank];
  std::int16_t lower[kMaxTensorRank - 2], upper[kMaxTensorRank - 2];
  std::uint8_t rest[kTensorMapBytes - 106];
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
  return swizzle == TensorSwizzle::kNone ? 0 : 16u << std::min(static_cast<int>(swizzle), 3);
}

/// The swizzle of an address: the bits `mask` from bit 7 on go to those from `shift` on.
struct Pattern {
  std::uint32_t mask = 0, shift = 4;
  explicit Pattern(TensorSwizzle swizzle) {
    if (swizzle == TensorSwizzle::k128Atom32) {
      mask = 3, shift = 5;
    } else if (swizzle == TensorSwizzle::k128Atom64) {
      mask = 1, shift = 6;
    } else if (swizzle != TensorSwizzle::kNone) {
      mask = (1u << static_cast<int>(swizzle)) - 1;
    }
  }
  std::uint32_t operator()(std::uint32_t linear) const {
    return linear ^ (linear >> 7 & mask) << shift;
  }
};

/// The rules of cuTensorMapEncodeIm2col about its box.
Result<void> check_pixels(const TensorMap& map) {
  if (map.rank < 3) return invalid("rank is {}, expected 3 to 5 for im2col", map.rank);
  if (map.box[0] == 0 || map.box[0] > 256)
    return invalid("channels per pixel are {}, expected 1 to 256", map.box[0]);
  if (map.box[1] == 0 || map.box[1] > 1024)
    return invalid("pixels per column are {}, expected 1 to 1024", map.box[1]);
  const int limit = 1 << (16 / (map.rank - 2) - 1);  // 16 bits for all corners together
  for (int d = 0; d + 2 < map.rank; ++d) {
    auto i = static_cast<std::size_t>(d);
    for (int corner : {map.lower[i], map.upper[i]})
      if (corner < -limit || corner >= limit)
        return invalid("corner {} of the bounding box is {}, expected {} to {}", d, corner, -limit,
                       limit - 1);
    std::int64_t size = static_cast<std::int64_t>(map.dimensions[i + 1]) + map.upper[i];
    if (map.lower[i] >= size) return invalid("the bounding box is empty in dimension {}", d + 1);
  }
  return {};
}

/// The rules of cuTensorMapEncodeTiled, and those that im2col shares.
Result<void> check(const TensorMap& map) {
  if (map.data_type > kPadded6) return invalid("data type {} is unknown", map.data_type);
  if (map.data_type == kPadded4 || map.data_type == kPadded6)
    return fail(ErrorCode::kUnsupported,
                "tensor map: types of 4 and 6 bits that are padded in shared memory");
  if (map.rank < 1 || map.rank > kMaxTensorRank)
    return invalid("rank is {}, expected 1 to {}", map.rank, kMaxTensorRank);
  if (map.interleave > 2) return invalid("interleave {} is unknown", map.interleave);
  if (map.interleave != 0) return fail(ErrorCode::kUnsupported, "tensor map: interleaved layouts");
  if (static_cast<int>(map.swizzle) > 6)
    return invalid("swizzle {} is unknown", static_cast<int>(map.swizzle));
  if (map.swizzle == TensorSwizzle::k128Atom32Flip8)
    return fail(ErrorCode::kUnsupported, "tensor map: the swizzle that flips 8 bytes");
  if (map.l2_promotion > 3) return invalid("L2 promotion {} is unknown", map.l2_promotion);
  if (map.address % 16 != 0) return invalid("address {:#x} is not 16-byte aligned", map.address);
  if (map.nan_fill && !is_float(map.data_type))
    return invalid("integers cannot be filled with NaN");
  for (int d = 0; d < map.rank; ++d) {
    auto i = static_cast<std::size_t>(d);
    if (map.dimensions[i] == 0 || map.dimensions[i] > std::uint64_t{1} << 32)
      return invalid("dimension {} is {}, expected 1 to 2^32", d, map.dimensions[i]);
    if (!map.im2col && (map.box[i] == 0 || map.box[i] > 256))
      return invalid("box dimension {} is {}, expected 1 to 256", d, map.box[i]);
    if (map.element_strides[i] == 0 || map.element_strides[i] > 8)
      return invalid("element stride {} is {}, expected 1 to 8", d, map.element_strides[i]);
    if (d == 0) continue;
    std::uint64_t stride = map.strides[i - 1];
    if (stride % 16 != 0 || stride >= std::uint64_t{1} << 40)
      return invalid("stride of dimension {} is {} bytes, expected a multiple of 16 below 2^40", d,
                     stride);
  }
  if (map.data_type == kPacked4 && map.dimensions[0] % 2 != 0)
    return invalid("dimension 0 is {}, expected a multiple of 2 for elements of 4 bits",
                   map.dimensions[0]);
  if (map.im2col) TILEWRIGHT_TRY(check_pixels(map));
  std::uint32_t inner = map.box[0] * map.element_bits() / 8, limit = swizzle_bytes(map.swizzle);
  if (inner % 16 != 0) return invalid("the box is {} bytes wide, expected a multiple of 16", inner);
  if (limit != 0 && inner > limit)
    return invalid("the box is {} bytes wide, expected at most the swizzle's {}", inner, limit);
  return {};
}

/// Appends parts of rows of a box: in shared memory they end where the swizzle moves the next bytes
/// elsewhere.
struct RowWriter {
  Pattern pattern;
  std::vector<BoxChunk>& chunks;
  /// Bytes `from` to `to` of a row that begins at `global` and, before the swizzle, at `at`.
  void operator()(std::uint64_t global, std::uint32_t at, std::int64_t from, std::int64_t to,
                  bool outside) const {
    while (from < to) {
      std::int64_t end = pattern.mask == 0 ? to : std::min<std::int64_t>(to, from / 16 * 16 + 16);
      std::uint32_t linear = at + static_cast<std::uint32_t>(from);
      chunks.push_back({global + static_cast<std::uint64_t>(from), pattern(linear),
                        static_cast<std::uint32_t>(end - from), outside});
      from = end;
    }
  }
};

/// The part of a row of a box that is inside of the tensor, should the row be: from `first` to `last`
/// of `bytes`.
struct Columns {
  std::int64_t bytes, first, last;
  Columns(const TensorMap& map, std::int64_t x) {
    const std::int64_t bits = map.element_bits();
    bytes = map.box[0] * bits / 8;
    auto until = [&](std::int64_t columns) {
      return std::clamp<std::int64_t>((columns - x) * bits / 8, 0, bytes);
    };
    first = until(0);
    last = until(static_cast<std::int64_t>(map.dimensions[0]));
  }
  void write(const RowWriter& writer, std::uint64_t global, std::uint32_t at, bool inside) const {
    if (!inside) return writer(global, at, 0, bytes, true);
    writer(global, at, 0, first, true);
    writer(global, at, first, last, false);
    writer(global, at, std::max(first, last), bytes, true);
  }
};

/// Of the elements from column x on.
std::uint64_t origin_of(const TensorMap& map, std::int64_t x) {
  return map.address + static_cast<std::uint64_t>(x * std::int64_t{map.element_bits()} / 8);
}

TensorMap unpack(const Encoded& e) {
  TensorMap map;
  map.data_type = e.data_type;
  map.rank = static_cast<std::uint8_t>(e.last_rank + 1);
  map.interleave = e.interleave;
  map.swizzle = static_cast<TensorSwizzle>(e.swizzle);
  map.l2_promotion = e.l2_promotion;
  map.nan_fill = e.nan_fill != 0;
  map.address = e.address;
  map.im2col = e.im2col != 0;
  std::copy_n(e.lower, kMaxTensorRank - 2, map.lower.begin());
  std::copy_n(e.upper, kMaxTensorRank - 2, map.upper.begin());
  for (std::size_t d = 0; d < std::min<std::size_t>(map.rank, kMaxTensorRank); ++d) {
    map.element_strides[d] = e.element_strides[d];
    map.dimensions[d] = std::uint64_t{e.last[d]} + 1;
    map.box[d] = e.box[d];
    if (d > 0) map.strides[d - 1] = e.strides[d - 1];
  }
  return map;
}

}  // namespace

std::uint32_t TensorMap::element_bits() const {
  switch (data_type) {
    case kUint8:
      return 8;
    case kUint16:
    case kFloat16:
    case kBfloat16:
      return 16;
    case kUint64:
    case kInt64:
    case kFloat64:
      return 64;
    case kPacked4:
      return 4;
    default:
      return 32;
  }
}

std::uint32_t TensorMap::box_elements(int d) const {
  auto i = static_cast<std::size_t>(d);
  if (d == 0) return box[0];  // the element stride of dimension 0 is ignored
  return (box[i] + element_strides[i] - 1) / element_strides[i];
}

std::uint32_t TensorMap::box_bytes() const {
  std::uint32_t bytes = box[0] * element_bits() / 8;
  if (im2col) return bytes * box[1];
  for (int d = 1; d < rank; ++d) bytes *= box_elements(d);
  return bytes;
}

Result<std::array<std::byte, kTensorMapBytes>> encode_tensor_map(const TensorMap& map) {
  static_assert(sizeof(Encoded) == kTensorMapBytes);
  TILEWRIGHT_TRY(check(map));
  Encoded e{};
  e.magic = kMagic;
  e.data_type = map.data_type;
  e.last_rank = static_cast<std::uint8_t>(map.rank - 1);
  e.interleave = map.interleave;
  e.swizzle = static_cast<std::uint8_t>(map.swizzle);
  e.l2_promotion = map.l2_promotion;
  e.nan_fill = map.nan_fill ? 1 : 0;
  e.address = map.address;
  e.im2col = map.im2col ? 1 : 0;
  std::copy_n(map.lower.begin(), kMaxTensorRank - 2, e.lower);
  std::copy_n(map.upper.begin(), kMaxTensorRank - 2, e.upper);
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
  if (e.magic != kMagic || e.checksum != checksum(e))
    return invalid("these bytes are not a tensor map of this device");
  TensorMap map = unpack(e);
  TILEWRIGHT_TRY(check(map));
  return map;
}

Result<void> replace_field(std::span<std::byte, kTensorMapBytes> bytes, TensorMapField field,
                           int ordinal, std::uint64_t value) {
  Encoded e;
  std::memcpy(&e, bytes.data(), sizeof e);
  bool blank =
      std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{}; });
  if (!blank && (e.magic != kMagic || e.checksum != checksum(e)))
    return invalid("these bytes are neither a tensor map of this device nor zeros");
  auto below = [&](std::uint64_t limit, const char* what) -> Result<void> {
    if (value >= limit) return invalid("{} is {}, expected less than {}", what, value, limit);
    return {};
  };
  auto d = static_cast<std::size_t>(ordinal);
  if (ordinal < 0 || ordinal >= kMaxTensorRank - (field == TensorMapField::kGlobalStride ? 1 : 0))
    return invalid("there is no ordinal {}", ordinal);
  switch (field) {
    case TensorMapField::kGlobalAddress:
      e.address = value;
      break;
    case TensorMapField::kRank:
      TILEWRIGHT_TRY(below(kMaxTensorRank, "the rank less one"));
      e.last_rank = static_cast<std::uint8_t>(value);
      break;
    case TensorMapField::kBoxDim:
      TILEWRIGHT_TRY(below(std::uint64_t{1} << 16, "a dimension of the box"));
      e.box[d] = static_cast<std::uint16_t>(value);
      break;
    case TensorMapField::kGlobalDim:
      e.last[d] = static_cast<std::uint32_t>(value) - 1;
      break;
    case TensorMapField::kGlobalStride:
      e.strides[d] = value;
      break;
    case TensorMapField::kElementStride:
      TILEWRIGHT_TRY(below(256, "an element stride"));
      e.element_strides[d] = static_cast<std::uint8_t>(value);
      break;
    case TensorMapField::kElementType: {
      constexpr std::uint8_t kTypes[] = {
          kUint8,      kUint16,  kUint32,   kInt32,    kUint64,      kInt64,   kFloat16, kFloat32,
          kFloat32Ftz, kFloat64, kBfloat16, kTfloat32, kTfloat32Ftz, kPacked4, kPadded4, kPadded6};
      TILEWRIGHT_TRY(below(std::size(kTypes), "the element type"));
      e.data_type = kTypes[value];
      break;
    }
    case TensorMapField::kInterleave:
      TILEWRIGHT_TRY(below(3, "the interleaved layout"));
      e.interleave = static_cast<std::uint8_t>(value);
      break;
    case TensorMapField::kSwizzle:
      TILEWRIGHT_TRY(below(4, "the swizzle"));
      e.swizzle = static_cast<std::uint8_t>(value);
      break;
    case TensorMapField::kSwizzleAtomicity:
      TILEWRIGHT_TRY(below(4, "the atomicity of the swizzle"));
      if (value != 0 && e.swizzle < static_cast<std::uint8_t>(TensorSwizzle::k128))
        return invalid("only the swizzle of 128 bytes has another atomicity than 16 bytes");
      if (e.swizzle >= static_cast<std::uint8_t>(TensorSwizzle::k128))
        e.swizzle =
            static_cast<std::uint8_t>(static_cast<std::uint64_t>(TensorSwizzle::k128) + value);
      break;
    case TensorMapField::kFill:
      TILEWRIGHT_TRY(below(2, "the fill mode"));
      e.nan_fill = static_cast<std::uint8_t>(value);
      break;
  }
  e.magic = kMagic;
  e.checksum = checksum(e);
  std::memcpy(bytes.data(), &e, sizeof e);
  return {};
}

void walk_box(const TensorMap& map, const std::int32_t* coordinates, std::uint32_t shared,
              std::vector<BoxChunk>& chunks) {
  const Columns columns(map, coordinates[0]);
  const RowWriter writer{Pattern(map.swizzle), chunks};
  std::array<std::uint32_t, kMaxTensorRank> index{};
  std::uint32_t rows = 1;
  for (int d = 1; d < map.rank; ++d) rows *= map.box_elements(d);
  const std::uint64_t origin = origin_of(map, coordinates[0]);
  for (std::uint32_t row = 0; row < rows; ++row) {
    bool inside = true;
    std::uint64_t global = origin;
    for (std::size_t d = 1; d < map.rank; ++d) {
      std::int64_t at = std::int64_t{coordinates[d]} + index[d] * map.element_strides[d];
      inside &= at >= 0 && at < static_cast<std::int64_t>(map.dimensions[d]);
      global += static_cast<std::uint64_t>(at) * map.strides[d - 1];
    }
    columns.write(writer, global, shared + row * static_cast<std::uint32_t>(columns.bytes), inside);
    for (int d = 1; d < map.rank; ++d) {
      auto i = static_cast<std::size_t>(d);
      if (++index[i] < map.box_elements(d)) break;
      index[i] = 0;
    }
  }
}

void walk_pixels(const TensorMap& map, const std::int32_t* coordinates,
                 const std::uint16_t* offsets, std::uint32_t shared,
                 std::vector<BoxChunk>& chunks) {
  const Columns columns(map, coordinates[0]);
  const RowWriter writer{Pattern(map.swizzle), chunks};
  const std::uint64_t origin = origin_of(map, coordinates[0]);
  std::array<std::int64_t, kMaxTensorRank> at{};
  for (std::size_t d = 1; d < map.rank; ++d) at[d] = coordinates[d];
  for (std::uint32_t pixel = 0; pixel < map.box[1]; ++pixel) {
    bool inside = true;
    std::uint64_t global = origin;
    for (std::size_t d = 1; d < map.rank; ++d) {
      std::int64_t place = at[d] + (d + 1u < map.rank ? offsets[d - 1] : 0);
      inside &= place >= 0 && place < static_cast<std::int64_t>(map.dimensions[d]);
      global += static_cast<std::uint64_t>(place) * map.strides[d - 1];
    }
    columns.write(writer, global, shared + pixel * static_cast<std::uint32_t>(columns.bytes),
                  inside);
    for (std::size_t d = 1; d < map.rank; ++d) {  // the last is the batch: it has no bounding box
      at[d] += d + 1u < map.rank ? map.element_strides[d] : 1;
      if (d + 1u == map.rank) break;
      if (at[d] < static_cast<std::int64_t>(map.dimensions[d]) + map.upper[d - 1]) break;
      at[d] = map.lower[d - 1];
    }
  }
}

void fill_outside(const TensorMap& map, std::span<std::byte> bytes) {
  if (!map.nan_fill) {
    std::memset(bytes.data(), 0, bytes.size());
    return;
  }
  // Quiet NaNs, all bits of the mantissa set: 0x7fff, 0x7fffffff, ...
  std::size_t element = map.element_bits() / 8;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = std::byte(i % element == element - 1 ? 0x7f : 0xff);
}

}  // namespace tilewright::vgpu
