#include "jit/expression.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/jit/count_allocations.h"

namespace tilewright::jit {
namespace {

std::string evaluated(std::string_view text,
                      std::map<std::string, std::int64_t, std::less<>> values = {}) {
  auto parsed = Expression::parse(text);
  if (!parsed) return parsed.error().message;
  auto value = parsed->evaluate([&](std::string_view name) -> std::optional<std::int64_t> {
    auto at = values.find(name);
    return at == values.end() ? std::nullopt : std::optional(at->second);
  });
  return value ? std::to_string(*value) : value.error().message;
}

struct Case {
  const char* text;
  const char* result;
};

TEST(Expression, FollowsThePrecedenceOfTheHeader) {
  const Case cases[] = {
      {"1 + 2 * 3", "7"},
      {"(1 + 2) * 3", "9"},
      {"10 - 4 - 3", "3"},
      {"100 / 10 / 5", "2"},
      {"17 % 5 * 2", "4"},
      {"2 + 3 < 6 == 1", "1"},
      {"1 == 2 < 3", "1"},
      {"0 || 1 && 0", "0"},
      {"1 || 1 && 0", "1"},
      {"1 ? 2 : 0 ? 3 : 4", "2"},
      {"0 ? 2 : 0 ? 3 : 4", "4"},
      {"0 || 1 ? 5 : 6", "5"},
      {"-2 * -3", "6"},
      {"--2", "2"},
      {"!0 + 1", "2"},
      {"!!7", "1"},
      {"-7 / 2", "-3"},
      {"-7 % 2", "-1"},
      {"3 != 3 || 4 >= 4", "1"},
      {"5 > 5", "0"},
      {"5 <= 5", "1"},
      {"7 && 9", "1"},
      {"0 || 9", "1"},
      {"9 || 0", "1"},
      {" \t1\n+1 ", "2"},
  };
  for (const Case& c : cases) EXPECT_EQ(evaluated(c.text), c.result) << c.text;
}

TEST(Expression, KnowsItsFunctions) {
  const Case cases[] = {
      {"ceil_div(0, 128)", "0"},
      {"ceil_div(1, 128)", "1"},
      {"ceil_div(128, 128)", "1"},
      {"ceil_div(129, 128)", "2"},
      {"ceil_div(-7, 2)", "-3"},
      {"ceil_div(7, -2)", "-3"},
      {"ceil_div(-7, -2)", "4"},
      {"round_up(0, 256)", "0"},
      {"round_up(1, 256)", "256"},
      {"round_up(257, 256)", "512"},
      {"min(3)", "3"},
      {"min(3, 1, 2)", "1"},
      {"max(3, 9, 2)", "9"},
      {"pow2(1)", "1"},
      {"pow2(64)", "1"},
      {"pow2(0)", "0"},
      {"pow2(-8)", "0"},
      {"pow2(48)", "0"},
      {"abs(-5)", "5"},
      {"abs(5)", "5"},
      {"in(3, 1, 2, 3)", "1"},
      {"in(4, 1, 2, 3)", "0"},
      {"in(1, 1)", "1"},
      {"max(min(5, 3), 1 + 1) * 2", "6"},
  };
  for (const Case& c : cases) EXPECT_EQ(evaluated(c.text), c.result) << c.text;
}

TEST(Expression, EvaluatesOnlyTheSideThatItNeeds) {
  EXPECT_EQ(evaluated("M == 0 || 12 / M > 2", {{"M", 0}}), "1");
  EXPECT_EQ(evaluated("M != 0 && 12 / M > 2", {{"M", 0}}), "0");
  EXPECT_EQ(evaluated("M ? 12 / M : 7", {{"M", 0}}), "7");
  EXPECT_EQ(evaluated("M ? 12 / M : 1 / M", {{"M", 4}}), "3");
  EXPECT_EQ(evaluated("(0 && 1 / 0) + (1 || 1 / 0)"), "1");
}

TEST(Expression, ReportsWhatCannotBeComputed) {
  const Case cases[] = {
      {"1 + 4 / 0", "column 7 of '1 + 4 / 0': division by zero"},
      {"4 % 0", "column 3 of '4 % 0': division by zero"},
      {"ceil_div(1, 0)", "column 1 of 'ceil_div(1, 0)': division by zero"},
      {"round_up(1, 0)", "column 1 of 'round_up(1, 0)': multiple of round_up is not positive"},
      {"round_up(9223372036854775807, 2)",
       "column 1 of 'round_up(9223372036854775807, 2)': overflow"},
      {"9223372036854775807 + 1", "column 21 of '9223372036854775807 + 1': overflow"},
      {"-9223372036854775807 - 2", "column 22 of '-9223372036854775807 - 2': overflow"},
      {"4294967296 * 2147483648", "column 12 of '4294967296 * 2147483648': overflow"},
      {"(-9223372036854775807 - 1) / -1",
       "column 28 of '(-9223372036854775807 - 1) / -1': overflow"},
      {"(-9223372036854775807 - 1) % -1",
       "column 28 of '(-9223372036854775807 - 1) % -1': overflow"},
      {"-(-9223372036854775807 - 1)", "column 1 of '-(-9223372036854775807 - 1)': overflow"},
      {"abs(-9223372036854775807 - 1)", "column 1 of 'abs(-9223372036854775807 - 1)': overflow"},
      {"M + N", "unknown variable 'M' in 'M + N'"},
  };
  for (const Case& c : cases) EXPECT_EQ(evaluated(c.text), c.result) << c.text;
  EXPECT_EQ(evaluated("-9223372036854775807 - 1"), "-9223372036854775808");
}

TEST(Expression, SaysWhereTheTextIsWrongAndWhatWasExpected) {
  const Case cases[] = {
      {"", "column 1 of '': found the end, expected a number, a variable, a function or '('"},
      {"M +", "column 4 of 'M +': found the end, expected a number, a variable, a function or '('"},
      {"M + * 2",
       "column 5 of 'M + * 2': found '*', expected a number, a variable, a function or '('"},
      {"(M + 1", "column 7 of '(M + 1': found the end, expected ')'"},
      {"M 2", "column 3 of 'M 2': found '2', expected an operator or the end"},
      {"M = 2", "column 3 of 'M = 2': found '=', expected an operator or the end"},
      {"M ? 2", "column 6 of 'M ? 2': found the end, expected ':'"},
      {"M & 2", "column 3 of 'M & 2': found '&', expected an operator or the end"},
      {"12ab", "column 1 of '12ab': found '12ab', expected a decimal integer"},
      {"1.5", "column 1 of '1.5': found '1.5', expected a decimal integer"},
      {".x", "column 1 of '.x': found '.', expected a number, a variable, a function or '('"},
      {"9223372036854775808",
       "column 1 of '9223372036854775808': number is 9223372036854775808, expected at most "
       "9223372036854775807"},
      {"log2(8)",
       "column 1 of 'log2(8)': unknown function 'log2', expected ceil_div, round_up, min, max, "
       "pow2, "
       "abs or in"},
      {"ceil_div(8)", "column 1 of 'ceil_div(8)': ceil_div has 1 argument, expected 2"},
      {"pow2()", "column 1 of 'pow2()': pow2 has 0 arguments, expected 1"},
      {"in(1)", "column 1 of 'in(1)': in has 1 argument, expected 2 to 60"},
      {"min(1, 2", "column 9 of 'min(1, 2': found the end, expected ',' or ')'"},
  };
  for (const Case& c : cases) EXPECT_EQ(evaluated(c.text), c.result) << c.text;
}

TEST(Expression, ListsItsVariablesOnceInOrderOfFirstUse) {
  auto parsed = Expression::parse("x.stride0 * M + x.align - M + N_2");
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->variables(), (std::vector<std::string>{"x.stride0", "M", "x.align", "N_2"}));
  EXPECT_EQ(parsed->as_constant(), std::nullopt);
  const std::int64_t values[] = {10, 3, 16, 5};
  EXPECT_EQ(parsed->evaluate(values).value(), 10 * 3 + 16 - 3 + 5);
  auto few = parsed->evaluate(std::span(values, 2));
  ASSERT_FALSE(few);
  EXPECT_EQ(few.error().message, "'x.stride0 * M + x.align - M + N_2' got 2 values, expected 4");
}

TEST(Expression, FoldsConstants) {
  EXPECT_EQ(Expression::parse("ceil_div(4096, 128) * 2")->as_constant(), 64);
  EXPECT_EQ(Expression::parse("1 / 0")->as_constant(), std::nullopt);
  EXPECT_EQ(Expression::constant(-3).as_constant(), -3);
  EXPECT_EQ(Expression::constant(-3).text(), "-3");
}

TEST(Expression, RefusesTextThatWouldExhaustAStack) {
  EXPECT_EQ(evaluated(std::string(200, '(') + "1" + std::string(200, ')')).find("column"), 0u);
  EXPECT_NE(evaluated(std::string(10000, '-') + "1").find("nested deeper"), std::string::npos);
  EXPECT_NE(evaluated(std::string(10000, '(') + "1").find("nested deeper"), std::string::npos);
  std::string right_deep;
  for (int i = 0; i < 70; ++i) right_deep += "1 + (";
  EXPECT_NE(evaluated(right_deep + "1" + std::string(70, ')')).find("operands wait"),
            std::string::npos);
  std::string chain = "1";
  for (int i = 0; i < 5000; ++i) chain += " + 1";
  EXPECT_EQ(evaluated(chain), "5001");
  EXPECT_EQ(evaluated(std::string(70000, ' ')),
            "expression has 70000 characters, expected at most 65536");
}

TEST(Expression, DoesNotAllocateWhenBound) {
  auto parsed =
      Expression::parse("ceil_div(M, 128) * min(N, 64, K) + (M % 8 == 0 && x.align >= 16)");
  ASSERT_TRUE(parsed);
  const std::int64_t values[] = {1024, 32, 99, 16};
  const std::size_t before = testing::allocation_count();
  std::int64_t total = 0;
  for (int i = 0; i < 100; ++i) total += *parsed->evaluate(values);
  EXPECT_EQ(testing::allocation_count(), before);
  EXPECT_EQ(total, 100 * (8 * 32 + 1));
}

}  // namespace
}  // namespace tilewright::jit
