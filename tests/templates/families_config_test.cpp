// Configs: what a family refuses, and that space, template and host agree on tunables and
// constraints.
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <regex>
#include <sstream>

#include "templates/headers.h"
#include "tests/templates/family_cases.h"

namespace tilewright::templates {
namespace {

const char* example_of(std::string_view family) {
  return family == "pointwise" ? "bias_gelu" : family == "row_reduction" ? "layernorm" : "swiglu";
}

std::string refusal(const char* family, const Operator& group, const Config& config) {
  const Result<Generated> made = find_family(family)->generate(group, config, {});
  if (made) return "generated";
  EXPECT_EQ(made.error().code, ErrorCode::kInvalidArgument);
  return made.error().message;
}

std::string refusal(const char* family, const Config& config) {
  return refusal(family, shipped(example_of(family)), config);
}

std::string refusal_of(const char* family, const Config& set) {
  return refusal(family, config_of(family, shipped(example_of(family)), set));
}

TEST(Configs, ThatATemplateWouldRefuseAreRefusedWithTheirValues) {
  EXPECT_EQ(refusal_of("simt_gemm", {{"block_m", 50}}),
            "simt_gemm: block_m is 50, thread_m is 4, expected block_m % thread_m == 0");
  EXPECT_EQ(refusal_of("simt_gemm", {{"block_k", 12}}),
            "simt_gemm: block_k is 12, expected block_k % 8 == 0");
  EXPECT_EQ(refusal_of("simt_gemm", {{"thread_m", 8}, {"thread_n", 16}}),
            "simt_gemm: thread_m is 8, thread_n is 16, products is 2, expected thread_m * thread_n "
            "* products <= 128");
  EXPECT_EQ(
      refusal_of("simt_gemm", {{"thread_m", 1}, {"thread_n", 1}}),
      "simt_gemm: block_m is 64, thread_m is 1, block_n is 64, thread_n is 1, expected block_m "
      "/ thread_m * (block_n / thread_n) <= 1024");
  EXPECT_EQ(refusal_of("simt_gemm", {{"stages", 5}}),
            "simt_gemm: stages is 5, expected stages >= 1 && stages <= 4");
  EXPECT_EQ(refusal_of("simt_gemm", {{"width", 3}}),
            "simt_gemm: width is 3, expected in(width, 1, 2, 4, 8)");
  EXPECT_EQ(refusal_of("row_reduction", {{"threads_per_row", 48}}),
            "row_reduction: threads_per_row is 48, expected pow2(threads_per_row) && "
            "threads_per_row <= 1024");
  EXPECT_EQ(
      refusal_of("row_reduction", {{"held", 1}}),
      "row_reduction: held is 1, columns is 768, width is 4, threads_per_row is 128, expected "
      "held == 0 || columns <= held * width * threads_per_row");
  EXPECT_EQ(refusal_of("row_reduction", {{"threads_per_row", 8}}),
            "row_reduction: threads_per_row is 8, rows_per_block is 1, expected threads_per_row * "
            "rows_per_block % 32 == 0");
  EXPECT_EQ(refusal_of("pointwise", {{"threads_x", 20}}),
            "pointwise: threads_x is 20, threads_y is 4, expected threads_x * threads_y % 32 == 0");
  EXPECT_EQ(
      refusal_of("pointwise", {{"items", 0}}),
      "pointwise: items is 0, rows_per_thread is 1, expected items >= 1 && rows_per_thread >= "
      "1");
  EXPECT_EQ(refusal_of("pointwise", {{"items", -1}}),
            "pointwise: items is -1, expected 0 to 65536");
  EXPECT_EQ(refusal_of("pointwise", {{"stages", 1}}),
            "pointwise: unknown tunable stages=1, expected width, items, rows_per_thread, "
            "threads_x, threads_y");
  EXPECT_EQ(refusal("pointwise", {{"width", 1}}),
            "pointwise: tunable items has no value, expected one for each of width, items, "
            "rows_per_thread, threads_x, threads_y");
}

TEST(Configs, ThatHoldMoreThanRegistersAreRefusedAtTheWidthThatIsGenerated) {
  const Operator norm = shipped("softmax", {{"T", "bf16"}, {"N", "512"}});
  // What is kept: x in two bytes, its exponential in four.
  Config config = {{"width", 2}, {"threads_per_row", 32}, {"rows_per_block", 1}, {"held", 21}};
  const Family& family = *find_family("row_reduction");
  EXPECT_TRUE(family.generate(norm, config, Facts{}));
  config["width"] = 1;
  config["held"] = 33;
  EXPECT_EQ(refusal("row_reduction", norm, config),
            "row_reduction: held is 33, width is 1, kept_bytes is 6, kept_values is 2, expected "
            "held * max(width * kept_bytes, 4 * kept_values) <= 256");
}

std::vector<std::string> members_of_config(const Family& family) {
  const std::string& text = device_headers().at(std::string(family.header()));
  const std::size_t begin = text.find("struct Config {"), end = text.find("};", begin);
  const std::string body = text.substr(begin, end - begin);
  const std::regex member(R"(int (\w+) = \d+;\s+///< \S)");
  std::vector<std::string> names;
  for (std::sregex_iterator i(body.begin(), body.end(), member), none; i != none; ++i) {
    names.push_back((*i)[1]);
  }
  return names;
}

std::string without_spaces(std::string text) {
  text.erase(std::remove_if(text.begin(), text.end(), [](char c) { return std::isspace(c); }),
             text.end());
  return text;
}

TEST(Configs, HaveTheTunablesOfTheSpaceAndOfTheTemplate) {
  for (const Family* family : families()) {
    SCOPED_TRACE(family->name());
    const YAML::Node space =
        YAML::LoadFile(std::string(TILEWRIGHT_SOURCE_DIR) + "/configs/spaces/" +
                       std::string(family->name()) + ".yaml");
    std::vector<std::string> in_space, in_config;
    for (const auto& tunable : space["tunables"])
      in_space.push_back(tunable.first.as<std::string>());
    EXPECT_EQ(in_space, members_of_config(*family));
    for (const auto& entry : family->safe_config(shipped(example_of(family->name())), {})) {
      in_config.push_back(entry.first);
    }
    std::sort(in_space.begin(), in_space.end());
    EXPECT_EQ(in_space, in_config);
  }
}

TEST(Configs, AreHeldToEveryStaticAssertOfTheTemplateByTheSpace) {
  for (const Family* family : families()) {
    SCOPED_TRACE(family->name());
    std::ifstream file(std::string(TILEWRIGHT_SOURCE_DIR) + "/configs/spaces/" +
                       std::string(family->name()) + ".yaml");
    std::ostringstream space;
    space << file.rdbuf();
    const std::string& text = device_headers().at(std::string(family->header()));
    const std::string joined = std::regex_replace(text, std::regex("\"\\s*\""), "");
    const std::regex message(R"re(static_assert\([^"]*"([^"]*(==|<=|>=)[^"]*)"\))re");
    int found = 0;
    for (std::sregex_iterator i(joined.begin(), joined.end(), message), none; i != none;
         ++i, ++found) {
      const std::string constraint = (*i)[1];
      if (constraint.find("split_k") != std::string::npos ||
          constraint.find("stages") != std::string::npos ||
          constraint.find("run") != std::string::npos)
        continue;  // of domains, which the space lists; of facts, which no config has
      EXPECT_NE(without_spaces(space.str()).find(without_spaces(constraint)), std::string::npos)
          << constraint;
    }
    EXPECT_GE(found, 3);
  }
}

TEST(Configs, ThatAreSafeAreAcceptedWhateverIsKnownOfTheTensors) {
  for (const char* name : {"swiglu", "mlp_up", "layernorm", "softmax", "bias_gelu"}) {
    for (const char* dtype : {"f32", "f16", "bf16"}) {
      for (const char* columns : {"1", "7", "4096", "dynamic"}) {
        const Operator op = shipped(name, {{"T", dtype}, {"N", columns}});
        for (const Family* family : families()) {
          if (!family->accepts(op)) continue;
          for (const Facts& facts :
               {Facts::unaligned(op), Facts::of_allocation(op, {{"M", 16}, {"N", 8}})}) {
            const Result<Generated> made = family->generate(op, family->safe_config(op, {}), facts);
            EXPECT_TRUE(made) << name << " " << dtype << " N=" << columns << ": "
                              << (made ? "" : made.error().message);
          }
        }
      }
    }
  }
}

TEST(Configs, PrintInTheOrderOfTheirNames) {
  EXPECT_EQ(to_string(Config{{"width", 4}, {"block_m", 64}}), "block_m=64 width=4");
}

}  // namespace
}  // namespace tilewright::templates
