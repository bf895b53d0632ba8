#include "client/plan_table.h"

#include <gtest/gtest.h>

#include <deque>
#include <thread>

namespace tilewright::client {
namespace {

struct Item {
  PlanKey key_;
  const PlanKey& key() const { return key_; }
};

const char kOperators[4] = {};

std::int64_t size_of(int i) { return (std::int64_t(i) * 1099511628211) % 100'000; }

TEST(PlanTable, FindsWhatWasInsertedOverManyGrowths) {
  PlanTable<Item> table;
  std::deque<Item> items;
  for (int i = 0; i < 5000; ++i) {
    items.push_back({{&kOperators[i % 4], {i, 7}}});
    EXPECT_EQ(table.insert(&items.back()), &items.back());
  }
  EXPECT_EQ(table.size(), 5000u);
  for (int i = 0; i < 5000; ++i) {
    std::int64_t sizes[] = {i, 7};
    EXPECT_EQ(table.find(&kOperators[i % 4], sizes), &items[std::size_t(i)]);
    EXPECT_EQ(table.find(&kOperators[(i + 1) % 4], sizes), nullptr);
    std::int64_t other[] = {i, 8};
    EXPECT_EQ(table.find(&kOperators[i % 4], other), nullptr);
    EXPECT_EQ(table.find(&kOperators[i % 4], std::span(sizes, 1)), nullptr);
  }
}

TEST(PlanTable, TheFirstOfAKeyStays) {
  PlanTable<Item> table;
  Item first{{kOperators, {1}}}, second{{kOperators, {1}}};
  EXPECT_EQ(table.insert(&first), &first);
  EXPECT_EQ(table.insert(&second), &first);
  EXPECT_EQ(table.size(), 1u);
}

TEST(PlanTable, HasPlansWithoutSizes) {
  PlanTable<Item> table;
  Item item{{kOperators, {}}};
  EXPECT_EQ(table.find(kOperators, {}), nullptr);
  table.insert(&item);
  EXPECT_EQ(table.find(kOperators, {}), &item);
}

TEST(PlanTable, ReadersSeeWholePlansWhileItGrows) {
  PlanTable<Item> table;
  std::deque<Item> items;
  for (int i = 0; i < 4000; ++i) items.push_back({{kOperators, {size_of(i)}}});
  std::atomic<int> inserted{0}, wrong{0};
  std::vector<std::thread> readers;
  for (int t = 0; t < 2; ++t) {
    readers.emplace_back([&, t] {
      int last = 0;
      while (last < 4000) {
        last = inserted.load();
        for (int i = t; i < last; i += 37) {
          std::int64_t sizes[] = {size_of(i)};
          Item* found = table.find(kOperators, sizes);
          if (!found || found->key_.sizes[0] != sizes[0]) ++wrong;
        }
      }
    });
  }
  for (Item& item : items) {
    table.insert(&item);
    ++inserted;
  }
  for (auto& reader : readers) reader.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace tilewright::client
