/// What the lowerings of tensor instructions share.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "jit/virtual_gpu/program/lowering.h"
#include "jit/virtual_gpu/program/rare_form.h"

namespace tilewright::vgpu {

std::optional<Element> element_of(std::string_view name);
std::optional<Accumulator> accumulator_of(std::string_view name);
Type register_type(Accumulator d);

/// "m16n8k16" -> 16, 8, 16.
struct MmaShape {
  int m = 0, n = 0, k = 0;
};
MmaShape take_shape(Lowering& lowering);

/// Registers of a vector operand (one may stand without braces).
std::vector<const ptx::Operand*> parts(Lowering& lowering, const ptx::Operand& operand, int count,
                                       const char* what);

/// An immediate that is 1 or -1: whether it is -1; one that is 0 or 1.
bool negates(Lowering& lowering, std::size_t index);
bool transposes(Lowering& lowering, std::size_t index);

/// mma with a sparse A, with block scales, of single bits, and m8n8k4 of f16: false for others. .sync
/// and .aligned were taken.
bool lower_rare_mma(Lowering& lowering);
/// wgmma.mma_async.sp, of which .mma_async and .sp were taken.
void lower_sparse_wgmma(Lowering& lowering);

}  // namespace tilewright::vgpu
