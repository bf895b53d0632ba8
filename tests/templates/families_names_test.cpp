// Names and constants in generated code.
#include <cmath>
#include <limits>
#include <regex>

#include "templates/families/extent.h"
#include "templates/families/names.h"
#include "templates/headers.h"
#include "tests/templates/golden_case.h"

namespace tilewright::templates {
namespace {

// Keywords, what the templates declare, and what generated code does: from the end of the alphabet
// to its beginning, so that what is sorted by name is sorted otherwise.
const std::vector<std::string> kHostile = {
    "workspace", "widen", "v0",       "out0", "operator", "n0",      "kWidth", "kConfig", "in0",
    "float",     "block", "bias_row", "b",    "at",       "Visitor", "Values", "M",       "A"};

/// The names of a group exchanged for others.
class Renaming {
 public:
  Operator operator()(Operator group) {
    for (std::string& dimension : group.dimensions) dimension = of(dimension);
    for (Value& value : group.values) {
      value.name = of(value.name);
      rename(value.shape);
    }
    for (Input& input : group.inputs) rename(input.strides);
    for (Output& output : group.outputs) rename(output.strides);
    group.name = "float";
    return group;
  }
  Facts operator()(const Facts& facts) {
    Facts renamed;
    for (const auto& [name, bytes] : facts.alignment) renamed.alignment[of(name)] = bytes;
    return renamed;
  }

 private:
  const std::string& of(const std::string& name) {
    auto [found, added] = names_.try_emplace(name);
    if (added) {
      const std::size_t next = names_.size() - 1;
      found->second = next < kHostile.size() ? kHostile[next] : "_" + std::to_string(next);
    }
    return found->second;
  }
  void rename(std::vector<Dim>& dims) {
    for (Dim& dim : dims) {
      if (!dim.value) dim.symbol = of(dim.symbol);
    }
  }

  std::map<std::string, std::string> names_;
};

class Names : public testing::TestWithParam<std::string> {};

TEST_P(Names, OfTheOperatorDoNotReachTheSource) {
  const GoldenCase example = GoldenCase::load(GetParam());
  GoldenCase other = example;
  Renaming rename;
  other.group = rename(example.group);
  other.facts = rename(example.facts);
  const Generated made = example.generate(), renamed = other.generate();
  EXPECT_EQ(made.source.text, renamed.source.text);
  EXPECT_EQ(made.source.name, renamed.source.name);
  EXPECT_NE(made.comment, renamed.comment);
}

INSTANTIATE_TEST_SUITE_P(Golden, Names, testing::ValuesIn(GoldenCase::all()),
                         [](const auto& info) { return info.param; });

const std::regex kGenerated("\\b(in|out|v|n)[0-9]+(_\\w*)?\\b");

std::set<std::string> generated_names(const std::string& text) {
  std::set<std::string> found;
  for (std::sregex_iterator at(text.begin(), text.end(), kGenerated), end; at != end; ++at) {
    found.insert(at->str());
  }
  return found;
}

TEST(NamesOfGeneratedCode, AreDeclaredByNoTemplate) {
  for (const auto& [name, text] : device_headers()) {
    // But in comments and instructions: "ld.global.v4".
    const std::string code =
        std::regex_replace(text, std::regex("//[^\n]*|\"(\\\\.|[^\"\\n])*\""), "");
    EXPECT_EQ(generated_names(code), std::set<std::string>()) << name;
  }
}

TEST(NamesOfGeneratedCode, HaveTheFormThatTemplatesAvoid) {
  EXPECT_EQ(input_name(3), "in3");
  EXPECT_EQ(output_name(0), "out0");
  EXPECT_EQ(statement_name(12), "v12");
  EXPECT_EQ(dimension_name(1), "n1");
  EXPECT_EQ(generated_names("in3 out0_row v12_sum n1_ input v n"),
            (std::set<std::string>{"in3", "out0_row", "v12_sum", "n1_"}));
}

TEST(Constants, ReadBackToTheNearestFloat) {
  EXPECT_EQ(float_literal(0.1), "0.1f");
  EXPECT_EQ(float_literal(2), "2.f");
  EXPECT_EQ(float_literal(-3), "-3.f");
  EXPECT_EQ(float_literal(1e-5), "1e-05f");
  EXPECT_EQ(float_literal(1e300), "bits_as<float>(0x7f800000)");
  EXPECT_EQ(float_literal(-std::numeric_limits<double>::infinity()), "bits_as<float>(0xff800000)");
  EXPECT_EQ(float_literal(16777216), "16777216.f");
}

TEST(Extents, FoldConstantsAndCompareAsProducts) {
  const Extent m(Dim{{}, "M"}), n(Dim{{}, "N"}), four(4);
  EXPECT_EQ((m * n * four).text(), "M * N * 4");
  EXPECT_EQ(n * four * m, m * n * four);
  EXPECT_EQ((m * Extent(0)).text(), "0");
  EXPECT_EQ((four * Extent(6)).constant(), 24);
  EXPECT_EQ((m * four).value({{"M", 5}}), 20);
  EXPECT_EQ((m * n).value({{"M", 5}}), std::nullopt);
  EXPECT_EQ(Extent(24).power_of_two_divisor(16), 8);
  EXPECT_EQ(Extent(64).power_of_two_divisor(16), 16);
}

}  // namespace
}  // namespace tilewright::templates
