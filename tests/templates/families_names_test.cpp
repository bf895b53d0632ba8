// Names and constants in generated code.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "templates/families/extent.h"
#include "templates/families/names.h"

namespace tilewright::templates {
namespace {

TEST(Names, StayAsTheOperatorHasThem) {
  Namer namer;
  EXPECT_EQ(namer.unique("gate"), "gate");
  EXPECT_EQ(namer.unique("gate"), "gate_3");
}

TEST(Names, ThatCannotBeUsedAreChanged) {
  Namer namer;
  EXPECT_EQ(namer.unique("float"), "float_2");
  EXPECT_EQ(namer.unique("row"), "row_2");
  EXPECT_EQ(namer.unique("swiglu-v1.5"), "swiglu_v1_5");
  EXPECT_EQ(namer.unique("x_"), "x");
  EXPECT_EQ(namer.unique("_"), "v");
  EXPECT_EQ(namer.unique("a__b"), "a_b");
  EXPECT_EQ(namer.unique("3d"), "v3d");
}

TEST(Names, LeaveRoomForThePointersOfRows) {
  Namer namer;
  EXPECT_EQ(namer.unique("y_row", "row"), "y_row");
  EXPECT_EQ(namer.unique("y", "row"), "y_3");
  EXPECT_EQ(namer.unique("y_3_row"), "y_3_row_3");
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
