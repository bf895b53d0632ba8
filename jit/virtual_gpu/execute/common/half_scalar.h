/// f16 and bf16, one value at a time: for rare handlers. The functions are those of the levels,
/// built for every host.
#pragma once

#define VGPU_LEVEL scalar
#include "jit/virtual_gpu/execute/handlers/float_math.h"
#undef VGPU_LEVEL

namespace tilewright::vgpu::scalar {

template <bool kBf16>
inline float widen(std::uint16_t a) {
  return kBf16 ? from_bf16(a) : from_f16(a);
}
template <bool kBf16>
inline std::uint16_t narrow(float a) {
  return kBf16 ? to_bf16(a) : to_f16(a);
}

}  // namespace tilewright::vgpu::scalar
