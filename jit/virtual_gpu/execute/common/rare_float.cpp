// Rounding other than to nearest, sine and cosine, tests. Built with -frounding-math: the host's
// rounding mode does the work.
#include <cfenv>
#include <cmath>

#include "jit/virtual_gpu/execute/common/families.h"
#include "jit/virtual_gpu/execute/common/half_scalar.h"
#include "jit/virtual_gpu/execute/common/per_lane.h"

namespace tilewright::vgpu {
namespace {

class Rounding {
 public:
  explicit Rounding(Round round) : before_(std::fegetround()) {
    std::fesetround(round == Round::kZero   ? FE_TOWARDZERO
                    : round == Round::kDown ? FE_DOWNWARD
                    : round == Round::kUp   ? FE_UPWARD
                                            : FE_TONEAREST);
  }
  ~Rounding() { std::fesetround(before_); }
  Rounding(const Rounding&) = delete;
  Rounding& operator=(const Rounding&) = delete;

 private:
  int before_;
};

float finish(float a, bool ftz, bool sat) {
  if (ftz) a = scalar::flush(a);
  return sat ? scalar::saturate(a) : scalar::one_nan(a);
}
double finish(double a, bool, bool) { return a != a ? std::bit_cast<double>(scalar::kNan64) : a; }
float input(float a, bool ftz) { return ftz ? scalar::flush(a) : a; }
double input(double a, bool) { return a; }

template <Op kOp, class T>
[[gnu::noinline]] T compute(T a, T b, T c) {
  switch (kOp) {
    case Op::kAdd:
      return a + b;
    case Op::kSub:
      return a - b;
    case Op::kMul:
      return a * b;
    case Op::kDiv:
      return a / b;
    case Op::kFma:
      return std::fma(a, b, c);
    case Op::kSqrt:
      return std::sqrt(a);
    default:
      return T{1} / a;
  }
}

template <Op kOp, class T, Round kRound, bool kFtz, bool kSat>
const Step* rounded(const Step* s, std::byte* r, Warp& w) {
  auto* d = lanes<T>(r, s->d);
  const auto *a = lanes<T>(r, s->a), *b = lanes<T>(r, s->b), *c = lanes<T>(r, s->c);
  constexpr bool kTwo = kOp != Op::kSqrt && kOp != Op::kRcp;
  Rounding rounding(kRound);
  for_lanes(w.mask, [&](int i) {
    T x = input(a[i], kFtz);
    T y = kTwo ? input(b[i], kFtz) : T{0};
    T z = kOp == Op::kFma ? input(c[i], kFtz) : T{0};
    d[i] = finish(compute<kOp, T>(x, y, z), kFtz, kSat);
  });
  return s + 1;
}
template <Op kOp, class T, Round kRound>
Handler flags(const Form& form) {
  if constexpr (sizeof(T) == 8) return rounded<kOp, T, kRound, false, false>;
  if (form.saturate)
    return form.ftz ? rounded<kOp, T, kRound, true, true> : rounded<kOp, T, kRound, false, true>;
  return form.ftz ? rounded<kOp, T, kRound, true, false> : rounded<kOp, T, kRound, false, false>;
}
template <Op kOp, class T>
Handler typed(const Form& form) {
  switch (form.round) {
    case Round::kZero:
      return flags<kOp, T, Round::kZero>(form);
    case Round::kDown:
      return flags<kOp, T, Round::kDown>(form);
    case Round::kUp:
      return flags<kOp, T, Round::kUp>(form);
    default:
      return nullptr;
  }
}
template <Op kOp>
Handler directed(const Form& form) {
  if (form.type == Type::kF32) return typed<kOp, float>(form);
  return form.type == Type::kF64 ? typed<kOp, double>(form) : nullptr;
}

template <bool kCosine, bool kFtz>
struct Trigonometric {
  static float op(float a) {
    float x = kFtz ? scalar::flush(a) : a;
    float result = kCosine ? std::cos(x) : std::sin(x);
    return finish(result, kFtz, false);
  }
};

template <class T>
const Step* testp(const Step* s, std::byte* r, Warp& w) {
  const auto* a = lanes<T>(r, s->a);
  std::uint32_t result = 0;
  for_lanes(w.mask, [&](int i) {
    bool yes = false;
    switch (s->immediate) {
      case 0:
        yes = std::isfinite(a[i]);
        break;
      case 1:
        yes = std::isinf(a[i]);
        break;
      case 2:
        yes = !std::isnan(a[i]);
        break;
      case 3:
        yes = std::isnan(a[i]);
        break;
      case 4:
        yes = std::isnormal(a[i]);
        break;
      default:
        yes = std::fpclassify(a[i]) == FP_SUBNORMAL;
        break;
    }
    result |= (yes ? 1u : 0u) << i;
  });
  set_predicate(r, s->d, w.mask, result);
  return s + 1;
}

}  // namespace

Handler select_rare_float(const Form& form) {
  switch (form.op) {
    case Op::kAdd:
      return directed<Op::kAdd>(form);
    case Op::kSub:
      return directed<Op::kSub>(form);
    case Op::kMul:
      return directed<Op::kMul>(form);
    case Op::kDiv:
      return directed<Op::kDiv>(form);
    case Op::kFma:
      return directed<Op::kFma>(form);
    case Op::kSqrt:
      return directed<Op::kSqrt>(form);
    case Op::kRcp:
      return directed<Op::kRcp>(form);
    case Op::kSin:
      if (form.type != Type::kF32) return nullptr;
      return form.ftz ? lane1<Trigonometric<false, true>, float, float>
                      : lane1<Trigonometric<false, false>, float, float>;
    case Op::kCos:
      if (form.type != Type::kF32) return nullptr;
      return form.ftz ? lane1<Trigonometric<true, true>, float, float>
                      : lane1<Trigonometric<true, false>, float, float>;
    case Op::kTestp:
      return form.type == Type::kF32   ? testp<float>
             : form.type == Type::kF64 ? testp<double>
                                       : nullptr;
    default:
      return nullptr;
  }
}

}  // namespace tilewright::vgpu
