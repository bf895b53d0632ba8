// Operator to partitions, as files that are read: golden/CASE/operator.yaml (or an operator that is
// shipped), golden/CASE/partitions.txt. With --update the files are written instead of compared.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "search/partition.h"
#include "templates/operator/parse.h"

namespace tilewright::search {
namespace {

const std::filesystem::path kSource = TILEWRIGHT_SOURCE_DIR;
bool update = false;

std::string read(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<std::string> cases() {
  std::vector<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator(kSource / "tests" / "search" / "golden"))
    if (entry.is_directory()) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

class GoldenPartitions : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenPartitions, AreAsWritten) {
  const std::filesystem::path folder = kSource / "tests" / "search" / "golden" / GetParam();
  std::filesystem::path file = folder / "operator.yaml";
  if (!std::filesystem::exists(file))
    file = kSource / "configs" / "operators" / (GetParam() + ".yaml");
  const auto op = templates::load_operator(file);
  ASSERT_TRUE(op) << op.error().message;
  const auto space = PartitionSpace::of(*op, templates::families());
  ASSERT_TRUE(space) << space.error().message << space.error().detail;
  templates::Bindings bindings;
  for (const std::string& dimension : op->dimensions) bindings[dimension] = 16;
  const auto partitions = describe(*space, &bindings);
  ASSERT_TRUE(partitions) << partitions.error().message;
  if (update) {
    std::ofstream(folder / "partitions.txt") << templates::print(*op) << "\n" << *partitions;
    return;
  }
  EXPECT_EQ(templates::print(*op) + "\n" + *partitions, read(folder / "partitions.txt"));
}

INSTANTIATE_TEST_SUITE_P(Search, GoldenPartitions, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param; });

TEST(GoldenPartitions, EveryShippedOperatorHasACase) {
  for (const auto& entry : std::filesystem::directory_iterator(kSource / "configs" / "operators"))
    EXPECT_TRUE(std::filesystem::exists(kSource / "tests" / "search" / "golden" /
                                        entry.path().stem() / "partitions.txt"))
        << entry.path();
}

}  // namespace
}  // namespace tilewright::search

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  tilewright::search::update = argc > 1 && std::string(argv[1]) == "--update";
  return RUN_ALL_TESTS();
}
