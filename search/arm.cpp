#include "search/arm.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

namespace tilewright::search {
namespace {

/// Partitions that the cost model ranks; groups of worse ones come last.
constexpr std::size_t kLiked = 64;

Result<void> check_safe_config(const Space& space, const std::filesystem::path& file,
                               const templates::Config& safe) {
  std::vector<std::string> names;
  for (const auto& entry : safe) names.push_back(entry.first);
  std::set<std::string> domains;
  for (const Tunable& tunable : space.tunables()) domains.insert(tunable.name);
  if (std::set<std::string>(names.begin(), names.end()) == domains) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{}: tunables are {}, but configs of {} have {}", file.string(),
                          fmt::join(domains, ", "), space.family(), fmt::join(names, ", ")));
}

/// A strategy over the space of `family`; over nothing but the safe config where the space has no
/// config that is valid here.
Result<std::unique_ptr<Strategy>> strategy_for(const TuneRequest& request, const Arm& arm,
                                               const Space& space, const jit::DeviceInfo& device) {
  Variables variables = device_variables(device);
  variables.merge(arm.family->variables(*arm.op, arm.bindings));
  auto configs = space.bind(variables);
  if (!configs && configs.error().code != ErrorCode::kUnsupported) return fail(configs.error());
  // Each arm draws its own numbers, whatever the other arms are.
  const Digest seed =
      Hasher().add(request.seed).add(arm.digest.hex()).add(arm.family->name()).finish();
  return make_strategy(request.strategy, configs ? std::move(*configs) : ConfigSpace{}, arm.safe,
                       seed.low);
}

}  // namespace

const CandidateReport* Arm::safe_report() const {
  for (const CandidateReport& report : tried)
    if (report.config == safe) return &report;
  return nullptr;
}

void Arm::take(CandidateReport report, std::shared_ptr<const jit::Image> image) {
  strategy->tell(report.config,
                 report.failure ? std::nullopt : std::optional<double>(report.sample.cost()));
  if (report.config == safe) safe_image = image;
  if (!report.failure) {
    const auto rank = [](const CandidateReport& r) {
      return std::make_tuple(r.sample.cost(), std::cref(r.config));
    };
    const auto beats = [&](int other) {
      return other < 0 || rank(report) < rank(tried[static_cast<std::size_t>(other)]);
    };
    const int index = static_cast<int>(tried.size());
    if (beats(best)) {
      runner_up = std::exchange(best, index);
      runner_up_image = std::exchange(best_image, std::move(image));
    } else if (beats(runner_up)) {
      runner_up = index;
      runner_up_image = std::move(image);
    }
  }
  tried.push_back(std::move(report));
}

Result<std::vector<Arm>> make_arms(const TuneRequest& request, const PartitionSpace& space,
                                   const CostModel& model, const jit::DeviceInfo& device,
                                   const std::filesystem::path& spaces) {
  std::map<Digest, double> floors;
  for (const Group& group : space.groups()) {
    if (floors.contains(group.digest)) continue;
    TILEWRIGHT_ASSIGN_OR_RETURN(const Work work, work_of(group.op, request.bindings));
    floors[group.digest] = model.floor(work).time_us;
  }
  const auto floor_of = [&](const Group& group) { return floors[group.digest]; };

  std::vector<const Group*> order;
  std::set<Digest> listed;
  const auto list = [&](std::vector<const Group*> groups) {
    std::stable_sort(groups.begin(), groups.end(),
                     [&](const Group* a, const Group* b) { return floor_of(*a) > floor_of(*b); });
    for (const Group* group : groups)
      if (listed.insert(group->digest).second) order.push_back(group);
  };
  const auto groups_of = [&](const Partition& partition) {
    std::vector<const Group*> groups;
    for (const int index : partition)
      groups.push_back(&space.groups()[static_cast<std::size_t>(index)]);
    return groups;
  };
  const std::vector<Partition> liked = space.best(kLiked, floor_of);
  list(groups_of(liked.front()));
  list(groups_of(space.unfused()));
  const std::size_t needed_groups = order.size();
  for (const Partition& partition : liked) list(groups_of(partition));
  std::vector<const Group*> all;
  for (const Group& group : space.groups()) all.push_back(&group);
  list(std::move(all));

  std::map<Digest, Part> anchors;
  if (!request.anchor.empty()) {
    TILEWRIGHT_ASSIGN_OR_RETURN(const std::vector<Part> parts, parts_of(request.anchor, space));
    for (const Part& part : parts)
      anchors.emplace(space.groups()[static_cast<std::size_t>(part.group)].digest, part);
    std::erase_if(order, [&](const Group* group) { return !anchors.contains(group->digest); });
  }

  std::map<const templates::Family*, Space> loaded;
  std::vector<Arm> arms;
  for (std::size_t i = 0; i < order.size(); ++i)
    for (const templates::Family* family : order[i]->families) {
      const Group* group = order[i];
      const std::filesystem::path file = spaces / (std::string(family->name()) + ".yaml");
      Arm arm;
      arm.op = std::make_shared<const templates::Operator>(group->op);
      arm.digest = group->digest;
      for (const std::string& dimension : group->op.dimensions)
        arm.bindings[dimension] = request.bindings.at(dimension);
      arm.facts = templates::Facts::of_allocation(group->op, arm.bindings);
      arm.family = family;
      arm.safe = family->safe_config(group->op, arm.bindings);
      arm.floor_us = floor_of(*group);
      arm.needed = i < needed_groups || !anchors.empty();
      if (const auto anchor = anchors.find(arm.digest); anchor != anchors.end()) {
        arm.anchor = anchor->second;
        if (arm.anchor.family == family) arm.safe = arm.anchor.config;
      }
      if (!loaded.contains(family)) {
        TILEWRIGHT_ASSIGN_OR_RETURN(Space space_of_family, Space::load(file));
        if (space_of_family.family() != family->name())
          return fail(ErrorCode::kInvalidArgument,
                      fmt::format("{}: the space is of family {}, expected {}", file.string(),
                                  space_of_family.family(), family->name()));
        TILEWRIGHT_TRY(check_safe_config(space_of_family, file, arm.safe));
        loaded.emplace(family, std::move(space_of_family));
      }
      TILEWRIGHT_ASSIGN_OR_RETURN(arm.strategy,
                                  strategy_for(request, arm, loaded.at(family), device));
      arms.push_back(std::move(arm));
    }
  return arms;
}

}  // namespace tilewright::search
