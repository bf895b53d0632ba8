/// How a plan is composed that nobody has measured yet.
#pragma once

#include <filesystem>
#include <vector>

#include "cache/record.h"
#include "search/compose.h"
#include "search/partition.h"

namespace tilewright::daemon {

/// The parts of `nearest`'s plan at other sizes. Errors: kUnsupported says what is not legal here:
/// a group that no longer is one, a family that refuses it, a config outside of its space.
Result<std::vector<search::Part>> parts_of(const cache::Entry& nearest,
                                           const search::PartitionSpace& space,
                                           const templates::Bindings& bindings,
                                           const jit::DeviceInfo& device,
                                           const std::filesystem::path& spaces);

/// Unfused, every group with the safe config of the first family that accepts it.
std::vector<search::Part> safe_parts(const search::PartitionSpace& space,
                                     const templates::Bindings& bindings);

}  // namespace tilewright::daemon
