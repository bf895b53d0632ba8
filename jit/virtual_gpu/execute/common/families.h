/// Families of handlers that are built once: control, exchange between lanes, and whatever is too
/// rare in kernels to deserve a build per level. Null for forms that a family does not have.
#pragma once

#include "jit/virtual_gpu/program/code.h"

namespace tilewright::vgpu {

Handler select_control(const Form& form);
Handler select_system_call(const Form& form);
Handler select_barrier(const Form& form);
Handler select_lanes(const Form& form);
Handler select_atomic(const Form& form);
Handler select_parameter(const Form& form);
Handler select_async_copy(const Form& form);
Handler select_cluster(const Form& form);
Handler select_mbarrier(const Form& form);
Handler select_bulk_copy(const Form& form);
Handler select_fence(const Form& form);
Handler select_rare_bits(const Form& form);
Handler select_rare_integer(const Form& form);
Handler select_rare_float(const Form& form);
Handler select_rare_minmax(const Form& form);
Handler select_packed_integer(const Form& form);
Handler select_rare_compare(const Form& form);
Handler select_rare_convert(const Form& form);
Handler select_narrow_convert(const Form& form);
Handler select_rare_memory(const Form& form);
Handler select_matrix(const Form& form);
Handler select_mma_double(const Form& form);
Handler select_warpgroup(const Form& form);
Handler select_tensor_copy(const Form& form);
Handler select_tensor_map(const Form& form);
Handler select_mma_rare(const Form& form);
Handler select_wgmma_rare(const Form& form);

}  // namespace tilewright::vgpu
