#include "daemon/fallback.h"

#include <fmt/format.h>

#include <algorithm>

#include "search/record.h"

namespace tilewright::daemon {

Result<std::vector<search::Part>> parts_of(const cache::Entry& nearest,
                                           const search::PartitionSpace& space) {
  std::vector<search::Part> parts;
  for (const std::string& text : nearest.groups) {
    TILEWRIGHT_ASSIGN_OR_RETURN(search::GroupChoice choice, search::parse_group(text));
    const auto& groups = space.groups();
    auto group = std::find_if(groups.begin(), groups.end(), [&](const search::Group& candidate) {
      return candidate.statements == choice.statements;
    });
    if (group == groups.end())
      return fail(ErrorCode::kUnsupported, fmt::format("'{}' is no group of the operator", text));
    auto family = std::find_if(
        group->families.begin(), group->families.end(),
        [&](const templates::Family* candidate) { return candidate->name() == choice.family; });
    if (family == group->families.end()) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{} does not accept the group of '{}'", choice.family, text));
    }
    parts.push_back({int(group - groups.begin()), *family, std::move(choice.config)});
  }
  if (parts.empty()) return fail(ErrorCode::kUnsupported, "the nearest entry has no groups");
  return parts;
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
