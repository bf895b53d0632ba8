// What a person, a file or the network may have got wrong: operators, spaces, expressions and plans
// with a few bytes changed. Each is a value or an error with a message, never a crash and never
// without end. Seeded: a failure comes again.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "jit/plan.h"
#include "jit/plan_json.h"
#include "search/cost_model.h"
#include "search/partition.h"
#include "search/space.h"
#include "templates/families/family.h"
#include "templates/operator/parse.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;
const fs::path kSource = TILEWRIGHT_SOURCE_DIR;
constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();

std::string read(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<std::string> files(const fs::path& folder, const std::string& name) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::recursive_directory_iterator(kSource / folder))
    if (entry.path().filename() == name || (name.empty() && entry.is_regular_file()))
      found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  std::vector<std::string> texts;
  for (const fs::path& file : found) texts.push_back(read(file));
  return texts;
}

class Mutator {
 public:
  explicit Mutator(unsigned seed) : random_(seed) {}

  std::size_t below(std::size_t end) { return end == 0 ? 0 : random_() % end; }

  template <typename T>
  const T& one_of(const std::vector<T>& list) {
    return list[below(list.size())];
  }

  /// One to three changes of one of `seeds`.
  std::string operator()(const std::vector<std::string>& seeds) {
    std::string text = one_of(seeds);
    for (std::size_t changes = 1 + below(3); changes > 0; --changes) change(text, one_of(seeds));
    return text;
  }

  std::int64_t size() {
    const std::int64_t sizes[] = {0,        1, 16, 4096, std::int64_t{1} << 48, kLargest / 2,
                                  kLargest, -1};
    return sizes[below(std::size(sizes))];
  }

 private:
  void change(std::string& text, const std::string& other) {
    static const std::vector<std::string> kWords = {"9223372036854775807",
                                                    "9223372036854775808",
                                                    "-9223372036854775808",
                                                    "-1",
                                                    "0",
                                                    "1e999",
                                                    ".nan",
                                                    "[",
                                                    "]",
                                                    "{",
                                                    "}",
                                                    ": ",
                                                    ", ",
                                                    "- ",
                                                    "\n",
                                                    "\t",
                                                    "&a ",
                                                    "*a",
                                                    "!!binary ",
                                                    "'",
                                                    "\"",
                                                    "dynamic",
                                                    "true",
                                                    "M",
                                                    "N",
                                                    "T",
                                                    " * ",
                                                    " / 0",
                                                    " % ",
                                                    " ? ",
                                                    " && ",
                                                    "ceil_div(",
                                                    "in(",
                                                    "pow2(",
                                                    ")",
                                                    "x.align",
                                                    "\xff",
                                                    std::string(1, '\0')};
    const std::size_t at = below(text.size());
    switch (below(8)) {
      case 0:
        if (!text.empty()) text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
        break;
      case 1:
        text.erase(at, 1 + below(40));
        break;
      case 2:
        text.insert(at, text.substr(below(text.size()), below(80)));
        break;
      case 3:
        text.insert(at, other.substr(below(other.size()), below(80)));
        break;
      case 4: {  // a number becomes another
        const std::size_t digit = text.find_first_of("0123456789", at);
        if (digit == std::string::npos) break;
        const std::size_t end = text.find_first_not_of("0123456789", digit);
        text.replace(digit, std::min(end, text.size()) - digit, one_of(kWords));
        break;
      }
      case 5: {  // nested beyond reason
        const char* brackets[] = {"(", "[", "{", "-", "!", "- "};
        const std::string bracket = brackets[below(std::size(brackets))];
        for (std::size_t i = below(3000); i > 0; --i) text.insert(at, bracket);
        break;
      }
      case 6:
        text.resize(at);
        break;
      default:
        text.insert(at, one_of(kWords));
    }
  }

  std::mt19937 random_;
};

void expect_said(const Error& error, const std::string& input) {
  EXPECT_FALSE(error.message.empty()) << input;
}

TEST(LanguageFuzz, OperatorsAreUnderstoodWholeOrRefused) {
  Mutator mutate(1);
  std::vector<std::string> seeds = files("configs/operators", "");
  const std::vector<std::string> more = files("tests/integration/operators", "");
  seeds.insert(seeds.end(), more.begin(), more.end());
  int understood = 0;
  for (int i = 0; i < 4000; ++i) {
    const std::string text = mutate(seeds);
    const auto op = templates::parse_operator(text, "fuzz.yaml");
    if (!op) {
      expect_said(op.error(), text);
      continue;
    }
    ++understood;
    const auto again = templates::parse_operator(templates::print(*op), "printed.yaml");
    ASSERT_TRUE(again) << again.error().message << "\n" << text;
    EXPECT_EQ(templates::digest(*again), templates::digest(*op)) << text;
    templates::Bindings bindings;
    for (const std::string& dimension : op->dimensions) bindings[dimension] = mutate.size();
    const auto fits = templates::check_sizes(*op, bindings);
    if (!fits) expect_said(fits.error(), text);
    const auto work = search::work_of(*op, bindings);
    if (!work) expect_said(work.error(), text);
    if (!fits || understood % 4 != 0) continue;
    const auto space = search::PartitionSpace::of(*op, templates::families());
    if (!space) {
      expect_said(space.error(), text);
      continue;
    }
    for (const search::Group& group : space->groups())
      for (const templates::Family* family : group.families) {
        family->variables(group.op, bindings);
        family->safe_config(group.op, bindings);
        templates::Facts::of_allocation(group.op, bindings);
      }
  }
  EXPECT_GT(understood, 200);
}

TEST(LanguageFuzz, SpacesAreUnderstoodOrRefused) {
  Mutator mutate(2);
  const std::vector<std::string> seeds = files("configs/spaces", "");
  int understood = 0;
  for (int i = 0; i < 3000; ++i) {
    const std::string text = mutate(seeds);
    const auto space = search::Space::parse(text, "fuzz.yaml");
    if (!space) {
      expect_said(space.error(), text);
      continue;
    }
    ++understood;
    // Enumerating is the dear part.
    if (understood % 40 != 0) continue;
    search::Variables variables;
    for (const search::Constraint& constraint : space->constraints())
      for (const std::string& name : constraint.expression.variables())
        variables[name] = mutate.size();
    for (const search::Tunable& tunable : space->tunables()) variables.erase(tunable.name);
    const auto configs = space->bind(variables);
    if (!configs) expect_said(configs.error(), text);
  }
  EXPECT_GT(understood, 200);
}

std::vector<std::string> golden_plans() { return files("tests/templates/golden", "plan.json"); }

TEST(LanguageFuzz, ExpressionsHaveAValueOrAnError) {
  Mutator mutate(3);
  std::vector<std::string> seeds;
  for (const std::string& text : golden_plans()) {
    const auto plan = jit::plan_from_json(nlohmann::json::parse(text));
    ASSERT_TRUE(plan) << plan.error().message;
    seeds.insert(seeds.end(), plan->legal.begin(), plan->legal.end());
    for (const jit::PlanLaunch& launch : plan->launches) {
      seeds.insert(seeds.end(), launch.grid.begin(), launch.grid.end());
      seeds.insert(seeds.end(), launch.tile.begin(), launch.tile.end());
    }
  }
  for (const char* text : {"min(M, N, 3) % 7 ? max(a, -b) : round_up(M, 8)",
                           "in(threads, 32, 64, 128) && !pow2(abs(x.stride0)) || M >= 1 << 2"})
    seeds.emplace_back(text);
  int evaluated = 0;
  for (int i = 0; i < 100000; ++i) {
    const std::string text = mutate(seeds);
    const auto expression = jit::Expression::parse(text);
    if (!expression) {
      expect_said(expression.error(), text);
      continue;
    }
    const auto value = expression->evaluate(
        [&](std::string_view) { return std::optional<std::int64_t>(mutate.size()); });
    if (!value) expect_said(value.error(), text);
    evaluated += value.has_value();
  }
  EXPECT_GT(evaluated, 1000);
}

TEST(LanguageFuzz, PlansInBytesAreAPlanOrCorrupt) {
  Mutator mutate(4);
  std::vector<std::string> seeds;
  for (const std::string& text : golden_plans())
    seeds.push_back(jit::pack(*jit::plan_from_json(nlohmann::json::parse(text))));
  int unpacked = 0;
  for (int i = 0; i < 30000; ++i) {
    const std::string bytes = mutate(seeds);
    const auto plan = jit::unpack_plan(bytes);
    if (!plan) {
      EXPECT_EQ(plan.error().code, ErrorCode::kCorrupt);
      continue;
    }
    ++unpacked;
    if (auto sound = jit::check(*plan); !sound) expect_said(sound.error(), "");
    EXPECT_TRUE(jit::unpack_plan(jit::pack(*plan)));
  }
  EXPECT_GT(unpacked, 100);
}

TEST(LanguageFuzz, PlansInJsonAreAPlanOrRefused) {
  Mutator mutate(5);
  const std::vector<std::string> seeds = golden_plans();
  int read = 0;
  for (int i = 0; i < 8000; ++i) {
    const std::string text = mutate(seeds);
    const auto json = nlohmann::json::parse(text, nullptr, false);
    if (json.is_discarded()) continue;
    const auto plan = jit::plan_from_json(json);
    if (!plan) {
      expect_said(plan.error(), text);
      continue;
    }
    ++read;
    if (auto sound = jit::check(*plan); !sound) expect_said(sound.error(), text);
    EXPECT_TRUE(jit::plan_from_json(jit::to_json(*plan))) << text;
  }
  EXPECT_GT(read, 100);
}

}  // namespace
}  // namespace tilewright
