/// Counts what the test program allocates with new. A file of its own, for a replaced operator that
/// the compiler sees is inlined, and then warned of.
#pragma once

#include <cstddef>

namespace tilewright::jit::testing {

std::size_t allocation_count();

}  // namespace tilewright::jit::testing
