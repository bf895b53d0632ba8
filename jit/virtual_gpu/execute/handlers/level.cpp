// The handlers of one level, together.
#include "jit/virtual_gpu/execute/level.h"

#include "jit/virtual_gpu/execute/handlers/lanes.h"

#define VGPU_STRING_(x) #x
#define VGPU_STRING(x) VGPU_STRING_(x)
#define VGPU_JOIN_(a, b) a##b
#define VGPU_JOIN(a, b) VGPU_JOIN_(a, b)

namespace tilewright::vgpu {
namespace VGPU_LEVEL {
namespace {

Handler select(const Form& form) {
  Handler (*const families[])(const Form&) = {
      select_float,   select_half,    select_integer, select_bits, select_math,
      select_compare, select_convert, select_memory,  select_mma,  select_wgmma,
  };
  for (auto* family : families)
    if (Handler handler = family(form)) return handler;
  return nullptr;
}

const Level kLevel{VGPU_STRING(VGPU_LEVEL), select};

}  // namespace
}  // namespace VGPU_LEVEL

const Level& VGPU_JOIN(level_, VGPU_LEVEL)() { return VGPU_LEVEL::kLevel; }

}  // namespace tilewright::vgpu
