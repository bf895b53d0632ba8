// Group and config to source and plan, as files that are read: golden/CASE/case.yaml (and
// operator.yaml where none is shipped), generated.cu (its comment first), plan.json. With --update they are written.
#include <nlohmann/json.hpp>

#include "jit/plan_json.h"
#include "tests/templates/golden_case.h"

namespace tilewright::templates {
namespace {

bool update = false;

std::string read(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

class Golden : public testing::TestWithParam<std::string> {};

TEST_P(Golden, SourceAndPlanAreAsWritten) {
  const GoldenCase example = GoldenCase::load(GetParam());
  const Generated made = example.generate();
  const Result<void> checked = jit::check(made.plan);
  EXPECT_TRUE(checked) << (checked ? "" : checked.error().message);
  const std::string plan = jit::to_json(made.plan).dump(2) + "\n";
  const std::string text = made.comment + made.source.text;
  if (update) {
    std::ofstream(example.folder / "generated.cu") << text;
    std::ofstream(example.folder / "plan.json") << plan;
    return;
  }
  EXPECT_EQ(text, read(example.folder / "generated.cu"));
  EXPECT_EQ(plan, read(example.folder / "plan.json"));
}

TEST_P(Golden, TheSameInputGivesTheSameBytes) {
  const GoldenCase first = GoldenCase::load(GetParam()), second = GoldenCase::load(GetParam());
  EXPECT_EQ(first.generate().source.text, second.generate().source.text);
  EXPECT_EQ(first.generate().plan, second.generate().plan);
}

INSTANTIATE_TEST_SUITE_P(Templates, Golden, testing::ValuesIn(GoldenCase::all()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tilewright::templates

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  tilewright::templates::update = argc > 1 && std::string(argv[1]) == "--update";
  return RUN_ALL_TESTS();
}
