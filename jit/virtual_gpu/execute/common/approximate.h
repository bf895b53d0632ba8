/// How far the PTX ISA lets approximate functions err, and results that err so far.
#pragma once

#include <cstdint>

#include "jit/virtual_gpu/program/form.h"

namespace tilewright::vgpu {

/// The function of an instruction without rounding, and what its result may differ by.
struct Approximation {
  double exact = 0;
  double bound = 0;  ///< 0: nothing is documented, or the result is exact
};

/// Whether the instruction approximates one of the functions below, of f32, f16 or bf16.
bool is_approximate(const Form& form);

/// Of one element. `b` is the divisor of kDiv.
Approximation approximation_of(Op op, Type element, double a, double b);

}  // namespace tilewright::vgpu
