/// How a plan is composed that nobody has measured yet.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "cache/record.h"
#include "cache/store.h"
#include "search/compose.h"
#include "search/partition.h"

namespace tilewright::daemon {

/// The parts of `nearest`'s plan, whose configs may well be worth less at other sizes, and are still
/// worth more than safe ones. Errors: kUnsupported: a group that no longer is one, a family that
/// does not accept it. Whether a config is legal, its generator says.
Result<std::vector<search::Part>> parts_of(const cache::Entry& nearest,
                                           const search::PartitionSpace& space);

/// Whose parts a fallback may have, best first: `nearest` (null: none); then, of a batch-invariant
/// operator, whose plans all give the same bits, the others of its record, as it is told.
std::vector<cache::Entry> entries_to_try(const cache::Store& store, const cache::Key& key,
                                         const cache::Entry* nearest);

/// Unfused, every group with the safe config of the first family that accepts it.
std::vector<search::Part> safe_parts(const search::PartitionSpace& space,
                                     const templates::Bindings& bindings);

/// Whether the device can launch it: shared memory and registers of every block. Errors: kUnsupported
/// names the kernel, what it needs and what there is.
Result<void> check_resources(const jit::Plan& plan,
                             std::span<const std::shared_ptr<const jit::Image>> images,
                             const jit::DeviceInfo& device);

}  // namespace tilewright::daemon
