/// Sums of products, one accumulator at a time: for what is not vector code. PTX leaves the order and
/// the rounding of sums open; see Accumulation.
#pragma once

#include "jit/virtual_gpu/machine.h"
#include "jit/virtual_gpu/program/tensor_form.h"

namespace tilewright::vgpu {

/// Bits that kTruncated keeps below the leading one of the largest term.
///
/// 13 of 8-bit types is published for Hopper: "FP8 Mixed Precision Training" of the DeepSeek-V3 report
/// (arXiv 2412.19437, section 3.3.2: about 14 bits are kept), and PyTorch's "Some Matrix Multiplication
/// Engines Are Not As Accurate As We Thought" (H100 and Ada accumulate fp8 as e8m13, truncated). 25 of
/// the others (two beyond f32's 23) is an assumption, as is that all products of an instruction are
/// aligned at once.
constexpr int kept_bits(int element_bits) { return element_bits == 8 ? 13 : 25; }

/// acc + terms[0] + terms[1] + ... The terms are exact.
float accumulate(Accumulation how, int kept, const double* terms, int count, float acc);

}  // namespace tilewright::vgpu
