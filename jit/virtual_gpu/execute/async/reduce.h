/// Reductions in memory, outside of an atom instruction: bulk and tensor reductions, red.async.
#pragma once

#include <cstddef>
#include <cstdint>

#include "jit/virtual_gpu/program/form.h"

namespace tilewright::vgpu {

/// Whether atom has the operation on elements of the type.
bool can_reduce(Reduce reduce, Type type);
/// to[i] = reduce(to[i], from[i]) for `bytes` of elements. `from` may be null: zeros.
void reduce_bytes(Reduce reduce, Type type, std::byte* to, const std::byte* from,
                  std::size_t bytes);

}  // namespace tilewright::vgpu
