// The conversions that handlers/convert.cpp does not have: directed rounding, saturation, f64 and
// 64-bit integers, halves to and from anything. The form lies in the step's immediate.
#include <cfenv>
#include <cmath>

#include "jit/virtual_gpu/execute/common/families.h"
#include "jit/virtual_gpu/execute/common/half_scalar.h"
#include "jit/virtual_gpu/execute/common/per_lane.h"
#include "jit/virtual_gpu/program/conversion.h"

namespace tilewright::vgpu {
namespace {

using S128 = __int128;

int host_mode(Round round) {
  return round == Round::kZero   ? FE_TOWARDZERO
         : round == Round::kDown ? FE_DOWNWARD
         : round == Round::kUp   ? FE_UPWARD
                                 : FE_TONEAREST;
}

std::uint64_t read(std::byte* r, std::uint32_t offset, int register_bytes, int lane) {
  switch (register_bytes) {
    case 2:
      return lanes<std::uint16_t>(r, offset)[lane];
    case 4:
      return lanes<std::uint32_t>(r, offset)[lane];
    default:
      return lanes<std::uint64_t>(r, offset)[lane];
  }
}
void write(std::byte* r, std::uint32_t offset, int register_bytes, int lane, std::uint64_t value) {
  switch (register_bytes) {
    case 2:
      lanes<std::uint16_t>(r, offset)[lane] = static_cast<std::uint16_t>(value);
      break;
    case 4:
      lanes<std::uint32_t>(r, offset)[lane] = static_cast<std::uint32_t>(value);
      break;
    default:
      lanes<std::uint64_t>(r, offset)[lane] = value;
      break;
  }
}

S128 lowest(Type type) {
  int bits = 8 * ptx::size_of(type);
  return ptx::is_signed(type) ? -(static_cast<S128>(1) << (bits - 1)) : 0;
}
S128 highest(Type type) {
  int bits = 8 * ptx::size_of(type);
  return (static_cast<S128>(1) << (ptx::is_signed(type) ? bits - 1 : bits)) - 1;
}

/// The source as an integer.
S128 integer_of(std::uint64_t raw, Type type) {
  int bits = 8 * ptx::size_of(type);
  if (bits < 64) raw &= (std::uint64_t{1} << bits) - 1;
  if (!ptx::is_signed(type)) return static_cast<S128>(raw);
  return static_cast<std::int64_t>(raw << (64 - bits)) >> (64 - bits);
}
/// The source as a double: exact for every float type.
double double_of(std::uint64_t raw, Type type, bool ftz) {
  switch (type) {
    case Type::kF16:
      return scalar::from_f16(static_cast<std::uint16_t>(raw));
    case Type::kBF16:
      return scalar::from_bf16(static_cast<std::uint16_t>(raw));
    case Type::kF32: {
      auto f = std::bit_cast<float>(static_cast<std::uint32_t>(raw));
      return ftz ? scalar::flush(f) : f;
    }
    default:
      return std::bit_cast<double>(raw);
  }
}

/// Rounds a double to a half of `mantissa` bits whose smallest normal exponent is `low`, in any
/// direction. Returns a double that the half can hold, or infinity.
double to_half_grid(double a, int mantissa, int low, double largest, Round round) {
  if (a == 0 || !std::isfinite(a)) return a;
  int exponent = std::ilogb(a);
  if (exponent < low) exponent = low;
  double unit = std::ldexp(1.0, exponent - mantissa);
  std::fesetround(host_mode(round));
  double result = std::nearbyint(a / unit) * unit;
  std::fesetround(FE_TONEAREST);
  result = std::copysign(result, a);
  if (std::fabs(result) > largest) {
    bool infinite = round == Round::kNearest || (round == Round::kUp && a > 0) ||
                    (round == Round::kDown && a < 0);
    result = std::copysign(infinite ? INFINITY : largest, a);
  }
  return result;
}

std::uint64_t half_bits(double a, const Conversion& c) {
  bool bf16 = c.to == Type::kBF16;
  double largest = bf16 ? 3.3895313892515355e38 : 65504.0;
  double on_grid = bf16 ? to_half_grid(a, 7, -126, largest, c.round)
                        : to_half_grid(a, 10, -14, largest, c.round);
  if (c.relu && !(on_grid > 0)) on_grid = std::isnan(on_grid) ? on_grid : 0.0;
  if (c.satfinite && std::isinf(on_grid)) on_grid = std::copysign(largest, on_grid);
  auto f = static_cast<float>(on_grid);
  if (c.saturate) f = scalar::saturate(f);
  return bf16 ? scalar::to_bf16(f) : scalar::to_f16(f);
}

double integral(double a, Round round) {
  switch (round) {
    case Round::kZero:
      return std::trunc(a);
    case Round::kDown:
      return std::floor(a);
    case Round::kUp:
      return std::ceil(a);
    default:
      return std::nearbyint(a);
  }
}

std::uint64_t from_double(double a, const Conversion& c) {
  switch (c.to) {
    case Type::kF16:
    case Type::kBF16:
      return half_bits(c.integral ? integral(a, c.round) : a, c);
    case Type::kF32: {
      if (c.integral) a = integral(a, c.round);
      std::fesetround(host_mode(c.integral ? Round::kNearest : c.round));
      volatile float rounded = static_cast<float>(a);
      std::fesetround(FE_TONEAREST);
      float f = rounded;
      if (c.ftz) f = scalar::flush(f);
      f = c.saturate ? scalar::saturate(f) : scalar::one_nan(f);
      return std::bit_cast<std::uint32_t>(f);
    }
    case Type::kF64:
      if (c.integral) a = integral(a, c.round);
      if (c.saturate) a = a > 0 ? (a < 1 ? a : 1.0) : 0.0;
      return a != a ? scalar::kNan64 : std::bit_cast<std::uint64_t>(a);
    default:
      break;
  }
  // To an integer: out of range values go to the nearest. PTX ISA, "cvt", on NaN.
  if (a != a) {
    bool wide = c.from == Type::kF64 || ptx::size_of(c.to) == 8;
    return wide ? std::uint64_t{1} << (8 * ptx::size_of(c.to) - 1) : 0;
  }
  double value = integral(a, c.round);
  S128 low = lowest(c.to), high = highest(c.to);
  if (value <= static_cast<double>(low)) return static_cast<std::uint64_t>(low);
  if (value >= static_cast<double>(high)) return static_cast<std::uint64_t>(high);
  return static_cast<std::uint64_t>(static_cast<S128>(value));
}

std::uint64_t from_integer(S128 a, const Conversion& c) {
  if (!ptx::is_float(c.to)) {
    if (c.saturate) a = a < lowest(c.to) ? lowest(c.to) : a > highest(c.to) ? highest(c.to) : a;
    return static_cast<std::uint64_t>(a);
  }
  std::fesetround(host_mode(c.round));
  volatile double d = 0;
  volatile float f = 0;
  bool negative = a < 0;
  auto u = static_cast<std::uint64_t>(a);
  if (c.to == Type::kF32)
    f = negative ? static_cast<float>(static_cast<std::int64_t>(a)) : static_cast<float>(u);
  else
    d = negative ? static_cast<double>(static_cast<std::int64_t>(a)) : static_cast<double>(u);
  std::fesetround(FE_TONEAREST);
  switch (c.to) {
    case Type::kF32:
      return std::bit_cast<std::uint32_t>(c.saturate ? scalar::saturate(f) : f);
    case Type::kF64:
      return std::bit_cast<std::uint64_t>(static_cast<double>(d));
    default:
      break;
  }
  // Beyond 2^53 the value is far above any half; below it is exact in a double.
  return half_bits(static_cast<double>(static_cast<std::int64_t>(a)), c);
}

std::uint64_t extended(std::uint64_t value, Type type) {
  if (ptx::is_float(type)) return value;
  int bits = 8 * ptx::size_of(type);
  if (bits == 64) return value;
  if (!ptx::is_signed(type)) return value & ((std::uint64_t{1} << bits) - 1);
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(value << (64 - bits)) >> (64 - bits));
}

const Step* convert(const Step* s, std::byte* r, Warp& w) {
  Conversion c = Conversion::unpack(static_cast<std::uint32_t>(s->immediate));
  for_lanes(w.mask, [&](int i) {
    std::uint64_t raw = read(r, s->a, c.from_bytes, i);
    std::uint64_t value = ptx::is_float(c.from) ? from_double(double_of(raw, c.from, c.ftz), c)
                                                : from_integer(integer_of(raw, c.from), c);
    write(r, s->d, c.to_bytes, i, extended(value, c.to));
  });
  return s + 1;
}

/// cvt.{f16x2,bf16x2}.f32 d, a, b with what the fast handler lacks.
const Step* convert_pair(const Step* s, std::byte* r, Warp& w) {
  Conversion c = Conversion::unpack(static_cast<std::uint32_t>(s->immediate));
  c.to = c.to == Type::kBF16x2 ? Type::kBF16 : Type::kF16;
  auto* d = lanes<std::uint32_t>(r, s->d);
  const auto *a = lanes<float>(r, s->a), *b = lanes<float>(r, s->b);
  for_lanes(w.mask, [&](int i) {
    auto one = [&](float f) {
      return static_cast<std::uint32_t>(half_bits(c.ftz ? scalar::flush(f) : f, c));
    };
    d[i] = one(a[i]) << 16 | one(b[i]);
  });
  return s + 1;
}

}  // namespace

Handler select_rare_convert(const Form& form) {
  if (form.op != Op::kCvt || form.mode == 1) return nullptr;
  if (form.type == Type::kF16x2 || form.type == Type::kBF16x2) return convert_pair;
  bool sizes = form.register_bytes >= 2 && form.address_bytes >= 2;
  return sizes && form.type != Type::kPred && form.from != Type::kPred ? convert : nullptr;
}

}  // namespace tilewright::vgpu
