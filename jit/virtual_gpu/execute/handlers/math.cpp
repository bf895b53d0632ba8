// Approximations of the special function unit. Their errors are within what the PTX ISA documents,
// their bits are not those of a GPU.
#include "jit/virtual_gpu/execute/handlers/float_math.h"

namespace tilewright::vgpu::VGPU_LEVEL {
namespace {

template <class F, bool kFtz>
struct Function {
  VGPU_INLINE float op(float a) {
    float result = F::op(kFtz ? flush(a) : a);
    return kFtz ? flush(result) : result;
  }
};
struct Ex2 {
  VGPU_INLINE float op(float a) { return exp2_approx(a); }
};
struct Lg2 {
  VGPU_INLINE float op(float a) { return log2_approx(a); }
};
struct Tanh {
  VGPU_INLINE float op(float a) { return tanh_approx(a); }
};

/// In f16 or bf16: through f32.
template <class F, bool kBf16>
struct HalfFunction {
  VGPU_INLINE uint16_t op(uint16_t a) {
    float result = F::op(kBf16 ? from_bf16(a) : from_f16(a));
    return kBf16 ? to_bf16(result) : to_f16(result);
  }
  VGPU_INLINE uint32_t op(uint32_t a) {
    return static_cast<uint32_t>(op(static_cast<uint16_t>(a >> 16))) << 16 |
           op(static_cast<uint16_t>(a));
  }
};

template <class F>
Handler function(const Form& form) {
  switch (form.type) {
    case Type::kF32:
      return form.ftz ? map1<Function<F, true>, float, float>
                      : map1<Function<F, false>, float, float>;
    case Type::kF16:
      return map1<HalfFunction<F, false>, uint16_t, uint16_t>;
    case Type::kF16x2:
      return map1<HalfFunction<F, false>, uint32_t, uint32_t>;
    case Type::kBF16:
      return map1<HalfFunction<F, true>, uint16_t, uint16_t>;
    case Type::kBF16x2:
      return map1<HalfFunction<F, true>, uint32_t, uint32_t>;
    default:
      return nullptr;
  }
}

}  // namespace

Handler select_math(const Form& form) {
  switch (form.op) {
    case Op::kEx2:
      return function<Ex2>(form);
    case Op::kLg2:
      return form.type == Type::kF32 ? function<Lg2>(form) : nullptr;
    case Op::kTanh:
      return function<Tanh>(form);
    default:
      return nullptr;
  }
}

}  // namespace tilewright::vgpu::VGPU_LEVEL
