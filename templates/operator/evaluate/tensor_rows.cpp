#include "templates/operator/evaluate/tensor_rows.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace tilewright::templates {
namespace {

// As jit/dtype.h converts, but without branches, so that loops over it become vector code.
float from_f16(std::uint16_t bits) {
  std::uint32_t magnitude = static_cast<std::uint32_t>(bits & 0x7fff) << 13;
  // The exponent's bias differs by 112; a product takes subnormals along.
  float value = std::bit_cast<float>(magnitude) * 0x1p112f;
  std::uint32_t result = std::bit_cast<std::uint32_t>(value);
  result |= (bits & 0x7c00) == 0x7c00 ? 0x7f800000u : 0u;
  return std::bit_cast<float>(result | static_cast<std::uint32_t>(bits & 0x8000) << 16);
}
float from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

std::uint16_t half_at(const std::byte* data, std::int64_t index) {
  std::uint16_t bits;
  std::memcpy(&bits, data + index * 2, sizeof bits);
  return bits;
}

/// `index(i)`: the element that out[i] is.
template <typename Index>
void convert(DType dtype, const std::byte* data, std::int64_t count, float* out, Index index) {
  switch (dtype) {
    case DType::kF32:
      for (std::int64_t i = 0; i < count; ++i) std::memcpy(out + i, data + index(i) * 4, 4);
      break;
    case DType::kF16:
      for (std::int64_t i = 0; i < count; ++i) out[i] = from_f16(half_at(data, index(i)));
      break;
    case DType::kBF16:
      for (std::int64_t i = 0; i < count; ++i) out[i] = from_bf16(half_at(data, index(i)));
      break;
    default:
      for (std::int64_t i = 0; i < count; ++i) {
        out[i] = static_cast<float>(read_element(dtype, data, static_cast<std::size_t>(index(i))));
      }
  }
}

// Two lanes: what every x86-64 has.
using Float2 = float __attribute__((vector_size(8)));
using Double2 = double __attribute__((vector_size(16)));
using Long2 = std::int64_t __attribute__((vector_size(16)));

Double2 load2(const float* values) {
  Float2 pair;
  std::memcpy(&pair, values, sizeof pair);
  return __builtin_convertvector(pair, Double2);
}
Double2 abs2(Double2 x) {
  constexpr std::int64_t kMask = 0x7fffffffffffffff;
  return std::bit_cast<Double2>(std::bit_cast<Long2>(x) & Long2{kMask, kMask});
}

}  // namespace

TensorRows::TensorRows(const HostTensor& tensor)
    : dtype_(tensor.dtype),
      data_(tensor.data),
      columns_(tensor.shape.empty() ? 1 : tensor.shape.back()) {
  if (tensor.shape.empty()) return;
  shape_.assign(tensor.shape.begin(), tensor.shape.end() - 1);
  strides_.assign(tensor.strides.begin(), tensor.strides.end() - 1);
}

const std::byte* TensorRows::address(std::int64_t row) const {
  std::int64_t offset = 0;
  for (std::size_t i = shape_.size(); i-- > 0;) {
    offset += row % shape_[i] * strides_[i];
    row /= shape_[i];
  }
  return data_ + offset * (bits_of(dtype_) / 8);
}

void TensorRows::load(std::int64_t row, float* out) const {
  convert(dtype_, address(row), columns_, out, [](std::int64_t i) { return i; });
}

void TensorRows::load(std::int64_t row, std::span<const std::int64_t> columns, float* out) const {
  convert(dtype_, address(row), static_cast<std::int64_t>(columns.size()), out,
          [&](std::int64_t i) { return columns[static_cast<std::size_t>(i)]; });
}

Dot dot(const float* a, const float* b, std::int64_t count) {
  constexpr int kLanes = 4;  // independent sums, to hide the latency of an addition
  Double2 sums[kLanes] = {}, magnitudes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      Double2 product = load2(a + i + 2 * lane) * load2(b + i + 2 * lane);
      sums[lane] += product;
      magnitudes[lane] += abs2(product);
    }
  }
  Dot result;
  for (int lane = 0; lane < kLanes; ++lane) {
    result.sum += sums[lane][0] + sums[lane][1];
    result.magnitude += magnitudes[lane][0] + magnitudes[lane][1];
  }
  for (; i < count; ++i) {
    double product = static_cast<double>(a[i]) * static_cast<double>(b[i]);
    result.sum += product;
    result.magnitude += std::abs(product);
  }
  return result;
}

bool all_integral(const float* values, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    float x = values[i];
    // Beyond 2^24 every finite float is whole, but no longer of use to an exact sum.
    if (!(std::abs(x) <= 0x1p24f) || static_cast<float>(static_cast<std::int32_t>(x)) != x) {
      return false;
    }
  }
  return true;
}

}  // namespace tilewright::templates
