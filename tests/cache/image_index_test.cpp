#include "cache/image_index.h"

#include <gtest/gtest.h>

#include "tests/cache/samples.h"

namespace tilewright::cache {
namespace {

using testing::sample_digest;

std::vector<Digest> digests(std::initializer_list<int> numbers) {
  std::vector<Digest> all;
  for (int number : numbers) all.push_back(sample_digest(number));
  return all;
}

ImageIndex five_of_100() {
  ImageIndex index;
  for (int i = 1; i <= 5; ++i) index.add(sample_digest(i), 100);
  return index;
}

TEST(ImageIndex, DropsWhatNoRecordNamesFirstThenByUse) {
  ImageIndex index = five_of_100();
  index.reference(sample_digest(100), digests({1, 3}));
  index.touch(sample_digest(2));
  EXPECT_EQ(index.victims(500), digests({}));
  EXPECT_EQ(index.victims(300), digests({4, 5}));
  EXPECT_EQ(index.victims(299), digests({4, 5, 2}));
  EXPECT_EQ(index.victims(100), digests({4, 5, 2, 1}));
  EXPECT_EQ(index.victims(0), digests({4, 5, 2, 1, 3}));
}

TEST(ImageIndex, MakesRoomForWhatComesAndDropsNoneOfIt) {
  ImageIndex index = five_of_100();
  EXPECT_EQ(index.victims(500, {{sample_digest(6), 1}}), digests({1}));
  EXPECT_EQ(index.victims(500, {{sample_digest(6), 101}}), digests({1, 2}));
  // One that is here already grows by the difference, and stays.
  EXPECT_EQ(index.victims(500, {{sample_digest(1), 100}}), digests({}));
  EXPECT_EQ(index.victims(500, {{sample_digest(1), 150}, {sample_digest(6), 50}}), digests({2}));
  EXPECT_EQ(index.victims(0, {{sample_digest(4), 1}}), digests({1, 2, 3, 5}));
}

TEST(ImageIndex, ForgetsReferencesOfARecordThatChanged) {
  ImageIndex index = five_of_100();
  index.reference(sample_digest(100), digests({1, 2}));
  index.reference(sample_digest(100), digests({2, 3}));
  EXPECT_EQ(index.victims(200), digests({1, 4, 5}));
  index.reference(sample_digest(100), {});
  EXPECT_EQ(index.victims(200), digests({1, 2, 3}));
}

TEST(ImageIndex, CountsBytesOfWhatIsStoredOnly) {
  ImageIndex index = five_of_100();
  index.add(sample_digest(1), 40);
  index.reference(sample_digest(100), digests({1, 77}));
  EXPECT_EQ(index.bytes(), 440u);
  EXPECT_EQ(index.images(), 5u);
  index.remove(sample_digest(1));
  index.remove(sample_digest(1));
  index.remove(sample_digest(77));
  EXPECT_EQ(index.bytes(), 400u);
  EXPECT_EQ(index.images(), 4u);
  EXPECT_EQ(index.find(sample_digest(1)), nullptr);
  // Still named: when it comes back, it counts as named.
  index.add(sample_digest(1), 100);
  EXPECT_EQ(index.victims(100), digests({2, 3, 4, 5}));
}

TEST(ImageIndex, KeepsItsOrderOverARestart) {
  ImageIndex index = five_of_100();
  index.touch(sample_digest(1));
  ImageIndex restored;
  for (int i : {3, 1, 5, 4, 2})
    ASSERT_TRUE(
        restored.restore(sample_digest(i), ImageIndex::encode(*index.find(sample_digest(i)))));
  EXPECT_EQ(restored.victims(100), digests({2, 3, 4, 5}));
  EXPECT_FALSE(restored.restore(sample_digest(6), "short"));
  restored.touch(sample_digest(2));
  EXPECT_EQ(restored.victims(200), digests({3, 4, 5}));
}

}  // namespace
}  // namespace tilewright::cache
