#include "search/share.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace tilewright::search {
namespace {

using ::testing::ElementsAre;

constexpr double kNone = std::numeric_limits<double>::infinity();

ArmStanding arm(double best, double group_best, double floor, bool leading,
                bool exhausted = false) {
  return {best, group_best, floor, leading, exhausted};
}

TEST(Share, GoesByWhatCanStillBeGained) {
  const ArmStanding arms[] = {arm(110, 110, 10, true), arm(35, 35, 10, true),
                              arm(10, 10, 10, true)};
  EXPECT_THAT(share_out(arms, 100), ElementsAre(80, 20, 0));
  EXPECT_THAT(share_out(arms, 1), ElementsAre(1, 0, 0));
  EXPECT_THAT(share_out(arms, 0), ElementsAre(0, 0, 0));
}

TEST(Share, GoesToLeadingGroupsAlone) {
  const ArmStanding arms[] = {arm(100, 100, 0, false), arm(10, 10, 0, true)};
  EXPECT_THAT(share_out(arms, 7), ElementsAre(0, 7));
}

TEST(Share, GoesOnWithTheOthersWhereTheLeadersAreExhausted) {
  const ArmStanding arms[] = {arm(100, 100, 0, false), arm(10, 10, 0, true, true)};
  EXPECT_THAT(share_out(arms, 7), ElementsAre(7, 0));
  const ArmStanding none[] = {arm(100, 100, 0, false, true), arm(10, 10, 0, true, true)};
  EXPECT_THAT(share_out(none, 7), ElementsAre(0, 0));
}

TEST(Share, AFamilyThatIsThreeTimesSlowerGetsNothingWhileAnotherDoes) {
  const ArmStanding arms[] = {arm(31, 10, 0, true), arm(10, 10, 0, true)};
  EXPECT_THAT(share_out(arms, 6), ElementsAre(0, 6));
  const ArmStanding left[] = {arm(31, 10, 0, true), arm(10, 10, 0, true, true)};
  EXPECT_THAT(share_out(left, 6), ElementsAre(6, 0));
}

TEST(Share, AnArmWhoseSafeConfigFailedIsTriedAgainWhereItsGroupHasNothing) {
  const ArmStanding arms[] = {arm(kNone, kNone, 10, true), arm(20, 20, 10, true),
                              arm(kNone, 20, 10, true)};
  EXPECT_THAT(share_out(arms, 4), ElementsAre(2, 2, 0));
}

TEST(Share, IsEqualOrEarlierForEqualArms) {
  const ArmStanding arms[] = {arm(10, 10, 0, true), arm(10, 10, 0, true), arm(10, 10, 0, true)};
  EXPECT_THAT(share_out(arms, 7), ElementsAre(3, 2, 2));
}

}  // namespace
}  // namespace tilewright::search
