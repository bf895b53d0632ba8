// The floors of docs/architecture.md: a file includes from its own floor and those below, and the
// parts that the client library links include nothing that it may not link.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

const fs::path kRoot = TILEWRIGHT_SOURCE_DIR;
const std::vector<std::string> kFloors = {"jit",    "templates", "cache",
                                          "search", "daemon",    "client"};

struct Include {
  std::string file, target;
  int line;
};

std::vector<Include> includes_below(const std::string& folder) {
  static const std::regex directive("^\\s*#\\s*include\\s*\"([^\"]+)\".*");
  std::vector<Include> found;
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder)) {
    auto extension = entry.path().extension();
    if (extension != ".h" && extension != ".cpp") continue;
    std::ifstream in(entry.path());
    std::string text;
    for (int line = 1; std::getline(in, text); ++line) {
      std::smatch match;
      if (std::regex_match(text, match, directive))
        found.push_back({fs::relative(entry.path(), kRoot).string(), match[1], line});
    }
  }
  return found;
}

int floor_of(const std::string& path) {
  auto name = path.substr(0, path.find('/'));
  auto at = std::find(kFloors.begin(), kFloors.end(), name);
  return at == kFloors.end() ? -1 : int(at - kFloors.begin());
}

TEST(Floors, IncludesGoDownwardsOnly) {
  int seen = 0;
  for (std::size_t floor = 0; floor < kFloors.size(); ++floor)
    for (const auto& include : includes_below(kFloors[floor])) {
      ++seen;
      EXPECT_LE(floor_of(include.target), int(floor))
          << include.file << ":" << include.line << " includes " << include.target;
    }
  EXPECT_GT(seen, 100);
}

TEST(Floors, WhatTheClientLibraryLinksIncludesNothingElse) {
  const std::vector<std::string> allowed = {"jit/", "templates/operator/", "daemon/protocol/"};
  for (std::string part : {"templates/operator", "daemon/protocol"})
    for (const auto& include : includes_below(part)) {
      if (floor_of(include.target) < 0) continue;
      EXPECT_TRUE(std::any_of(
          allowed.begin(), allowed.end(),
          [&](const std::string& prefix) { return include.target.starts_with(prefix); }))
          << include.file << ":" << include.line << " includes " << include.target;
    }
}

TEST(Floors, TheTopLevelHoldsWhatTheArchitectureNames) {
  const std::vector<std::string> named = {"CMakeLists.txt", "CMakePresets.json",
                                          "LICENSE",        "README.md",
                                          "cache",          "check",
                                          "client",         "cmake",
                                          "configs",        "daemon",
                                          "docs",           "jit",
                                          "quickstart",     "search",
                                          "templates",      "tests",
                                          "build"};
  for (const auto& entry : fs::directory_iterator(kRoot)) {
    auto name = entry.path().filename().string();
    if (name.starts_with(".") || name == "compile_commands.json") continue;
    EXPECT_NE(std::find(named.begin(), named.end(), name), named.end()) << name;
  }
}

}  // namespace
