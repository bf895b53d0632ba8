#include "cache/store.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "tests/cache/samples.h"

namespace tilewright::cache {
namespace {

using namespace testing;  // NOLINT: the samples of this folder
namespace fs = std::filesystem;

std::unique_ptr<Store> open_store(const fs::path& folder, std::size_t cap = 1 << 30) {
  return value_of(open_rocks_store({folder, cap}));
}

/// What every store does, on memory and on disk.
class AnyStore : public ::testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<Store> store(std::size_t cap = 1 << 30) {
    return GetParam() == std::string("memory") ? memory_store(cap)
                                               : open_store(folder_.path(), cap);
  }
  TemporaryFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(Stores, AnyStore, ::testing::Values("memory", "rocks"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(AnyStore, GivesBackWhatWasPut) {
  auto store = this->store();
  Record record = sample_record(1);
  EXPECT_EQ(value_of(store->get(record.key)), std::nullopt);
  must(store->put(record));
  EXPECT_EQ(value_of(store->get(record.key)), record);
  EXPECT_EQ(value_of(store->get(sample_record(2).key)), std::nullopt);

  EXPECT_FALSE(value_of(store->image(sample_digest(1))));
  for (std::size_t bytes : {std::size_t(10), std::size_t(100'000)}) {
    must(store->put_image(sample_image(1, bytes)));
    EXPECT_TRUE(same(*value_of(store->image(sample_digest(1))), sample_image(1, bytes)));
  }

  EXPECT_FALSE(value_of(store->trial("a")));
  must(store->put_trial({"a", "{1}"}));
  must(store->put_trial({"a", "{2}"}));
  EXPECT_EQ(value_of(store->trial("a"))->body, "{2}");

  auto statistics = value_of(store->statistics());
  EXPECT_EQ(statistics.records, 1u);
  EXPECT_EQ(statistics.images, 1u);
  EXPECT_EQ(statistics.trials, 1u);
  EXPECT_GT(statistics.bytes, 100'000u);
}

TEST_P(AnyStore, UpdatesInPlace) {
  auto store = this->store();
  Record record = sample_record(1);
  must(store->update(record.key, [&](Record& fresh) {
    EXPECT_EQ(fresh.key, record.key);
    EXPECT_TRUE(fresh.entries.empty());
    fresh.put(record.entries[0]);
  }));
  must(store->update(record.key, [&](Record& known) { known.put(record.entries[1]); }));
  EXPECT_EQ(value_of(store->get(record.key))->entries, record.entries);
}

TEST_P(AnyStore, ATuneUnderOtherConditionsLosesNothing) {
  auto store = this->store();
  Record latency = sample_record(1), throughput = latency;
  for (Entry& entry : throughput.entries) {
    entry.evidence.conditions.objective = jit::Objective::kThroughput;
    entry.evidence.time_us /= 2;
  }
  for (const Record* tuned : {&latency, &throughput, &latency})
    must(store->update(latency.key, [&](Record& known) {
      for (const Entry& entry : tuned->entries) known.offer(entry);
    }));
  auto known = *value_of(store->get(latency.key));
  EXPECT_EQ(known.entries.size(), 4u);
  for (const Record* tuned : {&latency, &throughput})
    for (const Entry& entry : tuned->entries)
      EXPECT_EQ(*known.find(entry.evidence.sizes, entry.evidence.conditions), entry);
}

TEST_P(AnyStore, UpdatesOfManyThreadsAllCount) {
  auto store = this->store();
  Key key = sample_record(1).key;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 5; ++i) {
        must(store->update(
            key, [&](Record& record) { record.put(sample_entry(1, 100 * t + i, 100 * t + i)); }));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(value_of(store->get(key))->entries.size(), 20u);
}

TEST_P(AnyStore, ErasesAndVisits) {
  auto store = this->store();
  for (int columns : {1, 2, 3}) must(store->put(sample_record(columns)));
  must(store->erase(sample_record(2).key.problem));
  must(store->erase(sample_record(2).key.problem));
  std::vector<Record> seen;
  must(store->each([&](const Record& record) {
    seen.push_back(record);
    return true;
  }));
  EXPECT_EQ(seen.size(), 2u);
  EXPECT_EQ(value_of(store->statistics()).records, 2u);
  int visits = 0;
  must(store->each([&](const Record&) { return ++visits < 1; }));
  EXPECT_EQ(visits, 1);
  for (const char* id : {"b", "a"}) must(store->put_trial({id, id}));
  std::string ids;
  must(store->each_trial([&](const StoredTrial& trial) {
    ids += trial.id;
    return true;
  }));
  EXPECT_EQ(ids, "ab");
}

std::string images_in(const Store& store, int first, int last) {
  std::string text;
  for (int i = first; i <= last; ++i)
    if (value_of(store.image(sample_digest(i)))) text += std::to_string(i) + " ";
  return text;
}

Images some_images(std::initializer_list<int> numbers, std::size_t bytes) {
  Images images;
  for (int number : numbers)
    images.push_back(std::make_shared<const jit::Image>(sample_image(number, bytes)));
  return images;
}

TEST_P(AnyStore, KeepsImagesThatBelongTogetherTogether) {
  auto store = this->store(500'000);
  for (int i = 1; i <= 4; ++i) must(store->put_image(sample_image(i, 100'000)));
  // One by one, the first of these four would be the oldest when the last one comes.
  must(store->put_images(some_images({11, 12, 13, 14}, 110'000)));
  EXPECT_EQ(images_in(*store, 1, 20), "11 12 13 14 ");
  EXPECT_EQ(value_of(store->statistics()).evicted_images, 4u);
}

TEST_P(AnyStore, ImagesThatExceedTheCapTogetherAreRefusedAndCostNothing) {
  auto store = this->store(500'000);
  must(store->put_image(sample_image(1, 100'000)));
  Images images = some_images({11, 12, 13, 14, 15}, 110'000);
  Record record = sample_record(1);
  record.entries[0].plan.launches[0].image = sample_digest(11);
  for (int i = 12; i <= 15; ++i) {
    record.entries[0].plan.launches.push_back(record.entries[0].plan.launches[0]);
    record.entries[0].plan.launches.back().image = sample_digest(i);
  }
  auto change = [&](Record& fresh) { fresh = record; };
  for (const auto& refused :
       {store->put_images(images), store->update(record.key, change, images)}) {
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(refused.error().message.find("5 images that belong together have "),
              std::string::npos)
        << refused.error().message;
    EXPECT_NE(refused.error().message.find("expected at most 468750: the cap of 500000 less "),
              std::string::npos)
        << refused.error().message;
  }
  EXPECT_EQ(images_in(*store, 1, 20), "1 ");
  EXPECT_EQ(value_of(store->get(record.key)), std::nullopt);
  EXPECT_EQ(value_of(store->statistics()).evicted_images, 0u);
}

TEST_P(AnyStore, ARecordIsWrittenWithItsImagesAndNoOthers) {
  auto store = this->store(500'000);
  for (int i = 21; i <= 24; ++i) must(store->put_image(sample_image(i, 110'000)));
  Record record = sample_record(1);  // names 1, 1001, 2 and 1002
  must(store->update(
      record.key, [&](Record& fresh) { fresh = record; },
      some_images({1, 1001, 2, 1002, 7}, 110'000)));
  EXPECT_EQ(value_of(store->get(record.key)), record);
  EXPECT_EQ(images_in(*store, 1, 2000), "1 2 1001 1002 ");
  // An entry that was not taken brings no images either.
  must(store->update(
      record.key, [](Record&) {}, some_images({8}, 10)));
  EXPECT_EQ(images_in(*store, 1, 2000), "1 2 1001 1002 ");
  EXPECT_TRUE(value_of(has_images(*store, record.entries[0])));
}

TEST_P(AnyStore, AnEntryWithoutOneOfItsImagesIsNotWhole) {
  auto store = this->store();
  Record record = sample_record(1);
  must(store->put_image(sample_image(1)));
  EXPECT_FALSE(value_of(has_images(*store, record.entries[0])));
  must(store->put_image(sample_image(1001)));
  EXPECT_TRUE(value_of(has_images(*store, record.entries[0])));
}

TEST_P(AnyStore, DropsTheOldestTrialsAboveTheirShare) {
  auto store = this->store(160'000);  // 10,000 for trials
  const Digest old = sample_digest(1), now = sample_digest(2);
  const std::string body(990, 'x');
  for (int i = 10; i < 15; ++i) must(store->put_trial({"new " + std::to_string(i), body, now}));
  for (int i = 10; i < 15; ++i) must(store->put_trial({"old " + std::to_string(i), body, old}));
  for (int i = 15; i < 22; ++i) must(store->put_trial({"new " + std::to_string(i), body, now}));
  std::string left;
  must(store->each_trial([&](const StoredTrial& trial) {
    left += trial.id + ", ";
    return true;
  }));
  EXPECT_EQ(left, "new 13, new 14, new 15, new 16, new 17, new 18, new 19, new 20, new 21, ");
  auto statistics = value_of(store->statistics());
  EXPECT_EQ(statistics.trials, 9u);
  EXPECT_EQ(statistics.evicted_trials, 8u);
  EXPECT_EQ(statistics.trial_bytes, 9 * (990 + 6u));
  // What trials hold is not there for images.
  must(store->put_image(sample_image(1, 148'000)));
  must(store->put_image(sample_image(2, 5'000)));
  EXPECT_EQ(images_in(*store, 1, 2), "2 ");
  EXPECT_LE(value_of(store->statistics()).bytes, 160'000u);
  auto refused = store->put_trial({"huge", std::string(10'000, 'x'), now});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("trial huge has 10004 bytes, expected at most 10000: a "
                                         "sixteenth of the cap of 160000"),
            std::string::npos)
      << refused.error().message;
}

TEST_P(AnyStore, ASnapshotSeesNothingOfWhatComesLater) {
  auto store = this->store(500'000);
  Record record = sample_record(1);
  auto put = [&](Record& fresh) { fresh = record; };
  must(store->update(record.key, put, some_images({1, 2, 1001, 1002}, 100'000)));
  auto snapshot = value_of(store->snapshot());
  must(store->put_images(some_images({11, 12, 13, 14}, 110'000)));
  must(store->put(sample_record(5)));
  must(store->update(record.key, [](Record& known) { known.entries.pop_back(); }));
  EXPECT_EQ(images_in(*store, 1, 2000), "11 12 13 14 ");
  std::vector<Record> seen;
  must(snapshot->each([&](const Record& one) {
    seen.push_back(one);
    return true;
  }));
  EXPECT_EQ(seen, std::vector<Record>{record});
  for (int i : {1, 2, 1001, 1002}) {
    auto image = value_of(snapshot->image(sample_digest(i)));
    ASSERT_TRUE(image) << i;
    EXPECT_TRUE(same(*image, sample_image(i, 100'000)));
  }
  EXPECT_FALSE(value_of(snapshot->image(sample_digest(11))));
}

TEST_P(AnyStore, ServesReadersWhileAWriterWrites) {
  auto store = this->store();
  Record record = sample_record(1);
  must(store->put(record));
  must(store->put_image(sample_image(1)));
  std::atomic<bool> stop{false};
  std::atomic<int> reads{0}, wrong{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      while (!stop) {
        auto got = store->get(record.key);
        auto image = store->image(sample_digest(1));
        if (!got || !*got || (*got)->entries.empty() || !image || !*image) ++wrong;
        ++reads;
      }
    });
  }
  for (int i = 0; i < 50 || reads < 100; ++i) {
    must(store->update(record.key, [&](Record& known) { known.entries[0].evidence.tried = i; }));
    must(store->put_image(sample_image(1, 1000)));
  }
  stop = true;
  for (auto& reader : readers) reader.join();
  EXPECT_EQ(wrong, 0);
}

TEST(RocksStore, KeepsEverythingOverARestart) {
  TemporaryFolder folder;
  Record record = sample_record(1);
  {
    auto store = open_store(folder.path());
    must(store->put(record));
    must(store->put_image(sample_image(1, 100'000)));
    must(store->put_trial({"a", "{1}"}));
  }
  auto store = open_store(folder.path());
  EXPECT_EQ(value_of(store->get(record.key)), record);
  EXPECT_TRUE(same(*value_of(store->image(sample_digest(1))), sample_image(1, 100'000)));
  EXPECT_EQ(value_of(store->trial("a"))->body, "{1}");
  auto statistics = value_of(store->statistics());
  EXPECT_EQ(statistics.records, 1u);
  EXPECT_EQ(statistics.images, 1u);
  EXPECT_EQ(statistics.trials, 1u);
}

TEST(RocksStore, ASecondOwnerIsToldWhoTheFirstIs) {
  TemporaryFolder folder;
  auto first = open_store(folder.path());
  for (int attempt = 0; attempt < 2; ++attempt) {
    auto second = open_rocks_store({folder.path()});
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code, ErrorCode::kBusy);
    EXPECT_EQ(second.error().message, "cache " + folder.path().string() + " is in use by process " +
                                          std::to_string(getpid()));
  }
  std::thread ending([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    first.reset();
  });
  EXPECT_TRUE(open_rocks_store({folder.path(), 1 << 30, std::chrono::seconds(10)}));
  ending.join();
  first.reset();
  EXPECT_TRUE(open_rocks_store({folder.path()}));
}

TEST(RocksStore, AnOwnerThatDiedHoldsNothing) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer starts no threads after a fork";
#endif
  TemporaryFolder folder;
  pid_t child = fork();
  if (child == 0) {
    auto store = open_rocks_store({folder.path()});
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_TRUE(open_rocks_store({folder.path()}));
}

TEST(RocksStore, EvictsTheLeastRecentlyUsedAboveItsCap) {
  TemporaryFolder folder;
  auto store = open_store(folder.path(), 1'000'000);
  for (int i = 1; i <= 9; ++i) must(store->put_image(sample_image(i, 100'000)));
  EXPECT_EQ(value_of(store->statistics()).evicted_images, 0u);
  value_of(store->image(sample_digest(1)));
  for (int i = 10; i <= 12; ++i) must(store->put_image(sample_image(i, 100'000)));
  std::string left;
  for (int i = 1; i <= 12; ++i)
    if (value_of(store->image(sample_digest(i)))) left += std::to_string(i) + " ";
  EXPECT_EQ(left, "1 5 6 7 8 9 10 11 12 ");
  auto statistics = value_of(store->statistics());
  EXPECT_EQ(statistics.evicted_images, 3u);
  EXPECT_EQ(statistics.images, 9u);
  EXPECT_LE(statistics.bytes, statistics.cap_bytes);
}

TEST(RocksStore, EvictsWhatARecordNamesLast) {
  TemporaryFolder folder;
  Record record = sample_record(1);  // names 1, 1001, 2 and 1002
  {
    auto store = open_store(folder.path(), 1'000'000);
    must(store->put_image(sample_image(1, 100'000)));
    must(store->put_image(sample_image(2, 100'000)));
    must(store->put(record));
    for (int i = 10; i < 17; ++i) must(store->put_image(sample_image(i, 100'000)));
  }
  // What is named is known after a restart too.
  auto store = open_store(folder.path(), 1'000'000);
  for (int i = 17; i < 24; ++i) must(store->put_image(sample_image(i, 100'000)));
  EXPECT_TRUE(value_of(store->image(sample_digest(1))));
  EXPECT_TRUE(value_of(store->image(sample_digest(2))));
  must(store->erase(record.key.problem));
  for (int i = 24; i < 32; ++i) must(store->put_image(sample_image(i, 100'000)));
  EXPECT_FALSE(value_of(store->image(sample_digest(1)))) << "named no more, and the oldest";
}

TEST(RocksStore, ARecordOutlivesItsImages) {
  TemporaryFolder folder;
  auto store = open_store(folder.path(), 300'000);
  must(store->put_image(sample_image(1, 100'000)));
  must(store->put(sample_record(1)));
  for (int i = 10; i < 15; ++i) must(store->put_image(sample_image(i, 250'000)));
  EXPECT_FALSE(value_of(store->image(sample_digest(1))));
  EXPECT_EQ(value_of(store->get(sample_record(1).key)), sample_record(1));
}

TEST(RocksStore, TrialsKeepTheirOrderOverARestart) {
  TemporaryFolder folder;
  const std::string body(990, 'x');
  auto put = [&](Store& store, const char* id) {
    must(store.put_trial({id, body, sample_digest(1)}));
  };
  {
    auto store = open_store(folder.path(), 64'000);  // 4,000 for trials
    for (const char* id : {"d", "c", "b"}) put(*store, id);
  }
  auto store = open_store(folder.path(), 64'000);
  EXPECT_EQ(value_of(store->statistics()).trial_bytes, 3 * 991u);
  for (const char* id : {"a", "e"}) put(*store, id);
  EXPECT_FALSE(value_of(store->trial("d")));
  EXPECT_FALSE(value_of(store->trial("c"))) << "a sixteenth is made free too";
  EXPECT_TRUE(value_of(store->trial("b")));
}

/// Readers of images need the index only: they do not wait while a writer syncs its disk, or while
/// a change takes its time.
TEST(RocksStore, ReadsImagesWhileARecordIsBeingChanged) {
  TemporaryFolder folder;
  auto store = open_store(folder.path());
  for (int i = 0; i < 100; ++i) must(store->put_image(sample_image(i, 100)));
  must(store->update(sample_record(1).key, [&](Record& record) {
    std::thread reader([&] {
      for (int i = 0; i < 100; ++i) value_of(store->image(sample_digest(i)));
    });
    reader.join();
    record.generator = sample_digest(1);
  }));
}

TEST(RocksStore, TellsWhatItKeepsOnceItIsKept) {
  TemporaryFolder folder;
  RocksOptions options{folder.path()};
  std::string told;
  options.trace = [&](const std::string& message) { told += message + "\n"; };
  auto store = value_of(open_rocks_store(options));
  must(store->put_trial({"a", "{}", {}}));
  must(store->put(sample_record(1)));
  EXPECT_EQ(told, "trial a is kept as " + digest_of("{}").hex() + "\nrecord " +
                      sample_record(1).key.problem.hex() + " is kept as " +
                      digest_of(pack(sample_record(1))).hex() + "\n");
}

TEST(RocksStore, EvictedBytesLeaveTheDisk) {
  TemporaryFolder folder;
  auto store = open_store(folder.path(), 400'000);
  for (int i = 0; i < 30; ++i) must(store->put_image(sample_image(i, 100'000)));
  std::uintmax_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder.path()))
    if (entry.is_regular_file() && entry.path().extension() != ".log") bytes += entry.file_size();
  EXPECT_LT(bytes, 1'200'000u);
}

TEST(RocksStore, AnImageAboveTheCapIsRefused) {
  TemporaryFolder folder;
  auto store = open_store(folder.path(), 1000);
  auto put = store->put_image(sample_image(1, 2000));
  ASSERT_FALSE(put);
  EXPECT_EQ(put.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(put.error().message.find("the cap of 1000 less"), std::string::npos);
  EXPECT_EQ(value_of(store->statistics()).images, 0u);
}

/// Flips a byte in the middle of every file of that name or extension.
int damage(const fs::path& folder, const std::string& which) {
  int damaged = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    std::string name = entry.path().filename().string();
    if (name.find(which) == std::string::npos || entry.file_size() < 8) continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    auto at = std::streamoff(entry.file_size() / 2);
    file.seekg(at);
    char byte = char(file.get());
    file.seekp(at);
    file.put(char(byte ^ 0x55));
    ++damaged;
  }
  return damaged;
}

TEST(RocksStore, DamagedFilesAreAClearErrorAndNeverAWrongRecord) {
  for (std::string which : {".sst", ".blob", "MANIFEST", "CURRENT"}) {
    TemporaryFolder folder;
    {
      auto store = open_store(folder.path(), 800'000);
      for (int i = 1; i <= 5; ++i) must(store->put(sample_record(i)));
      // Evicting makes it flush, so that there are files to damage.
      for (int i = 1; i <= 10; ++i) must(store->put_image(sample_image(i, 100'000)));
    }
    { auto again = open_store(folder.path(), 800'000); }  // writes the log's rest to tables
    ASSERT_GT(damage(folder.path(), which), 0) << which;
    auto store = open_rocks_store({folder.path(), 800'000});
    Error error;
    if (!store) {
      error = store.error();
    } else {
      for (int i = 1; i <= 10 && error.message.empty(); ++i) {
        auto image = (*store)->image(sample_digest(i));
        if (!image) error = image.error();
        auto record = (*store)->get(sample_record(i).key);
        if (!record) error = record.error();
      }
    }
    EXPECT_EQ(error.code, ErrorCode::kCorrupt) << which << ": " << error.message;
    EXPECT_EQ(error.message.rfind("cache " + folder.path().string(), 0), 0u)
        << which << ": " << error.message;
  }
}

TEST(RocksStore, AFullDiskIsAnErrorBeforeAnythingIsWritten) {
  TemporaryFolder folder;
  RocksOptions options;
  options.folder = folder.path();
  options.keep_free_bytes = fs::space(folder.path()).capacity + (1 << 20);
  auto opened = open_rocks_store(options);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::kIo);
  EXPECT_NE(opened.error().message.find("the disk is full: "), std::string::npos);
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(RocksStore, AFolderThatCannotBeMadeIsAnError) {
  TemporaryFolder folder;
  std::ofstream(folder.path() / "file") << "x";
  auto store = open_rocks_store({folder.path() / "file" / "cache"});
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code, ErrorCode::kIo);
}

}  // namespace
}  // namespace tilewright::cache
