// ld.param of a kernel's parameters, whose places are known: one value for all lanes.
#include <cstring>

#include "jit/virtual_gpu/execute/common/families.h"
#include "jit/virtual_gpu/execute/common/per_lane.h"

namespace tilewright::vgpu {
namespace {

template <class T, class R>
const Step* load(const Step* s, std::byte* r, Warp& w) {
  T value;
  std::memcpy(&value, w.parameters + s->immediate, sizeof value);
  auto wide = static_cast<R>(value);
  auto* d = lanes<R>(r, s->d);
  if (w.full) {
    for (int i = 0; i < kLanes; ++i) d[i] = wide;
  } else {
    for_lanes(w.mask, [&](int i) { d[i] = wide; });
  }
  return s + 1;
}

template <class T>
Handler to_register(int bytes) {
  if (bytes < static_cast<int>(sizeof(T))) return nullptr;
  switch (bytes) {
    case 2:
      return load<T, std::uint16_t>;
    case 4:
      return load<T, std::uint32_t>;
    case 8:
      return load<T, std::uint64_t>;
    default:
      return nullptr;
  }
}

}  // namespace

Handler select_parameter(const Form& form) {
  if (form.op != Op::kLoadParam) return nullptr;
  int bytes = form.register_bytes;
  switch (form.type) {
    case Type::kU8:
      return to_register<std::uint8_t>(bytes);
    case Type::kS8:
      return to_register<std::int8_t>(bytes);
    case Type::kU16:
      return to_register<std::uint16_t>(bytes);
    case Type::kS16:
      return to_register<std::int16_t>(bytes);
    case Type::kU32:
      return to_register<std::uint32_t>(bytes);
    case Type::kS32:
      return to_register<std::int32_t>(bytes);
    case Type::kU64:
      return to_register<std::uint64_t>(bytes);
    default:
      return nullptr;
  }
}

}  // namespace tilewright::vgpu
