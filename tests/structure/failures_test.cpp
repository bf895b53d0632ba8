// docs/failures-elsewhere.md names, for each thread, the tests that hold what it taught: they exist,
// in the file that is named, and that file is built.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

const fs::path kRoot = TILEWRIGHT_SOURCE_DIR;
constexpr char kTable[] = "docs/failures-elsewhere.md";

std::string text_of(const fs::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

struct Named {
  std::string suite, name, file;
};
struct Row {
  int line = 0;
  std::string behaviour, thread, tests;

  std::vector<Named> named() const {
    static const std::regex one("`(\\w+)\\.(\\w+)` in (tests/[\\w/]+\\.cpp)");
    std::vector<Named> found;
    for (std::sregex_iterator at(tests.begin(), tests.end(), one), end; at != end; ++at)
      found.push_back({(*at)[1], (*at)[2], (*at)[3]});
    return found;
  }
};

/// The rows of all tables of the page, without their heads.
std::vector<Row> rows() {
  static const std::regex cells("\\| (.+) \\| (.+) \\| (.+) \\|");
  std::vector<Row> found;
  std::istringstream in(text_of(kRoot / kTable));
  std::string text;
  for (int line = 1; std::getline(in, text); ++line) {
    std::smatch match;
    if (!text.starts_with("|") || text.starts_with("| behaviour") || text.starts_with("|---"))
      continue;
    EXPECT_TRUE(std::regex_match(text, match, cells)) << kTable << ":" << line;
    found.push_back({line, match[1], match[2], match[3]});
  }
  return found;
}

TEST(FailuresElsewhere, HaveARowEach) {
  static const std::regex thread("[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)?#[0-9]+");
  std::set<std::string> threads;
  for (const Row& row : rows()) {
    EXPECT_TRUE(std::regex_match(row.thread, thread)) << kTable << ":" << row.line;
    EXPECT_TRUE(threads.insert(row.thread).second) << row.thread << " is there twice";
  }
  EXPECT_GE(threads.size(), 52u);
}

TEST(FailuresElsewhere, NameTestsThatExist) {
  for (const Row& row : rows()) {
    const std::string where = std::string(kTable) + ":" + std::to_string(row.line) + ": ";
    const std::vector<Named> tests = row.named();
    EXPECT_FALSE(tests.empty()) << where << "no test is named";
    // Nothing stands there that was not understood.
    EXPECT_EQ(std::size_t(std::count(row.tests.begin(), row.tests.end(), ';')) + 1, tests.size())
        << where << row.tests;
    for (const Named& test : tests) {
      const std::regex macro("TEST(_F|_P)?\\(\\s*" + test.suite + ",\\s*" + test.name + "\\s*\\)");
      const std::string source = text_of(kRoot / test.file);
      EXPECT_FALSE(source.empty()) << where << "no file " << test.file;
      EXPECT_TRUE(std::regex_search(source, macro))
          << where << test.file << " has no " << test.suite << "." << test.name;
    }
  }
}

TEST(FailuresElsewhere, NameTestsThatAreBuilt) {
  std::string listed;
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / "tests"))
    if (entry.path().filename() == "CMakeLists.txt" || entry.path().extension() == ".cmake")
      listed += text_of(entry.path());
  for (const Row& row : rows())
    for (const Named& test : row.named())
      EXPECT_NE(listed.find(fs::path(test.file).filename().string()), std::string::npos)
          << test.file << " is in no CMakeLists.txt";
}

}  // namespace
