// The templates as they are shipped, read as an editor would.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "templates/introspect/introspect.h"

namespace tilewright::templates {
namespace {

namespace fs = std::filesystem;

jit::HeaderSet shipped() {
  jit::HeaderSet headers;
  const fs::path folder = fs::path(TILEWRIGHT_SOURCE_DIR) / "templates";
  for (const char* part : {"device", "kernels"})
    for (const auto& entry : fs::directory_iterator(folder / part)) {
      std::stringstream text;
      text << std::ifstream(entry.path()).rdbuf();
      headers[std::string(part) + "/" + entry.path().filename().string()] = text.str();
    }
  return headers;
}

TEST(ShippedTemplates, EveryHeaderCompilesAlone) {
  const jit::HeaderSet headers = shipped();
  EXPECT_GE(headers.size(), 6u);
  const Introspector introspector(headers);
  for (const auto& [name, text] : headers) {
    auto description = introspector.describe(name);
    EXPECT_TRUE(description) << name << ": " << description.error().message;
  }
}

TEST(ShippedTemplates, EveryTunableIsDocumented) {
  const jit::HeaderSet headers = shipped();
  const Introspector introspector(headers);
  int families = 0;
  for (const auto& [name, text] : headers) {
    if (!name.starts_with("kernels/")) continue;
    auto description = introspector.describe(name);
    ASSERT_TRUE(description) << name << ": " << description.error().message;
    const std::string family = fs::path(name).stem();
    EXPECT_EQ(description->config, family + "::Config") << name;
    EXPECT_FALSE(description->tunables.empty()) << name;
    for (const Tunable& tunable : description->tunables)
      EXPECT_FALSE(tunable.comment.empty()) << name << ":" << tunable.line << ": " << tunable.name;
    ++families;
  }
  EXPECT_GE(families, 3);
}

}  // namespace
}  // namespace tilewright::templates
