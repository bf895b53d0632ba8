#include "jit/virtual_gpu/execute/common/approximate.h"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>

#include "jit/virtual_gpu/execute/common/families.h"
#include "jit/virtual_gpu/execute/common/half_scalar.h"
#include "jit/virtual_gpu/execute/common/per_lane.h"
#include "jit/virtual_gpu/execute/worker.h"

namespace tilewright::vgpu {
namespace {

using U32 = std::uint32_t;
using U64 = std::uint64_t;

/// 2^x for constants that are no powers of two themselves.
double power(double x) { return std::exp2(x); }

/// A unit in the last place of an f32 near `value`.
double ulp(double value) {
  return std::ldexp(1.0, std::max(std::ilogb(value), FLT_MIN_EXP - 1) - (FLT_MANT_DIG - 1));
}

/// What stands in the step of a perturbed instruction.
struct Packed {
  Op op;
  Type type;
  bool ftz;
  explicit Packed(std::int32_t bits)
      : op(static_cast<Op>(bits & 0xff)),
        type(static_cast<Type>(bits >> 8 & 0xff)),
        ftz((bits >> 16 & 1) != 0) {}
};

U64 mix(U64 x) {  // splitmix64
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

/// `exact` plus an error that `draw` chooses: the whole bound in three cases of four.
double displaced(const Approximation& f, U64 draw) {
  double size = (draw >> 1 & 3) != 0 ? 1.0 : static_cast<double>(draw >> 11) * 0x1p-53;
  return f.exact + ((draw & 1) != 0 ? f.bound : -f.bound) * size;
}

float displaced_f32(const Packed& p, float a, float b, float result, U64 seed) {
  if (p.ftz) {
    a = scalar::flush(a);
    b = scalar::flush(b);
  }
  if (!std::isfinite(a) || a == 0 || !std::isfinite(result) || result == 0) return result;
  const Approximation f = approximation_of(p.op, Type::kF32, a, b);
  if (f.bound == 0) return result;
  const double target =
      displaced(f, mix(seed ^ mix(std::bit_cast<U32>(a) | U64{std::bit_cast<U32>(b)} << 32)));
  auto value = static_cast<float>(target);
  if (std::fabs(value - f.exact) > f.bound)
    value = std::nextafter(value, static_cast<float>(f.exact));
  if (p.op == Op::kTanh && std::fabs(value) > 1) value = std::copysign(1.0f, value);
  const bool inside = std::fabs(value - f.exact) <= f.bound;
  if (!inside || !std::isfinite(value) || std::fabs(value) < FLT_MIN) return result;
  return value;
}

std::uint16_t displaced_half(const Packed& p, bool bf16, std::uint16_t a, std::uint16_t result,
                             U64 seed) {
  auto widen = [&](std::uint16_t h) { return bf16 ? scalar::from_bf16(h) : scalar::from_f16(h); };
  const float x = widen(a), y = widen(result);
  if (!std::isfinite(x) || x == 0 || !std::isfinite(y) || y == 0) return result;
  const Approximation f = approximation_of(p.op, bf16 ? Type::kBF16 : Type::kF16, x, 0);
  const auto target = static_cast<float>(displaced(f, mix(seed ^ a)));
  const std::uint16_t bits = bf16 ? scalar::to_bf16(target) : scalar::to_f16(target);
  // Rounding may have gone beyond the bound: then one step back.
  for (int step = 0; step < 2; ++step) {
    auto candidate = static_cast<std::uint16_t>(bits - step);
    const float value = widen(candidate);
    if (std::isfinite(value) && value != 0 && std::fabs(value - f.exact) <= f.bound &&
        (p.op != Op::kTanh || std::fabs(value) <= 1))
      return candidate;
  }
  return result;
}

/// The instruction, and then results that are as wrong as they may be.
const Step* perturbed(const Step* s, std::byte* r, Warp& w) {
  const Packed p(s->immediate);
  const U64 seed = mix(w.worker->context.launch->approximation_seed ^ static_cast<U64>(p.op) << 56);
  const bool halves = p.type == Type::kF16x2 || p.type == Type::kBF16x2;
  const bool bf16 = p.type == Type::kBF16 || p.type == Type::kBF16x2;
  const std::size_t bytes = static_cast<std::size_t>(ptx::size_of(p.type)) * kLanes;
  // The result may have the place of a source.
  alignas(64) std::byte a[4 * kLanes], b[4 * kLanes];
  std::memcpy(a, r + s->a, bytes);
  std::memcpy(b, r + (p.op == Op::kDiv ? s->b : s->a), bytes);
  const auto i = static_cast<std::size_t>(s - w.code->steps.data());
  const Step* next = w.code->exact[i](s, r, w);
  for_lanes(w.mask, [&](int lane) {
    if (p.type == Type::kF32) {
      float& d = lanes<float>(r, s->d)[lane];
      d = displaced_f32(p, lanes<float>(a, 0)[lane], lanes<float>(b, 0)[lane], d, seed);
    } else if (!halves) {
      auto& d = lanes<std::uint16_t>(r, s->d)[lane];
      d = displaced_half(p, bf16, lanes<std::uint16_t>(a, 0)[lane], d, seed);
    } else {
      U32& d = lanes<U32>(r, s->d)[lane];
      const U32 x = lanes<U32>(a, 0)[lane];
      auto one = [&](int shift) {
        return U32{displaced_half(p, bf16, static_cast<std::uint16_t>(x >> shift),
                                  static_cast<std::uint16_t>(d >> shift), seed)};
      };
      d = one(16) << 16 | one(0);
    }
  });
  return next;
}

}  // namespace

bool is_approximate(const Form& form) {
  switch (form.op) {
    case Op::kRcp:
    case Op::kDiv:
      return form.mode == 1 && form.type == Type::kF32;
    case Op::kRsqrt:
    case Op::kSqrtApprox:
    case Op::kLg2:
    case Op::kSin:
    case Op::kCos:
      return form.type == Type::kF32;
    case Op::kEx2:
    case Op::kTanh:
      return ptx::is_float(form.type) && ptx::size_of(form.type) <= 4;
    default:
      return false;
  }
}

Handler perturbed_handler() { return perturbed; }

std::int32_t perturbed_immediate(const Form& form) {
  return static_cast<std::int32_t>(form.op) | static_cast<std::int32_t>(form.type) << 8 |
         (form.ftz ? 1 << 16 : 0);
}

Approximation approximation_of(Op op, Type element, double a, double b) {
  // PTX ISA, in the section of each instruction.
  constexpr double kPi = 3.14159265358979323846;
  Approximation f;
  switch (op) {
    case Op::kRcp:
      f.exact = 1 / a;
      f.bound = ulp(f.exact);
      break;
    case Op::kDiv:
      f.exact = a / b;
      if (std::fabs(b) >= 0x1p-126 && std::fabs(b) <= 0x1p126) f.bound = 2 * ulp(f.exact);
      break;
    case Op::kSqrtApprox:
      f.exact = std::sqrt(a);
      f.bound = std::fabs(f.exact) * 0x1p-23;
      break;
    case Op::kRsqrt:
      f.exact = 1 / std::sqrt(a);
      f.bound = std::fabs(f.exact) * power(-22.9);
      break;
    case Op::kLg2:
      f.exact = std::log2(a);
      f.bound = 0x1p-22 * (a > 0.5 && a < 2 ? 1 : std::fabs(f.exact));
      break;
    case Op::kSin:
    case Op::kCos:
      f.exact = op == Op::kSin ? std::sin(a) : std::cos(a);
      if (std::fabs(a) <= 100 * kPi)
        f.bound = std::fabs(a) <= 2 * kPi ? power(-20.5) : power(-14.7);
      break;
    case Op::kEx2:
      f.exact = std::exp2(a);
      f.bound = f.exact * (element == Type::kF32   ? power(-22.5)
                           : element == Type::kF16 ? power(-9.9)
                                                   : 0x1p-7);
      break;
    case Op::kTanh:
      f.exact = std::tanh(a);
      f.bound = element == Type::kF32   ? std::fabs(f.exact) * 0x1p-11
                : element == Type::kF16 ? power(-10.987)
                                        : 0x1p-8;
      break;
    default:
      break;
  }
  return f;
}

}  // namespace tilewright::vgpu
