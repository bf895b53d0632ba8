#include "daemon/reply_cache.h"

#include <gtest/gtest.h>

#include "tests/cache/samples.h"

namespace tilewright::daemon {
namespace {

using cache::testing::sample_digest;

std::shared_ptr<const Reply> reply(int problem, std::size_t bytes = 1000) {
  auto reply = std::make_shared<Reply>();
  reply->problem = sample_digest(problem);
  reply->with_images = std::string(bytes, 'x');
  return reply;
}

constexpr auto kStale = [](const Reply&) { return true; };

TEST(ReplyCache, DropsTheLeastRecentlyUsed) {
  ReplyCache cache(5000);  // three of 1000 and their overhead
  for (int i = 1; i <= 3; ++i) cache.put(sample_digest(i), reply(i), 0);
  EXPECT_TRUE(cache.find(sample_digest(1)));
  cache.put(sample_digest(4), reply(4), 0);
  EXPECT_TRUE(cache.find(sample_digest(1)));
  EXPECT_FALSE(cache.find(sample_digest(2)));
  EXPECT_EQ(cache.size().replies, 3u);
  cache.put(sample_digest(4), reply(4, 10), 0);
  EXPECT_EQ(cache.size().replies, 3u);
  cache.put(sample_digest(5), reply(5, 10'000), 0);
  EXPECT_FALSE(cache.find(sample_digest(5)));
  EXPECT_EQ(cache.size().replies, 3u);
}

TEST(ReplyCache, HoldsNoMoreFilesThanItMay) {
  ReplyCache cache(1 << 20, 2);
  auto with_file = [](int problem) {
    auto made = std::make_shared<Reply>();
    made->problem = sample_digest(problem);
    made->file = cache::testing::value_of(protocol::make_memory_file("test", "image"));
    return made;
  };
  cache.put(sample_digest(1), reply(1), 0);
  for (int i = 2; i <= 4; ++i) cache.put(sample_digest(i), with_file(i), 0);
  EXPECT_EQ(cache.size().files, 2u);
  EXPECT_FALSE(cache.find(sample_digest(2)));
  EXPECT_TRUE(cache.find(sample_digest(3)));
  EXPECT_TRUE(cache.find(sample_digest(4)));
  cache.forget_all();
  EXPECT_EQ(cache.size().files, 0u);
  ReplyCache none(1 << 20, 0);
  none.put(sample_digest(2), with_file(2), 0);
  EXPECT_EQ(none.size().replies, 0u);
}

TEST(ReplyCache, RefusesWhatWasReplacedHoweverManyProblemsWereSince) {
  ReplyCache cache(1 << 20);
  std::uint64_t generation = cache.generation(sample_digest(1));
  cache.forget(sample_digest(1), kStale);
  for (int i = 2; i < int(ReplyCache::kMaxGenerations) + 10; ++i)
    cache.forget(sample_digest(i), kStale);
  cache.put(sample_digest(7), reply(1), generation);
  EXPECT_FALSE(cache.find(sample_digest(7)));
  cache.put(sample_digest(7), reply(1), cache.generation(sample_digest(1)));
  EXPECT_TRUE(cache.find(sample_digest(7)));
}

TEST(ReplyCache, ForgetsTheStaleRepliesOfAProblem) {
  ReplyCache cache(1 << 20);
  for (int i = 1; i <= 4; ++i) cache.put(sample_digest(i), reply(i % 2), 0);
  cache.forget(sample_digest(1), [](const Reply&) { return false; });
  EXPECT_EQ(cache.size().replies, 4u);
  cache.forget(sample_digest(1), kStale);
  EXPECT_FALSE(cache.find(sample_digest(1)));
  EXPECT_TRUE(cache.find(sample_digest(2)));
  cache.forget_all();
  EXPECT_EQ(cache.size().replies, 0u);
  EXPECT_EQ(cache.size().bytes, 0u);
}

TEST(ReplyCache, RefusesAReplyMadeFromWhatWasReplacedMeanwhile) {
  ReplyCache cache(1 << 20);
  std::uint64_t generation = cache.generation(sample_digest(1));
  cache.forget(sample_digest(1), kStale);
  cache.put(sample_digest(7), reply(1), generation);
  EXPECT_FALSE(cache.find(sample_digest(7)));
  generation = cache.generation(sample_digest(1));
  cache.forget(sample_digest(2), kStale);
  cache.put(sample_digest(7), reply(1), generation);
  EXPECT_TRUE(cache.find(sample_digest(7)));
  generation = cache.generation(sample_digest(1));
  cache.forget_all();
  cache.put(sample_digest(7), reply(1), generation);
  EXPECT_FALSE(cache.find(sample_digest(7)));
}

TEST(ReplyCache, DigestsAllThatARequestAsksWith) {
  protocol::Problem problem{"text", {1, 2}, sample_digest(1), {}};
  Digest digest = ReplyCache::request_digest(problem);
  EXPECT_EQ(ReplyCache::request_digest(problem), digest);
  auto with = [&](auto change) {
    protocol::Problem other = problem;
    change(other);
    return ReplyCache::request_digest(other);
  };
  EXPECT_NE(with([](auto& p) { p.operator_text = "texu"; }), digest);
  EXPECT_NE(with([](auto& p) { p.sizes = {2, 1}; }), digest);
  EXPECT_NE(with([](auto& p) { p.sizes = {1}; }), digest);
  EXPECT_NE(with([](auto& p) { p.device = {}; }), digest);
  EXPECT_NE(with([](auto& p) { p.wishes.objective = "p99"; }), digest);
  EXPECT_NE(with([](auto& p) { p.wishes.graph = false; }), digest);
  EXPECT_NE(with([](auto& p) { p.wishes.warm_l2 = false; }), digest);
}

}  // namespace
}  // namespace tilewright::daemon
