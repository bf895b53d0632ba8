/// What the lowering of asynchronous instructions, of mbarriers and of clusters has in common.
#pragma once

#include "jit/virtual_gpu/program/lowering.h"

namespace tilewright::vgpu {

/// .sem and .scope, which order_of and scope_of have read.
void take_semantics(Lowering& l);

struct SharedSpace {
  Space space = Space::kGeneric;
  bool cluster = false;
};
/// .shared, .shared::cta, .shared::cluster, or none of them.
SharedSpace take_shared(Lowering& l);

Site site_of(Lowering& l, Space space, bool cluster, int bytes, bool store);

}  // namespace tilewright::vgpu
