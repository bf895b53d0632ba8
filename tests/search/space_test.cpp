#include "search/space.h"

#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <chrono>
#include <fstream>
#include <regex>
#include <set>

#include "search/strategy.h"

namespace tilewright::search {
namespace {

constexpr const char* kTiles = R"(family: tiles
tunables:
  block: [32, 64, 128]
  thread: [4, 8]
  stages: [1, 2]
constraints:
  - block / thread >= 8
  - stages * block * bytes <= device.shared_per_block_optin
)";

Result<ConfigSpace> bound(const std::string& yaml, const Variables& variables = {}) {
  auto space = Space::parse(yaml, "tiles.yaml");
  if (!space) return fail(space.error());
  return space->bind(variables);
}

std::string text_of(const templates::Config& config) {
  std::string text;
  for (const auto& [name, value] : config)
    text += (text.empty() ? "" : " ") + name + "=" + std::to_string(value);
  return text;
}

std::string all(const ConfigSpace& space) {
  std::string text;
  for (std::uint64_t i = 0; i < space.count(); ++i)
    text += (i == 0 ? "" : " | ") + text_of(space.at(i));
  return text;
}

TEST(Space, EnumeratesTheValidConfigsInTheOrderOfTheFile) {
  jit::DeviceInfo device;
  device.shared_per_block_optin = 512;
  Variables variables = device_variables(device);
  variables["bytes"] = 4;
  const auto space = bound(kTiles, variables);
  ASSERT_TRUE(space) << space.error().message;
  EXPECT_EQ(all(*space),
            "block=32 stages=1 thread=4 | block=32 stages=2 thread=4 | "
            "block=64 stages=1 thread=4 | block=64 stages=2 thread=4 | "
            "block=64 stages=1 thread=8 | block=64 stages=2 thread=8 | "
            "block=128 stages=1 thread=4 | block=128 stages=1 thread=8");
  EXPECT_TRUE(space->contains({{"block", 64}, {"stages", 2}, {"thread", 8}}));
  EXPECT_FALSE(space->contains({{"block", 128}, {"stages", 2}, {"thread", 8}}));
  EXPECT_FALSE(space->contains({{"block", 65}, {"stages", 2}, {"thread", 8}}));
  EXPECT_FALSE(space->contains({{"block", 64}, {"stages", 2}}));
}

TEST(Space, IndependentTunablesCostTheSumOfTheirDomainsNotTheProduct) {
  std::string yaml = "family: wide\ntunables:\n";
  for (int i = 0; i < 15; ++i) {
    yaml += "  t" + std::to_string(i) + ": [";
    for (int value = 0; value < 16; ++value) yaml += (value ? ", " : "") + std::to_string(value);
    yaml += "]\n";
  }
  const auto space = bound(yaml);
  ASSERT_TRUE(space) << space.error().message;
  EXPECT_EQ(space->count(), std::uint64_t{1} << 60);
  EXPECT_EQ(space->at((std::uint64_t{1} << 60) - 1).at("t7"), 15);
  EXPECT_EQ(space->at(1).at("t14"), 1);
  EXPECT_EQ(space->at(1).at("t0"), 0);
}

TEST(Space, CountsThatDoNotFitSaturate) {
  std::string yaml = "family: wide\ntunables:\n";
  for (int i = 0; i < 70; ++i) yaml += "  t" + std::to_string(i) + ": [0, 1]\n";
  const auto space = bound(yaml);
  ASSERT_TRUE(space);
  EXPECT_EQ(space->count(), std::numeric_limits<std::uint64_t>::max());
}

TEST(Space, ErrorsNameFileLineValueSeenAndValueWanted) {
  struct Case {
    const char* yaml;
    const char* message;
  };
  const Case cases[] = {
      {"family: [a]\n", "f.yaml:1: family is a list, expected the name of a kernel family"},
      {"family: f\n", "f.yaml:1: `tunables:` is missing"},
      {"tunables: {a: [1]}\n", "f.yaml:1: `family:` is missing"},
      {"- f\n",
       "f.yaml:1: the file holds a list, expected a map of family, tunables and constraints"},
      {"family: f\ntunables: 3\n", "f.yaml:2: tunables is `3`, expected a map of name to values"},
      {"family: f\ntunables:\n  a: 3\n",
       "f.yaml:3: the domain of a is `3`, expected a list of one integer or more"},
      {"family: f\ntunables:\n  a: []\n",
       "f.yaml:3: the domain of a is empty, expected a list of one integer or more"},
      {"family: f\ntunables:\n  a: [1,\n   x]\n",
       "f.yaml:4: a value of a is `x`, expected an integer"},
      {"family: f\ntunables:\n  a: [1, 2, 1]\n", "f.yaml:3: 1 is twice in the domain of a"},
      {"family: f\ntunables:\n  a: [1]\n  a: [2]\n", "f.yaml:4: tunable a is there twice"},
      {"family: f\ntunables:\n  a b: [1]\n",
       "f.yaml:3: a tunable is named `a b`, expected an identifier"},
      {"family: f\ntunables: {a: [1]}\nconstrains: [a > 1]\n",
       "f.yaml:3: unknown key `constrains`, expected family, tunables or constraints"},
      {"family: f\ntunables: {a: [1]}\nconstraints:\n  - [a]\n",
       "f.yaml:4: a constraint is a list, expected an expression"},
  };
  for (const Case& test : cases) {
    const auto space = Space::parse(test.yaml, "f.yaml");
    ASSERT_FALSE(space) << test.yaml;
    EXPECT_EQ(space.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(space.error().message, test.message);
  }
  const auto broken =
      Space::parse("family: f\ntunables: {a: [1]}\nconstraints:\n  - a >\n", "f.yaml");
  ASSERT_FALSE(broken);
  EXPECT_TRUE(broken.error().message.starts_with("f.yaml:4: constraint `a >`: "))
      << broken.error().message;
}

TEST(Space, AnUnknownVariableIsNamedBesideTheKnownOnes) {
  const auto space =
      bound("family: f\ntunables: {a: [1]}\nconstraints:\n  - a <= 2\n  - a * rows < b\n",
            {{"rows", 4}, {"device.compute", 90}});
  ASSERT_FALSE(space);
  EXPECT_EQ(
      space.error().message,
      "tiles.yaml:5: unknown variable b in `a * rows < b`, known are a, device.compute, rows");
}

TEST(Space, AConstraintThatCannotBeEvaluatedSaysAtWhichConfig) {
  const auto space =
      bound("family: f\ntunables: {a: [1, 0]}\nconstraints:\n  - rows / a > 1\n", {{"rows", 4}});
  ASSERT_FALSE(space);
  EXPECT_EQ(space.error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(
      space.error().message.starts_with("tiles.yaml:4: constraint `rows / a > 1` at rows=4 a=0: "))
      << space.error().message;
}

TEST(Space, NothingValidNamesTheConstraintThatRefusedLast) {
  for (const char* constraint : {"a > rows", "rows > 5"}) {
    const auto space = bound(
        std::string("family: f\ntunables: {a: [1, 2]}\nconstraints:\n  - ") + constraint + "\n",
        {{"rows", 4}});
    ASSERT_FALSE(space);
    EXPECT_EQ(space.error().code, ErrorCode::kUnsupported);
    EXPECT_EQ(
        space.error().message,
        std::string("tiles.yaml: no config of f is valid here; tiles.yaml:4 refused last: `") +
            constraint + "`");
  }
}

TEST(Space, TunablesOfTheTemplateAndOfTheSpaceAreTheSame) {
  const auto space = Space::parse(kTiles, "tiles.yaml");
  ASSERT_TRUE(space);
  const std::string same[] = {"stages", "block", "thread"};
  EXPECT_TRUE(space->check_tunables(same));
  const std::string more[] = {"stages", "block", "thread", "split"};
  EXPECT_EQ(space->check_tunables(more).error().message,
            "tiles.yaml:1: tunable split of tiles has no domain");
  const std::string fewer[] = {"stages", "block"};
  EXPECT_EQ(space->check_tunables(fewer).error().message,
            "tiles.yaml:4: thread is no tunable of tiles, whose tunables are stages, block");
}

TEST(Sampler, DrawsEveryNumberOnceAndTheSameForASeed) {
  std::set<std::uint64_t> drawn;
  Sampler sampler(100, 7), again(100, 7), other(100, 8);
  bool differs = false;
  while (!sampler.empty()) {
    const std::uint64_t number = sampler.draw();
    EXPECT_LT(number, 100u);
    EXPECT_TRUE(drawn.insert(number).second) << number;
    EXPECT_EQ(again.draw(), number);
    differs = differs || other.draw() != number;
  }
  EXPECT_EQ(drawn.size(), 100u);
  EXPECT_TRUE(differs);
}

TEST(Sampler, IsUniform) {
  // First draw of 10, over 10,000 seeds: each number 1,000 times, give or take 5 sigma.
  std::map<std::uint64_t, int> first;
  for (std::uint64_t seed = 0; seed < 10'000; ++seed) ++first[Sampler(10, seed).draw()];
  for (const auto& [number, times] : first) EXPECT_NEAR(times, 1000, 150) << number;
  EXPECT_EQ(first.size(), 10u);
}

std::string questions(std::string_view strategy, std::uint64_t seed, templates::Config first) {
  const auto space = bound("family: f\ntunables: {a: [1, 2, 3, 4]}\nconstraints: [a != 3]\n");
  auto made = make_strategy(strategy, *space, std::move(first), seed);
  std::string text;
  while (auto config = (*made)->ask()) {
    text += std::to_string(config->at("a")) + " ";
    (*made)->tell(*config, 1.0);
  }
  return text;
}

TEST(Strategy, AsksForTheSafeConfigFirstAndForNoneTwice) {
  EXPECT_EQ(questions("exhaustive", 1, {{"a", 2}}), "2 1 4 ");
  EXPECT_EQ(questions("exhaustive", 1, {{"a", 9}}), "9 1 2 4 ");
  std::set<std::string> orders;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const std::string order = questions("random", seed, {{"a", 2}});
    EXPECT_EQ(order, questions("random", seed, {{"a", 2}}));
    orders.insert(order);
  }
  EXPECT_EQ(orders, (std::set<std::string>{"2 1 4 ", "2 4 1 "}));
}

TEST(Strategy, AnUnknownNameListsTheKnownOnes) {
  const auto made = make_strategy("clever", ConfigSpace{}, {}, 1);
  EXPECT_EQ(made.error().message, "strategy is clever, expected one of random, exhaustive");
}

TEST(Space, TheXgemmSpaceOfClblastHasThePublishedCount) {
  // 663,552 combinations, 116,928 of them valid: Willemsen, van Nieuwpoort, van Werkhoven, "Efficient
  // Construction of Large Search Spaces for Auto-Tuning", ICPP 2025. `/` is exact where it matters.
  const auto space = bound(R"(family: xgemm
tunables:
  mwg: [16, 32, 64, 128]
  nwg: [16, 32, 64, 128]
  kwg: [16, 32]
  mdimc: [8, 16, 32]
  ndimc: [8, 16, 32]
  mdima: [8, 16, 32]
  ndimb: [8, 16, 32]
  kwi: [2]
  vwm: [1, 2, 4, 8]
  vwn: [1, 2, 4, 8]
  strm: [0, 1]
  strn: [0, 1]
  sa: [0, 1]
  sb: [0, 1]
constraints:
  - kwg % kwi == 0
  - mwg % (mdimc * vwm) == 0
  - nwg % (ndimc * vwn) == 0
  - mwg % (mdima * vwm) == 0
  - nwg % (ndimb * vwn) == 0
  - kwg % (mdimc * ndimc / mdima) == 0
  - kwg % (mdimc * ndimc / ndimb) == 0
  - mwg != 128 || nwg != 128 || mdimc != 8 || ndimc != 8
)");
  ASSERT_TRUE(space) << space.error().message;
  EXPECT_EQ(space->count(), 116'928u);
}

/// Python's expressions as ours: `and`, `or`, chained comparisons, and divisions that are exact
/// wherever they matter.
std::string translated(std::string text) {
  text = std::regex_replace(text, std::regex(R"(\band\b)"), "&&");
  text = std::regex_replace(text, std::regex(R"(\bor\b)"), "||");
  return std::regex_replace(text, std::regex(R"(^(\w+) <= (.*) <= (\w+)$)"),
                            "$1 <= $2 && $2 <= $3");
}

/// Spaces of the literature whose valid counts are published (Willemsen et al., ICPP 2025), where a
/// folder with them is given: names, values, constraints, valid_configurations_published.
TEST(Space, PublishedSpacesHaveThePublishedCounts) {
  const char* folder = std::getenv("TILEWRIGHT_PUBLISHED_SPACES");
  if (folder == nullptr) GTEST_SKIP() << "TILEWRIGHT_PUBLISHED_SPACES names no folder";
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".yaml") continue;
    const YAML::Node document = YAML::LoadFile(entry.path().string());
    std::string yaml = "family: f\ntunables:\n";
    for (const auto& parameter : document["parameters"]) {
      YAML::Emitter values;
      values << YAML::Flow << parameter["values"];
      yaml += "  " + parameter["name"].as<std::string>() + ": " + values.c_str() + "\n";
    }
    yaml += "constraints:\n";
    for (const auto& constraint : document["constraints"])
      yaml += "  - " + translated(constraint.as<std::string>()) + "\n";
    const auto start = std::chrono::steady_clock::now();
    const auto space = bound(yaml);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    ASSERT_TRUE(space) << entry.path() << space.error().message;
    EXPECT_EQ(space->count(), document["valid_configurations_published"].as<std::uint64_t>())
        << entry.path();
    RecordProperty(entry.path().stem().string() + "_us", static_cast<int>(seconds.count() * 1e6));
    std::printf("%s: %llu valid in %.5f s\n", entry.path().stem().c_str(),
                static_cast<unsigned long long>(space->count()), seconds.count());
    ++files;
  }
  EXPECT_GT(files, 0);
}

}  // namespace
}  // namespace tilewright::search
