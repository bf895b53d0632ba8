// The spaces under configs/spaces with the families and operators that are shipped.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "search/partition.h"
#include "search/space.h"
#include "templates/operator/parse.h"

namespace tilewright::search {
namespace {

const std::filesystem::path kConfigs = std::filesystem::path(TILEWRIGHT_SOURCE_DIR) / "configs";

jit::DeviceInfo h200() {
  auto description = jit::DeviceDescription::load(kConfigs / "devices" / "h200.yaml");
  EXPECT_TRUE(description) << description.error().message;
  return description ? description->info : jit::DeviceInfo{};
}

/// Every distinct group of every shipped operator, with the families that accept it.
std::vector<Group> shipped_groups() {
  std::vector<Group> groups;
  std::set<Digest> seen;
  for (const auto& entry : std::filesystem::directory_iterator(kConfigs / "operators")) {
    const auto op = templates::load_operator(entry.path());
    EXPECT_TRUE(op) << op.error().message;
    const auto space = PartitionSpace::of(*op, templates::families());
    EXPECT_TRUE(space) << space.error().message;
    for (const Group& group : space->groups())
      if (seen.insert(group.digest).second) groups.push_back(group);
  }
  return groups;
}

TEST(ShippedSpaces, HaveConfigsForEveryGroupAndTheGeneratorTakesThem) {
  const Variables device = device_variables(h200());
  std::map<std::string, Space> spaces;
  int sampled = 0;
  for (const Group& group : shipped_groups())
    for (const templates::Family* family : group.families) {
      const std::string name(family->name());
      if (!spaces.contains(name)) {
        auto space = Space::load(kConfigs / "spaces" / (name + ".yaml"));
        ASSERT_TRUE(space) << space.error().message;
        EXPECT_EQ(space->family(), name);
        spaces.emplace(name, *space);
      }
      for (const std::int64_t m : {1, 16, 37, 4096}) {
        const templates::Bindings bindings{{"M", m}};
        Variables variables = device;
        variables.merge(family->variables(group.op, bindings));
        const auto configs = spaces.at(name).bind(variables);
        ASSERT_TRUE(configs) << configs.error().message << "\n" << templates::print(group.op);
        EXPECT_GE(configs->count(), 8u) << name << " M=" << m << "\n" << templates::print(group.op);

        std::vector<std::string> names;
        for (const auto& entry : family->safe_config(group.op, bindings))
          names.push_back(entry.first);
        const auto checked = spaces.at(name).check_tunables(names);
        EXPECT_TRUE(checked) << checked.error().message;

        const templates::Facts facts = templates::Facts::of_allocation(group.op, bindings);
        Sampler sampler(configs->count(), 1);
        for (int i = 0; i < 10 && !sampler.empty(); ++i, ++sampled) {
          const templates::Config config = configs->at(sampler.draw());
          const auto generated = family->generate(group.op, config, facts);
          EXPECT_TRUE(generated) << name << " " << templates::to_string(config) << ": "
                                 << generated.error().message;
        }
      }
    }
  EXPECT_GT(sampled, 500);
}

}  // namespace
}  // namespace tilewright::search
