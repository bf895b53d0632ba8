#include "daemon/fallback.h"

#include <fmt/format.h>

#include <algorithm>

#include "search/record.h"
#include "templates/operator/parse.h"

namespace tilewright::daemon {

Result<std::vector<search::Part>> parts_of(const cache::Entry& nearest,
                                           const search::PartitionSpace& space) {
  if (nearest.groups.empty())
    return fail(ErrorCode::kUnsupported, "the nearest entry has no groups");
  std::vector<search::GroupChoice> choices;
  for (const std::string& text : nearest.groups) {
    TILEWRIGHT_ASSIGN_OR_RETURN(choices.emplace_back(), search::parse_group(text));
  }
  return search::parts_of(choices, space);
}

std::vector<cache::Entry> entries_to_try(const cache::Store& store, const cache::Key& key,
                                         const cache::Entry* nearest) {
  std::vector<cache::Entry> entries;
  if (!nearest) return entries;
  entries.push_back(*nearest);
  const auto op = templates::parse_operator(key.operator_text, "the record's operator");
  if (!op || !op->numerics.batch_invariant) return entries;
  const auto record = store.get(key);
  if (!record || !*record) return entries;
  for (const cache::Entry& entry : (*record)->entries)
    if (entry.groups != nearest->groups) entries.push_back(entry);
  return entries;
}

std::vector<search::Part> safe_parts(const search::PartitionSpace& space,
                                     const templates::Bindings& bindings) {
  std::vector<search::Part> parts;
  for (int index : space.unfused()) {
    const search::Group& group = space.groups()[std::size_t(index)];
    const templates::Family* family = group.families.front();
    parts.push_back(
        {index, family, family->safe_config(group.op, bindings_of(group.op, bindings))});
  }
  return parts;
}

Result<void> check_resources(const jit::Plan& plan,
                             std::span<const std::shared_ptr<const jit::Image>> images,
                             const jit::DeviceInfo& device) {
  // CUDA C++ Programming Guide, "Compute Capabilities": registers are given out to warps by 256.
  constexpr int kRegisterUnit = 256, kWarp = 32;
  for (const jit::PlanLaunch& launch : plan.launches) {
    const jit::KernelResources* kernel = nullptr;
    for (const auto& image : images)
      if (image->digest == launch.image) kernel = image->find(launch.kernel);
    if (!kernel) continue;  // compiled to PTX only: nothing is known
    std::size_t shared = std::size_t(launch.dynamic_shared_bytes + kernel->static_shared_bytes);
    if (shared > device.shared_per_block_optin) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("kernel {} needs {} bytes of shared memory, expected at most {}",
                              launch.kernel, shared, device.shared_per_block_optin));
    }
    int warps = (launch.block[0] * launch.block[1] * launch.block[2] + kWarp - 1) / kWarp;
    int per_warp = (kernel->registers * kWarp + kRegisterUnit - 1) / kRegisterUnit * kRegisterUnit;
    if (warps * per_warp > device.registers_per_sm) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("kernel {} needs {} registers per block, expected at most {}",
                              launch.kernel, warps * per_warp, device.registers_per_sm));
    }
  }
  return {};
}

}  // namespace tilewright::daemon
