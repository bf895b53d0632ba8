#include "jit/image.h"

#include <gtest/gtest.h>

namespace tilewright::jit {
namespace {

TEST(Architecture, NamesParseBack) {
  for (const char* name : {"sm_75", "sm_80", "sm_90", "sm_90a", "sm_100a", "sm_120"})
    EXPECT_EQ(Architecture::parse(name).value().name(), name);
  EXPECT_EQ(Architecture::parse("sm_103").value(), (Architecture{10, 3, false}));
}

TEST(Architecture, RefusesOtherSpellings) {
  for (const char* name : {"", "sm_", "sm_9", "sm_x0", "sm_90b", "sm_90aa", "compute_90", "sm_-90",
                           "sm_090", "sm_1234"}) {
    auto parsed = Architecture::parse(name);
    ASSERT_FALSE(parsed) << name;
    EXPECT_EQ(parsed.error().message, "architecture is '" + std::string(name) +
                                          "', expected one like sm_80, sm_90a or sm_120");
  }
}

TEST(ResourcesComment, ParsesBack) {
  const KernelResources resources{"swiglu_0", 122, 4096, 8, 16, 32, 256};
  const std::string line = resources_comment(resources);
  EXPECT_EQ(
      line,
      "// tilewright: resources kernel=swiglu_0 registers=122 static_shared=4096 spill_store=8 "
      "spill_load=16 stack=32 max_threads=256");
  EXPECT_EQ(parse_resources_comment(line), resources);
  EXPECT_EQ(parse_resources_comment(line + "\n"), resources);
}

TEST(ResourcesComment, RefusesOtherLines) {
  const std::string line = resources_comment({"k", 1, 2, 3, 4, 5, 6});
  EXPECT_EQ(parse_resources_comment("// something else"), std::nullopt);
  EXPECT_EQ(parse_resources_comment(""), std::nullopt);
  EXPECT_EQ(parse_resources_comment(line.substr(0, line.size() - 14)), std::nullopt);
  EXPECT_EQ(parse_resources_comment(line + "x"), std::nullopt);
  EXPECT_EQ(parse_resources_comment("// tilewright: resources kernel= registers=1"), std::nullopt);
}

TEST(Image, FindsItsKernels) {
  Image image;
  image.kernels = {{"a", 1}, {"b", 2}};
  ASSERT_NE(image.find("b"), nullptr);
  EXPECT_EQ(image.find("b")->registers, 2);
  EXPECT_EQ(image.find("c"), nullptr);
}

}  // namespace
}  // namespace tilewright::jit
