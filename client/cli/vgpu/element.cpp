#include "client/cli/vgpu/element.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "jit/dtype.h"

namespace tilewright::cli {
namespace {

struct Named {
  Element element;
  std::string_view name;
  int bits;
  double low, high;  ///< of integers; low == high: a floating-point type
};

constexpr std::array<Named, 16> kNames = {{
    {Element::kF64, "f64", 64, 0, 0},
    {Element::kF32, "f32", 32, 0, 0},
    {Element::kF16, "f16", 16, 0, 0},
    {Element::kBF16, "bf16", 16, 0, 0},
    {Element::kE4M3, "e4m3", 8, 0, 0},
    {Element::kE5M2, "e5m2", 8, 0, 0},
    {Element::kI64, "i64", 64, -0x1p63, 0x1p63},
    {Element::kU64, "u64", 64, 0, 0x1p64},
    {Element::kI32, "i32", 32, -0x1p31, 0x1p31 - 1},
    {Element::kU32, "u32", 32, 0, 0x1p32 - 1},
    {Element::kI16, "i16", 16, -32768, 32767},
    {Element::kU16, "u16", 16, 0, 65535},
    {Element::kI8, "i8", 8, -128, 127},
    {Element::kU8, "u8", 8, 0, 255},
    {Element::kI4, "i4", 4, -8, 7},
    {Element::kU4, "u4", 4, 0, 15},
}};

const Named& named(Element element) { return kNames[static_cast<std::size_t>(element)]; }

template <typename T>
T load(const void* data, std::size_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + index * sizeof(T), sizeof(T));
  return value;
}
template <typename T>
void store(void* data, std::size_t index, T value) {
  std::memcpy(static_cast<char*>(data) + index * sizeof(T), &value, sizeof(T));
}

/// What the project's own types hold.
std::optional<DType> dtype_of(Element element) {
  switch (element) {
    case Element::kF32:
      return DType::kF32;
    case Element::kF16:
      return DType::kF16;
    case Element::kBF16:
      return DType::kBF16;
    case Element::kE4M3:
      return DType::kE4M3;
    case Element::kE5M2:
      return DType::kE5M2;
    case Element::kI32:
      return DType::kI32;
    case Element::kI8:
      return DType::kI8;
    default:
      return std::nullopt;
  }
}

}  // namespace

std::string_view to_string(Element element) { return named(element).name; }

Result<Element> parse_element(std::string_view name) {
  std::string all;
  for (const Named& known : kNames) {
    if (known.name == name) return known.element;
    all += (all.empty() ? "" : ", ") + std::string(known.name);
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("dtype is '{}', expected one of {}", name, all));
}

int bits_of(Element element) { return named(element).bits; }
std::size_t bytes_of(Element element, std::size_t count) {
  return (count * static_cast<std::size_t>(bits_of(element)) + 7) / 8;
}
bool is_integer(Element element) { return named(element).low != named(element).high; }

double read(Element element, const void* data, std::size_t index) {
  if (auto dtype = dtype_of(element)) return read_element(*dtype, data, index);
  switch (element) {
    case Element::kF64:
      return load<double>(data, index);
    case Element::kI64:
      return double(load<std::int64_t>(data, index));
    case Element::kU64:
      return double(load<std::uint64_t>(data, index));
    case Element::kU32:
      return load<std::uint32_t>(data, index);
    case Element::kI16:
      return load<std::int16_t>(data, index);
    case Element::kU16:
      return load<std::uint16_t>(data, index);
    case Element::kU8:
      return load<std::uint8_t>(data, index);
    case Element::kI4:
    case Element::kU4: {
      const int half = (load<std::uint8_t>(data, index / 2) >> (index % 2 * 4)) & 15;
      return element == Element::kI4 && half >= 8 ? half - 16 : half;
    }
    default:
      break;
  }
  return 0;
}

void write(Element element, void* data, std::size_t index, double value) {
  if (auto dtype = dtype_of(element)) return write_element(*dtype, data, index, value);
  if (is_integer(element)) {
    const Named& type = named(element);
    value = std::isnan(value) ? 0 : std::clamp(std::nearbyint(value), type.low, type.high);
    // The largest double below 2^63 or 2^64 is what a cast can take.
    if (type.bits == 64) value = std::min(value, std::nextafter(type.high, 0));
  }
  switch (element) {
    case Element::kF64:
      return store(data, index, value);
    case Element::kI64:
      return store(data, index, static_cast<std::int64_t>(value));
    case Element::kU64:
      return store(data, index, static_cast<std::uint64_t>(value));
    case Element::kU32:
      return store(data, index, static_cast<std::uint32_t>(static_cast<std::int64_t>(value)));
    case Element::kI16:
    case Element::kU16:
      return store(data, index, static_cast<std::uint16_t>(static_cast<std::int64_t>(value)));
    case Element::kU8:
      return store(data, index, static_cast<std::uint8_t>(static_cast<std::int64_t>(value)));
    case Element::kI4:
    case Element::kU4: {
      const int shift = static_cast<int>(index % 2) * 4;
      const unsigned byte = load<std::uint8_t>(data, index / 2);
      const unsigned half = static_cast<unsigned>(static_cast<int>(value)) & 15u;
      return store(data, index / 2,
                   static_cast<std::uint8_t>((byte & ~(15u << shift)) | (half << shift)));
    }
    default:
      break;
  }
}

double rounded(Element element, double value) {
  std::uint64_t place = 0;
  write(element, &place, 0, value);
  return read(element, &place, 0);
}

}  // namespace tilewright::cli
