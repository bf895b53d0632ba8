#include "jit/virtual_gpu/execute/common/families.h"
#include "jit/virtual_gpu/execute/level.h"

namespace tilewright::vgpu {

Handler select_common(const Form& form) {
  constexpr Handler (*kFamilies[])(const Form&) = {
      select_control,      select_barrier,        select_lanes,        select_atomic,
      select_parameter,    select_async_copy,     select_cluster,      select_mbarrier,
      select_bulk_copy,    select_narrow_convert, select_fence,        select_rare_bits,
      select_rare_integer, select_rare_float,     select_rare_compare, select_rare_convert,
      select_rare_memory,  select_matrix,         select_mma_double,   select_warpgroup,
      select_tensor_copy,  select_tensor_map,     select_rare_minmax,  select_packed_integer,
      select_system_call,  select_mma_rare,       select_wgmma_rare,
  };
  for (auto* family : kFamilies)
    if (Handler handler = family(form)) return handler;
  return nullptr;
}

bool supported(const Level& level) {
  if (&level == &level_v4()) return __builtin_cpu_supports("x86-64-v4") != 0;
  if (&level == &level_v3()) return __builtin_cpu_supports("x86-64-v3") != 0;
  return true;
}

const Level& best_level() {
  static const Level& best = supported(level_v4())   ? level_v4()
                             : supported(level_v3()) ? level_v3()
                                                     : level_v2();
  return best;
}

}  // namespace tilewright::vgpu
