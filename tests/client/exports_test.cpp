// What libtilewright.so shows to the world, and what it asks of it.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <memory>
#include <set>
#include <sstream>

namespace {

std::string output_of(const std::string& command) {
  std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::string text;
  std::array<char, 4096> part{};
  while (std::size_t count = fread(part.data(), 1, part.size(), pipe.get()))
    text.append(part.data(), count);
  return text;
}

const std::string kLibrary = TILEWRIGHT_BINARY_DIR "/bin/libtilewright.so";

TEST(Exports, AreTheFunctionsOfTheHeaderAndNothingElse) {
  std::istringstream lines(output_of("nm -D --defined-only " + kLibrary));
  std::set<std::string> exported;
  for (std::string address, kind, name; lines >> address >> kind >> name;) {
    EXPECT_EQ(kind, "T") << name;
    exported.insert(name);
  }
  const std::set<std::string> expected = {"tw_client_close",
                                          "tw_client_device",
                                          "tw_client_is_virtual",
                                          "tw_client_open",
                                          "tw_last_error",
                                          "tw_last_error_detail",
                                          "tw_launch_free",
                                          "tw_launch_run",
                                          "tw_launch_workspace_bytes",
                                          "tw_operator_dimension",
                                          "tw_operator_dimension_count",
                                          "tw_operator_load",
                                          "tw_operator_name",
                                          "tw_operator_tensor",
                                          "tw_operator_tensor_count",
                                          "tw_plan_adopt",
                                          "tw_plan_forget_old",
                                          "tw_plan_get",
                                          "tw_plan_get_info",
                                          "tw_plan_group",
                                          "tw_plan_poll",
                                          "tw_prepare",
                                          "tw_version"};
  EXPECT_EQ(exported, expected);
}

TEST(Exports, NeedGlibcOnly) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitized library needs the sanitizer's, and keeps more of others";
#endif
  std::istringstream lines(output_of("readelf -d " + kLibrary));
  std::set<std::string> needed;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("(NEEDED)") == std::string::npos) continue;
    auto begin = line.find('[') + 1;
    needed.insert(line.substr(begin, line.find(']') - begin));
  }
  for (const std::string& name : needed) {
    EXPECT_TRUE(name == "libc.so.6" || name == "libm.so.6" || name == "ld-linux-x86-64.so.2" ||
                name.rfind("lib", 0) != 0)
        << name;
  }
  EXPECT_TRUE(needed.contains("libc.so.6"));
}

}  // namespace
