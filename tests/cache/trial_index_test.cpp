#include "cache/trial_index.h"

#include <gtest/gtest.h>

#include "tests/cache/samples.h"

namespace tilewright::cache {
namespace {

using testing::sample_digest;
using Ids = std::vector<std::string>;

const Digest kOld = sample_digest(1), kNew = sample_digest(2);

/// a, c and e of the new generator, b and d of the old one.
TrialIndex five_of_100() {
  TrialIndex index;
  for (const char* id : {"a", "b", "c", "d", "e"})
    index.add(id, 100, std::string("bd").find(id) != std::string::npos ? kOld : kNew);
  return index;
}

TEST(TrialIndex, DropsOtherGeneratorsFirstThenTheOldest) {
  TrialIndex index = five_of_100();
  const TrialIndex::Item item{100, 0, kNew};
  EXPECT_EQ(index.victims(600, "f", item), Ids({}));
  // A sixteenth more than needed: the next ones find room.
  EXPECT_EQ(index.victims(599, "f", item), Ids({"b"}));
  EXPECT_EQ(index.victims(500, "f", item), Ids({"b", "d"}));
  EXPECT_EQ(index.victims(320, "f", item), Ids({"b", "d", "a"}));
  EXPECT_EQ(index.victims(0, "f", item), Ids({"b", "d", "a", "c", "e"}));
  EXPECT_EQ(index.victims(320, "f", {100, 0, kOld}), Ids({"a", "c", "e"}));
}

TEST(TrialIndex, DoesNotDropWhatIsWritten) {
  TrialIndex index = five_of_100();
  EXPECT_EQ(index.victims(500, "a", {100, 0, kNew}), Ids({}));
  EXPECT_EQ(index.victims(0, "a", {100, 0, kNew}), Ids({"b", "d", "c", "e"}));
}

TEST(TrialIndex, WhatIsTriedAgainIsTheNewest) {
  TrialIndex index = five_of_100();
  index.add("a", 50, kNew);
  EXPECT_EQ(index.bytes(), 450u);
  EXPECT_EQ(index.trials(), 5u);
  EXPECT_EQ(index.victims(0, "f", {0, 0, kNew}), Ids({"b", "d", "c", "e", "a"}));
  index.remove("a");
  index.remove("a");
  EXPECT_EQ(index.bytes(), 400u);
}

TEST(TrialIndex, KeepsItsOrderOverARestart) {
  TrialIndex index = five_of_100(), restored;
  for (const char* id : {"e", "b", "a", "d", "c"})
    ASSERT_TRUE(restored.restore(id, TrialIndex::encode(*index.find(id))));
  EXPECT_EQ(restored.victims(0, "f", {0, 0, kNew}), Ids({"b", "d", "a", "c", "e"}));
  EXPECT_EQ(restored.next_age(), index.next_age());
  EXPECT_FALSE(restored.restore("f", "short"));
  EXPECT_FALSE(restored.restore("f", TrialIndex::encode(*index.find("a")))) << "a has that age";
}

}  // namespace
}  // namespace tilewright::cache
