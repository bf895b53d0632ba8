#include "daemon/fallback.h"

#include <fmt/format.h>

#include <algorithm>

#include "search/record.h"
#include "search/space.h"

namespace tilewright::daemon {
namespace {

templates::Bindings bindings_of(const templates::Operator& group,
                                const templates::Bindings& bindings) {
  templates::Bindings own;
  for (const std::string& dimension : group.dimensions) own[dimension] = bindings.at(dimension);
  return own;
}

Result<void> check_config(const templates::Family& family, const templates::Config& config,
                          const templates::Operator& group, const templates::Bindings& bindings,
                          const jit::DeviceInfo& device, const std::filesystem::path& spaces) {
  TILEWRIGHT_ASSIGN_OR_RETURN(search::Space space,
                              search::Space::load(spaces / (std::string(family.name()) + ".yaml")));
  search::Variables variables = search::device_variables(device);
  variables.merge(family.variables(group, bindings));
  TILEWRIGHT_ASSIGN_OR_RETURN(search::ConfigSpace legal, space.bind(variables));
  // A safe config need not be in the space: it is legal everywhere.
  if (legal.contains(config) || config == family.safe_config(group, bindings)) return {};
  return fail(ErrorCode::kUnsupported,
              fmt::format("{} {} is not legal here", family.name(), templates::to_string(config)));
}

}  // namespace

Result<std::vector<search::Part>> parts_of(const cache::Entry& nearest,
                                           const search::PartitionSpace& space,
                                           const templates::Bindings& bindings,
                                           const jit::DeviceInfo& device,
                                           const std::filesystem::path& spaces) {
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
    TILEWRIGHT_TRY(check_config(**family, choice.config, group->op,
                                bindings_of(group->op, bindings), device, spaces));
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

}  // namespace tilewright::daemon
